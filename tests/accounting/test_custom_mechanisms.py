# SPDX-License-Identifier: Apache-2.0
"""Described mechanisms beside others: classes of one's own, ledgers, plain data, what is refused."""

import json
import math
from dataclasses import dataclass

import pytest

from accounting.custom_examples import KNOWN_GAUSSIAN, RESPONSE, TRUNCATED, holds
from ggdp import (
    Accountant,
    AdditiveNoise,
    Adjacency,
    Composed,
    Gaussian,
    PoissonSampled,
    delta,
    epsilon,
)
from ggdp.mechanisms import CustomMechanism
from ggdp.mechanisms.custom import GaussianMixtureNoise
from ggdp.privacy_loss.cells import Cells
from ggdp.privacy_loss.custom import (
    DensityNoise,
    OutcomeProbabilities,
    cells_of,
)
from ggdp.privacy_loss.density import Density, Mixture


@dataclass(frozen=True)
class Lottery(CustomMechanism):
    """Reveals the record with a small probability, and otherwise says nothing."""

    chance: float


@cells_of.register
def _(mechanism: Lottery) -> Cells:
    return cells_of(OutcomeProbabilities((mechanism.chance, 1.0 - mechanism.chance), (0.0, 1.0)))


class Stranger:
    """A class that inherits from nothing here."""


def test_a_class_of_ones_own_needs_no_change_of_the_library():
    ticket = Lottery(chance=1e-4)
    holds(delta(Composed(ticket, times=10), epsilon=1.0), -math.expm1(10 * math.log1p(-1e-4)), 1e-10)
    sampled = delta(PoissonSampled(ticket, 0.5), epsilon=1.0, adjacency=Adjacency.REMOVE)
    holds(sampled, 0.5e-4, 1e-10)
    together = delta(Composed([(ticket, 1), (KNOWN_GAUSSIAN, 1)]), epsilon=4.0)
    # without a prize P keeps 1 - chance of its mass, and the loss is smaller by that much
    alone = delta(KNOWN_GAUSSIAN, epsilon=4.0 - math.log1p(-1e-4))
    holds(together, 1e-4 + (1.0 - 1e-4) * alone.estimate, 1e-4)


def test_a_class_that_cannot_inherit_is_registered_from_outside():
    with pytest.raises(ValueError, match="mechanism must be"):
        Composed(Stranger(), times=2)
    CustomMechanism.register(Stranger)
    with pytest.raises(ValueError, match="register a function that takes a Stranger"):
        epsilon(Stranger(), delta=1e-6)
    cells_of.register(Stranger, lambda _: cells_of(RESPONSE))
    holds(epsilon(Stranger(), delta=1e-6), math.log((0.75 - 1e-6) / 0.25), 1e-12)


def test_a_described_mechanism_that_costs_nothing_costs_nothing():
    same = OutcomeProbabilities((0.5, 0.5), (0.5, 0.5))
    found = epsilon(Composed(same, times=3), delta=1e-6)
    assert found.lower == 0.0
    assert found.upper < 1e-13


def test_a_ledger_counts_described_releases_and_keeps_to_its_budget():
    ledger = Accountant(epsilon=20.0, delta=1e-6)
    ledger.spend(RESPONSE, times=5)
    fits = ledger.remaining(RESPONSE)
    most, too_many = (Composed(RESPONSE, times=5 + fits + k) for k in (0, 1))
    assert epsilon(most, delta=1e-6).upper <= 20.0 < epsilon(too_many, delta=1e-6).upper
    ledger.step(KNOWN_GAUSSIAN)
    both = Composed([(RESPONSE, 5), (KNOWN_GAUSSIAN, 1)])
    assert ledger.epsilon(delta=1e-6).upper == epsilon(both, delta=1e-6).upper
    copy = Accountant.from_state_dict(json.loads(json.dumps(ledger.state_dict())))
    assert copy.epsilon(delta=1e-6) == ledger.epsilon(delta=1e-6)
    ledger.step(TRUNCATED)
    with pytest.raises(ValueError, match="lives in memory"):
        ledger.state_dict()


def test_a_mixture_of_gaussians_as_plain_data_costs_what_its_density_costs():
    plain = GaussianMixtureNoise((0.5, 0.5), (-1.0, 1.0), (1.0, 1.0), shift=0.8)

    def bump(centre):
        return Density(lambda x: -0.5 * (x - centre) ** 2 - 0.5 * math.log(2.0 * math.pi))

    described = DensityNoise(Mixture((0.5, 0.5), (bump(-1.0), bump(1.0))), shift=0.8)
    for run in (lambda step: step, lambda step: Composed(PoissonSampled(step, 0.1), times=20)):
        assert epsilon(run(plain), delta=1e-6) == epsilon(run(described), delta=1e-6)
    gaussian = GaussianMixtureNoise((1.0,), (3.0,), (2.0,), shift=1.0)
    holds(epsilon(gaussian, delta=1e-6), epsilon(AdditiveNoise(Gaussian(2.0)), delta=1e-6).estimate, 1e-6)


def test_methods_for_vectors_are_refused_for_custom_mechanisms():
    for ask in (
        lambda: epsilon(RESPONSE, delta=1e-6, method="scanned"),
        lambda: delta(RESPONSE, epsilon=1.0, method="one-coordinate"),
    ):
        with pytest.raises(ValueError, match="method must be left out for a custom mechanism"):
            ask()


def test_randomized_response_fits_a_pure_budget_up_to_its_largest_loss():
    ledger = Accountant(epsilon=3.5 * math.log(3.0), delta=0.0)
    assert ledger.remaining(RESPONSE) == 3
    assert ledger.remaining(TRUNCATED) == 0
