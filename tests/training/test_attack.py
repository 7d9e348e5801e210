# SPDX-License-Identifier: Apache-2.0
"""An attack on whole runs: was the canary among the training examples?

It never beats the claimed epsilon, and it does beat the claim of a build whose noise is half of what it says.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ggdp import GeneralizedGaussian
from ggdp.torch import add_noise_, make_private
from ggdp.training.randomness import Randomness

NUM_RUNS = 1000  # with the canary, and as many without
DELTA = 0.2  # so large that what a thousand runs can show is close to what is claimed
CONFIDENCE = 0.999
CANARY = [[1e3, 0.0, 0.0]]
OTHERS = [[0.0, 1e3, 0.0], [0.0, 0.0, -1e3]]


@dataclasses.dataclass(frozen=True)
class Setting:
    beta: float
    noise_multiplier: float
    rate: float
    steps: int


# With half the noise, the bound shown exceeds the claim by more than 4 of its standard deviations.
SETTINGS = [Setting(2.0, 0.8, 0.6, 2)]  # other exponents: tests/training/test_audit.py


def trained(setting, *, with_canary, seed):
    """NUM_RUNS runs from the same start: their plan, and every move of the weight that the canary pushes."""
    model = nn.Linear(3, 1, bias=False)
    data = torch.tensor((CANARY if with_canary else []) + OTHERS)
    total = setting.steps * NUM_RUNS
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        DataLoader(TensorDataset(data), batch_size=1),
        beta=setting.beta,
        clip_norm=1.0,
        noise_multiplier=setting.noise_multiplier,
        delta=DELTA,
        rate=setting.rate,
        steps=total,
        num_examples=3,  # public, and the same in both worlds
        generator=torch.Generator().manual_seed(seed),
    )
    seen = []

    def note(*_):
        """Every step is seen, also those of empty batches, which the loader has taken."""
        seen.append(-model.weight.grad[0, 0].item() * private.plan.expected_batch_size)
        if len(seen) % setting.steps == 0:
            nn.init.zeros_(model.weight)  # a new run

    nn.init.zeros_(model.weight)
    private.optimizer.register_step_post_hook(note)
    for (inputs,) in private.data_loader.batches(total):
        private.optimizer.zero_grad()
        (-model(inputs)).mean().backward()
        private.optimizer.step()
    return private.plan, np.reshape(seen[:total], (NUM_RUNS, setting.steps))


def evidence(plan, seen):
    """The log likelihood ratio of every run, for the noise that the plan promises."""
    loss = plan.noise.logpdf(seen - plan.clip_norm) - plan.noise.logpdf(seen)
    return np.log1p(plan.rate * np.expm1(loss)).sum(axis=1)


def epsilon_shown(inside, outside, *, delta=DELTA, confidence=CONFIDENCE):
    """The least epsilon at `delta` that explains how well runs with and without the canary are told apart.

    Some runs choose the threshold and the direction, the others count. Clopper and Pearson's intervals for
    the two error rates hold together with the given confidence, and
    P(A | inside) <= e^epsilon P(A | outside) + delta for every event A, also with inside and outside swapped.
    """
    first = 3 * len(inside) // 10
    thresholds = np.quantile(np.concatenate([inside[:first], outside[:first]]), np.linspace(0.02, 0.98, 49))

    def shown(above, threshold, inside, outside):
        likelier, rarer = (
            (inside > threshold, outside > threshold)
            if above
            else (outside <= threshold, inside <= threshold)
        )
        return _ratio(likelier.sum(), rarer.sum(), len(inside), delta, confidence)

    choices = [(above, threshold) for above in (True, False) for threshold in thresholds]
    best = max(choices, key=lambda choice: shown(*choice, inside[:first], outside[:first]))
    return shown(*best, inside[first:], outside[first:])


def _ratio(often, seldom, num, delta, confidence):
    error = (1.0 - confidence) / 2.0
    at_least = stats.beta.ppf(error, often, num - often + 1) if often else 0.0
    at_most = stats.beta.ppf(1.0 - error, seldom + 1, num - seldom) if seldom < num else 1.0
    return max(math.log((at_least - delta) / at_most), 0.0) if at_least > delta else 0.0


def attacked(setting, seed=2):
    plan, inside = trained(setting, with_canary=True, seed=seed)
    _, outside = trained(setting, with_canary=False, seed=seed + 1)
    return plan.epsilon(setting.steps).upper, epsilon_shown(evidence(plan, inside), evidence(plan, outside))


@pytest.fixture
def half_the_noise(monkeypatch):
    """A build that adds less noise than it says."""

    def weaker(own, tensors, noise):
        add_noise_(tensors, dataclasses.replace(noise, scale=noise.scale / 2.0), generator=own.noise)

    monkeypatch.setattr(Randomness, "add_noise_", weaker)


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_attack_never_beats_the_claimed_epsilon(setting):
    claimed, shown = attacked(setting)
    assert shown <= claimed


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.usefixtures("half_the_noise")
def test_the_attack_exposes_a_build_with_half_the_noise(setting):
    claimed, shown = attacked(setting)
    assert shown > claimed


def test_what_the_attack_shows_is_a_lower_bound_with_its_confidence():
    """Of the attack itself: Laplace noise shifted by 1 has epsilon 1 at delta = 0, exactly."""
    rng, law = np.random.default_rng(0), GeneralizedGaussian(1.0, 1.0)
    shown = [
        epsilon_shown(law.sample(400, rng=rng) + 1.0, law.sample(400, rng=rng), delta=0.0, confidence=0.9)
        for _ in range(50)
    ]
    assert sum(value > 1.0 for value in shown) <= 5 + 4 * math.sqrt(4.5)  # 10% of 50, four deviations more
    assert max(shown) > 0.6
