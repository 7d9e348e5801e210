# SPDX-License-Identifier: Apache-2.0
"""Compositions with mechanisms that users describe: each between two discrete pairs, on two lattices.

Every described release lies between two discrete pairs (`privacy_loss.cells`): its upper pair dominates it,
it dominates its lower pair. Domination survives composition, also with releases the library knows. So delta
of the composition lies between the lower bound of the lattice that composes the lower pairs and the upper
bound of the one that composes the upper pairs. Probability of an infinite loss is composed apart, in closed
form.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ggdp.accounting import lattice
from ggdp.accounting.atom_grid import grid_above, grid_below, grid_merged
from ggdp.accounting.atom_plan import aligned, origin_of, plan_of, span_of
from ggdp.accounting.atoms_curve import AtomCurve, composed_atoms
from ggdp.accounting.bounds import Bounds
from ggdp.accounting.curve import Curve
from ggdp.accounting.described import Direction, described_directions
from ggdp.accounting.grid_law import GridLaw, discretize
from ggdp.accounting.tilt import Saddle, TiltPlan, saddle_for_epsilon, saddle_for_log_delta
from ggdp.errors import CannotCertifyError
from ggdp.mechanisms import Adjacency, Mechanism
from ggdp.numerics import UNIT_ROUNDOFF
from ggdp.privacy_loss.cells import Atoms

_MOST_POINTS = 2**20
_MOST_CELLS = 400_000
_COARSEST = 0.02
_FEW = 64  # releases up to which moving losses and charging for it beats merging outcomes
_GOOD_WIDTH = 1e-6
_FAIR_WIDTH = 1e-2  # of log delta, from which the other way to a lower bound is tried too
_MOST_EPSILON = 2000.0


def epsilon(mechanism: Mechanism, log_delta: float, adjacency: Adjacency) -> Bounds:
    """Certified epsilon at a delta."""
    answers = [epsilon_of(direction, log_delta) for direction in described_directions(mechanism, adjacency)]
    worst = answers[0] if len(answers) == 1 else Bounds.worst(*answers)
    if worst.lower > _MOST_EPSILON:
        raise ValueError(
            f"epsilon at this delta must be at most {_MOST_EPSILON:g} to be computed, and is at least "
            f"{worst.lower:g}: take more noise, fewer steps or a larger delta"
        )
    return worst


def delta(mechanism: Mechanism, epsilon: float, adjacency: Adjacency) -> Bounds:
    """Certified delta at an epsilon."""
    answers = [delta_of(direction, epsilon) for direction in described_directions(mechanism, adjacency)]
    return answers[0] if len(answers) == 1 else Bounds.worst(*answers)


def largest_losses(mechanism: Mechanism, adjacency: Adjacency) -> tuple[float, float]:
    """Bounds on the epsilon of pure privacy; the upper one is infinite where a loss may be."""
    found = described_directions(mechanism, adjacency)
    upper = max(math.inf if direction.infinite[1] > 0.0 else direction.supremum for direction in found)
    return min(max(direction.reached for direction in found), upper), upper


@dataclass(frozen=True)
class _Sandwich:
    """Certified delta: from the lower pairs' curve to the upper pairs', infinite losses added."""

    below: Curve
    above: Curve
    infinite: tuple[float, float]

    def lower(self, epsilon: float) -> float:
        try:
            return math.exp(min(self.below.log_delta(epsilon).lower, 0.0)) + self.infinite[0]
        except CannotCertifyError:
            return self.infinite[0]

    def upper(self, epsilon: float) -> float:
        try:
            return min(math.exp(min(self.above.log_delta(epsilon).upper, 0.0)) + self.infinite[1], 1.0)
        except CannotCertifyError:
            return 1.0

    def log_gap(self, epsilon: float) -> float:
        """log of upper over lower."""
        lower, upper = self.lower(epsilon), self.upper(epsilon)
        return math.log(upper / lower) if lower > 0.0 and upper < 1.0 else math.inf

    def estimate(self, epsilon: float) -> float:
        try:
            above, below = self.above.log_delta(epsilon).estimate, self.below.log_delta(epsilon).estimate
        except CannotCertifyError:
            return math.nan
        return math.exp(min(0.5 * (above + below), 0.0)) + 0.5 * sum(self.infinite)


def epsilon_of(direction: Direction, log_delta: float) -> Bounds:
    """Epsilon of one direction."""
    target = math.exp(log_delta)
    never, ever = direction.infinite
    if ever >= target:
        raise ValueError(
            "delta must exceed the probability of an infinite loss, which no epsilon pays for: it lies in "
            f"[{never:.9g}, {ever:.9g}], got {target:.9g}"
        )
    ceiling = direction.supremum
    if (curve := _listed(direction)) is not None:
        return _solved(curve, target, 0.0, min(ceiling, _MOST_EPSILON), ceiling, "cells")
    best = Bounds(_top_atom(direction, target), ceiling, ceiling, "largest loss")
    plan = plan_of(direction)
    saddle = saddle_for_log_delta(plan, math.log(target - 0.5 * (never + ever)))
    if saddle.epsilon < 0.0:
        saddle = saddle_for_epsilon(plan, 0.0)
    for _ in range(3):
        if best.width <= _GOOD_WIDTH * min(best.upper, 1e6) or not _usable(saddle):
            break
        try:
            curve = _composed(direction, plan, saddle)
        except CannotCertifyError:
            break
        reach = 6.0 * saddle.deviation + 1e-12
        low, high = saddle.epsilon - reach, saddle.epsilon + reach
        answer = _solved(curve, target, low, high, ceiling, "lattice")
        best = _both(best, answer)
        if answer.upper - answer.lower > 1e-3 * (1.0 + answer.upper) and answer.estimate > 0.0:
            saddle = saddle_for_epsilon(plan, answer.estimate)
            continue
        break
    return best


def delta_of(direction: Direction, epsilon: float) -> Bounds:
    """delta of one direction."""
    infinite = direction.infinite
    if epsilon >= direction.supremum:
        return Bounds(infinite[0], infinite[0], infinite[1], "largest loss")
    if (curve := _listed(direction)) is not None:
        return _delta_bounds(curve, epsilon, "cells")
    plan = plan_of(direction)
    saddle = saddle_for_epsilon(plan, epsilon)
    if _usable(saddle):
        try:
            return _delta_bounds(_composed(direction, plan, saddle), epsilon, "lattice")
        except CannotCertifyError:
            pass
    upper = _moments_above(direction, epsilon, saddle.theta)
    at_most = -math.expm1(epsilon - direction.supremum)  # what an outcome of the largest loss adds to delta
    upper = min(upper, at_most * (1.0 + 1e-12) + infinite[1])
    lower = min(max(infinite[0], _one_below(direction, epsilon)), upper)
    return Bounds(lower, lower, upper, "moments")


def _moments_above(direction: Direction, epsilon: float, theta: float) -> float:
    """The wide answer that always exists: Chernoff at one tilt; or 1, where known releases take part."""
    if direction.known:
        return 1.0
    theta = min(theta, 1e6)
    log_delta = -theta * epsilon
    for part in direction.described:
        exponent = np.log(np.maximum(part.above.mass, 1e-300)) + theta * part.above.loss
        peak = float(exponent.max())
        log_delta += part.times * (peak + math.log(float(np.exp(exponent - peak).sum())))
    slack = 1e-12 * sum(part.times * (1.0 + theta * abs(part.above.supremum)) for part in direction.described)
    return min(math.exp(min(log_delta + slack + 1e-9, 0.0)) + direction.infinite[1], 1.0)


def _one_below(direction: Direction, epsilon: float) -> float:
    """A composition is at least as revealing as any one of its releases."""
    ones = (
        math.exp(AtomCurve(part.below).log_delta(epsilon).lower) + part.below.infinite
        for part in direction.described
    )
    return max(ones, default=0.0) * (1.0 - 1e-12)


def _usable(saddle: Saddle) -> bool:
    return saddle.deviation > 1e-9 and saddle.log_delta > -660.0 and saddle.theta < 1e8


def _delta_bounds(curve: _Sandwich, epsilon: float, method: str) -> Bounds:
    lower, upper = curve.lower(epsilon), curve.upper(epsilon)
    estimate = curve.estimate(epsilon)
    estimate = min(max(estimate, lower), upper) if math.isfinite(estimate) else upper
    return Bounds(lower, estimate, upper, method)


def _listed(direction: Direction) -> _Sandwich | None:
    """The curves of all sums of losses, where these are few; those of one release always."""
    if direction.known:
        return None
    if direction.releases == 1:
        part = direction.described[0]
        return _Sandwich(AtomCurve(part.below), AtomCurve(part.above), direction.infinite)
    below = composed_atoms([(part.below, part.times) for part in direction.described], -1.0)
    above = composed_atoms([(part.above, part.times) for part in direction.described], 1.0)
    if below is None or above is None:
        return None
    return _Sandwich(AtomCurve(below), AtomCurve(above), direction.infinite)


def _solved(curve: _Sandwich, target: float, low: float, high: float, ceiling: float, method: str) -> Bounds:
    """Where the certified curves cross the target; each end is a point at which the curve was asked."""
    if curve.upper(0.0) <= target:
        return Bounds(0.0, 0.0, 0.0, method)
    centre = 0.5 * (low + high)
    for _ in range(70):
        middle = 0.5 * (low + high)
        value = curve.estimate(middle)  # NaN outside a lattice's window, which lies around the centre
        is_above = value > target if middle >= centre else not value <= target
        low, high = (middle, high) if is_above else (low, middle)
    guess = min(max(high, 0.0), ceiling)
    upper = _walked(lambda point: curve.upper(point) <= target, guess, 1.0, ceiling)
    lower = _walked(lambda point: curve.lower(point) >= target, guess, -1.0, 0.0)
    return Bounds(min(lower, upper), min(max(guess, lower), upper), upper, method)


def _walked(holds: Callable[[float], bool], start: float, side: float, end: float) -> float:
    """The nearest point found on one side of the start at which something holds; it holds at the end."""
    bad, step = start, 1e-14 * (1.0 + abs(start))
    while True:
        good = start + side * step
        if side * (good - end) >= 0.0:
            return end
        if holds(good):
            break
        bad, step = good, 2.0 * step
    for _ in range(12):
        middle = 0.5 * (good + bad)
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def _both(one: Bounds, other: Bounds) -> Bounds:
    head = other if other.width <= one.width else one
    lower, upper = max(one.lower, other.lower), min(one.upper, other.upper)
    return Bounds(lower, min(max(head.estimate, lower), upper), upper, head.method, head.ledger)


def _top_atom(direction: Direction, target: float) -> float:
    """A lower bound of epsilon: delta >= p (1 - e^(eps - s)), p the chance that all losses are largest."""
    if direction.known:
        return 0.0
    log_mass, total = 0.0, 0.0
    for part in direction.described:
        if not len(part.below.loss):
            return 0.0
        nearly = part.below.supremum - 1e-9 * abs(part.below.supremum)
        log_mass += part.times * math.log(float(part.below.mass[part.below.loss >= nearly].sum()))
        total += part.times * nearly
    share = math.log(target) - log_mass * (1.0 + 1e-12) + 1e-12
    if share >= 0.0:
        return 0.0
    return max(total + math.log1p(-math.exp(share)) - 4.0 * UNIT_ROUNDOFF * abs(total), 0.0)


def _composed(direction: Direction, plan: TiltPlan, saddle: Saddle) -> _Sandwich:
    """Both lattices, on finer grids until the cells and not the grid decide how tight the answer is."""
    spans = [span_of(part, saddle) for part in direction.described]
    known = [
        lattice.span_of(pair, plan, saddle, index + len(spans))
        for index, (pair, _) in enumerate(direction.known)
    ]
    window = lattice.window_of(plan, saddle)
    widest = max(high - low for low, high in [*spans, *known])
    finest = max(1.5 * window / _MOST_POINTS, widest / _MOST_CELLS)
    spacing = max(_COARSEST / (saddle.theta + 1.0), finest)
    few = direction.releases <= max(_FEW, 2 * len(direction.described))
    lower, other = (grid_below, grid_merged) if few else (grid_merged, grid_below)
    best, width, stalled = None, math.inf, 0
    while best is None or spacing >= finest:
        step = aligned(direction, spacing)
        below, above = (
            _lattice(direction, spans, known, saddle, window, step, to_grid)
            for to_grid in (lower, grid_above)
        )
        found = _Sandwich(below, above, direction.infinite)
        gap = found.log_gap(saddle.epsilon)
        stalled = 0 if gap < 0.7 * width or math.isinf(gap) else stalled + 1
        if best is None or gap <= width:
            best, width = found, gap
        if stalled == 2 or gap <= _GOOD_WIDTH * max(saddle.theta * saddle.epsilon, 1e-2):
            break
        spacing *= 0.25
    if width <= _FAIR_WIDTH:
        return best
    below = _lattice(direction, spans, known, saddle, window, step, other)
    again = _Sandwich(below, found.above, direction.infinite)
    return again if again.log_gap(saddle.epsilon) < width else best


def _lattice(
    direction: Direction,
    spans: Sequence[tuple[float, float]],
    known: Sequence[tuple[float, float]],
    saddle: Saddle,
    window: float,
    spacing: float,
    to_grid: Callable[[Atoms, float, float, float, float], GridLaw],
) -> lattice.Lattice:
    negligible = 1e-11 * math.exp(saddle.log_delta)
    laws: list[tuple[GridLaw, int]] = []
    for part, (low, high) in zip(direction.described, spans, strict=True):
        origin = origin_of(part)
        atoms = part.above if to_grid is grid_above else part.below
        laws.append((to_grid(atoms, spacing, low, high, origin), part.times))
    for (pair, times), span in zip(direction.known, known, strict=True):
        laws.append((discretize(pair, spacing, *span, negligible / times), times))
    size = 1 << max(6, math.ceil(math.log2(1.5 * window / spacing)))
    return lattice.compose(laws, saddle, size, spacing)
