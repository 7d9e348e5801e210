# SPDX-License-Identifier: Apache-2.0
"""Corners of the accountant: few releases, little noise, neighbours of closed forms, the ends of delta."""

import math
import random
import warnings

import mpmath
import numpy as np
import pytest

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    OutcomeProbabilities,
    PoissonSampled,
    delta,
    epsilon,
    renyi_divergence,
)
from ggdp.accounting.engines import contour, moments
from ggdp.accounting.engines.tilt import TiltPlan
from ggdp.accounting.steps import steps_of
from ggdp.privacy_loss.shift_pair import ShiftPair
from pair_oracle import delta_of_two


def release(beta, noise_multiplier):
    return AdditiveNoise(GeneralizedGaussian(beta, math.sqrt(2.0) * noise_multiplier))


@pytest.mark.parametrize(("beta", "multiplier"), [(6.0, 1.0), (8.0, 2.0), (4.0, 0.5), (2.5, 0.7)])
def test_two_releases_with_little_noise_hold_the_integral_over_one(beta, multiplier):
    mechanism = Composed(release(beta, multiplier), 2)
    found = epsilon(mechanism, delta=1e-6)
    ((pair, _),) = steps_of(mechanism, Adjacency.REMOVE).pairs()[0]
    assert delta_of_two(pair, found.lower) >= 1e-6 * (1.0 - 1e-7)
    assert delta_of_two(pair, found.upper) <= 1e-6 * (1.0 + 1e-7)
    assert found.width <= 1e-6 * found.upper


@pytest.mark.parametrize(
    ("beta", "multiplier", "times"), [(3.0, 0.3, 3), (6.0, 1.5, 5), (8.0, 2.0, 3), (6.0, 1.0, 10)]
)
def test_up_to_ten_releases_with_little_noise_are_answered_to_six_digits(beta, multiplier, times):
    found = epsilon(Composed(release(beta, multiplier), times), delta=1e-6)
    assert found.width <= 1e-6 * found.upper
    assert found.lower >= epsilon(Composed(release(beta, multiplier), times - 1), delta=1e-6).lower


def gaussian_delta(mu, eps):
    return mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)


def test_a_million_gaussian_releases_have_an_epsilon_of_two_million():
    vector = AdditiveNoise(Gaussian(0.5), norm=2, dimension=1000)
    for step in (AdditiveNoise(Gaussian(0.5)), vector):
        found = epsilon(Composed(step, 10**6), delta=1e-6)
        with mpmath.workdps(60):
            assert gaussian_delta(mpmath.mpf(2000), mpmath.mpf(found.lower)) >= 1e-6
            assert gaussian_delta(mpmath.mpf(2000), mpmath.mpf(found.upper)) <= 1e-6
        assert 2.0e6 < found.lower <= found.upper <= found.lower * (1.0 + 1e-10)
        there = delta(Composed(step, 10**6), epsilon=found.estimate)
        assert there.lower <= 1e-6 * (1.0 + 1e-6)
        assert there.upper >= 1e-6 * (1.0 - 1e-6)


def test_an_epsilon_in_the_hundreds_is_the_closed_form():
    """579.13 at delta = 1e-80: Q(L > 579) is far below the smallest double."""
    found = epsilon(AdditiveNoise(Gaussian(0.05)), delta=1e-80)
    with mpmath.workdps(60):
        assert gaussian_delta(1 / mpmath.mpf(0.05), mpmath.mpf(found.lower)) >= mpmath.mpf(1e-80)
        assert gaussian_delta(1 / mpmath.mpf(0.05), mpmath.mpf(found.upper)) <= mpmath.mpf(1e-80)
    assert found.width <= 1e-10 * found.upper


def test_noise_next_to_laplace_or_gaussian_costs_what_they_cost():
    def cost(beta, step, **asked):
        return epsilon(step(GeneralizedGaussian(beta, 522.5)), **asked)

    asked = {"delta": 1e-6, "adjacency": Adjacency.REPLACE}
    laplace = cost(1.0, lambda noise: Composed(AdditiveNoise(noise), 5), **asked)
    near = cost(1.0 + 1e-12, lambda noise: Composed(AdditiveNoise(noise), 5), **asked)
    assert near.upper == pytest.approx(laplace.upper, rel=1e-6)
    assert near.width <= 1e-6 * near.upper

    def sampled(beta):
        noise = AdditiveNoise(GeneralizedGaussian(beta, 1.4))
        return epsilon(Composed(PoissonSampled(noise, 0.01), 1000), delta=1e-6)

    assert sampled(2.000000000001).upper == pytest.approx(sampled(2.0).upper, rel=1e-9)


@pytest.mark.parametrize(
    ("beta", "scale", "rate", "times", "target", "adjacency"),
    [
        (1.95, 10.2, 0.0063, 3, 1e-100, Adjacency.ADD_REMOVE),
        (2.44, 204.0, 1.26e-5, 77, 6e-68, Adjacency.REPLACE),
        (3.66, 407.0, 0.0022, 4, 1.5e-90, Adjacency.REPLACE),
        (2.04, 1.825, 7.3e-5, 3, 1e-64, Adjacency.ADD),
    ],
)
def test_small_deltas_of_few_sampled_releases_are_answered_narrowly(
    beta, scale, rate, times, target, adjacency
):
    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta, scale)), rate)
    found = epsilon(Composed(step, times), delta=target, adjacency=adjacency)
    assert found.lower > 0.0
    assert found.width <= 1e-5 * found.upper


def test_an_epsilon_out_of_reach_is_refused_without_much_ado():
    with pytest.raises(ValueError, match="epsilon at this delta must be at most 2000"):
        epsilon(Composed(AdditiveNoise(GeneralizedGaussian(8.0, 0.047)), 5), delta=1e-6)
    one = epsilon(PoissonSampled(AdditiveNoise(GeneralizedGaussian(6.0, 0.054)), 0.01), delta=1e-6)
    assert one.lower > 1e7
    assert one.width <= 1e-9 * one.upper


def randomized_response(loss):
    truth = math.exp(loss) / (1.0 + math.exp(loss))
    return OutcomeProbabilities([truth, 1.0 - truth], [1.0 - truth, truth])


def test_few_discrete_losses_are_listed_up_to_their_largest_sum():
    mechanism = Composed([(randomized_response(1.0), 1), (randomized_response(2.0), 1)])
    before = 1.0
    for eps in (0.0, 1.5, 2.9, 2.999, 2.999999, 3.0, 3.1):
        found = delta(mechanism, epsilon=eps)
        truth = 0.0
        for one in (1.0, -1.0):
            for two in (2.0, -2.0):
                mass = 1.0 / ((1.0 + math.exp(-one)) * (1.0 + math.exp(-two)))
                truth += mass * max(-math.expm1(eps - one - two), 0.0)
        assert found.lower - 1e-15 <= truth <= found.upper + 1e-15
        assert found.width <= 1e-12
        assert found.upper <= before
        before = found.upper
    assert delta(mechanism, epsilon=3.1).upper == 0.0


def test_discrete_losses_whose_other_probability_nearly_underflows():
    mechanism = OutcomeProbabilities([0.5, 0.5], [1e-290, 1.0 - 1e-290])
    largest = math.log(0.5) + 290.0 * math.log(10.0)
    found = delta(mechanism, epsilon=largest - 1e-3)
    assert found.lower <= -0.5 * math.expm1(-1e-3) <= found.upper
    assert found.width <= 1e-9


def test_pure_privacy_is_the_largest_loss_and_refused_where_there_is_none():
    pure = epsilon(Composed(AdditiveNoise(Laplace(2.0)), 3), delta=0)
    assert pure.lower <= 1.5 <= pure.upper
    assert pure.width <= 1e-12
    sampled = epsilon(PoissonSampled(AdditiveNoise(Laplace(2.0)), 0.1), delta=0.0)
    assert sampled.lower <= math.log1p(0.1 * math.expm1(0.5)) <= sampled.upper
    outcomes = epsilon(Composed(randomized_response(1.0), 4), delta=0)
    assert outcomes.lower <= 4.0 <= outcomes.upper
    assert outcomes.width <= 1e-12
    with pytest.raises(ValueError, match="its privacy loss has no upper bound"):
        epsilon(AdditiveNoise(Gaussian(1.0)), delta=0)
    with pytest.raises(ValueError, match="delta must be a number in"):
        epsilon(AdditiveNoise(Gaussian(1.0)), delta=1e-200)


@pytest.mark.parametrize("target", [0.6, 0.9, 0.999])
def test_a_delta_above_a_half_is_answered(target):
    found = epsilon(AdditiveNoise(Gaussian(0.1)), delta=target)
    with mpmath.workdps(40):
        assert gaussian_delta(1 / mpmath.mpf(0.1), mpmath.mpf(found.lower)) >= target
        assert gaussian_delta(1 / mpmath.mpf(0.1), mpmath.mpf(found.upper)) <= target
    assert epsilon(AdditiveNoise(Gaussian(5.0)), delta=target).upper == 0.0


@pytest.mark.parametrize(("beta", "multiplier", "rate"), [(4.0, 0.7, 0.01), (1.5, 1.0, 0.1), (2.0, 2.0, 1.0)])
def test_the_event_of_a_large_loss_bounds_delta_from_below(beta, multiplier, rate):
    step = release(beta, multiplier) if rate == 1.0 else PoissonSampled(release(beta, multiplier), rate)
    ((pair, _),) = steps_of(step, Adjacency.REMOVE).pairs()[0]
    parts = ((pair, 2),)
    for eps in (0.5, 2.0):
        truth = math.log(delta_of_two(pair, eps))
        plan = TiltPlan.of(parts)
        assert moments.log_delta_below(parts, plan, eps) <= truth
        assert moments.epsilon_below(parts, plan, truth) <= eps * (1.0 + 1e-9)


def test_beta_up_to_32_is_accounted_for_and_more_is_refused_with_the_range():
    step = PoissonSampled(release(16.5, 20.0), 0.01)
    found = epsilon(Composed(step, 5), delta=1e-6)
    assert found.lower > 0.0
    assert found.width <= 1e-5 * found.upper
    with pytest.raises(ValueError, match=r"beta must be a number in \[1, 32\], got 64"):
        epsilon(release(64.0, 1.0), delta=1e-6)
    with pytest.raises(ValueError, match="beta must be at most 8 for a vector"):
        epsilon(AdditiveNoise(GeneralizedGaussian(12.0, 5.0), norm=2, dimension=10), delta=1e-6)


@pytest.mark.parametrize("ask", [lambda m: epsilon(m, delta=1e-6), lambda m: renyi_divergence(m, 2.0)])
def test_numbers_beyond_any_double_are_refused_by_name(ask):
    with pytest.raises(ValueError, match="times must be a whole number"):
        ask(Composed(AdditiveNoise(Laplace(2.0)), 10**400))
    with pytest.raises(ValueError, match="epsilon must be a number"):
        delta(AdditiveNoise(Laplace(2.0)), epsilon=10**400)


def test_extreme_quantiles_and_settings_are_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for beta in (1.0, 1.5, 8.0, 64.0):
            for scale in (1e-100, 1.0, 1e100):
                noise = GeneralizedGaussian(beta, scale)
                assert noise.isf(log_prob=-1e300) == pytest.approx((1e300) ** (1.0 / beta) * scale, rel=1e-12)
                assert noise.isf(log_prob=-math.inf) == math.inf
        for multiplier in (0.02, 1000.0):
            for rate in (1e-7, 0.5):
                epsilon(PoissonSampled(release(1.0, multiplier), rate), delta=1e-6)
        epsilon(Composed(PoissonSampled(release(2.0, 1000.0), 1e-7), 3), delta=1e-100)


@pytest.mark.parametrize("seed", [5, 6])
def test_the_sum_of_many_different_largest_losses_is_certified_to_the_last_digit(seed):
    """At a delta far below the chance of all largest losses epsilon is their sum. Added up one after another,
    600 of them were off by more than was charged: once the upper bound lay 7e-16 of it below the truth, once
    the lower bound above.
    """
    rng = random.Random(seed)
    times = [rng.choice([1, 2, 3]) for _ in range(600)]
    pairs = [ShiftPair(1.0, 10.0 ** rng.uniform(-3.0, 1.2), 0.0, rng.uniform(1e-4, 1.0)) for _ in times]
    parts = tuple(zip(pairs, times, strict=True))
    with mpmath.workdps(40):
        exact = [(mpmath.mpf(pair.rate), mpmath.mpf(pair.up)) for pair in pairs]
        largest = mpmath.fdot(times, [mpmath.log(1 - q + q * mpmath.exp(m)) for q, m in exact])
        chance = mpmath.fdot(times, [mpmath.log((1 - q) * mpmath.exp(-m) / 2 + q / 2) for q, m in exact])
        found = moments.top_atom(parts, float(chance) - 50.0)
        # delta is less than e^-49 of that chance, and epsilon no closer to the sum than that
        assert found.lower <= largest <= found.upper + largest * mpmath.mpf(10) ** -20
        assert found.width <= 1e-14 * found.upper


def test_errors_of_many_releases_are_charged_in_full():
    """(1 + e)^times - 1 with e^2 in place of (1 + e)^times: more than the 1 that was charged."""
    charged = contour._perturbed(np.zeros(2), np.array([2.0, 0.5]))
    assert charged[0] >= math.expm1(2.0)
    assert charged[1] == pytest.approx(math.expm1(0.5))


@pytest.mark.parametrize("beta", [1.5, 6.0, 32.0])
@pytest.mark.parametrize("asked", [1e10, 1.7e308])
def test_delta_of_an_epsilon_beyond_all_sense_is_answered_without_a_warning(beta, asked):
    found = delta(Composed(release(beta, 0.35), 3), epsilon=asked)
    assert 0.0 <= found.lower <= found.upper <= 1.0
