# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
from scipy import stats

from ggdp import GeneralizedGaussian, Laplace, noisy_argmax
from ggdp.selection import noisy_argmax as public_noisy_argmax
from ggdp.selection.noisy_argmax import _fair_argmax

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
    won = np.bincount(_fair_argmax(votes, rng()), minlength=3)
    assert won[2] == 0
    assert stats.binomtest(int(won[0]), 30_000, 0.5).pvalue > 1e-4
    assert stats.binomtest(int(np.sum(np.argmax(votes, axis=1) == 0)), 30_000, 0.5).pvalue < 1e-4


@pytest.mark.parametrize("exact", [True, False])
def test_both_ways_to_add_noise_elect_the_same_share(exact):
    counts = np.tile([3.0, 1.0, 0.5], (20_000, 1))
    share = np.mean(noisy_argmax(counts, Laplace(2.0), rng=rng(), exact=exact) == 0)
    assert share == pytest.approx(0.626, abs=0.02)


def test_counts_that_swallow_the_noise_are_refused():
    with pytest.raises(ValueError, match="lost in its rounding"):
        noisy_argmax([1e19, 1.0], Laplace(1.0))
