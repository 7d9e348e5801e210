# SPDX-License-Identifier: Apache-2.0
"""Rare large losses on a coarse grid beside the sum of all small ones: held against closed forms and other
engines."""

import math

import numpy as np
import pytest

from ggdp import AdditiveNoise, Adjacency, Composed, GeneralizedGaussian, PoissonSampled
from ggdp.accounting import delta, epsilon
from ggdp.accounting.engines import contour, jump, lattice, two_scales
from ggdp.accounting.engines.grid_law import GridLaw, law_above
from ggdp.accounting.engines.rare import RareSplit, cut
from ggdp.accounting.engines.tilt import TiltPlan, saddle_for_epsilon
from ggdp.accounting.engines.two_scales import BulkSum, Split
from ggdp.numerics import Array
from ggdp.privacy_loss.quadrature import certified_nodes
from ggdp.privacy_loss.shift_pair import ShiftPair

REMOVE = ShiftPair(beta=8.0, up=0.1, down=0.0, rate=2e-3)
REPLACE = ShiftPair(beta=3.0, up=0.4, down=-0.4, rate=1e-3)


def delta_of(law: GridLaw, t: Array) -> Array:
    """delta of a law on a grid, by its definition."""
    share = np.maximum(-np.expm1(t[:, None] - law.loss[None, :]), 0.0)
    return np.asarray(share @ law.mass + law.infinite)


def test_the_sum_of_normalised_bulks_is_what_the_lattice_finds_and_lies_between_its_two_laws() -> None:
    split = Split.at(REMOVE, -math.inf, 0.02)
    bulks = BulkSum.of([(split, 60)], 30.0, -20.0)
    spacing = bulks.deviation / 20.0
    grid = bulks.on_grid(spacing)
    above, below = grid.hull_above(), grid.dominated()
    assert below is not None
    parts = ((split.bulk, 60),)
    plan = TiltPlan.of(parts)
    for steps in (0, 40):
        point = bulks.shift + steps * spacing
        exact = lattice.build(parts, plan, saddle_for_epsilon(plan, point), 1e-3).log_delta(point)
        low, high = (math.exp(v - bulks.log_mass) for v in (exact.lower, exact.upper))
        assert high - low < 1e-2 * high
        value, error = grid.right.value[steps], grid.right.error[steps]
        assert low <= value + error
        assert value - error <= high
        assert error < 1e-6 * value
        at = np.array([steps * spacing])
        assert delta_of(above, at)[0] >= low
        assert delta_of(below, at)[0] <= high
        assert delta_of(above, at)[0] - delta_of(below, at)[0] < 3e-2 * high


def test_a_bulk_restricted_on_both_sides_has_the_moments_of_a_plain_sum() -> None:
    bulk = Split.at(REPLACE, -0.01, 0.01).bulk
    noise = np.linspace(bulk.floor, bulk.cut, 2_000_001)
    loss = bulk.loss(noise)
    density = np.exp(bulk.log_mixture(noise, bulk.up) - np.abs(noise) ** bulk.beta - bulk.log_normalizer)
    for theta in (0.5, 40.0):
        truth = math.log(np.trapezoid(density * np.exp(theta * loss), noise))
        nodes = certified_nodes(bulk, (theta,), 0.0, (truth,))
        assert nodes.log_phi[0] == pytest.approx(truth, abs=1e-11)
        assert nodes.quadrature[0] + nodes.roundoff[0] < 1e-11


@pytest.mark.parametrize(("pair", "loss"), [(REMOVE, 0.02), (REPLACE, 0.01)])
def test_an_averaged_release_lies_between_its_two_laws_and_has_its_atom_where_it_belongs(
    pair: ShiftPair, loss: float
) -> None:
    split = Split.at(pair, -loss if pair.down else -math.inf, loss)
    law = law_above(split.averaged(2e-3, 8.0, -1.0), 1e-30)
    assert law.below is not None
    assert law.loss[-law.first] == pytest.approx(split.atom, abs=1e-12)
    assert law.mass[-law.first] == pytest.approx(math.exp(split.log_mass), abs=1e-9)
    t = np.linspace(-0.5, 3.0, 351)
    p, q = math.exp(split.log_mass), math.exp(split.log_mass - split.atom)
    truth = np.maximum(p - np.exp(t) * q, 0.0)
    for sign, place in ((1.0, split.high), (-1.0, split.low)):
        if math.isfinite(place):  # the jumps of that side, noise by noise
            noise = sign * np.linspace(abs(place), 200.0 ** (1.0 / pair.beta), 200_001)
            density = np.exp(-(np.abs(noise) ** pair.beta) - pair.log_normalizer)
            up, down = (density * np.exp(pair.log_mixture(noise, shift)) for shift in (pair.up, pair.down))
            for index, x in enumerate(np.exp(t)):
                truth[index] += np.trapezoid(np.maximum(up - x * down, 0.0), dx=abs(noise[1] - noise[0]))
    assert np.all(delta_of(law, t) >= truth - 1e-10)
    assert np.all(delta_of(law.below, t) <= truth + 1e-10)
    one = int(np.searchsorted(t, 0.3))
    assert delta_of(law, t)[one] - delta_of(law.below, t)[one] < 1e-2 * truth[one]


@pytest.mark.parametrize(
    ("pair", "times", "point"),
    [
        (ShiftPair(beta=2.0, up=1.0, down=0.0, rate=3e-3), 2000, 4.0),
        (ShiftPair(beta=2.0, up=1.0, down=-1.0, rate=3e-3), 500, 3.0),
        (ShiftPair(beta=3.0, up=0.5, down=0.0, rate=2e-2), 300, 2.0),
    ],
)
def test_two_scales_hold_what_the_contour_finds_with_the_rare_event_apart(
    pair: ShiftPair, times: int, point: float
) -> None:
    parts = ((pair, times),)
    plan = TiltPlan.of(parts)
    saddle = saddle_for_epsilon(plan, point)
    split = cut(parts, plan, 1.3 * point, saddle.log_delta)
    inner = saddle_for_epsilon(split.plan, point)
    truth = RareSplit(contour.draw(split.parts, split.plan, inner, 20.0), split.rare).log_delta(point)
    assert truth.upper - truth.lower < 1e-5
    for curve in (
        two_scales.build(parts, plan, saddle, 1e-4),
        RareSplit(two_scales.build(split.parts, split.plan, inner, 1e-4), split.rare),
    ):
        found = curve.log_delta(point)
        assert found.lower <= truth.upper
        assert found.upper >= truth.lower
        assert found.upper - truth.lower < 2e-2


def test_several_rare_losses_together_give_a_narrow_epsilon() -> None:
    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta=8.1, scale=8.9)), 2.6e-3)
    found = epsilon(Composed(step, times=300), delta=1e-50, adjacency=Adjacency.REMOVE)
    assert found.method == "two scales"
    assert found.width < 1e-5 * found.upper


def test_next_to_the_largest_loss_a_very_strong_tilt_costs_no_digits() -> None:
    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta=1.0, scale=28.2)), 0.06)
    mechanism = Composed(step, times=5)
    found = epsilon(mechanism, delta=1.2e-15, adjacency=Adjacency.REMOVE)
    assert found.lower > 0.0
    assert delta(mechanism, epsilon=found.lower, adjacency=Adjacency.REMOVE).upper >= 1.2e-15
    assert delta(mechanism, epsilon=found.upper, adjacency=Adjacency.REMOVE).lower <= 1.2e-15


def test_one_jump_beside_bulks_that_are_drawn_is_one_beside_bulks_that_are_composed() -> None:
    parts = ((ShiftPair(beta=2.2, up=0.2, down=0.0, rate=1e-5), 30_000),)
    plan = TiltPlan.of(parts)
    drawn = jump.build(parts, plan, 0.5, 1e-6, drawn=True).log_delta(0.5)
    composed = jump.build(parts, plan, 0.5, 1e-6).log_delta(0.5)
    assert drawn.upper - drawn.lower < 1e-3
    assert max(drawn.lower, composed.lower) <= min(drawn.upper, composed.upper)
    assert drawn.estimate == pytest.approx(composed.estimate, abs=1e-4)
