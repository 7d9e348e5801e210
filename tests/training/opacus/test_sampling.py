# SPDX-License-Identifier: Apache-2.0
"""GGPrivacyEngine(sampling=...): the loader draws what the accountant counts."""

import json

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ggdp import Sampling
from ggdp.opacus import GGAccountant, GGPrivacyEngine
from ggdp.training.plan import plan_training

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


def private(sampling, secure_mode=False, **settings):
    engine = GGPrivacyEngine(sampling=sampling, secure_mode=secure_mode)
    loader = DataLoader(
        TensorDataset(torch.arange(30.0).unsqueeze(1) / 30.0, torch.arange(30) % 2),
        batch_size=6,
        generator=torch.Generator().manual_seed(3),
    )
    model = nn.Linear(1, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"module": model, "optimizer": optimizer, "data_loader": loader, "max_grad_norm": 1.0}
    make = engine.make_private_with_epsilon if "target_epsilon" in settings else engine.make_private
    return engine, *make(**given, **settings)


def trained(engine, model, optimizer, loader, passes):
    for _ in range(passes):
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return engine


KINDS = {
    "fixed-size": "fixed-size:6/30",
    "with-replacement": "with-replacement:6/30",
    "truncated-poisson": "truncated-poisson:0.2/30/30",
    "fixed-size:10/30": "fixed-size:10/30",
}


@pytest.mark.parametrize("sampling", KINDS)
def test_the_history_is_what_the_same_plan_costs(sampling):
    run = private(sampling, noise_multiplier=4.0)
    engine = trained(*run, passes=2)
    plan = plan_training(
        clip_norm=1.0, num_examples=30, dimension=4, delta=1e-5, beta=2.0, noise_multiplier=4.0,
        steps=2 * len(run[3]), sampling=Sampling.parse(KINDS[sampling]),
    )  # fmt: skip
    (entry,) = engine.accountant.history
    assert (entry.sampling, entry.num_steps) == (KINDS[sampling], plan.steps)
    assert engine.get_epsilon(1e-5) == pytest.approx(plan.epsilon().upper, rel=1e-6)
    assert run[2].expected_batch_size == pytest.approx(plan.expected_batch_size)
    again = GGAccountant()
    again.load_state_dict(json.loads(json.dumps(engine.accountant.state_dict())))
    assert again.history == engine.accountant.history
    assert again.get_epsilon(1e-5) == engine.get_epsilon(1e-5)


def together(loader, passes):
    """How often examples 0 and 1 were in one batch, and how many batches there were."""
    found = [
        np.isin([0, 1], (30 * inputs).round().long().numpy()).all()
        for _ in range(passes)
        for inputs, _ in loader
    ]
    return int(sum(found)), len(found)


def test_the_loader_draws_the_law_that_is_counted_and_not_another():
    *_, loader = private("fixed-size:15/30", noise_multiplier=4.0)
    count, batches = together(loader, 1500)
    assert stats.binomtest(count, batches, 15 * 14 / (30 * 29)).pvalue > 1e-3
    *_, loader = private("with-replacement:15/30", secure_mode=True, noise_multiplier=4.0)
    count, batches = together(loader, 300)
    both = 1 - 2 * (29 / 30) ** 15 + (28 / 30) ** 15
    assert stats.binomtest(count, batches, both).pvalue > 1e-3
    assert stats.binomtest(count, batches, 15 * 14 / (30 * 29)).pvalue < 1e-3


def test_a_target_is_met_closely():
    run = private("fixed-size", target_epsilon=3.0, target_delta=1e-5, epochs=2)
    engine = trained(*run, passes=2)
    assert 2.98 < engine.get_epsilon(1e-5) <= 3.0


@pytest.mark.parametrize(
    ("sampling", "settings", "told"),
    [
        ("allocation", {}, "an epoch of such batches is one release"),
        ("shuffled:5", {}, "an epoch of such batches is one release"),
        ("sorted", {}, "sampling must be one of"),
        ("fixed-size:6/31", {}, "sampling must be of the 30 examples"),
        ("fixed-size:60/30", {}, "sample_size must be"),
        ("fixed-size", {"poisson_sampling": False}, "poisson_sampling must be left out"),
        ("with-replacement", {"beta": 1.5}, "beta"),
    ],
)
@pytest.mark.filterwarnings("ignore:no epsilon is proved")
def test_what_the_engine_cannot_hold_is_refused_with_a_way_out(sampling, settings, told):
    with pytest.raises(ValueError, match=told):
        private(sampling, noise_multiplier=4.0, **settings)
