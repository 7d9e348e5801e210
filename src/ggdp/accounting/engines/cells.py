# SPDX-License-Identifier: Apache-2.0
"""Compositions that contain custom releases, which are those that a user describes.

Every custom release lies between two discrete pairs of laws (`privacy_loss.cells`): an upper pair that
dominates it, and a lower pair that it dominates. Domination is preserved by composition, also with releases
whose noise the library knows. So two compositions are computed. The one of the lower pairs gives the lower
bound of delta, the one of the upper pairs the upper bound. Each is either a list of all sums of losses
(`engines.atoms`), or a lattice (`engines.lattice`). The probability of an infinite loss has a formula, and is
added at the end.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ggdp.accounting.bounds import Bounds
from ggdp.accounting.engines import lattice
from ggdp.accounting.engines.atoms import (
    AtomCurve,
    Enclosed,
    atoms_apart,
    composed_atoms,
    grid_above,
    grid_below,
    grid_merged,
    origin_of,
    plan_of,
    span_of,
)
from ggdp.accounting.engines.curve import MOST_EPSILON, Curve
from ggdp.accounting.engines.grid_law import GridLaw, discretize
from ggdp.accounting.engines.spacing import aligned
from ggdp.accounting.engines.tilt import Saddle, TiltPlan, saddle_for_epsilon, saddle_for_log_delta
from ggdp.errors import CannotCertifyError, EpsilonTooLargeError
from ggdp.numerics import UNIT_ROUNDOFF
from ggdp.privacy_loss.cells import Atoms
from ggdp.privacy_loss.dominating import Parts
from ggdp.search import arithmetic, halve

_MOST_POINTS = 2**20
_MOST_CELLS = 400_000
_FIRST_SPACING = 0.02  # times the length over which delta falls by a factor e
_FEW_RELEASES = 64  # up to which the first of the two lower bounds of `engines.atoms` is tried first
_GOOD_WIDTH = 1e-6  # relative width of epsilon that is narrow enough
_FAIR_WIDTH = 1e-2  # width of log delta above which the other lower bound is tried too
_MOST_KEPT = 4  # pairs of lattices that are kept for further questions


@dataclass(frozen=True)
class _Sandwich:
    """The curves of the lower and of the upper pairs, between which delta lies.

    Attributes:
        below: the curve of the lower pairs.
        above: the curve of the upper pairs.
        infinite: bounds on the probability of an infinite loss, which is added to both.
        centre: the epsilon that lattices were built for.
        gap: log of upper over lower there.
    """

    below: Curve
    above: Curve
    infinite: tuple[float, float]
    centre: float = 0.0
    gap: float = 0.0

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
        below = above if below == -math.inf else below  # epsilon exceeds all losses of the lower pairs
        return math.exp(min(0.5 * (above + below), 0.0)) + 0.5 * sum(self.infinite)


class CellComposition:
    """One direction of a composition with custom releases: REMOVE, ADD or the one that the mechanism names.

    Lattices are built when a question needs them, and kept: further questions nearby cost little.

    Args:
        custom: the custom releases, each between two discrete pairs, and how often each happens.
        known: the other releases, by their dominating pairs.
        width: relative width of an answer that is narrow enough.
    """

    def __init__(self, custom: Sequence[Enclosed], known: Parts, width: float = _GOOD_WIDTH) -> None:
        self._width = width
        self._custom = tuple(custom)
        self._known = known
        self._built: list[_Sandwich] = []

    @property
    def _releases(self) -> int:
        return sum(part.times for part in self._custom) + sum(times for _, times in self._known)

    @cached_property
    def _supremum(self) -> float:
        """An upper bound of the sum of all finite losses, at least 0; 0 if a release has no finite loss."""
        if any(not len(part.above.loss) for part in self._custom):
            return 0.0
        losses = [part.times * part.above.supremum for part in self._custom]
        total = math.fsum([*losses, *(times * pair.supremum for pair, times in self._known)])
        return max(total * (1.0 + 8.0 * UNIT_ROUNDOFF), 0.0)

    @cached_property
    def _reached(self) -> float:
        """A lower bound of the largest sum of losses, at least 0."""
        if any(not len(part.below.loss) for part in self._custom):
            return 0.0
        losses = [part.times * part.below.supremum for part in self._custom]
        total = math.fsum([*losses, *(times * pair.supremum for pair, times in self._known)])
        return max(total * (1.0 - 32.0 * UNIT_ROUNDOFF), 0.0) if math.isfinite(total) else 0.0

    @cached_property
    def _infinite(self) -> tuple[float, float]:
        """Bounds on the probability that any release has an infinite loss."""
        low = _infinite_mass([(part.below, part.times) for part in self._custom], -1.0)
        high = _infinite_mass([(part.above, part.times) for part in self._custom], 1.0)
        return low, max(low, high)

    @cached_property
    def _plan(self) -> TiltPlan:
        return plan_of(self._custom, self._known)

    def largest_loss(self) -> tuple[float, float]:
        """Bounds on the largest loss, which is epsilon at delta = 0; the upper one may be infinite."""
        upper = math.inf if self._infinite[1] > 0.0 else self._supremum
        return min(self._reached, upper), upper

    def costs_no_more(self, log_delta: float, epsilon: float) -> bool:
        """Whether no loss exceeds epsilon; then epsilon is enough at every delta."""
        return self.largest_loss()[1] <= epsilon

    def epsilon(self, log_delta: float, known: float = 0.0) -> Bounds:
        """Certified epsilon at log delta. `known` is not used; `PairComposition` has the same signature."""
        target = math.exp(log_delta)
        never, ever = self._infinite
        if ever >= target:
            raise EpsilonTooLargeError(
                "delta must exceed the probability of an infinite loss, since no epsilon covers it: it lies "
                f"in [{never:.9g}, {ever:.9g}], got {target:.9g}",
                at_least=math.inf if never > target else 0.0,
            )
        ceiling = self._supremum
        if self._listed is not None:
            return _solved(self._listed, target, 0.0, min(ceiling, MOST_EPSILON), ceiling, "cells")
        best = Bounds(self._top_atom(target), ceiling, ceiling, "largest loss")
        if self._is_good(best):
            return best
        saddle = saddle_for_log_delta(self._plan, math.log(target - 0.5 * (never + ever)))
        if saddle.epsilon < 0.0:
            saddle = saddle_for_epsilon(self._plan, 0.0)
        for _ in range(3):
            if not _usable(saddle):
                break
            try:
                curve = self._curve_at(saddle)
            except CannotCertifyError:
                break
            reach = 6.0 * saddle.deviation + abs(saddle.epsilon - curve.centre) + 1e-12
            low, high = curve.centre - reach, curve.centre + reach
            answer = _solved(curve, target, low, high, ceiling, "lattice")
            best = Bounds.intersection(answer, best)
            if self._is_good(best) or answer.width <= 1e-3 * (1.0 + answer.upper) or answer.estimate <= 0.0:
                break
            saddle = saddle_for_epsilon(self._plan, answer.estimate)
        return best

    def delta(self, epsilon: float, known: float = 0.0) -> Bounds:
        """Certified delta at epsilon. `known` is not used; `PairComposition` has the same signature."""
        infinite = self._infinite
        if epsilon >= self._supremum:
            return Bounds(infinite[0], infinite[0], infinite[1], "largest loss")
        if self._listed is not None:
            return _delta_bounds(self._listed, epsilon, "cells")
        saddle = saddle_for_epsilon(self._plan, epsilon)
        if _usable(saddle):
            try:
                return _delta_bounds(self._curve_at(saddle), epsilon, "lattice")
            except CannotCertifyError:
                pass
        upper = self._moments_above(epsilon, saddle.theta)
        at_most = -math.expm1(epsilon - self._supremum)  # delta if all losses were largest
        upper = min(upper, at_most * (1.0 + 1e-12) + infinite[1])
        lower = min(max(infinite[0], self._one_below(epsilon)), upper)
        return Bounds(lower, lower, upper, "moments")

    def _is_good(self, found: Bounds) -> bool:
        return found.width <= self._width * min(found.upper, 1e6)

    def _curve_at(self, saddle: Saddle) -> _Sandwich:
        """Lattices for the saddle's epsilon: kept ones if they are narrow enough there, or else new ones."""
        wanted = self._width * max(saddle.theta * saddle.epsilon, 1e-2)
        for curve in sorted(self._built, key=lambda built: abs(built.centre - saddle.epsilon)):
            if abs(curve.centre - saddle.epsilon) > 3.0 * saddle.deviation:
                break
            if curve.log_gap(saddle.epsilon) <= max(wanted, 1.5 * curve.gap):
                return curve
        found = self._build(saddle)
        found = replace(found, centre=saddle.epsilon, gap=found.log_gap(saddle.epsilon))
        self._built = [*self._built[1 - _MOST_KEPT :], found]
        return found

    @cached_property
    def _listed(self) -> _Sandwich | None:
        """The curves from all sums of losses, if these are few enough to be listed; None otherwise."""
        if self._known:
            return None
        if self._releases == 1:
            part = self._custom[0]
            return _Sandwich(AtomCurve(part.below), AtomCurve(part.above), self._infinite)
        below = composed_atoms([(part.below, part.times) for part in self._custom], -1.0)
        above = composed_atoms([(part.above, part.times) for part in self._custom], 1.0)
        if below is None or above is None:
            return None
        return _Sandwich(AtomCurve(below), AtomCurve(above), self._infinite)

    def _moments_above(self, epsilon: float, theta: float) -> float:
        """An upper bound of delta by Chernoff's inequality at one tilt; 1 if known releases take part."""
        if self._known:
            return 1.0
        theta = min(theta, 1e6)
        log_delta = -theta * epsilon
        for part in self._custom:
            exponent = np.log(np.maximum(part.above.mass, 1e-300)) + theta * part.above.loss
            peak = float(exponent.max())
            log_delta += part.times * (peak + math.log(float(np.exp(exponent - peak).sum())))
        slack = 1e-12 * sum(part.times * (1.0 + theta * abs(part.above.supremum)) for part in self._custom)
        return min(math.exp(min(log_delta + slack + 1e-9, 0.0)) + self._infinite[1], 1.0)

    def _one_below(self, epsilon: float) -> float:
        """A lower bound of delta: the largest delta of a single custom release."""
        ones = (
            math.exp(AtomCurve(part.below).log_delta(epsilon).lower) + part.below.infinite
            for part in self._custom
        )
        return max(ones, default=0.0) * (1.0 - 1e-12)

    def _top_atom(self, target: float) -> float:
        """A lower bound of epsilon from delta >= p (1 - e^(eps - s)).

        p is the probability that all losses are largest, and s is their sum then.
        """
        if self._known:
            return 0.0
        log_mass, total = 0.0, 0.0
        for part in self._custom:
            if not len(part.below.loss):
                return 0.0
            nearly = part.below.supremum - 1e-9 * abs(part.below.supremum)
            log_mass += part.times * math.log(float(part.below.mass[part.below.loss >= nearly].sum()))
            total += part.times * nearly
        share = math.log(target) - log_mass * (1.0 + 1e-12) + 1e-12
        if share >= 0.0:
            return 0.0
        return max(total + math.log1p(-math.exp(share)) - 4.0 * UNIT_ROUNDOFF * abs(total), 0.0)

    def _build(self, saddle: Saddle) -> _Sandwich:
        """Both lattices, on finer and finer grids, until they are narrow or a finer grid no longer helps."""
        spans = [span_of(part, saddle) for part in self._custom]
        known = [
            lattice.span_of(pair, self._plan, saddle, index + len(spans))
            for index, (pair, _) in enumerate(self._known)
        ]
        window = lattice.window_of(self._plan, saddle)
        widest = max(high - low for low, high in [*spans, *known])
        finest = max(1.5 * window / _MOST_POINTS, widest / _MOST_CELLS)
        # a grid much coarser than one loss makes the losses of many releases look far larger than they are
        one = saddle.deviation / math.sqrt(self._releases)
        spacing = max(min(_FIRST_SPACING / (saddle.theta + 1.0), one), finest)
        few = self._releases <= max(_FEW_RELEASES, 2 * len(self._custom))
        lower, other = (grid_below, grid_merged) if few else (grid_merged, grid_below)
        apart = atoms_apart(self._custom) + lattice.laplace_atoms(self._known)
        best, width, stalled = None, math.inf, 0
        while best is None or spacing >= finest:
            step = aligned(apart, spacing)
            laws = self._known_laws(known, saddle, step)
            try:
                below, above = (
                    self._lattice(spans, laws, saddle, window, step, to_grid)
                    for to_grid in (lower, grid_above)
                )
            except CannotCertifyError:  # a coarse grid makes very many small losses look too large
                if best is not None:
                    break
                if spacing <= finest:
                    raise
                spacing = max(0.25 * spacing, finest)
                continue
            found = _Sandwich(below, above, self._infinite)
            gap = found.log_gap(saddle.epsilon)
            stalled = 0 if gap < 0.7 * width or math.isinf(gap) else stalled + 1
            if best is None or gap <= width:
                best, width = found, gap
            if stalled == 2 or gap <= self._width * max(saddle.theta * saddle.epsilon, 1e-2):
                break
            spacing *= 0.25
        if width <= _FAIR_WIDTH:
            return best
        below = self._lattice(spans, laws, saddle, window, step, other)
        again = _Sandwich(below, found.above, self._infinite)
        return again if again.log_gap(saddle.epsilon) < width else best

    def _known_laws(
        self, spans: Sequence[tuple[float, float]], saddle: Saddle, spacing: float
    ) -> list[tuple[GridLaw, int]]:
        """The releases that are not custom, on a grid: the same law for both bounds."""
        negligible = 1e-11 * math.exp(saddle.log_delta)
        return [
            (discretize(pair, spacing, *span, negligible / times), times)
            for (pair, times), span in zip(self._known, spans, strict=True)
        ]

    def _lattice(
        self,
        spans: Sequence[tuple[float, float]],
        known: Sequence[tuple[GridLaw, int]],
        saddle: Saddle,
        window: float,
        spacing: float,
        to_grid: Callable[[Atoms, float, float, float, float], GridLaw],
    ) -> lattice.Lattice:
        laws: list[tuple[GridLaw, int]] = []
        for part, (low, high) in zip(self._custom, spans, strict=True):
            origin = origin_of(part)
            atoms = part.above if to_grid is grid_above else part.below
            laws.append((to_grid(atoms, spacing, low, high, origin), part.times))
        size = 1 << max(6, math.ceil(math.log2(1.5 * window / spacing)))
        return lattice.compose([*laws, *known], saddle, size, spacing)


def _usable(saddle: Saddle) -> bool:
    """Whether a lattice can be built around the saddle: elsewhere its numbers leave the range of doubles."""
    return saddle.deviation > 1e-9 and saddle.log_delta > -660.0 and saddle.theta < 1e8


def _delta_bounds(curve: _Sandwich, epsilon: float, method: str) -> Bounds:
    lower, upper = curve.lower(epsilon), curve.upper(epsilon)
    estimate = curve.estimate(epsilon)
    return Bounds.clipped(lower, estimate if math.isfinite(estimate) else upper, upper, method)


def _solved(curve: _Sandwich, target: float, low: float, high: float, ceiling: float, method: str) -> Bounds:
    """Bounds of the epsilon at the delta `target`; the curve was evaluated at each end, and proves it."""
    if curve.upper(0.0) <= target:
        return Bounds(0.0, 0.0, 0.0, method)
    guess = min(max(_crossed(curve, target, low, high), 0.0), ceiling)
    upper = _walked(lambda point: curve.upper(point) <= target, guess, 1.0, ceiling)
    lower = _walked(lambda point: curve.lower(point) >= target, guess, -1.0, 0.0)
    return Bounds.clipped(min(lower, upper), guess, upper, method)


def _crossed(curve: _Sandwich, target: float, low: float, high: float) -> float:
    """About where the estimate of delta falls to the target, between `low` and `high`.

    By chords of log delta, with a halving every third time. A lattice has no estimate far from its centre;
    there, a point left of the centre is taken as too low, a point right of it as too high.
    """
    centre, goal = 0.5 * (low + high), math.log(target)
    at_low = at_high = math.nan
    for turn in range(100):
        middle = 0.5 * (low + high)
        if turn % 3 and math.isfinite(at_low - at_high):
            middle = min(max(low + (high - low) * at_low / (at_low - at_high), low), high)
        value = curve.estimate(middle)
        gap = math.log(value) - goal if value > 0.0 else math.nan
        if gap > 0.0 or (math.isnan(gap) and middle < centre):
            low, at_low = middle, gap
        else:
            high, at_high = middle, gap
        if high - low <= 1e-15 * (1.0 + abs(high)) or gap == 0.0:
            break
    return high


def _walked(holds: Callable[[float], bool], start: float, side: float, end: float) -> float:
    """A point close to the start, on the given side of it, at which `holds` is true; it is true at `end`."""
    bad, step = start, 1e-14 * (1.0 + abs(start))
    while True:
        good = start + side * step
        if not side * (good - end) < 0.0:  # also true if both are infinite
            return end
        if holds(good):
            break
        bad, step = good, 2.0 * step
    return halve(holds, good, bad, middle=arithmetic, halvings=12)[0]


def _infinite_mass(parts: Sequence[tuple[Atoms, int]], side: float) -> float:
    """The probability of an infinite loss in a composition, rounded up (side 1) or down (side -1).

    It is the product of (finite + infinite) less the product of finite, over the releases' masses.
    """
    if not any(atoms.infinite for atoms, _ in parts):
        return 0.0
    log_finite, growth, count = 0.0, 0.0, 0
    for atoms, times in parts:
        finite = float(atoms.mass.sum())
        if finite <= 0.0:
            return atoms.infinite if side < 0.0 else 1.0
        log_finite += times * math.log(finite)
        growth += times * math.log1p(atoms.infinite / finite)
        count += times
    # sums of masses have rounding errors of about 20 units
    slip = 1.0 + side * 64.0 * UNIT_ROUNDOFF * (count + 1.0)
    return min(math.exp(min(log_finite, 600.0)) * math.expm1(min(growth, 600.0)) * slip, 1.0)
