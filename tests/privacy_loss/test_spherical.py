# SPDX-License-Identifier: Apache-2.0
"""The cells of spherical noise against polar coordinates, closed forms and Monte Carlo.

The truth here is an integral over the radius, by Simpson's rule, of the share of the sphere where the loss
exceeds a threshold, by SciPy's incomplete beta function. The cells use elliptic coordinates and neither.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, special

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    Gaussian,
    GeneralizedGaussian,
    PoissonSampled,
    SphericalGeneralizedGaussian,
    SphericalNoise,
    account,
    best_noise,
    calibrate_scale,
    delta,
    epsilon,
)
from ggdp.calibration.target import Target
from ggdp.privacy_loss import spherical
from ggdp.privacy_loss.cells import Cells, replaced

CASES = [(1.0, 2, 1.0), (1.5, 2, 0.8), (3.0, 3, 0.4), (1.5, 10, 1.2), (4.0, 100, 0.3)]
every_case = pytest.mark.parametrize(("beta", "d", "length"), CASES)
RATE = 0.2
ROUNDING = 1e-7  # of Simpson's rule, relative


def noise(beta, d, length, power=0.0):
    return SphericalNoise(SphericalGeneralizedGaussian(beta, 2.0, d, power), sensitivity=2.0 * length)


def cap(cosine, d):
    """The share of the sphere where the cosine to a fixed direction is larger."""
    share = 0.5 * special.betainc(0.5 * (d - 1), 0.5, 1.0 - np.clip(cosine, -1.0, 1.0) ** 2)
    return np.where(cosine >= 0.0, share, 1.0 - share)


def distance_at(value, beta, power):
    """The s with s^beta - power log s = value, by halving; power < 0."""
    low, high = np.full_like(value, -60.0), np.full_like(value, 60.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = np.exp(np.minimum(beta * middle, 600.0)) - power * middle < value
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.exp(low)


def without_record(t, beta, d, length, power=0.0, nodes=100_001):
    """Q(L > t) and Q(L < t) of the loss L = r^beta - s^beta, s the distance from a point `length` away; with
    a power of the distance in the density, L = r^beta - s^beta - power log(r/s).
    """
    shape = (d + power) / beta
    ends = special.gammaincinv(shape, 1e-25), special.gammainccinv(shape, 1e-25)
    r = np.linspace(*(end ** (1.0 / beta) for end in ends), nodes)
    density = beta * np.exp((d + power - 1) * np.log(r) - r**beta - special.gammaln(shape))
    if power:
        left = np.ones_like(r)
        s = distance_at(r**beta - power * np.log(r) - t, beta, power)
    else:
        left = r**beta - t  # s^beta at the threshold
        s = np.maximum(left, 0.0) ** (1.0 / beta)
    cosine = (r**2 + length**2 - s**2) / (2.0 * r * length)
    above = np.where(left > 0.0, cap(cosine, d), 0.0)
    below = np.where(left > 0.0, cap(-cosine, d), 1.0)
    return integrate.simpson(density * above, x=r), integrate.simpson(density * below, x=r)


def divergence(ratio, *law):
    """sup over sets of P(S) - ratio Q(S); P(L > t) = Q(L < -t) by reflection."""
    t = math.log(ratio)
    return without_record(-t, *law)[1] - ratio * without_record(t, *law)[0]


def sampled_truth(direction, e, *law):
    ratio = math.exp(e)
    if direction is Adjacency.REMOVE:  # ((1 - q) Q + q P, Q)
        return RATE * divergence((ratio - 1.0 + RATE) / RATE, *law)
    t = math.log((1.0 / ratio - 1.0 + RATE) / RATE)  # below which Q exceeds ratio times the mixture
    q, p = without_record(t, *law)[1], without_record(-t, *law)[0]
    return q - ratio * ((1.0 - RATE) * q + RATE * p)


def assert_inside(truth, found, width):
    assert found.lower <= truth * (1.0 + ROUNDING) + 1e-13
    assert truth <= found.upper * (1.0 + ROUNDING) + 1e-13
    assert found.width <= width * truth + 1e-12


@every_case
@pytest.mark.parametrize("e", [0.05, 0.3, 0.8])
def test_the_truth_lies_inside(beta, d, length, e):
    assert_inside(divergence(math.exp(e), beta, d, length), delta(noise(beta, d, length), epsilon=e), 1e-3)


@every_case
def test_a_planted_error_of_a_thousandth_would_be_seen(beta, d, length):
    found = delta(noise(beta, d, length), epsilon=0.3)
    truth = divergence(math.exp(0.3), beta, d, length)
    assert not found.lower <= 1.001 * truth <= found.upper
    assert not found.lower <= 0.999 * truth <= found.upper


@every_case
@pytest.mark.parametrize("direction", [Adjacency.ADD, Adjacency.REMOVE])
def test_the_truth_lies_inside_when_records_are_sampled(beta, d, length, direction):
    found = delta(PoissonSampled(noise(beta, d, length), RATE), epsilon=0.05, adjacency=direction)
    assert_inside(sampled_truth(direction, 0.05, beta, d, length), found, 1e-3)


@pytest.mark.parametrize(
    ("law", "width"),
    [((1.2, 10, 0.9, -2.5), 1e-3), ((3.0, 4, 0.5, -3.0), 2e-2)],
)
def test_the_truth_lies_inside_with_a_power_of_the_radius(law, width):
    step = noise(*law)
    for e in (0.1, 0.6):
        assert_inside(divergence(math.exp(e), *law), delta(step, epsilon=e), width)
    for direction in (Adjacency.ADD, Adjacency.REMOVE):
        found = delta(PoissonSampled(step, RATE), epsilon=0.05, adjacency=direction)
        assert_inside(sampled_truth(direction, 0.05, *law), found, 2.0 * width)


def test_rare_losses_next_to_a_pole_do_not_keep_a_composition_from_its_epsilon():
    step = Composed(PoissonSampled(noise(1.3, 10, 0.215, -1.0), 0.1), times=20)
    found = epsilon(step, delta=1e-6)
    assert found.width < 1e-3 * found.upper < 3e-4


def test_with_a_positive_power_a_shorter_shift_can_be_worse():
    """Total variation of a ring's law in the plane, moved by 1.4 and by 1.9 of its radii."""
    power = 100.0
    places = np.linspace(-1.6, 3.6, 521)
    x, y = np.meshgrid(places, places[places < 1.61], indexing="ij")

    def density(moved):
        square = np.maximum((x - moved) ** 2 + y**2, 1e-300)
        found = np.exp(0.5 * power * (np.log(square) - square + 1.0))  # beta = 2, the ring's radius is 1
        return found / found.sum()

    near, far = (1.0 - np.minimum(density(0.0), density(moved)).sum() for moved in (1.4, 1.9))
    assert near > far + 0.03


@pytest.mark.parametrize(("beta", "d", "length"), [CASES[1], CASES[4]])
@pytest.mark.parametrize("times", [5, 50])
def test_monte_carlo_of_a_composition_agrees(beta, d, length, times):
    rng = np.random.default_rng(20)
    runs, small = 40_000, 0.1 * length if times == 50 else length
    radius = rng.gamma(d / beta, size=(runs, times)) ** (1.0 / beta)
    cosine = 2.0 * rng.beta(0.5 * (d - 1), 0.5 * (d - 1), size=(runs, times)) - 1.0
    # an outcome of P lies at `radius` from P's centre; its distance from Q's
    far = np.sqrt(radius**2 + 2.0 * radius * small * cosine + small**2)
    total = (far**beta - radius**beta).sum(axis=1)
    e = float(np.quantile(total, 0.8))
    draws = np.maximum(-np.expm1(e - total), 0.0)
    error = 4.5 * draws.std() / math.sqrt(runs)
    found = delta(Composed(noise(beta, d, small), times=times), epsilon=e)
    assert found.lower - error <= draws.mean() <= found.upper + error
    assert found.width < 0.2 * error < 0.02 * found.upper


@pytest.mark.parametrize("d", [2, 3, 100, 10**6])
def test_at_beta_two_it_is_the_gaussian(d):
    gaussian = AdditiveNoise(Gaussian(std=1.0 / math.sqrt(2.0)), sensitivity=0.3)
    spherical_noise = SphericalNoise(SphericalGeneralizedGaussian(2.0, 1.0, d), sensitivity=0.3)
    for change in (
        lambda one: one,
        lambda one: Composed(one, times=20),
        lambda one: PoissonSampled(one, 0.1),
    ):
        truth, found = (epsilon(change(one), delta=1e-6) for one in (gaussian, spherical_noise))
        assert found.lower <= truth.upper
        assert truth.lower <= found.upper
        assert found.upper <= truth.upper * (1.0 + 2e-4)
        assert found.lower >= truth.lower * (1.0 - 2e-3)


@pytest.mark.parametrize("d", [1, 2, 10, 10**6])
def test_at_beta_one_it_is_purely_private_at_sensitivity_over_scale(d):
    step = SphericalNoise(SphericalGeneralizedGaussian(1.0, 3.0, d), sensitivity=0.7)
    for times in (1, 4):
        found = account(Composed(step, times=times)).epsilon(delta=0.0)
        assert times * 0.7 / 3.0 <= found.upper <= times * 0.7 / 3.0 * (1.0 + 1e-12)
    if 1 < d <= 10:
        assert found.lower >= 4 * 0.7 / 3.0 * 0.99


@pytest.mark.parametrize("beta", [1.0, 1.5, 4.0])
def test_in_one_dimension_it_is_generalized_gaussian_noise(beta):
    line = epsilon(AdditiveNoise(GeneralizedGaussian(beta, 2.0)), delta=1e-6)
    found = epsilon(SphericalNoise(SphericalGeneralizedGaussian(beta, 2.0, 1)), delta=1e-6)
    assert found.lower <= line.upper
    assert line.lower <= found.upper
    assert found.width <= 1e-6 * line.upper


@pytest.mark.parametrize(("beta", "d"), [(1.0, 3), (1.5, 2), (4.0, 5)])
def test_a_longer_shift_costs_more_at_every_ratio(beta, d):
    ratios = [0.05, 0.5, 1.0, 1.5, 4.0]
    curves = [[divergence(ratio, beta, d, m) for ratio in ratios] for m in (0.1, 0.3, 0.6, 1.0, 2.0)]
    assert np.all(np.diff(curves, axis=0) >= -1e-9)


def test_adding_and_removing_cost_the_same_without_sampling():
    step = noise(*CASES[1])
    add, remove = (epsilon(step, delta=1e-6, adjacency=kind) for kind in (Adjacency.ADD, Adjacency.REMOVE))
    assert add.lower <= remove.upper
    assert remove.lower <= add.upper
    assert add.width < 2e-4 * add.upper


def test_replacing_a_record_is_moving_twice_as_far():
    step, far = noise(1.5, 2, 0.4), noise(1.5, 2, 0.8)
    assert epsilon(step, delta=1e-6, adjacency=Adjacency.REPLACE) == epsilon(far, delta=1e-6)


def test_replacing_a_sampled_record_costs_at_beta_two_what_it_costs_with_the_gaussian():
    rate, times = 0.1, 10
    gaussian = AdditiveNoise(Gaussian(std=1.0 / math.sqrt(2.0)), sensitivity=0.3)
    spherical_noise = SphericalNoise(SphericalGeneralizedGaussian(2.0, 1.0, 10), sensitivity=0.3)
    truth, found = (
        epsilon(Composed(PoissonSampled(one, rate), times=times), delta=1e-6, adjacency=Adjacency.REPLACE)
        for one in (gaussian, spherical_noise)
    )
    assert found.lower <= truth.lower
    assert truth.upper <= found.upper <= truth.upper * (1.0 + 5e-4)


def test_replacing_a_sampled_record_is_bounded_for_vectors_on_opposite_sides_and_at_an_angle():
    """Monte Carlo of sup over sets: the sets where the first law exceeds e^eps times the second."""
    rng = np.random.default_rng(17)
    law = SphericalGeneralizedGaussian(1.2, 1.0, 2)
    first, rate, e, runs = np.array([0.9, 0.0]), 0.4, 0.15, 200_000
    bound = delta(PoissonSampled(SphericalNoise(law, 0.9), rate), epsilon=e, adjacency=Adjacency.REPLACE)
    seen = []
    for angle in (math.pi, 2.0, 1.0):
        second = 0.9 * np.array([math.cos(angle), math.sin(angle)])
        x = law.sample(runs, rng=rng) + first * (rng.random(runs) < rate)[:, None]
        p, q = (
            (1.0 - rate) * np.exp(law.logpdf(x)) + rate * np.exp(law.logpdf(x - to)) for to in (first, second)
        )
        gains = np.maximum(1.0 - math.exp(e) * q / p, 0.0)
        seen.append(gains.mean())
        assert gains.mean() <= bound.upper + 4.5 * gains.std() / math.sqrt(runs)
    assert bound.lower <= seen[0] <= bound.upper * 1.01
    assert seen[0] >= 0.9 * bound.upper  # the bound is close where the two lie on opposite sides
    assert seen[0] > seen[1] > seen[2]


def test_when_shifts_are_so_long_that_masses_underflow_replacing_a_sampled_record_still_costs_the_rate():
    """Two outcomes told apart at once: the first record, if it takes part, is seen; so delta is the rate."""
    sure, never = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    loss = np.array([800.0, -800.0])
    for whole in (
        Cells(sure, sure, never, never, loss, loss),
        Cells(sure, sure, never, never, np.array([math.inf, -math.inf]), np.array([math.inf, -math.inf])),
    ):
        pair = replaced(whole, 0.4)
        for atoms in (pair.above(), pair.reversed.above()):
            gains = (atoms.mass * np.maximum(-np.expm1(50.0 - atoms.loss), 0.0)).sum()
            assert atoms.infinite + gains == pytest.approx(0.4, rel=1e-9)
            assert atoms.infinite + gains >= 0.4
            assert atoms.infinite + atoms.mass.sum() == pytest.approx(1.0, rel=1e-9)


def test_a_sketch_is_close_to_the_cells():
    mechanism = Composed(PoissonSampled(noise(1.5, 2, 0.8), 0.1), times=50)
    found = epsilon(mechanism, delta=1e-6)
    assert abs(Target(found.upper, 1e-6).estimated_excess(mechanism)) < 2e-3
    assert Target(0.5 * found.upper, 1e-6).estimated_excess(mechanism) > 0.6


@pytest.mark.parametrize(
    ("beta", "d", "times"), [(8.0, 2, 5), (1.0, 10**4, 1000), (1.0, 10**6, 100), (2.0, 10**6, 100)]
)
def test_a_sketch_answers_for_any_losses_and_grows_with_the_shift(beta, d, times):
    target, lengths = Target(1.0, 1e-6), np.geomspace(1e-4, 1e3, 8) * math.sqrt(d) ** (2.0 / beta - 1.0)
    shifts = [Composed(noise(beta, d, float(length)), times=times) for length in lengths]
    found = [target.planned_excess(shift) for shift in shifts]
    assert found == sorted(found)
    assert found[0] < 0.0 < found[-1]


def test_the_mass_of_a_rectangle_lies_inside_its_bounds():
    """Against SciPy's adaptive rule, in the rectangles' own coordinates, up to the one common factor."""
    pair = spherical._Pair(1.5, 5, 0.8)
    centre = 2.0
    steps, angles = np.linspace(-0.08, 0.08, 9), np.linspace(-0.24, 0.24, 9)
    low, high = spherical._masses(pair, centre, steps, angles, 0.0)

    def density(phi, step):
        xi = centre + step
        r = 0.5 * pair.length * (math.cosh(xi) + math.sin(phi))
        factor = (math.sinh(xi) / math.sinh(centre) * math.cos(phi)) ** (pair.dimension - 2)
        middle = (0.5 * pair.length * math.cosh(centre)) ** pair.beta
        area = (math.sinh(xi) ** 2 + math.cos(phi) ** 2) / math.cosh(centre) ** 2
        return factor * area * math.exp(middle - r**pair.beta)

    for i, j in [(0, 0), (3, 5), (7, 7)]:
        truth, _ = integrate.dblquad(density, steps[i], steps[i + 1], angles[j], angles[j + 1], epsrel=1e-12)
        assert low[i, j] <= truth <= high[i, j]
        assert high[i, j] - low[i, j] < 0.1 * truth  # rectangles ten times as wide as those in use


@pytest.mark.parametrize("d", [2, 3, 10, 1000, 10**6])
def test_what_lies_outside_of_the_grid_has_no_more_mass_than_is_said(d):
    pair = spherical._Pair(1.5, d, 0.7)
    grid = spherical._grid(pair)
    nearest, furthest = (0.35 * math.cosh(grid.centre + end) for end in (grid.steps[0], grid.steps[-1]))
    beyond = special.gammaincc(d / 1.5, (furthest - 0.35) ** 1.5)
    within = (
        special.gammainc(d / 1.5, max(nearest + 0.35, 0.0) ** 1.5) if grid.steps[0] > -grid.centre else 0.0
    )
    assert beyond + within <= grid.outside < 1e-130
    assert np.all(np.diff(grid.steps) > 0.0)
    assert np.array_equal(grid.angles, -grid.angles[::-1])
    assert 0.0 in grid.angles


def test_the_least_scale_is_certified_and_a_smaller_one_misses():
    run = {"epsilon": 1.0, "delta": 1e-6, "norm": 2, "dimension": 10**4, "steps": 3, "rate": 0.3}
    found = calibrate_scale(beta=1.5, spherical=True, adjacency=Adjacency.REMOVE, **run)
    assert found.achieved.upper <= 1.0
    assert found.achieved == epsilon(found.mechanism, delta=1e-6, adjacency=Adjacency.REMOVE)
    smaller = PoissonSampled(SphericalNoise(replace(found.noise, scale=0.998 * found.scale)), 0.3)
    assert epsilon(Composed(smaller, times=3), delta=1e-6, adjacency=Adjacency.REMOVE).lower > 1.0


def test_the_best_noise_for_a_vector_in_l2_is_spherical_and_beats_other_exponents():
    best = best_noise(epsilon=1.0, delta=1e-6, steps=3, norm=2, dimension=5, betas=(1.0, 2.0))
    assert isinstance(best.noise, SphericalGeneralizedGaussian)
    assert best.calibrated.achieved.upper <= 1.0
    assert 0.15 < best.less_than_gaussian < 0.16
    assert best.less_than_laplace > 0.01


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: SphericalGeneralizedGaussian(1.0, 1.0, 0),
            r"dimension must be a whole number in \[1, 1000000\]",
        ),
        (lambda: SphericalGeneralizedGaussian(0.5, 1.0, 2), r"beta must be a number in \[1, 64\]"),
        (
            lambda: SphericalNoise(SphericalGeneralizedGaussian(1.0, 1.0, 2), norm=1.0),
            r"norm must be 2 for spherical noise, got 1\.0: .* bound the l_2 norm",
        ),
        (
            lambda: SphericalNoise(SphericalGeneralizedGaussian(1.0, 1.0, 2, power=0.5)),
            "power must be at most 0 .* a shorter shift can be worse .* take power=0",
        ),
        (
            lambda: SphericalNoise(SphericalGeneralizedGaussian(1.0, 1.0, 2, power=-1.5)),
            "power must be at least 1 - dimension, -1, .* take power=0",
        ),
        (
            lambda: calibrate_scale(beta=1.5, epsilon=1, delta=1e-6, power=-1.0),
            "power must be left out but for spherical=True",
        ),
        (lambda: SphericalNoise(Gaussian(std=1.0)), "noise must be of type SphericalGeneralizedGaussian"),
        (
            lambda: AdditiveNoise(SphericalGeneralizedGaussian(1.0, 1.0, 2), norm=1),
            "norm must be 2 for spherical noise, got 1: .* take independent noise",
        ),
        (
            lambda: AdditiveNoise(SphericalGeneralizedGaussian(1.0, 1.0, 2), dimension=3),
            "dimension must be 2, that of the noise, or be left out, got 3",
        ),
        (
            lambda: AdditiveNoise(SphericalGeneralizedGaussian(1.0, 1.0, 2), grid=1.0),
            "grid must be left out for spherical noise",
        ),
        (
            lambda: calibrate_scale(beta=1, epsilon=1, delta=1e-6, norm=1, dimension=3, spherical=True),
            "norm must be 2 for spherical noise, got 1: .* take independent noise",
        ),
        (
            lambda: calibrate_scale(beta=1, epsilon=1, delta=1e-6, norm=2, dimension=0, spherical=True),
            r"dimension must be a whole number in \[1, 1000000\]",
        ),
        (
            lambda: best_noise(epsilon=1, delta=1e-6, norm=2, dimension=0),
            "dimension must be a whole number",
        ),
        (
            lambda: best_noise(epsilon=1, delta=1e-6, norm=2, dimension=3, loss="interval", spherical=True),
            "loss must be one of .*std",
        ),
        (
            lambda: calibrate_scale(beta=1.5, epsilon=1e-9, delta=0.0, norm=2, dimension=3, spherical=True),
            "delta must be positive for this mechanism, got 0",
        ),
        (
            lambda: epsilon(SphericalNoise(SphericalGeneralizedGaussian(2.0, 1e-9, 2)), delta=1e-6),
            r"sensitivity / scale must be a number in \[1e-06, 1e\+06\]",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(build, message):
    with pytest.raises(ValueError, match=message):
        build()
