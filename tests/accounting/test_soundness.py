"""The truth lies inside the bounds: closed forms, mpmath, and a peer's own bounds."""

import math

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
    PoissonSampled,
    account,
    delta,
    epsilon,
)
from ggdp.accounting.engines.moments import log_chernoff_constant
from ggdp.accounting.steps import steps_of
from pair_oracle import delta_of_two


def _gaussian_delta(mu, eps):
    return mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)


@pytest.mark.parametrize("times", [1, 2, 7, 30, 1000, 10**6, 10**7])
@pytest.mark.parametrize("asked", [0.3, 1e-5, 1e-40])
def test_gaussian_composition_holds_the_closed_form(times, asked):
    """times releases of std sigma are one of std sigma / sqrt(times) (Balle and Wang 2018)."""
    std = max(0.5, 0.8 * math.sqrt(times)) if times < 10**6 else 900.0
    mechanism = Composed(AdditiveNoise(Gaussian(std)), times=times)
    answer = epsilon(mechanism, delta=asked)
    with mpmath.workdps(60):
        scale = mpmath.mpf(AdditiveNoise(Gaussian(std)).noise.scale)
        mu = mpmath.sqrt(2 * times) / scale
        if answer.upper == 0.0:
            assert _gaussian_delta(mu, mpmath.mpf(0)) <= asked
            return
        assert _gaussian_delta(mu, mpmath.mpf(answer.upper)) <= asked
        assert _gaussian_delta(mu, mpmath.mpf(answer.lower)) >= asked
    assert answer.width <= (1e-6 if times >= 20 else 1e-5) * answer.upper


TWO_RELEASES = [
    (1.0, 2.0, 1.0),
    (1.0, 1.5, 0.2),
    (1.3, 2.0, 1.0),
    (2.0, 1.4142135623730951, 0.01),
    (4.0, 2.0, 0.3),
]


@pytest.mark.parametrize(("beta", "scale", "rate"), TWO_RELEASES)
def test_two_releases_hold_an_integral_over_one(beta, scale, rate):
    """delta_2(eps) = E_P[delta_1(eps - L)], computed apart; both directions and replacement."""
    step = AdditiveNoise(GeneralizedGaussian(beta, scale))
    mechanism = Composed(PoissonSampled(step, rate) if rate < 1.0 else step, times=2)
    for adjacency in (Adjacency.REMOVE, Adjacency.ADD, Adjacency.REPLACE):
        ((pair, _),) = steps_of(mechanism, adjacency).pairs()[0]
        point = 0.4 * min(pair.supremum, 2.0)
        answer = delta(mechanism, epsilon=point, adjacency=adjacency)
        truth = delta_of_two(pair, point)
        slack = 2e-10 * truth + 1e-15  # of the oracle's own quadrature and cancellation
        assert answer.lower <= truth + slack
        assert answer.upper >= truth - slack
        assert answer.width <= 1e-4 * answer.upper


def test_purity_is_decided_to_the_last_bit():
    """49 * (1/49) rounds below one: a sum of doubles would call this composition pure an ulp too early."""
    mechanism = Composed(AdditiveNoise(Laplace(scale=49.0)), times=49)
    assert delta(mechanism, epsilon=1.0).upper == 0.0
    assert delta(mechanism, epsilon=math.nextafter(1.0, 0.0)).upper > 0.0
    assert epsilon(mechanism, delta=1e-90).upper >= 1.0


def test_laplace_composition_is_pure_beyond_its_bound_and_not_before():
    mechanism = Composed(AdditiveNoise(Laplace(scale=2.0)), times=5)
    assert delta(mechanism, epsilon=2.5).upper == 0.0
    assert delta(mechanism, epsilon=3.0).upper == 0.0
    assert delta(mechanism, epsilon=2.4999).lower > 0.0
    assert epsilon(mechanism, delta=1e-90).upper == pytest.approx(2.5, rel=1e-12)


@pytest.mark.parametrize("theta", [1e-310, 1e-20, 1e-3, 1.0, 50.0, 1e8, 2.4e13, 1e200])
def test_chernoff_s_constant_keeps_its_digits(theta):
    with mpmath.workdps(400):
        exact = mpmath.mpf(theta) * mpmath.log(theta) - (1 + mpmath.mpf(theta)) * mpmath.log1p(theta)
        assert abs(log_chernoff_constant(theta) - exact) <= 1e-15 * abs(exact) + 1e-300


def test_delta_just_below_the_largest_loss_is_not_below_the_mass_that_has_it():
    """Chernoff's bound has a tilt of 2e13 there; its constant once lost its digits, and 8% of delta."""
    scale, rate = 28.1961441, 0.0593844600
    run = Composed(PoissonSampled(AdditiveNoise(Laplace(scale)), rate), times=5)
    at = epsilon(run, delta=1.2e-15, adjacency=Adjacency.REMOVE).lower
    with mpmath.workdps(50):
        b, q = mpmath.mpf(scale), mpmath.mpf(rate)
        gap = 5 * mpmath.log1p(q * mpmath.expm1(1 / b)) - mpmath.mpf(at)
        with_largest_loss = ((1 - q) * mpmath.exp(-1 / b) / 2 + q / 2) ** 5
        least = with_largest_loss * -mpmath.expm1(-gap)
    assert 1e-15 < least <= delta(run, epsilon=at, adjacency=Adjacency.REMOVE).upper


def test_peer_agrees_within_its_own_bounds():
    """Google's dp_accounting: its pessimistic epsilon is above ours, its optimistic one below."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    for std, rate, times, asked in [(0.8, 0.004, 300, 1e-5), (1.0, 0.01, 100, 1e-6), (2.0, 0.05, 40, 1e-8)]:
        ours = epsilon(Composed(PoissonSampled(AdditiveNoise(Gaussian(std)), rate), times=times), delta=asked)
        for pessimistic in (True, False):
            peer = pld.from_gaussian_mechanism(
                std, sampling_prob=rate, value_discretization_interval=1e-4, pessimistic_estimate=pessimistic
            ).self_compose(times)
            theirs = peer.get_epsilon_for_delta(asked)
            assert theirs >= ours.lower if pessimistic else theirs <= ours.upper


def _random_setting(rng):
    beta = float(rng.choice([1.0, 2.0, rng.uniform(1.0, 2.0), rng.uniform(2.0, 6.0)]))
    noise = GeneralizedGaussian.from_noise_multiplier(beta, 10 ** rng.uniform(-0.3, 2.0))
    rate = float(rng.choice([1.0, 10 ** rng.uniform(-4.0, 0.0)]))
    step = AdditiveNoise(noise)
    adjacency = Adjacency(str(rng.choice(["add-remove", "remove", "add", "replace"])))
    times = int(10 ** rng.uniform(1.3, 6.0))
    return (
        PoissonSampled(step, rate) if rate < 1.0 else step,
        times,
        float(10 ** rng.uniform(-30.0, -2.0)),
        adjacency,
    )


@pytest.mark.parametrize("seed", range(30))
def test_random_settings_are_answered_in_order_and_grow_with_the_releases(seed):
    step, times, asked, adjacency = _random_setting(np.random.default_rng(seed))
    one, two = (_epsilon_or_refusal(step, count, asked, adjacency) for count in (times, 2 * times))
    if two is None:
        return  # refused: epsilon is beyond 2000, and more releases cannot lower it
    assert one is not None
    assert 0.0 <= one.lower <= one.estimate <= one.upper < math.inf
    assert two.upper >= one.lower
    assert two.lower >= one.lower * (1.0 - 1e-6)


def _epsilon_or_refusal(step, times, asked, adjacency):
    try:
        return epsilon(Composed(step, times=times), delta=asked, adjacency=adjacency)
    except ValueError as refusal:
        if "at most 2000" not in str(refusal):
            raise
        return None


def test_delta_far_beyond_what_is_computed_is_no_larger_than_nearer_by():
    profile = account(Composed(AdditiveNoise(GeneralizedGaussian(1.5, 1.16)), times=3))
    assert profile.delta(epsilon=1e300).upper <= profile.delta(epsilon=1e5).upper <= 1e-300
