"""Two engines that check each other: their intervals must meet, and rare splits must change nothing."""

import math

import pytest

from ggdp.accounting import contour, lattice, rare
from ggdp.accounting.curve import crossing
from ggdp.accounting.tilt import TiltPlan, saddle_for_epsilon, saddle_for_log_delta
from ggdp.privacy_loss.quadrature import CannotCertifyError
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
