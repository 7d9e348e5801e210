# SPDX-License-Identifier: Apache-2.0
"""What noisy votes cost: against closed forms, brute force over outcomes, and measured values."""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from ggdp import AdditiveNoise, Adjacency, Composed, Gaussian, GeneralizedGaussian, Laplace, delta, epsilon
from ggdp.selection import NoisyArgmax, NoisyThreshold, win_probabilities


@functools.lru_cache
def claimed_delta(beta, scale, adjacency, eps):
    return delta(NoisyArgmax(GeneralizedGaussian(beta, scale), adjacency).as_mechanism(), epsilon=eps).upper


def analytic_gaussian_delta(eps, shift_over_std):
    """Balle and Wang 2018, Theorem 8."""
    half, over = shift_over_std / 2.0, eps / shift_over_std
    return stats.norm.cdf(half - over) - math.exp(eps) * stats.norm.cdf(-half - over)


def test_replacement_has_the_epsilon_measured_for_the_paper():
    # beta = 1.5, scale 1, delta 1e-6, shift (+1, -1): 5.589, measured by two other methods.
    found = NoisyArgmax(GeneralizedGaussian(1.5, 1.0), Adjacency.REPLACE).epsilon(delta=1e-6)
    assert round(found.estimate, 3) == 5.589
    assert found.width < 1e-4


def test_a_replaced_gaussian_vote_is_a_shift_of_square_root_two():
    mechanism = NoisyArgmax(Gaussian(std=3.0)).as_mechanism()
    for eps in (0.1, 1.0):
        truth = analytic_gaussian_delta(eps, math.sqrt(2.0) / 3.0)
        found = delta(mechanism, epsilon=eps)
        assert found.lower <= truth * (1 + 1e-12)
        assert truth * (1 - 1e-12) <= found.upper
        assert found.upper == pytest.approx(truth, rel=1e-5)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.ADD, Adjacency.REMOVE])
def test_a_voter_who_comes_or_goes_costs_one_coordinate(adjacency):
    noise = GeneralizedGaussian(1.3, 2.0)
    one = epsilon(AdditiveNoise(noise), delta=1e-6)
    assert NoisyArgmax(noise, adjacency).epsilon(delta=1e-6).upper == pytest.approx(one.upper, rel=1e-9)


def test_a_threshold_check_costs_one_coordinate_even_under_replacement():
    noise = GeneralizedGaussian(1.3, 2.0)
    one = epsilon(AdditiveNoise(noise), delta=1e-6)
    assert NoisyThreshold(noise).epsilon(delta=1e-6).upper == pytest.approx(one.upper, rel=1e-9)


@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("moved", [(1, -1, 0), (1, 0, 0), (0, -1, 0), (-1, 0, 1)])
def test_no_set_of_outcomes_tells_neighbours_apart_better_than_the_bound(beta, moved):
    # Brute force over every set of outcomes of three classes, with exact probabilities.
    noise = GeneralizedGaussian(beta, 1.5)
    replaced = sum(moved) == 0
    adjacency = Adjacency.REPLACE if replaced else Adjacency.ADD_REMOVE
    for counts in ([5.0, 5.0, 5.0], [8.0, 5.0, 1.0]):
        here = win_probabilities(counts, noise)
        there = win_probabilities(np.add(counts, moved), noise)
        for eps in (0.1, 0.8):
            gained = max(
                here[list(chosen)].sum() - math.exp(eps) * there[list(chosen)].sum()
                for size in (1, 2)
                for chosen in itertools.combinations(range(3), size)
            )
            assert gained <= claimed_delta(beta, 1.5, adjacency, eps) + 1e-10


def test_many_votes_are_a_composition():
    vote = NoisyArgmax(Laplace(scale=20.0))
    assert vote.as_mechanism(times=3) == Composed(AdditiveNoise(Laplace(20.0), 1.0, norm=1.0), times=6)
    assert vote.epsilon(delta=1e-6, times=9).upper > 1.5 * vote.epsilon(delta=1e-6).upper


def test_descriptions_check_their_arguments():
    with pytest.raises(ValueError, match="noise must be of type GeneralizedGaussian"):
        NoisyArgmax(2.0)
    with pytest.raises(ValueError, match="noise must be of type GeneralizedGaussian"):
        NoisyThreshold(2.0)
    with pytest.raises(ValueError, match="not a valid Adjacency"):
        NoisyArgmax(Laplace(1.0), "sideways")
