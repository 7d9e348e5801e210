# SPDX-License-Identifier: Apache-2.0
"""epsilon and delta of mechanisms that users describe, each worked example against an oracle of its own."""

import math
from itertools import product

import mpmath
import numpy as np
import pytest
from scipy import stats

from accounting.custom_examples import KNOWN_GAUSSIAN, LOG_TOTAL, RESPONSE, SHIFT, TRUNCATED, WIDTH, holds
from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    GeneralizedGaussian,
    Laplace,
    PoissonSampled,
    account,
    delta,
    epsilon,
)
from ggdp.accounting.engines import cells, grid_law
from ggdp.accounting.engines.atoms import Enclosed
from ggdp.accounting.engines.cells import CellComposition
from ggdp.privacy_loss.cells import Atoms
from ggdp.privacy_loss.custom import (
    DensityNoise,
    DensityPair,
    LossSurvival,
    OutcomeProbabilities,
)
from ggdp.privacy_loss.density import Density, Mixture


def log_normal(centre=0.0, std=1.0):
    return lambda x: -0.5 * ((x - centre) / std) ** 2 - math.log(std) - 0.5 * math.log(2.0 * math.pi)


GAUSSIAN = DensityNoise(Density(log_normal()), sensitivity=1.0)


def agree(one, other, width):
    """Two certified answers to one question overlap, and the first is narrow."""
    assert one.lower <= other.upper
    assert other.lower <= one.upper
    assert one.width <= width * one.upper


@pytest.mark.parametrize(
    ("described", "known", "width"),
    [
        (GAUSSIAN, KNOWN_GAUSSIAN, 1e-7),
        (Composed(GAUSSIAN, times=10), Composed(KNOWN_GAUSSIAN, times=10), 3e-6),
        (Composed([(GAUSSIAN, 3), (KNOWN_GAUSSIAN, 7)]), Composed(KNOWN_GAUSSIAN, times=10), 3e-6),
        (PoissonSampled(GAUSSIAN, 0.2), PoissonSampled(KNOWN_GAUSSIAN, 0.2), 1e-6),
        (
            Composed(PoissonSampled(GAUSSIAN, 0.02), times=500),
            Composed(PoissonSampled(KNOWN_GAUSSIAN, 0.02), times=500),
            2e-3,
        ),
        (
            Composed(
                DensityNoise(Density(lambda x: -np.abs(x) - math.log(2.0), breaks=(0.0,)), 0.1), times=50
            ),
            Composed(AdditiveNoise(Laplace(scale=10.0)), times=50),
            1e-3,
        ),
    ],
)
def test_noise_the_library_knows_costs_the_same_when_it_is_described(described, known, width):
    for adjacency in (Adjacency.REMOVE, Adjacency.ADD):
        agree(
            epsilon(described, delta=1e-6, adjacency=adjacency),
            epsilon(known, delta=1e-6, adjacency=adjacency),
            width,
        )


def test_delta_agrees_with_the_library_too():
    described, known = Composed(GAUSSIAN, times=4), Composed(KNOWN_GAUSSIAN, times=4)
    for at in (0.0, 10.0):
        agree(delta(described, epsilon=at), delta(known, epsilon=at), 1e-4)


def test_replacing_doubles_a_described_sensitivity():
    agree(
        epsilon(GAUSSIAN, delta=1e-6, adjacency=Adjacency.REPLACE),
        epsilon(KNOWN_GAUSSIAN, delta=1e-6, adjacency=Adjacency.REPLACE),
        1e-6,
    )
    agree(
        epsilon(Composed(PoissonSampled(GAUSSIAN, 0.1), times=3), delta=1e-6, adjacency=Adjacency.REPLACE),
        epsilon(
            Composed(PoissonSampled(KNOWN_GAUSSIAN, 0.1), times=3), delta=1e-6, adjacency=Adjacency.REPLACE
        ),
        1e-5,
    )
    for mechanism in (RESPONSE, DensityNoise(GAUSSIAN.noise, shift=1.0)):
        with pytest.raises(ValueError, match="adjacency must"):
            epsilon(mechanism, delta=1e-6, adjacency=Adjacency.REPLACE)


@pytest.mark.parametrize(("times", "at"), [(1, 0.5), (1, 1.2), (2, 1.0), (30, 8.0), (30, 30.0), (400, 250.0)])
def test_randomized_response_costs_what_the_binomial_sum_says(times, at):
    with mpmath.workdps(60):
        p = mpmath.mpf("0.75")
        truth = mpmath.fsum(
            mpmath.binomial(times, i)
            * max(p**i * (1 - p) ** (times - i) - mpmath.exp(at) * p ** (times - i) * (1 - p) ** i, 0)
            for i in range(times + 1)
        )
    found = delta(Composed(RESPONSE, times=times), epsilon=at)
    if truth == 0:
        assert (found.lower, found.upper) == (0.0, 0.0)
    else:
        holds(found, truth, 1e-5)


@pytest.mark.parametrize("target", [0.1, 1e-6, 1e-40])
def test_randomized_response_solves_for_epsilon(target):
    # one release: p - e^eps (1 - p) = delta
    holds(epsilon(RESPONSE, delta=target), math.log((0.75 - target) / 0.25), 1e-12)


def discrete_gaussian(std, shift, reach):
    support = np.arange(-reach, reach + 1)
    with mpmath.workdps(40):
        weights = [mpmath.exp(-(mpmath.mpf(int(k)) ** 2) / (2 * mpmath.mpf(std) ** 2)) for k in support]
        total = mpmath.fsum(weights)
        exact = {int(k): w / total for k, w in zip(support, weights, strict=True)}
    points = range(-reach, reach + shift + 1)
    return [exact.get(k - shift, mpmath.mpf(0)) for k in points], [
        exact.get(k, mpmath.mpf(0)) for k in points
    ]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_discrete_gaussian_as_vectors_costs_what_the_sum_over_outcomes_says(times):
    p, q = discrete_gaussian(std=1.5, shift=1, reach=12)
    mechanism = OutcomeProbabilities(tuple(map(float, p)), tuple(map(float, q)))
    at = 1.0 * times
    keep = [i for i in range(len(p)) if max(p[i], q[i]) > 1e-14] if times == 3 else range(len(p))
    truth = mpmath.fsum(
        max(mpmath.fprod(p[i] for i in where) - mpmath.exp(at) * mpmath.fprod(q[i] for i in where), 0)
        for where in product(keep, repeat=times)
    )
    holds(delta(Composed(mechanism, times=times), epsilon=at, adjacency=Adjacency.REMOVE), truth, 1e-5)


def truncated_mass(a, b):
    """Mass that Laplace noise truncated to [-WIDTH, WIDTH] has in [a, b]."""
    a, b = max(a, -WIDTH), min(b, WIDTH)

    def cdf(x):
        return mpmath.exp(x) if x < 0 else 2 - mpmath.exp(-x)

    return (cdf(b) - cdf(a)) / mpmath.exp(LOG_TOTAL) if b > a else mpmath.mpf(0)


def truncated_delta(t):
    """One release: P has its centre at SHIFT, Q at 0; the loss is |z| - |z - SHIFT| on their overlap."""
    if t >= SHIFT:
        z = WIDTH  # only where Q is zero
    elif t < -SHIFT:
        z = -WIDTH
    else:
        z = 0.5 * (t + SHIFT)  # the loss is 2 z - SHIFT between the centres
    return truncated_mass(z - SHIFT, WIDTH) - mpmath.exp(t) * truncated_mass(z, WIDTH)


@pytest.mark.parametrize("at", [0.0, 0.2, 0.4, 0.7])
def test_truncated_laplace_noise_costs_what_closed_form_and_one_integral_say(at):
    infinite = truncated_mass(WIDTH - SHIFT, WIDTH)
    one = truncated_delta(at) if at < SHIFT else infinite
    holds(delta(TRUNCATED, epsilon=at), one, 1e-6)

    def after(z):
        loss = abs(z) - abs(z - SHIFT)
        return mpmath.exp(-abs(z - SHIFT) - LOG_TOTAL) * truncated_delta(at - loss)

    marks = sorted(
        {-WIDTH + SHIFT, 0.0, SHIFT, WIDTH, *(z for z in (0.5 * at, 0.5 * (at + 2 * SHIFT)) if 0 < z < SHIFT)}
    )
    two = infinite + mpmath.quad(after, marks)
    holds(delta(Composed(TRUNCATED, times=2), epsilon=at), two, 1e-4)


def test_no_epsilon_pays_for_infinite_losses():
    infinite = float(truncated_mass(WIDTH - SHIFT, WIDTH))
    with pytest.raises(ValueError, match="delta must exceed the probability of an infinite loss"):
        epsilon(TRUNCATED, delta=0.999 * infinite)
    assert epsilon(TRUNCATED, delta=1.001 * infinite).upper <= SHIFT * (1.0 + 1e-12)
    many = delta(Composed(TRUNCATED, times=20), epsilon=100.0)
    holds(many, -math.expm1(20 * math.log1p(-infinite)), 1e-10)


def staircase(gamma, level, steps):
    """Geng and Viswanath's noise for sensitivity 1: its height falls by e^-level per unit, at gamma."""
    b = math.exp(-level)
    log_height = math.log((1.0 - b) / (2.0 * (gamma + b * (1.0 - gamma))))

    def log_density(x):
        whole = np.floor(np.abs(x))
        return log_height - level * (whole + (np.abs(x) - whole >= gamma))

    edges = sorted({k + part for k in range(steps) for part in (0.0, gamma)} - {0.0})
    breaks = tuple([-edge for edge in reversed(edges)] + [0.0, *edges])
    outside = b**steps
    return Density(log_density, breaks=breaks, support=(-float(steps), float(steps)), outside_mass=outside)


@pytest.mark.parametrize("times", [1, 3])
def test_staircase_noise_is_three_outcomes(times):
    gamma, level = 0.3, 1.0
    b = math.exp(-level)
    mechanism = DensityNoise(staircase(gamma, level, 40), shift=1.0)
    # where the loss is level, zero or -level; by symmetry Q has the same masses in reverse order
    height = (1.0 - b) / (2.0 * (gamma + b * (1.0 - gamma)))
    low = height * (gamma * b / (1.0 - b) + (1.0 - gamma) * b**2 / (1.0 - b)) + height * gamma * b
    middle = height * b * (1.0 - 2.0 * gamma)
    high = 1.0 - low - middle
    p, losses = (low, middle, high), (-level, 0.0, level)
    for at in (0.3, 0.5 * times, 0.9 * times):
        truth = sum(
            math.prod(p[i] for i in where) * max(-math.expm1(at - sum(losses[i] for i in where)), 0.0)
            for where in product(range(3), repeat=times)
        )
        holds(delta(Composed(mechanism, times=times), epsilon=at), truth, 1e-9)


def canonical(level, tail, steps=40):
    """Canonical noise of (level, tail)-DP for sensitivity 1 (Awan and Vadhan 2023).

    Discrete Laplace plus uniform noise on a unit, cut off where a share q / 2 is left on either side.
    """
    b = math.exp(-level)
    q = 2.0 * tail * b / (1.0 - b + 2.0 * tail * b)
    log_height = math.log((1.0 - b) / (1.0 + b)) - math.log1p(-q)
    edges = [k + 0.5 for k in range(steps)]
    end, outside = float(steps) - 0.5, b**steps
    if q > 0.0:  # beyond k + 1/2 there is b^(k+1) / (1+b); the last step is met in a straight line
        last = next(k for k in range(steps) if b ** (k + 1) / (1.0 + b) <= q / 2.0)
        end = last + 0.5 - (q / 2.0 - b ** (last + 1) / (1.0 + b)) / (b**last * (1.0 - b) / (1.0 + b))
        edges, outside = [edge for edge in edges if edge < end], 0.0
    return Density(
        lambda x: log_height - level * np.ceil(np.abs(x) - 0.5).clip(0.0),
        breaks=tuple([-edge for edge in reversed(edges)] + edges),
        support=(-end, end),
        outside_mass=outside,
    )


@pytest.mark.parametrize(("level", "tail"), [(1.0, 0.0), (1.0, 1e-3), (0.3, 0.01)])
def test_canonical_noise_has_the_whole_curve_of_its_guarantee(level, tail):
    mechanism = DensityNoise(canonical(level, tail), shift=1.0)
    for at in (0.25 * level, 0.999999 * level, level, 2.0 * level):
        # the trade-off of an (epsilon, delta) guarantee, Kairouz, Oh and Viswanath 2015
        spread = (1.0 - tail) * (math.exp(level) - math.exp(at)) / (1.0 + math.exp(level))
        truth = tail + max(spread, 0.0)
        found = delta(mechanism, epsilon=at)
        assert found.lower - 1e-12 <= truth <= found.upper + 1e-12
        assert found.width <= 1e-6 * truth + 1e-12


def test_a_mixture_of_two_gaussians_composes_as_a_double_sum_says():
    noise = Mixture((0.5, 0.5), (Density(log_normal(-1.0)), Density(log_normal(1.0))))
    mechanism, at = DensityNoise(noise, shift=0.8), 0.6
    nodes, weights = np.polynomial.legendre.leggauss(12)
    edges = np.linspace(-9.0, 10.0, 200)
    half, centre = 0.5 * np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
    z, w = (centre[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()
    p = w * 0.5 * (stats.norm.pdf(z, -0.2) + stats.norm.pdf(z, 1.8))
    q = w * 0.5 * (stats.norm.pdf(z, -1.0) + stats.norm.pdf(z, 1.0))
    truth = sum(float(np.maximum(a * p - math.exp(at) * b * q, 0.0).sum()) for a, b in zip(p, q, strict=True))
    found = delta(Composed(mechanism, times=2), epsilon=at, adjacency=Adjacency.REMOVE)
    assert found.lower - 2e-6 * truth <= truth <= found.upper + 2e-6 * truth  # kinks cost the sum that much
    assert found.width <= 1e-4 * truth


def test_survival_functions_of_the_loss_are_enough():
    # the loss of unit Gaussian noise is N(1/2, 1) under P and N(-1/2, 1) under Q
    loss = LossSurvival(
        lambda t: stats.norm.sf(t, 0.5),
        lambda t: stats.norm.sf(t, -0.5),
        span=(-20.0, 20.0),
        cdf_with_record=lambda t: stats.norm.cdf(t, 0.5),
        cdf_without_record=lambda t: stats.norm.cdf(t, -0.5),
        accuracy=1e-13,
    )
    agree(epsilon(loss, delta=1e-6), epsilon(KNOWN_GAUSSIAN, delta=1e-6), 1e-5)
    agree(
        epsilon(Composed(loss, times=5), delta=1e-6),
        epsilon(Composed(KNOWN_GAUSSIAN, times=5), delta=1e-6),
        1e-4,
    )


def test_atoms_of_a_loss_are_kept_where_they_are():
    loss = LossSurvival(
        lambda t: np.where(t < -math.log(3.0), 1.0, np.where(t < math.log(3.0), 0.75, 0.0)),
        lambda t: np.where(t < -math.log(3.0), 1.0, np.where(t < math.log(3.0), 0.25, 0.0)),
        span=(-2.0, 2.0),
        atoms=(-math.log(3.0), math.log(3.0)),
    )
    agree(delta(Composed(loss, times=7), epsilon=3.0), delta(Composed(RESPONSE, times=7), epsilon=3.0), 1e-6)


def test_a_pair_of_densities_may_differ_in_more_than_a_shift():
    # N(0, 1.2^2) against N(0, 1): loss = z^2 (1 - 1/1.44)/2 - log 1.2, not monotone in z
    pair = DensityPair(Density(log_normal(std=1.2)), Density(log_normal()))
    at = 0.3
    z = math.sqrt((at + math.log(1.2)) * 2.0 / (1.0 - 1.0 / 1.44))
    truth = 2.0 * (stats.norm.sf(z / 1.2) - math.exp(at) * stats.norm.sf(z))
    holds(delta(pair, epsilon=at, adjacency=Adjacency.REMOVE), truth, 1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_random_vectors_cost_what_enumeration_says(seed):
    rng = np.random.default_rng(seed)
    outcomes, times = int(rng.integers(2, 6)), int(rng.integers(1, 7))
    p, q = (rng.gamma(rng.choice([0.3, 1.0, 5.0]), size=outcomes) for _ in range(2))
    if seed % 4 == 0:
        q = p * np.exp(1e-3 * rng.normal(size=outcomes))  # losses that are all tiny
    if seed % 4 == 1:
        q[int(rng.integers(outcomes))] = 0.0  # an infinite loss
    if seed % 4 == 2:
        p[int(rng.integers(outcomes))] = 0.0
    p, q = p / p.sum(), q / q.sum()
    at = float(rng.exponential(1.0))
    one, other = p, q
    for _ in range(times - 1):
        one, other = np.outer(one, p).ravel(), np.outer(other, q).ravel()
    truth = float(np.maximum(one - math.exp(at) * other, 0.0).sum())
    mechanism = Composed(OutcomeProbabilities(tuple(p), tuple(q)), times=times)
    found = delta(mechanism, epsilon=at, adjacency=Adjacency.REMOVE)
    assert found.lower <= truth * (1.0 + 1e-11) + 1e-14
    assert found.upper >= truth * (1.0 - 1e-11) - 1e-16


@pytest.mark.parametrize("beta", [1.0, 1.3, 2.0, 3.5])
def test_generalized_gaussian_noise_described_and_built_in_agree_where_sampling_is_rare(beta):
    scale, rate, times = 3.0, 0.003, 2000
    log_total = math.log(2.0 * scale) + math.lgamma(1.0 + 1.0 / beta)
    density = Density(lambda x: -((np.abs(x) / scale) ** beta) - log_total, breaks=(0.0,))
    described = Composed(PoissonSampled(DensityNoise(density, sensitivity=1.0), rate), times=times)
    known = PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta=beta, scale=scale)), rate)
    profile, built_in = account(described), account(Composed(known, times=times))
    for target in (1e-5, 1e-12):
        exact, found = built_in.epsilon(delta=target), profile.epsilon(delta=target)
        assert found.lower <= exact.upper
        assert exact.lower <= found.upper <= exact.upper * 1.001
        assert found.lower >= 0.85 * exact.lower


def test_disjoint_outcomes_give_everything_away():
    naked = OutcomeProbabilities((1.0, 0.0), (0.0, 1.0))
    assert delta(naked, epsilon=5.0).lower == pytest.approx(1.0, abs=1e-14)
    with_noise = delta(Composed([(naked, 1), (KNOWN_GAUSSIAN, 2)]), epsilon=5.0)
    assert (with_noise.lower, with_noise.upper) == (pytest.approx(1.0, abs=1e-13), 1.0)


def test_a_delta_too_small_for_any_transform_is_bounded_by_moments():
    # thirty thousand answers, all but a few of which would have to be the costly one
    times = 30_000
    found = delta(
        Composed(OutcomeProbabilities((0.5001, 0.4999), (0.4999, 0.5001)), times=times), epsilon=11.0
    )
    largest = times * math.log(0.5001 / 0.4999)
    assert largest > 11.0
    assert 0.0 <= found.lower <= found.upper < 1e-200


def test_between_the_largest_losses_of_the_two_pairs_delta_is_estimated_by_the_upper_one():
    mass = np.array([0.5, 0.5])
    above, below = (Atoms(np.array([-0.2, top]), mass, 0.0) for top in (1.0, 0.5))
    found = CellComposition([Enclosed(above, below, 1)], ()).delta(0.7)
    assert found.lower == 0.0
    assert found.estimate == pytest.approx(-0.5 * math.expm1(-0.3), rel=1e-9)


def response_of(budget):
    """Randomized response that is exactly (budget, 0)-private."""
    kept = 1.0 / (1.0 + math.exp(-budget))
    return OutcomeProbabilities((kept, 1.0 - kept), (1.0 - kept, kept))


def delta_of_sums(losses, masses, at):
    return float(np.sum(masses * np.maximum(-np.expm1(at - losses), 0.0)))


@pytest.mark.parametrize("times", [10**6, 10**7])
def test_very_many_tiny_losses_are_the_binomial_sum_and_not_the_largest_loss(times):
    budget, at = 4e-4, 1.5e-3 * math.sqrt(times)
    counts = np.arange(times // 2, times // 2 + int(8.0 * math.sqrt(times)))
    masses = stats.binom.pmf(counts, times, 1.0 / (1.0 + math.exp(-budget)))
    truth = delta_of_sums(budget * (2.0 * counts - times), masses, at)
    found = delta(Composed(response_of(budget), times=times), epsilon=at)
    assert found.lower <= truth * (1.0 + 1e-7)
    assert found.upper >= truth * (1.0 - 1e-7)
    assert found.width <= 3e-5 * found.upper


def test_losses_with_a_common_divisor_are_added_up_without_moving_any():
    kept = [stats.binom.pmf(np.arange(1001), 1000, 1.0 / (1.0 + math.exp(-one))) for one in (0.01, 0.013)]
    places = 2.0 * np.arange(1001) - 1000.0
    losses = np.add.outer(0.01 * places, 0.013 * places)
    truth = delta_of_sums(losses, np.outer(*kept), 2.0)
    found = delta(Composed([(response_of(0.01), 1000), (response_of(0.013), 1000)]), epsilon=2.0)
    assert found.lower <= truth * (1.0 + 1e-9)
    assert found.upper >= truth * (1.0 - 1e-9)
    assert found.width <= 1e-7 * found.upper


def test_twenty_kinds_of_response_are_a_sum_of_a_million_outcomes():
    masses = np.ones(1)  # of the sums of losses, which are multiples of a tenth
    for one in range(1, 21):
        kept = 1.0 / (1.0 + math.exp(-0.1 * one))
        masses = np.convolve(masses, [1.0 - kept, *[0.0] * (2 * one - 1), kept])
    truth = delta_of_sums(0.1 * (np.arange(len(masses)) - 210.0), masses, 6.0)
    found = delta(Composed([(response_of(0.1 * one), 1) for one in range(1, 21)]), epsilon=6.0)
    assert found.lower <= truth * (1.0 + 1e-9)
    assert found.upper >= truth * (1.0 - 1e-9)
    assert found.width <= 1e-8 * found.upper


def test_next_to_the_largest_loss_of_responses_and_laplace_noise_both_ends_are_known():
    found = epsilon(Composed([(response_of(1.0), 2), (AdditiveNoise(Laplace(2.0)), 2)]), delta=1e-6)
    assert found.upper < 3.0
    assert found.width <= 1e-5


def test_a_release_that_is_not_custom_is_put_on_a_grid_once_for_both_bounds(monkeypatch):
    spacings = []

    def counted(pair, spacing, *others):
        spacings.append(spacing)
        return grid_law.discretize(pair, spacing, *others)

    monkeypatch.setattr(cells, "discretize", counted)
    epsilon(Composed([(RESPONSE, 2), (KNOWN_GAUSSIAN, 2)]), delta=1e-6, adjacency=Adjacency.REMOVE)
    assert len(spacings) == len(set(spacings)) > 0
