"""Two engines that check each other: their intervals must meet, and rare splits must change nothing."""

import math
import time
from itertools import count, pairwise

import mpmath as mp
import numpy as np
import pytest

from ggdp import AdditiveNoise, Adjacency, Composed, Gaussian, GeneralizedGaussian, PoissonSampled, epsilon
from ggdp.accounting.engines import characteristic as characteristic_functions
from ggdp.accounting.engines import contour, lattice, moments, rare
from ggdp.accounting.engines.characteristic import characteristic, power_units
from ggdp.accounting.engines.curve import ClosedForm, crossing
from ggdp.accounting.engines.cut_off import MANY
from ggdp.accounting.engines.grid_law import GridCurve, discretize
from ggdp.accounting.engines.tilt import TiltPlan, saddle_for_epsilon, saddle_for_log_delta
from ggdp.accounting.steps import steps_of
from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError
from ggdp.privacy_loss.shift_pair import ShiftPair

CASES = [  # composition, delta
    (((ShiftPair(2.0, 0.7, 0.0, 0.01), 40),), 1e-6),
    (((ShiftPair(1.5, 0.35, 0.0, 0.1), 30),), 1e-5),
    (((ShiftPair(1.25, 0.3, 0.0, 1.0), 25),), 1e-6),
    (((ShiftPair(1.0, 0.4, 0.0, 1.0), 200),), 1e-8),
    (((ShiftPair(1.0, 0.4, 0.0, 0.2), 400),), 1e-6),
    (((ShiftPair(3.0, 0.5, -0.5, 0.2), 20),), 1e-9),
    (((ShiftPair(1.5, 0.0, -0.6, 0.3), 20),), 1e-5),
    (((ShiftPair(2.0, 0.5, 0.0, 0.1), 10), (ShiftPair(1.2, 0.4, 0.0, 1.0), 5)), 1e-6),
]


def _epsilon(build, parts, log_delta):
    plan = TiltPlan.of(parts)
    saddle = saddle_for_log_delta(plan, log_delta)
    for _ in range(2):
        found = crossing(build(parts, plan, saddle), log_delta, saddle.epsilon, 2.0 * saddle.deviation)
        saddle = saddle_for_epsilon(plan, found.estimate)
    return found


@pytest.mark.parametrize(("parts", "asked"), CASES)
def test_contour_and_lattice_intervals_meet(parts, asked):
    by_contour = _epsilon(contour.draw, parts, math.log(asked))
    by_lattice = _epsilon(lambda *a: lattice.build(*a, tolerance=1e-5), parts, math.log(asked))
    assert by_contour.lower <= by_lattice.upper
    assert by_lattice.lower <= by_contour.upper
    assert by_contour.upper - by_contour.lower <= 1e-7 * by_contour.upper
    assert by_lattice.estimate == pytest.approx(by_contour.estimate, rel=1e-6)


@pytest.mark.parametrize(("parts", "asked"), [CASES[0], CASES[1], CASES[5]])
def test_splitting_off_the_rare_event_changes_nothing(parts, asked):
    plain = _epsilon(contour.draw, parts, math.log(asked))
    plan = TiltPlan.of(parts)
    split = rare.cut(parts, plan, 1.05 * plain.estimate, math.log(asked))
    curve = rare.RareSplit(
        contour.draw(split.parts, split.plan, saddle_for_epsilon(split.plan, plain.estimate)), split.rare
    )
    found = crossing(curve, math.log(asked), plain.estimate, 0.02 * plain.estimate)
    assert found.lower <= plain.upper
    assert plain.lower <= found.upper
    assert found.estimate == pytest.approx(plain.estimate, rel=1e-7)


def test_planned_epsilon_finds_the_one_large_loss():
    """rate 1e-7, 20 releases: one sampled record decides; the plain saddle is off by orders of magnitude."""
    parts = ((ShiftPair(2.0, 1.0, 0.0, 1e-7), 20),)
    target = math.log(1e-12)
    plan = TiltPlan.of(parts)
    assert saddle_for_log_delta(plan, target).epsilon > 0.5
    assert rare.planned_epsilon(parts, plan, target) == pytest.approx(1.784e-4, rel=0.02)


def test_engine_says_so_where_it_cannot_certify():
    """Two releases of almost-Laplace noise: the characteristic function hardly falls."""
    parts = ((ShiftPair(1.001, 0.01, 0.0, 1.0), 2),)
    plan = TiltPlan.of(parts)
    with pytest.raises(CannotCertifyError):
        contour.draw(parts, plan, saddle_for_log_delta(plan, math.log(1e-3)))


def _exact_curve(pair, t):
    """E_Q[(P/Q - e^t)_+] of the noise up to the cut, at 40 digits."""

    def survival(z, shift):
        half = mp.gammainc(1 / mp.mpf(pair.beta), abs(z - shift) ** pair.beta, regularized=True) / 2
        return half if z >= shift else 1 - half

    def density(z, shift):
        rate = mp.mpf(pair.rate)
        return (1 - rate) * mp.exp(-(abs(z) ** pair.beta)) + rate * mp.exp(-(abs(z - shift) ** pair.beta))

    def kept(z):
        rate, x = mp.mpf(pair.rate), mp.exp(t)
        up, down = ((1 - rate) * survival(z, 0) + rate * survival(z, mp.mpf(s)) for s in (pair.up, pair.down))
        return up - x * down

    with mp.workdps(40):
        t = mp.mpf(t)
        top = mp.mpf(pair.cut) if math.isfinite(pair.cut) else mp.mpf(60)
        low, high = mp.mpf(-60), top
        for _ in range(80):  # z to 1e-22; the curve is the largest value over z, and errs by the square
            z = (low + high) / 2
            exceeds = mp.log(density(z, pair.up)) - mp.log(density(z, pair.down)) > t
            low, high = (low, z) if exceeds else (z, high)
        return kept(low) - kept(top) if math.isfinite(pair.cut) else kept(low)


@pytest.mark.parametrize("negligible", [1e-6, 1e-40])
@pytest.mark.parametrize("spacing", [0.4578, 0.03])
def test_law_above_a_release_that_is_cut_holds_its_curve_next_to_the_cut_too(spacing, negligible):
    # the curve is that of the whole release less a line that touches it at the cut, and both are rounded
    pair = ShiftPair(1.7125522929847754, 0.0, -0.025428966743498847, 1.0, cut=1.4838709118127171)
    law = discretize(pair, spacing, -24.6, pair.supremum, negligible)
    for t in np.concatenate(
        [np.linspace(-1.6, 0.03, 40), pair.supremum - spacing * np.array([0.1, 0.9, 1.1])]
    ):
        found = law.infinite + math.fsum(
            m * -math.expm1(t - x) for m, x in zip(law.mass, law.loss, strict=True) if x > t
        )
        assert found >= _exact_curve(pair, float(t)), t


@pytest.mark.parametrize("first", [0.0, 3.7])
@pytest.mark.parametrize(("count", "transformed"), [(1500, False), (9000, True)])
def test_a_characteristic_function_is_off_by_no_more_than_it_is_charged(first, count, transformed):
    """Against exponentials of the true phase in extended precision: a matrix product, and a transform."""
    rng = np.random.default_rng(4)
    loss, share = rng.normal(0.0, 0.02, 60), rng.dirichlet(np.ones(60))
    step = 0.017
    assert (len(loss) * count > characteristic_functions._LEAST_TRANSFORMED) == transformed
    found = characteristic(share, loss, first, step, count)
    omega = np.longdouble(first) + np.arange(count).astype(np.longdouble) * np.longdouble(step)
    truth = (np.exp(1j * np.multiply.outer(omega, loss)) * share).sum(axis=1)
    farthest = first + step * count
    charged = 2.0**-53 * (power_units(count) + len(loss) + 4.0 * farthest * np.abs(loss).max())
    assert np.abs(found - truth).max() <= charged
    assert charged <= 1e-12


@pytest.mark.parametrize(("theta", "end"), [(0.3, 50.0), (5.0, 900.0), (40.0, 160.0)])
def test_a_window_changes_no_more_than_its_bound(theta, end):
    """Of the function that delta is the mean of, at every point: both transformed back by plain sums."""
    omega = np.linspace(0.0, end, 200_001)
    window = contour.Window.ending(omega)
    points = np.concatenate([np.linspace(-40.0, 40.0, 401), np.linspace(-1.0, 1.0, 41)]) / end
    s = theta + 1j * omega
    weights = np.full(len(omega), omega[1] / np.pi)
    weights[0] *= 0.5
    changed = (np.exp(-1j * np.outer(points, omega)) @ (weights * window.weight / (s * (1.0 + s)))).real
    bound = (np.exp(1j * np.outer(points, omega)) @ (weights * window.bound)).real
    # the sums stand for integrals, whose transforms are of the reflected function
    exact = np.where(points < 0.0, np.exp(theta * points) * -np.expm1(np.minimum(points, 0.0)), 0.0)
    off = np.abs(changed - exact)
    assert np.all(off <= bound + 1e-12)
    assert off.max() > 0.1 * bound.max()


@pytest.mark.parametrize(("times", "asked"), [(1, 1e-6), (3, 1e-20), (40, 0.01)])
def test_a_windowed_contour_holds_the_closed_form_of_gaussian_releases(times, asked):
    parts = ((ShiftPair(2.0, 0.35, -0.35, 1.0), times),)
    plan = TiltPlan.of(parts)
    saddle = saddle_for_log_delta(plan, math.log(asked))
    found = contour.draw_windowed(parts, plan, saddle).log_delta(saddle.epsilon)
    mu, eps = 2.0 * 0.35 * mp.sqrt(2 * times), mp.mpf(saddle.epsilon)
    exact = float(mp.log(mp.ncdf(mu / 2 - eps / mu) - mp.exp(eps) * mp.ncdf(-mu / 2 - eps / mu)))
    assert found.lower <= exact <= found.upper
    assert found.upper - found.lower <= 2e-6 * max(saddle.theta * saddle.epsilon, 0.02)


@pytest.mark.parametrize(
    "parts",
    [
        ((ShiftPair(1.0, 0.02, 0.0, 0.05), 200), (ShiftPair(1.0, 0.027, 0.0, 0.04), 150)),  # atoms
        ((ShiftPair(6.0, 0.4, -0.4, 1.0), 4),),  # few releases of large losses
        ((ShiftPair(3.0, 0.0, -0.5, 0.3), 30), (ShiftPair(1.3, 0.0, -0.2, 0.5), 40)),
    ],
)
def test_windowed_contours_and_the_lattice_meet(parts):
    target = math.log(1e-12)
    windowed = _epsilon(contour.draw_windowed, parts, target)
    by_lattice = _epsilon(lambda *a: lattice.build(*a, tolerance=1e-5), parts, target)
    assert windowed.upper - windowed.lower <= 2e-6 * windowed.upper
    assert windowed.lower <= by_lattice.upper
    assert by_lattice.lower <= windowed.upper


def test_a_line_through_many_mixed_exponents_agrees_with_the_lattice():
    """More parts than are covered on the line: those left out of the cover only make it longer."""
    rng = np.random.default_rng(8)
    parts = tuple(
        (ShiftPair(float(beta), float(up), 0.0, float(rate)), 1)
        for beta, up, rate in zip(
            rng.uniform(1.1, 3.5, MANY + 4),
            rng.uniform(0.2, 0.9, MANY + 4),
            rng.uniform(0.02, 0.2, MANY + 4),
            strict=True,
        )
    )
    plan = TiltPlan.of(parts)
    saddle = saddle_for_log_delta(plan, math.log(1e-5))
    line = contour.draw(parts, plan, saddle).log_delta(saddle.epsilon)
    grid = lattice.build(parts, plan, saddle, 1e-4).log_delta(saddle.epsilon)
    assert line.upper - line.lower < 1e-6
    assert grid.lower <= line.upper
    assert line.lower <= grid.upper
    assert grid.upper - grid.lower < 0.02
    assert line.estimate == pytest.approx(grid.estimate, abs=1e-4)


@pytest.mark.parametrize("spacing", [1e-2, 1e-3])
def test_the_masses_of_a_grid_give_back_the_values_they_were_made_from(spacing):
    """Rounding of single masses must not add up over a fine grid: the curve is right to a few units."""
    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(1.5, 2.0)), 0.05)
    ((pair, _),) = steps_of(step, Adjacency.REMOVE).pairs()[0]
    curve = GridCurve.on(pair, spacing, -0.1, 0.6)
    masses = curve.masses(curve.left.value, curve.right.value)
    place = len(masses) // 2
    with mp.workdps(40):
        left, right = ([mp.mpf(float(value)) for value in side.value] for side in (curve.left, curve.right))
        rises = [b - a for side in (left, right) for a, b in pairwise(side)]
        grow, fall = mp.expm1(mp.mpf(spacing)), -mp.expm1(-mp.mpf(spacing))
        exact = [
            (rises[k] / grow if k < len(rises) else mp.mpf(0)) - rises[k - 1] / fall
            for k in range(place + 1, len(masses))
        ]
        found = masses[place + 1 :]
        shares = [1 - mp.exp(-spacing * (k + 1)) for k in range(len(exact))]
        wanted = mp.fdot(exact, shares)
        assert abs(mp.fdot([mp.mpf(float(mass)) for mass in found], shares) / wanted - 1) < 4e-16


def test_a_plan_of_a_rare_event_stops_when_time_is_up():
    """38 stages of beta = 28.7 planned for 14 seconds, where a question may take five."""
    parts = ((ShiftPair(2.0, 1.0, 0.0, 1e-7), 20),)
    with CLOCK.running(0.0), pytest.raises(CannotCertifyError, match="time"):
        rare.planned_epsilon(parts, TiltPlan.of(parts), math.log(1e-12))


def test_a_thousand_different_releases_are_given_the_time_that_they_take(monkeypatch):
    """On a slow machine, where the answer takes 4 seconds: each of 3,800 looks at the clock takes 1 ms."""
    looks = count()
    monkeypatch.setattr(time, "thread_time", lambda: 0.001 * next(looks))
    steps = [(PoissonSampled(AdditiveNoise(Gaussian(std=1.5 + 0.001 * k)), 0.01), 1) for k in range(1000)]
    answer = epsilon(Composed(steps), delta=1e-6)
    assert answer.width <= 1e-7 * answer.upper


def test_losses_too_far_apart_for_a_grid_are_told_before_it_is_made():
    """Three releases of beta = 32 with little noise: spacings of a million."""
    parts = ((ShiftPair(32.0, 1.24, 0.0, 1.0), 3),)
    plan = TiltPlan.of(parts)
    with pytest.raises(CannotCertifyError, match="too far apart"):
        lattice.build(parts, plan, saddle_for_epsilon(plan, 0.1), 1e-6)


def test_basic_composition_holds_the_closed_form_and_is_close_where_a_record_is_hardly_ever_sampled():
    gaussian = ((ShiftPair(2.0, 0.3, 0.0, 1.0), 5),)
    whole = ClosedForm(ShiftPair(2.0, 0.3 * math.sqrt(5.0), 0.0, 1.0))
    log_delta = math.log(1e-3)
    assert moments.epsilon_of_each(gaussian, log_delta) >= whole.epsilon(log_delta, math.inf).upper
    assert moments.log_delta_of_each(gaussian, 0.8) >= whole.log_delta(0.8).upper
    # 20 replaced records at a rate of 3e-7: 58 was the upper end
    up = 1.0 / 1.4
    sampled = ((ShiftPair(6.0, up, -up, 3e-7), 20),)
    above = moments.epsilon_of_each(sampled, math.log(1e-6))
    assert 3.476e-5 <= above <= 1e-3
    assert math.log(1e-6) <= moments.log_delta_of_each(sampled, 3.456e-5) <= math.log(2e-6)
