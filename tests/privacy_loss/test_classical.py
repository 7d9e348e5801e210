# SPDX-License-Identifier: Apache-2.0
"""Classical releases: their pairs are what closed forms and sums over all outcomes say, and none is worse."""

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

from ggdp import AdditiveNoise, Adjacency, Composed, Laplace, PoissonSampled, delta, epsilon
from ggdp.privacy_loss.classical import (
    BoundedRange,
    DiscreteGaussianNoise,
    DiscreteLaplaceNoise,
    GaussianMixtureShift,
    PrivacyGuarantee,
    RandomizedResponse,
)

EPSILONS = (0.0, 0.1, 0.5, 1.0, 1.7)


def curve(p, q, epsilons=EPSILONS):
    """Delta of two laws on the same outcomes, in the worse direction."""
    return [
        max(np.maximum(p - math.exp(e) * q, 0.0).sum(), np.maximum(q - math.exp(e) * p, 0.0).sum())
        for e in epsilons
    ]


def holds(mechanism, expected, tolerance=1e-7, adjacency=Adjacency.ADD_REMOVE, epsilons=EPSILONS):
    """Whether the truth is inside the bounds (to the oracle's own rounding), and the upper bound is tight."""
    for at, truth in zip(epsilons, expected, strict=True):
        found = delta(mechanism, epsilon=at, adjacency=adjacency)
        assert found.lower <= truth * (1 + 1e-11) + 1e-15
        assert truth * (1 - 1e-11) - 1e-15 <= found.upper <= truth * (1 + tolerance) + 1e-12


@pytest.mark.parametrize(
    ("each", "lost", "times"), [(0.5, 0.0, 1), (0.3, 0.0, 7), (0.2, 1e-3, 5), (0.0, 0.01, 9)]
)
def test_guarantees_compose_to_the_binomial_sum_of_kairouz_oh_and_viswanath(each, lost, times):
    """With s = (1 - delta)^n: 1 - s + s sum of C(n, k) (e^((n-k) eps) - e^(at + k eps))_+ / (1 + e^eps)^n."""
    step = PrivacyGuarantee(each, lost)
    kept = (1 - lost) ** times
    expected = []
    for at in EPSILONS:
        terms = (
            math.comb(times, k) * max(math.exp((times - k) * each) - math.exp(at + k * each), 0.0)
            for k in range(times + 1)
        )
        expected.append(1 - kept + kept * math.fsum(terms) / (1 + math.exp(each)) ** times)
    holds(Composed(step, times=times), expected)


def test_a_guarantee_is_the_worst_release_that_keeps_it():
    generator = np.random.default_rng(5)
    step = PrivacyGuarantee(0.7, 0.02)
    most = [delta(step, epsilon=at).upper for at in EPSILONS]
    for _ in range(200):
        q = generator.dirichlet(np.ones(4))
        p = q * np.exp(generator.uniform(-0.35, 0.35, 4))
        p, q = 0.98 * p / p.sum(), 0.98 * q  # ratios within e^0.7, and 0.02 that tells everything
        found = curve(np.append(p, [0.02, 0.0]), np.append(q, [0.0, 0.02]))
        assert all(one <= bound for one, bound in zip(found, most, strict=True))


def test_bounded_range_has_the_curve_of_its_formula():
    span, c = 1.7, math.exp(-1.7)
    expected = [(1 - math.sqrt(c * math.exp(at))) ** 2 / (1 - c) for at in EPSILONS]
    holds(BoundedRange(span), expected, tolerance=1e-6)


def test_no_exponential_mechanism_costs_more_than_bounded_range():
    """Utilities of five outcomes, each moved by at most 1: alone, and two of them composed."""
    generator = np.random.default_rng(11)
    once = [delta(BoundedRange(1.2), epsilon=at).upper for at in EPSILONS]
    some = (0.1, 1.0)
    twice = [delta(Composed(BoundedRange(1.2), times=2), epsilon=at).upper for at in some]
    for _ in range(300):
        laws = []
        utility = generator.normal(0, 2, 5)
        moved = utility + generator.choice([-1.0, 1.0, 0.3], 5)
        for value in (utility, moved):
            weight = np.exp(0.6 * value)
            laws.append(weight / weight.sum())
        both = [np.outer(law, law).ravel() for law in laws]
        assert all(one <= bound for one, bound in zip(curve(*laws), once, strict=True))
        assert all(one <= bound for one, bound in zip(curve(*both, some), twice, strict=True))


def test_some_exponential_mechanism_comes_close_to_bounded_range():
    """Two outcomes at the odds that are the worst for epsilon = 0.3."""
    span, at = 1.2, 0.3
    top = math.exp(0.5 * (at + span))  # the larger ratio u = sqrt(x / c)
    low = top * math.exp(-span)
    q = (1 - low) / (top - low)
    best = curve(np.array([q * top, (1 - q) * low]), np.array([q, 1 - q]), [at])[0]
    assert best == pytest.approx(delta(BoundedRange(span), epsilon=at).upper, rel=1e-6)


def permute_and_flip(utility, rate):
    """Outcomes in random order, each taken with probability e^(rate (its utility - the largest))."""
    chance = np.exp(rate * (utility - utility.max()))
    law = np.zeros(len(utility))
    for order in itertools.permutations(range(len(utility))):
        left = 1.0
        for outcome in order:
            law[outcome] += left * chance[outcome]
            left *= 1.0 - chance[outcome]
    return law / math.factorial(len(utility))


def test_no_permute_and_flip_costs_more_than_laplace_noise():
    generator = np.random.default_rng(3)
    laplace = AdditiveNoise(Laplace(scale=1.0), sensitivity=1.4, shift=(1.0,))
    most = [delta(laplace, epsilon=at).upper for at in EPSILONS]
    largest = 0.0
    for _ in range(200):
        utility = generator.normal(0, 1.5, 4)
        moved = utility + generator.choice([-1.0, 1.0], 4)
        found = curve(permute_and_flip(utility, 0.7), permute_and_flip(moved, 0.7))
        assert all(one <= bound * (1 + 1e-12) + 1e-15 for one, bound in zip(found, most, strict=True))
        largest = max(largest, found[1] / most[1])
    assert largest > 0.9


@pytest.mark.parametrize(("noise", "buckets"), [(0.5, 4), (0.02, 2), (0.9, 30)])
def test_randomized_response_against_another_value_and_against_none(noise, buckets):
    one = np.full(buckets, noise / buckets)
    other = one.copy()
    one[0] += 1 - noise
    other[1] += 1 - noise
    response = RandomizedResponse(noise, buckets)
    holds(response, curve(one, other), adjacency=Adjacency.REPLACE)
    holds(response, curve(one, np.full(buckets, 1 / buckets)))
    sampled = 0.3 * one + 0.7 / buckets, 0.3 * other + 0.7 / buckets
    holds(PoissonSampled(response, 0.3), curve(*sampled), adjacency=Adjacency.REPLACE)


def discrete_laplace(decay, centre):
    return math.tanh(decay / 2) * np.exp(-decay * np.abs(np.arange(-200, 201) - centre))


@pytest.mark.parametrize(("decay", "distance"), [(0.5, 1), (0.3, 4), (1.5, 2)])
def test_discrete_laplace_noise_is_the_sum_over_integers(decay, distance):
    step = DiscreteLaplaceNoise(decay, distance)
    holds(step, curve(discrete_laplace(decay, distance), discrete_laplace(decay, 0)))
    holds(
        step,
        curve(discrete_laplace(decay, distance), discrete_laplace(decay, -distance)),
        adjacency=Adjacency.REPLACE,
    )
    assert epsilon(step, delta=1e-90).upper <= decay * distance * (1 + 1e-14)


def test_discrete_noise_costs_no_more_when_the_sensitivity_is_split_or_not_used():
    whole = [delta(DiscreteLaplaceNoise(0.4, 3), epsilon=at).upper for at in EPSILONS]
    one, two, none = (discrete_laplace(0.4, k)[150:251] for k in (1, 2, 0))
    split = curve(np.outer(one, two).ravel(), np.outer(none, none).ravel())
    assert all(a <= b for a, b in zip(split, whole, strict=True))
    assert all(a <= b for a, b in zip(curve(two, none), whole, strict=True))


def discrete_gaussian(sigma, centre):
    k = np.arange(-600, 601)
    weight = np.exp(-0.5 * ((k - centre) / sigma) ** 2)
    return weight / weight.sum()


@pytest.mark.parametrize(("sigma", "distance"), [(0.4, 1), (3.0, 2), (20.0, 7)])
def test_discrete_gaussian_noise_is_the_sum_over_integers(sigma, distance):
    step = DiscreteGaussianNoise(sigma, distance)
    moved, still = discrete_gaussian(sigma, distance), discrete_gaussian(sigma, 0)
    holds(step, curve(moved, still))
    holds(step, curve(moved, discrete_gaussian(sigma, -distance)), adjacency=Adjacency.REPLACE)
    holds(PoissonSampled(step, 0.2), curve(0.2 * moved + 0.8 * still, still), tolerance=1e-6)


def test_wide_discrete_gaussian_noise_in_blocks_is_close_to_the_gaussian():
    """With 10^7 outcomes, a hundred to a cell; delta differs from the Gaussian's by about 1e-10 relative."""
    ratio = 0.5
    expected = [
        special.ndtr(ratio / 2 - at / ratio) - math.exp(at) * special.ndtr(-ratio / 2 - at / ratio)
        for at in EPSILONS
    ]
    for at, truth in zip(EPSILONS, expected, strict=True):
        found = delta(DiscreteGaussianNoise(2e5, 100_000), epsilon=at)
        assert found.lower <= truth <= found.upper <= truth * (1 + 1e-5)


def test_a_mixture_of_shifts_is_its_integral():
    x = np.linspace(-15, 20, 700_001)
    p = sum(w * stats.norm.pdf(x, c, 1.5) for w, c in ((0.25, 0.0), (0.5, 1.0), (0.25, 3.0)))
    q = stats.norm.pdf(x, 0.0, 1.5)
    found = [
        delta(GaussianMixtureShift(1.5, (0.0, 1.0, 3.0), (0.25, 0.5, 0.25)), epsilon=at) for at in EPSILONS
    ]
    for bounds, truth in zip(found, curve(p * 5e-5, q * 5e-5), strict=True):
        assert bounds.lower == pytest.approx(truth, rel=1e-6)
        assert bounds.upper == pytest.approx(truth, rel=1e-6)
        assert bounds.lower < bounds.upper


@pytest.mark.parametrize(
    "step", [PrivacyGuarantee(1.0), BoundedRange(1.0), DiscreteLaplaceNoise(1.0), DiscreteGaussianNoise(1.0)]
)
def test_a_sampled_record_that_is_replaced_is_refused_with_the_reason(step):
    with pytest.raises(ValueError, match=r"rate must be 1 when a record of a .* is replaced, got 0.1"):
        delta(PoissonSampled(step, 0.1), epsilon=1.0, adjacency=Adjacency.REPLACE)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: PrivacyGuarantee(-0.1), "epsilon must be a number"),
        (lambda: PrivacyGuarantee(1.0, 1.0), "promises nothing"),
        (lambda: BoundedRange(0.0), "epsilon must be a number"),
        (lambda: RandomizedResponse(0.0, 3), "noise must be a number"),
        (lambda: RandomizedResponse(0.5, 1), "buckets must be a whole number >= 2"),
        (lambda: DiscreteLaplaceNoise(1.0, 0), "sensitivity must be a whole number"),
        (lambda: DiscreteLaplaceNoise(500.0, 5), "epsilon must be a number"),
        (lambda: DiscreteGaussianNoise(0.0), "sigma must be a number"),
        (lambda: GaussianMixtureShift(1.0, (1.0,), (0.5, 0.5)), "of one length"),
        (lambda: GaussianMixtureShift(1.0, (1.0, 2.0), (0.5, 0.6)), "weights must sum to 1"),
    ],
)
def test_what_makes_no_sense_is_refused(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()
