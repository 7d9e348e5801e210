# SPDX-License-Identifier: Apache-2.0
"""Cells of densities that users describe: the true masses lie inside, and bad descriptions are refused."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ggdp.privacy_loss.cells import Atoms, Cells
from ggdp.privacy_loss.custom import (
    DensityNoise,
    DensityPair,
    LossSurvival,
    OutcomeProbabilities,
    cells_of,
)
from ggdp.privacy_loss.density import Density, Mixture
from ggdp.privacy_loss.enclosure import enclose, partition

LAPLACE = Density(lambda x: -np.abs(x) - math.log(2.0), breaks=(0.0,))
GAUSSIAN = Density(lambda x: -0.5 * x * x - 0.5 * math.log(2.0 * math.pi))


def frozen(law, **where):
    return Density(law.logpdf, **where)


LAWS = {
    "laplace": (stats.laplace(scale=0.7), {"breaks": (0.0,)}),
    "gaussian": (stats.norm(scale=3.0), {}),
    "far from zero": (stats.norm(loc=50.0), {"breaks": (50.0,)}),
    "generalized": (stats.gennorm(1.5, scale=2.0), {"breaks": (0.0,)}),
    "flat": (stats.gennorm(6.0), {"breaks": (0.0,)}),
    "logistic": (stats.logistic(scale=0.1), {}),
    "triangle": (stats.triang(0.3, loc=-1.0, scale=2.0), {"breaks": (-0.4,), "support": (-1.0, 1.0)}),
    "one-sided": (stats.expon(scale=2.0), {"support": (0.0, math.inf)}),
    "beta": (stats.beta(2.5, 3.0), {"support": (0.0, 1.0)}),
    "student": (
        stats.t(4),
        {"breaks": (-2.0, 0.0, 2.0), "support": (-1e4, 1e4), "outside_mass": 2.0 * stats.t(4).sf(1e4)},
    ),
}


def curve(atoms: Atoms, epsilon: float) -> float:
    return atoms.infinite + float(atoms.mass @ np.maximum(-np.expm1(epsilon - atoms.loss), 0.0))


@pytest.mark.parametrize("name", LAWS)
def test_every_cell_holds_the_mass_that_scipy_gives_it(name):
    law, where = LAWS[name]
    edges = partition([frozen(law, relative_error=1e-13, **where)], 4000)
    found = enclose(frozen(law, relative_error=1e-13, **where), edges)
    points = edges.points
    upper_half = points[:-1] > law.median()
    truth = np.where(upper_half, -np.diff(law.sf(points)), np.diff(law.cdf(points)))
    rounding = 1e-13 * np.where(upper_half, law.sf(points[:-1]), law.cdf(points[1:])) + 1e-300
    assert np.all(found.mass_low <= truth + rounding)
    assert np.all(found.mass_high >= truth - rounding)
    low, high = found.total
    assert low <= 1.0 + 1e-12
    assert high >= 1.0 - 1e-12
    assert high - low < 3e-4


@pytest.mark.parametrize("name", ["laplace", "gaussian", "generalized", "logistic"])
def test_tails_beyond_the_last_cell_are_bounded(name):
    law, where = LAWS[name]
    density = frozen(law, relative_error=1e-13, **where)
    edges = partition([density], 4000)
    found = enclose(density, edges)
    assert found.tail_low >= law.cdf(edges.points[0])
    assert found.tail_high >= law.sf(edges.points[-1])
    assert found.tail_low + found.tail_high < 1e-120


@given(
    st.lists(st.floats(0.2, 5.0), min_size=1, max_size=6),
    st.lists(st.floats(-3.0, 3.0), min_size=6, max_size=6),
)
def test_piecewise_linear_log_densities_are_integrated_to_rounding(lengths, slopes):
    breaks = np.concatenate([[0.0], np.cumsum(lengths)])
    slopes = np.array(slopes[: len(lengths)])
    heights = np.concatenate([[0.0], np.cumsum(slopes * np.diff(breaks))])
    with mpmath.workdps(30):
        pieces = [
            mpmath.quad(
                lambda z, i=i: mpmath.exp(heights[i] + slopes[i] * (z - breaks[i])), breaks[i : i + 2]
            )
            for i in range(len(slopes))
        ]
        log_total = float(mpmath.log(mpmath.fsum(pieces)))
    density = Density(
        lambda x: np.interp(x, breaks, heights) - log_total,
        breaks=tuple(breaks[1:-1]),
        support=(0.0, float(breaks[-1])),
        relative_error=1e-14,
    )
    low, high = enclose(density, partition([density], 500)).total
    assert low <= 1.0 <= high
    assert high - low < 1e-10


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0, 8.0, 20.0])
def test_the_curves_of_gaussian_noise_enclose_its_closed_form(epsilon):
    cells = cells_of(DensityNoise(GAUSSIAN, sensitivity=1.0))
    with mpmath.workdps(60):
        truth = mpmath.ncdf(0.5 - epsilon) - mpmath.exp(epsilon) * mpmath.ncdf(-0.5 - epsilon)
        assert curve(cells.below(), epsilon) <= truth <= curve(cells.above(), epsilon)
    assert curve(cells.above(), epsilon) < curve(cells.below(), epsilon) * 1.0001


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.8, 2.0])
def test_the_curves_of_a_gaussian_mixture_enclose_quadrature(epsilon):
    def bump(centre):
        return Density(lambda x: -0.5 * (x - centre) ** 2 - 0.5 * math.log(2.0 * math.pi))

    noise = Mixture((0.3, 0.7), (bump(-2.0), bump(2.0)))
    cells = cells_of(DensityNoise(noise, shift=1.0))

    def excess(z):
        p = 0.3 * mpmath.npdf(z + 1) + 0.7 * mpmath.npdf(z - 3)
        q = 0.3 * mpmath.npdf(z + 2) + 0.7 * mpmath.npdf(z - 2)
        return p - mpmath.exp(epsilon) * q

    points = np.linspace(-12.0, 12.0, 481)
    signs = [excess(z) > 0 for z in points]
    roots = [
        mpmath.findroot(excess, (points[i], points[i + 1]), solver="anderson")
        for i in range(480)
        if signs[i] != signs[i + 1]
    ]
    marks = [-12.0, *roots, 12.0]
    truth = mpmath.fsum(
        mpmath.quad(excess, [a, 0.5 * (a + b), b])
        for a, b in itertools.pairwise(marks)
        if excess(0.5 * (a + b)) > 0
    )
    assert curve(cells.below(), epsilon) <= truth <= curve(cells.above(), epsilon)
    assert curve(cells.above(), epsilon) < curve(cells.below(), epsilon) * 1.00001


def test_truncation_puts_its_mass_at_infinite_loss():
    width, shift = 3.0, 1.0
    log_total = math.log(-2.0 * math.expm1(-width))
    noise = Density(lambda x: -np.abs(x) - log_total, breaks=(0.0,), support=(-width, width))
    cells = cells_of(DensityNoise(noise, sensitivity=shift))
    truth = (math.exp(-width + shift) - math.exp(-width)) / math.exp(log_total)
    for side in (cells, cells.reversed):
        assert side.below().infinite <= truth <= side.above().infinite
        assert side.above().infinite == pytest.approx(truth, rel=1e-12)


def test_a_density_that_falls_to_zero_at_its_end_is_enclosed():
    # 3/4 (1 - x^2): the loss grows without bound towards the end of Q, then is infinite
    noise = Density(
        lambda x: np.log(np.maximum((1.0 - x) * (1.0 + x), 0.0)) + math.log(0.75), support=(-1.0, 1.0)
    )
    cells = cells_of(DensityNoise(noise, sensitivity=0.1))
    infinite = 0.75 * (0.1**2 - 0.1**3 / 3.0)
    assert cells.below().infinite <= infinite <= cells.above().infinite
    x = mpmath.findroot(lambda z: (1 - (z - 0.1) ** 2) - mpmath.exp(0.5) * (1 - z**2), 0.9)
    inside = mpmath.quad(lambda z: 0.75 * ((1 - (z - 0.1) ** 2) - mpmath.exp(0.5) * (1 - z**2)), [x, 1])
    assert curve(cells.below(), 0.5) <= inside + infinite <= curve(cells.above(), 0.5)


def test_sampling_and_reversing_act_on_the_curve_as_formulas_say():
    cells = cells_of(OutcomeProbabilities((0.75, 0.25), (0.25, 0.75)))
    rate, epsilon = 0.1, 0.05
    mixed = np.array([rate * 0.75 + (1 - rate) * 0.25, rate * 0.25 + (1 - rate) * 0.75])
    remove = max(mixed[0] - math.exp(epsilon) * 0.25, 0.0)
    add = max(0.75 - math.exp(epsilon) * mixed[1], 0.0)
    sampled = cells.sampled(rate)
    assert curve(sampled.above(), epsilon) == pytest.approx(remove, rel=1e-12)
    assert curve(sampled.reversed.below(), epsilon) == pytest.approx(add, rel=1e-12)


@pytest.mark.parametrize(
    ("mechanism", "says"),
    [
        (DensityNoise(Density(lambda x: -np.abs(x), breaks=(0.0,)), sensitivity=1.0), "must integrate to 1"),
        (DensityNoise(Density(lambda x: -np.abs(x - 0.3) - math.log(2.0)), sensitivity=1.0), "not symmetric"),
        (
            DensityNoise(
                Density(lambda x: -0.5 * np.abs(x) ** 0.5 - math.log(16.0), breaks=(0.0,)), shift=1.0
            ),
            "concave and falling",
        ),
        (
            DensityNoise(Density(lambda x: -np.log1p(x * x) - math.log(math.pi)), shift=1.0),
            "must fall towards the unbounded ends",
        ),
        (
            DensityNoise(
                Density(
                    lambda x: -np.log1p(x * x) - math.log(math.pi), support=(-1e3, 1e3), outside_mass=1e-3
                ),
                shift=1.0,
            ),
            "list in breaks every jump, kink",
        ),
        (
            DensityNoise(
                Density(lambda x: np.where(np.abs(x) < 1.0, -math.log(2.0), -np.inf), support=(-3, 3)),
                shift=1.0,
            ),
            "minus infinity on a part",
        ),
        (
            DensityNoise(
                Density(
                    lambda x: -0.5 * np.log(np.abs(x)) - math.log(4.0), breaks=(0.0,), support=(-1.0, 1.0)
                ),
                shift=0.1,
            ),
            "must be finite",
        ),
        (
            DensityNoise(
                Mixture(
                    (0.5, 0.5),
                    (
                        Density(lambda x: -0.5 * (x - 3.0) ** 2 - 0.5 * math.log(2.0 * math.pi)),
                        Density(lambda x: -0.5 * (x + 3.0) ** 2 - 0.5 * math.log(2.0 * math.pi)),
                    ),
                ),
                sensitivity=1.0,
            ),
            "not log-concave",
        ),
        (
            LossSurvival(lambda t: stats.norm.sf(t, 0.5), lambda t: stats.norm.sf(t, 0.5), span=(-9.0, 9.0)),
            "laws of one loss",
        ),
        (
            LossSurvival(lambda t: stats.norm.cdf(t), lambda t: stats.norm.cdf(t), span=(-9.0, 9.0)),
            "must be monotone",
        ),
    ],
)
def test_a_description_that_cannot_be_sound_is_refused_with_the_reason(mechanism, says):
    with pytest.raises(ValueError, match=says):
        cells_of(mechanism)


def test_a_kink_that_is_not_declared_is_found():
    # convex corner inside a concave piece: two Laplace humps joined
    def two_humps(x):
        return -np.abs(np.abs(x) - 1.0) - math.log(2.0 * (2.0 - math.exp(-1.0)))

    whole = DensityNoise(Density(two_humps, breaks=(-1.0, 0.0, 1.0)), shift=0.5)
    low, high = (float(cells_of(whole).p_low.sum()), float(cells_of(whole).p_high.sum()))
    assert low <= 1.0 <= high
    with pytest.raises(ValueError, match="list in breaks"):
        cells_of(DensityNoise(Density(two_humps), shift=0.5))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: OutcomeProbabilities((0.5, 0.6), (0.5, 0.5)), "sum to 1"),
        (lambda: OutcomeProbabilities((1.5, -0.5), (0.5, 0.5)), "sum to 1"),
        (lambda: OutcomeProbabilities((1.0,), (0.5, 0.5)), "one length"),
        (lambda: DensityNoise(LAPLACE), "sensitivity or shift"),
        (lambda: DensityNoise(LAPLACE, shift=0.0), "must not be 0"),
        (lambda: DensityPair(LAPLACE, 3), "of type Density or Mixture"),
        (lambda: Density(LAPLACE.log_density_fn, breaks=(1.0, 0.0)), "increasing"),
        (lambda: Density(LAPLACE.log_density_fn, support=(1.0, 0.0)), "interval"),
        (lambda: Mixture((0.5, 0.4), (LAPLACE, LAPLACE)), "sum to 1"),
        (lambda: LossSurvival(LAPLACE.log_density_fn, LAPLACE.log_density_fn, span=(1.0, 0.0)), "interval"),
        (lambda: Cells(*(np.array([v]) for v in (0.5, 0.4, 0.1, 0.2, 0.0, 0.0))), "at most the upper"),
        (lambda: cells_of(object()), "register a function that takes a object"),
    ],
)
def test_a_bad_argument_is_named(build, says):
    with pytest.raises(ValueError, match=says):
        build()


@pytest.mark.parametrize("rate", [0.3, 1e-7, 1e-14, 1e-300])
def test_sampled_losses_hold_the_truth_also_where_loss_and_rate_nearly_cancel(rate):
    loss = np.concatenate([np.linspace(-50.0, 50.0, 41), np.linspace(590.0, 720.0, 131), [1500.0]])
    masses = np.ones((4, len(loss)))
    found = Cells(*masses, loss, loss).sampled(rate)
    with mpmath.workdps(400):
        for one, low, high in zip(loss, found.loss_low, found.loss_high, strict=True):
            truth = mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(mpmath.mpf(one)))
            assert low <= truth <= high
            assert high - low < 1e-11
