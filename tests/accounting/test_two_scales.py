# SPDX-License-Identifier: Apache-2.0
"""Rare large losses on a coarse grid beside the sum of all small ones: held against closed forms and other
engines."""

import math

import numpy as np
import pytest

from ggdp.accounting.engines import contour, jump, two_scales
from ggdp.accounting.engines.grid_law import GridLaw, law_above
from ggdp.accounting.engines.rare import RareSplit, cut
from ggdp.accounting.engines.tilt import TiltPlan, saddle_for_epsilon
from ggdp.accounting.engines.two_scales import BulkSum, Split
from ggdp.numerics import Array
from ggdp.privacy_loss.hockey_stick import far_side, hockey_stick, log_masses
from ggdp.privacy_loss.shift_pair import ShiftPair

REMOVE = ShiftPair(beta=8.0, up=0.1, down=0.0, rate=2e-3)
REPLACE = ShiftPair(beta=3.0, up=0.4, down=-0.4, rate=1e-3)


def delta_of(law: GridLaw, t: Array) -> Array:
    """delta of a law on a grid, by its definition."""
    share = np.maximum(-np.expm1(t[:, None] - law.loss[None, :]), 0.0)
    return np.asarray(share @ law.mass + law.infinite)


def bulk_delta(split: Split, t: Array) -> Array:
    """delta of one normalised bulk: what the whole release has, less its jumps."""
    p, q = (math.exp(v) for v in (split.log_mass, split.log_mass - split.atom))
    x = np.exp(t) * p / q
    places = t + split.atom
    up = [np.exp(v[0]) for v in log_masses(split.pair, np.array([split.high]))[:2]]
    if math.isfinite(split.low):
        log_q, log_p, _ = log_masses(split.pair.reverse, np.array([-split.low]))
        down = [np.exp(log_p[0]), np.exp(log_q[0])]
    else:
        down = [0.0, 0.0]
    whole = hockey_stick(split.pair, places).value
    near = whole - (up[0] - x * up[1])
    far = far_side(split.pair, places).value - (x * down[1] - down[0])
    # the far side is delta - (p - x q) of the bulk
    return np.where(t >= 0.0, near, far + p - x * q) / p


@pytest.mark.parametrize(("pair", "loss"), [(REMOVE, 0.02), (REPLACE, 0.01)])
def test_the_normalised_bulk_of_one_release_has_its_closed_form_and_lies_between_its_two_laws(
    pair: ShiftPair, loss: float
) -> None:
    split = Split.at(pair, -loss if pair.down else -math.inf, loss)
    bulks = BulkSum.of([(split, 1)], 20.0, -20.0)
    spacing = 1e-4
    grid = bulks.on_grid(spacing)
    t = np.arange(grid.first, grid.first + grid.turn + len(grid.right.value)) * spacing
    values = np.concatenate([grid.left.value[:-1] - np.expm1(t[: grid.turn]), grid.right.value])
    errors = np.concatenate([grid.left.error[:-1], grid.right.error])
    inside = np.abs(t) < 0.9 * loss
    truth = bulk_delta(split, t[inside])
    assert np.all(np.abs(values[inside] - truth) <= errors[inside] + 1e-14)
    assert errors[inside].max() < 1e-6 * truth.max()
    above, below = grid.hull_above(), grid.dominated()
    assert below is not None
    between = np.linspace(-0.8 * loss, 0.8 * loss, 601) + 0.37 * spacing
    truth = bulk_delta(split, between)
    assert np.all(delta_of(above, between) >= truth - 1e-14)
    assert np.all(delta_of(below, between) <= truth + 1e-14)
    middle = len(between) // 2
    assert delta_of(above, between)[middle] - delta_of(below, between)[middle] < 2e-2 * truth[middle]


@pytest.mark.parametrize(("pair", "loss"), [(REMOVE, 0.02), (REPLACE, 0.01)])
def test_an_averaged_release_lies_between_its_two_laws_and_has_its_atom_where_it_belongs(
    pair: ShiftPair, loss: float
) -> None:
    split = Split.at(pair, -loss if pair.down else -math.inf, loss)
    law = law_above(split.averaged(2e-3, 8.0, -1.0), 1e-30)
    assert law.below is not None
    assert law.loss[-law.first] == pytest.approx(split.atom, abs=1e-15)
    assert law.mass[-law.first] == pytest.approx(math.exp(split.log_mass), abs=1e-9)
    t = np.linspace(-0.5, 6.0, 700)
    p, q = math.exp(split.log_mass), math.exp(split.log_mass - split.atom)
    truth = np.maximum(p - np.exp(t) * q, 0.0)
    for sign, place in ((1.0, split.high), (-1.0, split.low)):
        if math.isfinite(place):  # the jumps of that side, noise by noise
            noise = sign * np.linspace(abs(place), 3.0, 400_001)
            density = np.exp(-(np.abs(noise) ** pair.beta) - pair.log_normalizer)
            up, down = (density * np.exp(pair.log_mixture(noise, shift)) for shift in (pair.up, pair.down))
            for index, x in enumerate(np.exp(t)):
                truth[index] += np.trapezoid(np.maximum(up - x * down, 0.0), dx=abs(noise[1] - noise[0]))
    assert np.all(delta_of(law, t) >= truth - 1e-11)
    assert np.all(delta_of(law.below, t) <= truth + 1e-11)
    assert delta_of(law, t)[400] - delta_of(law.below, t)[400] < 1e-3 * truth[400]


@pytest.mark.parametrize(
    ("pair", "times", "epsilon"),
    [
        (ShiftPair(beta=2.0, up=1.0, down=0.0, rate=3e-3), 2000, 4.0),
        (ShiftPair(beta=2.0, up=1.0, down=-1.0, rate=3e-3), 500, 3.0),
        (ShiftPair(beta=3.0, up=0.5, down=0.0, rate=2e-2), 300, 2.0),
    ],
)
def test_two_scales_hold_what_the_contour_finds_with_the_rare_event_apart(
    pair: ShiftPair, times: int, epsilon: float
) -> None:
    parts = ((pair, times),)
    plan = TiltPlan.of(parts)
    saddle = saddle_for_epsilon(plan, epsilon)
    split = cut(parts, plan, 1.3 * epsilon, saddle.log_delta)
    inner = saddle_for_epsilon(split.plan, epsilon)
    truth = RareSplit(contour.draw(split.parts, split.plan, inner, 20.0), split.rare).log_delta(epsilon)
    assert truth.upper - truth.lower < 1e-5
    for curve in (
        two_scales.build(parts, plan, saddle, 1e-4),
        RareSplit(two_scales.build(split.parts, split.plan, inner, 1e-4), split.rare),
    ):
        found = curve.log_delta(epsilon)
        assert found.lower <= truth.upper
        assert found.upper >= truth.lower
        assert found.upper - found.lower < 1e-3


def test_one_jump_beside_bulks_that_are_drawn_is_one_beside_bulks_that_are_composed() -> None:
    parts = ((ShiftPair(beta=2.5, up=0.8, down=0.0, rate=1e-4), 3000),)
    plan = TiltPlan.of(parts)
    drawn = jump.build(parts, plan, 1.5, 1e-6, drawn=True).log_delta(1.5)
    composed = jump.build(parts, plan, 1.5, 1e-6).log_delta(1.5)
    assert drawn.upper - drawn.lower < 1e-3
    assert max(drawn.lower, composed.lower) <= min(drawn.upper, composed.upper)
    assert drawn.estimate == pytest.approx(composed.estimate, abs=1e-4)
