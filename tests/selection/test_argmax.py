# SPDX-License-Identifier: Apache-2.0
"""Noisy votes: who wins, and what it costs, against closed forms, brute force over outcomes, and measured
values."""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    delta,
    epsilon,
    noisy_argmax,
)
from ggdp.selection import NoisyArgmax, NoisyThreshold, win_probabilities
from ggdp.selection import noisy_argmax as public_noisy_argmax
from ggdp.selection.argmax import _fair_argmax


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


QUIET = GeneralizedGaussian(beta=1.5, scale=1e-3)


def rng():
    return np.random.default_rng(99)


def test_quiet_noise_finds_the_true_winner_of_every_histogram():
    counts = np.random.default_rng(4).permuted(np.tile(np.arange(10), (5000, 1)), axis=1)
    np.testing.assert_array_equal(noisy_argmax(counts, QUIET, rng=rng()), np.argmax(counts, axis=1))


def test_one_histogram_gives_an_int_and_a_batch_an_array():
    assert noisy_argmax([1, 50, 3], QUIET, rng=rng()) == 1
    assert type(noisy_argmax([1, 50, 3], QUIET, rng=rng())) is int
    batch = noisy_argmax([[1, 50, 3]], QUIET, rng=rng())
    assert batch.shape == (1,)
    assert batch.dtype == np.int64


def test_a_single_class_always_wins():
    assert noisy_argmax([7.0], Laplace(5.0), rng=rng()) == 0
    np.testing.assert_array_equal(noisy_argmax(np.zeros((4, 1)), Laplace(5.0), rng=rng()), np.zeros(4))


def test_equal_counts_win_equally_often():
    winners = noisy_argmax(np.zeros((60_000, 6)), Laplace(1.0), rng=rng())
    assert stats.chisquare(np.bincount(winners, minlength=6)).pvalue > 1e-4


def test_the_chance_of_the_winner_is_the_closed_form_and_not_that_of_another_scale():
    gap, num_queries = 3.0, 400_000

    def chance(scale):  # P(Laplace - Laplace < gap)
        ratio = gap / scale
        return 1.0 - 0.5 * (1.0 + ratio / 2.0) * math.exp(-ratio)

    counts = np.tile([gap, 0.0], (num_queries, 1))
    wins = int(np.sum(noisy_argmax(counts, Laplace(scale=2.0), rng=rng()) == 0))
    assert stats.binomtest(wins, num_queries, chance(2.0)).pvalue > 1e-4
    assert stats.binomtest(wins, num_queries, chance(2.06)).pvalue < 1e-4
    assert stats.binomtest(wins, num_queries, chance(1.94)).pvalue < 1e-4


def test_rows_beyond_one_chunk_are_answered_in_order():
    counts = np.zeros((3, 700_001))
    counts[[0, 1, 2], [5, 700_000, 0]] = 1.0
    np.testing.assert_array_equal(noisy_argmax(counts, QUIET, rng=rng()), [5, 700_000, 0])


def test_without_a_generator_choices_vary():
    assert len(set(noisy_argmax(np.zeros((200, 50)), Laplace(1.0)).tolist())) > 10


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([], "counts must hold at least one number"),
        (np.zeros((3, 0)), "counts must hold at least one number"),
        (5.0, r"counts must have shape \[classes\] or \[queries, classes\], got \(\)"),
        (np.zeros((2, 2, 2)), r"got \(2, 2, 2\)"),
        ([1.0, math.nan], "counts must hold finite numbers only, got nan at position 1"),
        (["a", "b"], "counts must hold real numbers, got text such as 'a'"),
    ],
    ids=["empty", "no-classes", "number", "cube", "nan", "text"],
)
def test_counts_that_are_no_histogram_are_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        noisy_argmax(counts, QUIET, rng=rng())


def test_noise_and_generator_are_checked():
    with pytest.raises(ValueError, match="noise must be of type GeneralizedGaussian"):
        noisy_argmax([1, 2], 3.0, rng=rng())
    with pytest.raises(ValueError, match="rng must be of type"):
        noisy_argmax([1, 2], QUIET, rng=3)


def test_the_room_and_the_package_offer_the_same_function():
    assert public_noisy_argmax is noisy_argmax


def test_ties_on_the_grid_are_broken_fairly_and_the_first_does_not_win_them_all():
    votes = np.zeros((30_000, 3), dtype=np.int64)
    votes[:, 2] = -1
    won = np.bincount(_fair_argmax(votes, np.random.default_rng(99)), minlength=3)
    assert won[2] == 0
    assert stats.binomtest(int(won[0]), 30_000, 0.5).pvalue > 1e-4
    assert stats.binomtest(int(np.sum(np.argmax(votes, axis=1) == 0)), 30_000, 0.5).pvalue < 1e-4


@pytest.mark.parametrize("exact", [True, False])
def test_both_ways_to_add_noise_elect_the_same_share(exact):
    counts = np.tile([3.0, 1.0, 0.5], (20_000, 1))
    share = np.mean(noisy_argmax(counts, Laplace(2.0), rng=np.random.default_rng(99), exact=exact) == 0)
    assert share == pytest.approx(0.626, abs=0.02)


def test_counts_that_swallow_the_noise_are_refused():
    with pytest.raises(ValueError, match="lost in its rounding"):
        noisy_argmax([1e19, 1.0], Laplace(1.0))
