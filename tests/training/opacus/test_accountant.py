# SPDX-License-Identifier: Apache-2.0
"""The accountant "ggdp": tighter than Opacus's, exact round trips, refusals."""

import copy
import json
import math
import warnings

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant, RDPAccountant, create_accountant
from opacus.accountants.utils import get_noise_multiplier
from opacus.data_loader import DPDataLoader
from torch.utils.data import TensorDataset

from ggdp import Accountant, AdditiveNoise, Composed, GeneralizedGaussian, PoissonSampled, epsilon
from ggdp.opacus import GGAccountant
from ggdp.training.opacus.sampling import probability_below

# What torch warns of, every time, on account of Opacus's hooks.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")

HISTORIES = [
    [(1.0, 0.01, 1000)],
    [(0.7, 0.004, 3000)],
    [(4.0, 0.2, 200)],
    [(1.1, 0.01, 400), (0.9, 0.02, 100)],
]


def test_a_change_of_the_history_is_recorded_as_with_opacus():
    """Opacus's history is the list itself; one that forgot what was appended would cost nothing."""
    ours, prv = GGAccountant(), PRVAccountant()
    kept = ours.history
    for accountant in (ours, prv):
        accountant.history.append((1.0, 0.01, 1000))
        accountant.history.extend([(2.0, 0.01, 10), (3.0, 0.01, 20)])
        accountant.history[1] = (2.0, 0.02, 50)
        assert tuple(accountant.history.pop())[:3] == (3.0, 0.01, 20)
        accountant.history += [(1.5, 0.02, 5)]
    assert [entry[:3] for entry in ours.history] == prv.history
    assert 1.8 < ours.get_epsilon(delta=1e-5) <= prv.get_epsilon(delta=1e-5)
    kept.append((4.0, 0.01, 1))  # a list from before holds what was recorded since
    assert ours.history[-1][:3] == (4.0, 0.01, 1)
    assert len(ours) == 1056
    with pytest.raises(ValueError, match=r"sample_rate must be a number in \(0, 1\]"):
        ours.history.append((1.0, 2.0, 5))
    copied = copy.deepcopy(ours.history)
    copied.clear()
    assert len(ours) == 1056


def test_an_epsilon_too_large_to_be_computed_is_infinite_so_that_opacus_search_goes_on():
    """Opacus halves the noise multiplier until epsilon is above the target, which may be far above it."""
    accountant = GGAccountant()
    accountant.history = [(0.05, 0.5, 1000)]
    assert accountant.get_epsilon(delta=1e-5) == math.inf


@pytest.mark.parametrize("history", HISTORIES)
def test_epsilon_is_at_most_that_of_opacus(history):
    ours, prv, rdp = GGAccountant(), PRVAccountant(), RDPAccountant()
    ours.history = prv.history = rdp.history = list(history)
    found = ours.epsilon(1e-5)
    assert found.upper <= prv.get_epsilon(delta=1e-5)
    assert found.upper <= rdp.get_epsilon(delta=1e-5)
    assert found.upper - found.lower < 1e-6


def test_a_step_is_priced_as_the_vector_release_it_is():
    accountant = GGAccountant()
    for _ in range(300):
        accountant.step(noise_multiplier=1.2, sample_rate=0.02, beta=1.5, norm=1.5, dimension=5000)
    noise = GeneralizedGaussian.from_noise_multiplier(1.5, 1.2)
    step = PoissonSampled(AdditiveNoise(noise, norm=1.5, dimension=5000), 0.02)
    assert accountant.get_epsilon(1e-5) == epsilon(Composed(step, times=300), delta=1e-5).upper
    assert len(accountant) == 300


def test_a_rate_of_one_is_no_sampling():
    accountant = GGAccountant()
    accountant.step(noise_multiplier=3.0, sample_rate=1.0)
    expected = epsilon(AdditiveNoise(GeneralizedGaussian(2.0, 3.0 * math.sqrt(2.0))), delta=1e-5)
    assert accountant.get_epsilon(1e-5) == expected.upper


@pytest.mark.filterwarnings("ignore:Optimal order is")  # of the Renyi orders that Opacus tries
def test_the_name_ggdp_works_in_opacus_own_engine_and_calibration():
    assert isinstance(create_accountant("ggdp"), GGAccountant)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Secure RNG turned off")
        engine = PrivacyEngine(accountant="ggdp")
    assert isinstance(engine.accountant, GGAccountant)
    options = {"target_epsilon": 2.0, "target_delta": 1e-5, "sample_rate": 0.01, "steps": 1000}
    assert get_noise_multiplier(accountant="ggdp", **options) <= get_noise_multiplier(
        accountant="prv", **options
    )


def opacus_run():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Secure RNG turned off")
        engine = PrivacyEngine(accountant="ggdp")
    net = torch.nn.Linear(3, 1)
    data = torch.utils.data.DataLoader(TensorDataset(torch.randn(40, 3), torch.randn(40, 1)), batch_size=10)
    return engine, *engine.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=data,
        noise_multiplier=1.5,
        max_grad_norm=1.0,
    )


def test_the_hook_counts_what_opacus_own_optimizer_does():
    engine, model, optimizer, loader = opacus_run()
    for x, y in loader:
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
    (entry,) = engine.accountant.history
    assert entry == (pytest.approx(1.5), 0.25, 4, 2.0, 2.0, 4, None)


def test_the_hook_refuses_batches_that_opacus_would_accumulate():
    engine, model, optimizer, loader = opacus_run()
    model.allow_grad_accumulation()
    for x, y in list(loader)[:2]:
        ((model(x) - y) ** 2).mean().backward()
    with pytest.raises(ValueError, match="one step must come from one batch, got 2"):
        optimizer.step()
    assert len(engine.accountant) == 0


def mixed():
    accountant = GGAccountant()
    accountant.step(noise_multiplier=1.2, sample_rate=0.02, beta=1.5, norm=math.inf, dimension=50)
    accountant.step(noise_multiplier=1.2, sample_rate=0.02, beta=1.5, norm=math.inf, dimension=50)
    accountant.step(noise_multiplier=0.77, sample_rate=0.01)
    accountant.step(noise_multiplier=0.0, sample_rate=0.01)
    return accountant


def test_a_state_comes_back_exactly_through_json():
    text = json.dumps(mixed().state_dict(), allow_nan=False)
    loaded = GGAccountant()
    loaded.load_state_dict(json.loads(text))
    assert loaded.state_dict() == mixed().state_dict()
    assert loaded.history == mixed().history
    assert len(loaded) == 4


def test_a_step_without_noise_costs_everything():
    assert GGAccountant().get_epsilon(1e-5) == 0.0
    assert mixed().get_epsilon(1e-5) == math.inf


@pytest.mark.parametrize("kind", ["rdp", "prv", "gdp"])
def test_a_history_of_opacus_is_taken_over(kind):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GDP accounting is experimental")
        theirs = create_accountant(kind)
    theirs.history = [(1.0, 0.01, 500)]
    ours = GGAccountant()
    ours.load_state_dict(json.loads(json.dumps(theirs.state_dict())))
    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(2.0, math.sqrt(2.0))), 0.01)
    assert ours.ledger.mechanism == Composed(step, times=500)
    ours.load_state_dict({"mechanism": kind, "history": []})
    assert len(ours) == 0


def other(**changes):
    return {**mixed().state_dict(), **changes}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (None, "state_dict must be of type Mapping"),
        ({}, "mechanism must be one of ggdp, rdp, prv, gdp"),
        (other(mechanism="moments"), "mechanism must be one of"),
        ({"mechanism": "ggdp", "history": []}, "state_dict must have the fields"),
        (other(history=mixed().state_dict()["history"][:1]), "two records disagree"),
        (other(steps_without_price=[]), "two records disagree"),
        (other(ledger={}), "state must have the fields"),
        (other(ledger=Accountant(epsilon=1.0, delta=1e-5).state_dict()), "without a budget"),
        (other(history=3), "history must be of type list"),
        (other(history=[3]), "two records disagree"),
        (other(steps_without_price=3), "steps_without_price must be of type list"),
        (other(steps_without_price=[[1.0]]), "steps_without_price must hold"),
        (other(steps_without_price=[[[], 0.1, 1]]), "noise_multiplier must be"),
        ({"mechanism": "prv"}, "state must have the field 'history'"),
        ({"mechanism": "prv", "history": None}, "history must be of type list"),
        ({"mechanism": "prv", "history": [(1.0, 0.1)]}, "each entry of history"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(state, reason):
    accountant = GGAccountant()
    accountant.step(noise_multiplier=1.0, sample_rate=0.1)
    before = accountant.state_dict()
    with pytest.raises(ValueError, match=reason):
        accountant.load_state_dict(state)
    assert accountant.state_dict() == before


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"noise_multiplier": 1.0, "sample_rate": 0.0}, "sample_rate must be"),
        ({"noise_multiplier": 1e-4, "sample_rate": 0.1}, "noise_multiplier must be"),
        ({"noise_multiplier": 1.0, "sample_rate": 0.1, "beta": 0.9}, "beta must be"),
    ],
)
def test_a_step_without_a_certified_price_is_refused(step, reason):
    accountant = GGAccountant()
    with pytest.raises(ValueError, match=reason):
        accountant.step(**step)
    assert len(accountant) == 0


def test_the_probability_of_a_float32_uniform_below_a_rate_is_never_understated():
    """Every multiple of 2^-24 near the threshold, compared as the sampler compares."""
    for rate in [1e-6, 1e-3, 1 / 3, 0.1, 0.7, 1 / 93, 2**-10, 1.0]:
        nearest = round(rate * 2**24)
        ticks = torch.arange(max(nearest - 2000, 0), min(nearest + 2000, 2**24), dtype=torch.float64)
        below = int((ticks / 2**24).to(torch.float32).lt(rate).sum()) + max(nearest - 2000, 0)
        assert below / 2**24 <= probability_below(rate) <= (below + 1) / 2**24


def test_opacus_uniforms_lie_on_that_lattice():
    drawn = torch.rand(1 << 18, generator=torch.Generator().manual_seed(0)) * 2.0**24
    assert np.array_equal(drawn.numpy(), np.round(drawn.numpy()))
    loader = DPDataLoader(TensorDataset(torch.zeros(100, 1)), sample_rate=0.25)
    assert loader.batch_sampler.sample_rate == 0.25
