# SPDX-License-Identifier: Apache-2.0
"""Exact utilities against mpmath, closed forms and trials."""

import functools
import itertools

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from ggdp import Gaussian, GeneralizedGaussian, Laplace, noisy_argmax
from ggdp.selection import hardmax_utility, log_plurality_loss, win_probabilities
from ggdp.selection.win_probability import tabulated

NOISES = [(1.0, 4.0), (1.07, 9.0), (1.5, 3.0), (2.0, 7.0), (2.6, 5.0), (4.0, 12.0), (7.5, 10.0)]


COUNTS = (12.0, 10.0, 7.0)


@functools.lru_cache
def quadpack_wins(beta, scale):
    """Each class's integral by QUADPACK with SciPy's own distribution."""
    law = stats.gennorm(beta, scale=scale)
    reach = scale * 45.0 ** (1.0 / beta)

    def chance(i):
        def integrand(x):
            return law.pdf(x - COUNTS[i]) * np.prod([law.cdf(x - c) for c in np.delete(COUNTS, i)])

        ends = (COUNTS[0] - reach, *sorted(COUNTS), COUNTS[0] + reach)
        pieces = [
            integrate.quad(integrand, low, high, epsabs=1e-14, epsrel=1e-12)[0]
            for low, high in itertools.pairwise(ends)
        ]
        return sum(pieces)

    return [chance(i) for i in range(len(COUNTS))]


def mpmath_win(i, beta, scale):
    """The integral of class i by mpmath at 16 digits."""
    counts = COUNTS
    with mpmath.workdps(16):
        b, s = mpmath.mpf(beta), mpmath.mpf(scale)
        normaliser = 2 * s * mpmath.gamma(1 + 1 / b)

        def density(x):
            return mpmath.exp(-((abs(x) / s) ** b)) / normaliser

        def cdf(x):
            tail = mpmath.gammainc(1 / b, (abs(x) / s) ** b, mpmath.inf, regularized=True) / 2
            return tail if x < 0 else 1 - tail

        reach = s * mpmath.mpf(50) ** (1 / b)
        top = max(counts)
        ends = sorted({top - reach, *counts, top - reach / 4, top + reach / 4, top + reach})
        ends = [end for end in ends if end >= top - reach]
        others = [count for j, count in enumerate(counts) if j != i]
        return float(
            mpmath.quad(
                lambda x: density(x - counts[i]) * mpmath.fprod(cdf(x - count) for count in others), ends
            )
        )


@pytest.mark.parametrize(("beta", "scale"), [(1.5, 3.0), (2.6, 5.0)])
def test_the_probability_of_winning_is_that_of_mpmath(beta, scale):
    found = win_probabilities(COUNTS, GeneralizedGaussian(beta, scale))
    assert found[1] == pytest.approx(mpmath_win(1, beta, scale), abs=1e-11)


@pytest.mark.parametrize(("beta", "scale"), NOISES)
def test_probabilities_of_winning_are_those_of_quadpack(beta, scale):
    found = win_probabilities(COUNTS, GeneralizedGaussian(beta, scale))
    np.testing.assert_allclose(found, quadpack_wins(beta, scale), rtol=0.0, atol=1e-11)


@pytest.mark.parametrize(("beta", "scale"), NOISES)
def test_the_chance_of_losing_is_that_of_quadpack(beta, scale):
    _, second, third = quadpack_wins(beta, scale)
    found = np.exp(log_plurality_loss(COUNTS, GeneralizedGaussian(beta, scale)))
    assert found == pytest.approx(second + third, rel=1e-9)


@pytest.mark.parametrize("gap", [0.0, 3.0, 40.0, 150.0])
def test_two_gaussian_counts_are_the_normal_distribution_however_far_apart(gap):
    noise = Gaussian(std=11.0)
    log_truth = stats.norm.logsf(gap, scale=11.0 * np.sqrt(2.0))
    assert log_plurality_loss([gap, 0.0], noise) == pytest.approx(log_truth, rel=1e-9)
    assert win_probabilities([gap, 0.0], noise)[1] == pytest.approx(np.exp(log_truth), abs=1e-13)


def test_a_chance_too_small_to_compute_is_bounded_from_above():
    found = log_plurality_loss([4000.0, 0.0], Gaussian(std=11.0))
    assert stats.norm.logsf(4000.0, scale=11.0 * np.sqrt(2.0)) < found < -50.0


def test_probabilities_add_up_to_one():
    counts = np.random.default_rng(8).integers(0, 60, (200, 10))
    for beta, scale in NOISES:
        total = win_probabilities(counts, GeneralizedGaussian(beta, scale)).sum(axis=1)
        np.testing.assert_allclose(total, 1.0, rtol=0.0, atol=1e-10)


def test_permuted_classes_have_permuted_probabilities():
    rng = np.random.default_rng(9)
    counts = rng.integers(0, 30, (50, 6))
    order = rng.permutation(6)
    noise = GeneralizedGaussian(1.3, 4.0)
    np.testing.assert_array_equal(
        win_probabilities(counts[:, order], noise), win_probabilities(counts, noise)[:, order]
    )


def test_shifted_counts_win_alike():
    noise = GeneralizedGaussian(1.5, 4.0)
    counts = np.array([3.0, 1.0, 0.0])
    np.testing.assert_array_equal(win_probabilities(counts + 1000.0, noise), win_probabilities(counts, noise))


@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0, 3.0])
def test_trials_agree_and_would_notice_another_scale(beta):
    counts, num_trials = np.array([20.0, 17.0, 17.0, 3.0]), 200_000
    noise = GeneralizedGaussian(beta, 8.0)
    winners = noisy_argmax(np.tile(counts, (num_trials, 1)), noise, rng=np.random.default_rng(5))
    seen = np.bincount(winners, minlength=4)

    def pvalue(law):
        return stats.chisquare(seen, num_trials * win_probabilities(counts, law)).pvalue

    assert pvalue(noise) > 1e-4
    assert pvalue(GeneralizedGaussian(beta, 8.4)) < 1e-4
    assert pvalue(GeneralizedGaussian(beta, 7.6)) < 1e-4


def test_all_tied_winners_are_right():
    assert hardmax_utility([5.0, 5.0, 5.0], Laplace(2.0)) == pytest.approx(1.0, abs=1e-12)
    probs = win_probabilities([5.0, 5.0, 0.0], Laplace(2.0))
    assert hardmax_utility([5.0, 5.0, 0.0], Laplace(2.0)) == pytest.approx(probs[0] + probs[1], abs=1e-12)


def test_a_single_class_always_wins():
    assert win_probabilities([7.0], Laplace(2.0)).tolist() == pytest.approx([1.0], abs=1e-12)
    assert log_plurality_loss([7.0], Laplace(2.0)) == -np.inf


def test_one_histogram_and_a_batch_have_the_same_answers():
    noise = GeneralizedGaussian(1.5, 2.0)
    one = win_probabilities([3, 1], noise)
    assert one.shape == (2,)
    np.testing.assert_array_equal(win_probabilities([[3, 1], [3, 1]], noise), [one, one])
    assert hardmax_utility([[3, 1]], noise).shape == (1,)
    assert np.ndim(hardmax_utility([3, 1], noise)) == 0


@pytest.mark.parametrize("counts", [[], [[[1.0]]], [1.0, np.nan], ["a"]])
def test_counts_that_are_no_histogram_are_refused(counts):
    with pytest.raises(ValueError, match="counts must"):
        win_probabilities(counts, Laplace(1.0))


@pytest.mark.parametrize("beta", [1.0, 1.05, 1.5, 2.0, 3.7, 8.0])
def test_the_table_is_the_law(beta):
    law = GeneralizedGaussian(beta, 1.0)
    points = np.concatenate([np.geomspace(1e-9, 1.0, 500), np.linspace(1.0, 100.0 ** (1.0 / beta), 2000)])
    density, tail = tabulated(beta).density_and_tail(points)
    np.testing.assert_allclose(density, law.pdf(points), rtol=1e-12)
    np.testing.assert_allclose(
        tail, law.sf(points), rtol=4e-13 if beta <= 2.0 else 1e-11
    )  # sf itself is good to 2e-13
