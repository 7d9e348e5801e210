# SPDX-License-Identifier: Apache-2.0
"""Two laws on a grid of losses: the smallest that dominates one release, and one that the release dominates.

Above, the curve is joined by chords. Its values come from the closed form with their rounding errors. They
are raised before the chords are drawn, so the law dominates in exact arithmetic too; by how much its curve
lies above the exact chords is recorded, for the sake of the lower bound.

Below, the values are lowered by their errors, and then further, until no chord lies above the curve. A
convex curve lies above the continuations of the chords of the two neighbouring cells. In the cell between
the grid points j and j + 1 these two lines meet at a depth

    d_j = (e^h - 1) a b / (a + b),    a = m_j,    b = e^-h m_(j+1),

below the cell's own chord, a share b / (a + b) of the way from x_j to x_(j+1), where m are the masses of
the chords' law. The ends of the cell are lowered by (e^h - 1) a^2 b / (a^2 + b^2) and (e^h - 1) a b^2 /
(a^2 + b^2), which brings the chord down to that point. Where one of a and b is far larger, the end on its
side is lowered alone, by (e^h - 1) times the smaller one, which does the same: the other end may be a tail
much smaller than what would be taken off it. An end of two cells is lowered by the larger amount. Then the
lower convex hull of the points is taken. Its kinks lie on the grid, so it is the curve of a law on the grid.
Nothing but values of the curve is used, so only their errors count.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ggdp.accounting.engines.curve import CLOCK
from ggdp.accounting.engines.hull import MOST_ROUNDS, hull_masses
from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.hockey_stick import HockeyStick, Mask, far_side, hockey_stick
from ggdp.privacy_loss.shift_pair import ShiftPair

_MATTERS = 1e11  # a mass that is all of the answer, in units of one that is negligible
_SMALLEST = 1e-295  # value of a curve up to which it may be off by as much
_ALONE = 0.9  # share of two masses from which on the cell's end beside the larger one is lowered alone
_HEAVY = 0.2  # mass of one point at which the grid of the law below is aligned with it
_FURTHER = 1000  # points that a grid is extended by to reach beyond the smallest loss


@dataclass(frozen=True)
class GridLaw:
    """Masses under P at losses origin + (first + i) * spacing, and mass at infinite loss.

    Attributes:
        raised: mass of losses below the grid, raised to its first point.
        moved: mean distance, in spacings, from a loss to the nearest grid point; at most a half. Infinite
            where it is not known, and a lower bound must come from the law below.
        excess_mass: the curve lies at most this much above the exact chords, or
        excess_factor: at most this share above them.
        curve: what the law was made from.
    """

    origin: float
    first: int
    spacing: float
    mass: Array
    infinite: float
    raised: float
    moved: float
    excess_mass: float
    excess_factor: float
    curve: "GridCurve | None" = None

    @cached_property
    def below(self) -> "GridLaw | None":
        """A law on the same grid that the release dominates; None where the grid is too short for one."""
        return None if self.curve is None else self.curve.dominated()

    @cached_property
    def loss(self) -> Array:
        """The losses that carry the masses."""
        return np.asarray(self.origin + (self.first + np.arange(len(self.mass))) * self.spacing, dtype=float)

    @cached_property
    def log_mass(self) -> Array:
        """log of the masses, minus infinity where there is none."""
        with np.errstate(divide="ignore"):
            return np.log(self.mass)


def discretize(pair: ShiftPair, spacing: float, low: float, high: float, negligible: float) -> GridLaw:
    """Join the curve at the points of a grid that covers [low, high].

    Losses above `high` become infinite, unless the pair is cut there; losses below `low` are raised to it. A
    Laplace loss starts the grid at its lower atom, so that both atoms lie on it when `spacing` divides their
    distance.

    Args:
        pair: the release.
        spacing: distance of grid points.
        low: where the grid begins, at the latest.
        high: where it ends, at the earliest.
        negligible: mass at infinite loss that does not matter to the answer; errors are raised as they are
            where they do not exceed it, or where that costs less than raising all values in proportion.
    """
    return law_above(GridCurve.on(pair, spacing, low, high), negligible)


def law_above(curve: "GridCurve", negligible: float) -> GridLaw:
    """Join a curve at the points of its grid; `negligible` as in `discretize`."""
    CLOCK.check()
    errors = np.concatenate([curve.left.error, curve.right.error])
    values = np.concatenate([curve.left.value, curve.right.value])
    shown = values > _SMALLEST
    shown[curve.turn] &= not curve.is_atom  # that value is none, or rounding
    share = float((errors[shown] / values[shown]).max()) if shown.any() else 0.0
    absolute = float(curve.right.error.max())
    if absolute <= max(negligible, min(share, 1.0) * _MATTERS * negligible):
        # raise every value by the bound on its error; that of the last one ends up at infinite loss
        top = np.maximum(curve.right.error, curve.right.error[-2:].max())
        bottom = curve.left.error.copy()
        bottom[-1] = top[0]
        mass = curve.masses(curve.left.value + bottom, curve.right.value + top)
        factor, lifted = 1.0, float(top[-1])
        excess_mass, excess_factor = 3.0 * float(errors.max()), 0.0
    elif curve.is_atom:
        mass = curve.masses(curve.left.value, curve.right.value)
        # some values are too small for a share of themselves: all are raised by more, up to infinite loss
        factor, lifted = 1.0 + share, 2.0 * _SMALLEST
        excess_mass, excess_factor = 2.0 * _SMALLEST, 3.0 * share
    else:
        # each value by a share of itself, no less than that of any value nearer to the turn
        relative = np.where(shown, errors / np.where(shown, values, 1.0), 0.0)
        near, far = relative[: curve.turn + 1][::-1], relative[curve.turn + 1 :]
        left = np.maximum.accumulate(near) * np.maximum(curve.left.value[::-1], 0.0)
        right = np.maximum.accumulate(far) * curve.right.value
        left[0] = right[0] = max(float(left[0]), float(right[0]))
        mass = curve.masses(curve.left.value + left[::-1], curve.right.value + right)
        factor, lifted = 1.0, 2.0 * _SMALLEST + (0.0 if curve.ends else float(right[-1]))
        excess_mass, excess_factor = 2.0 * _SMALLEST, 3.0 * share
    # noise of a grid finer than the closed form; dropping it raises the curve
    negative = -float(mass[mass < 0.0].sum())
    mass = factor * np.maximum(mass, 0.0)
    apart = 16.0 * UNIT_ROUNDOFF  # the terms of the mass at the turn are of order one
    if curve.is_atom:  # the values on its two sides are raised, and not the atom itself
        mass[curve.turn] -= (factor - 1.0) * math.exp(curve.t_turn)
        apart += (factor - 1.0) * abs(math.expm1(curve.t_turn))  # of its two forms
        apart /= -math.expm1(-curve.spacing) if curve.left.value[0] > 0.0 else 1.0
    mass[curve.turn] += apart
    if curve.ends:
        # a law that is cut is the curve less a line that touches it at the cut: errors of the two there, and
        # of the line's slope, are no small share of the difference. So much more mass at the cut covers them
        off = float((curve.right.error[-3:] / np.maximum(curve.right.value[-3:], _SMALLEST)).max())
        off = max(off, 64.0 * UNIT_ROUNDOFF)
        value, slope = float(curve.right.value[-3:].max()), float(curve.right.slope[-1])
        mass[-1] += 4.0 * off * (value / -math.expm1(-curve.spacing) + slope)
    return GridLaw(
        origin=curve.origin,
        first=curve.first,
        spacing=curve.spacing,
        mass=(1.0 + 8.0 * UNIT_ROUNDOFF) * mass,
        infinite=lifted + (0.0 if curve.ends else factor * float(curve.right.value[-1])),
        raised=float(curve.left.slope[0]),
        moved=curve.moved(),
        excess_mass=excess_mass + negative,
        excess_factor=excess_factor + 48.0 * UNIT_ROUNDOFF,
        curve=curve,
    )


@dataclass(frozen=True)
class GridCurve:
    """Values of a curve in two forms: delta - (1 - x) up to the turn at loss zero, delta from it on.

    Attributes:
        pair: the release it belongs to; None where the curve is known on this grid only.
        is_atom: the release has its bulk at the turn, which need not lie at zero (`engines.two_scales`).
    """

    pair: ShiftPair | None
    origin: float
    first: int
    spacing: float
    turn: int
    t_turn: float
    ends: bool
    left: HockeyStick
    right: HockeyStick
    is_atom: bool = False

    @staticmethod
    def on(pair: ShiftPair, spacing: float, low: float, high: float) -> "GridCurve":
        """The curve of a release on a grid that covers [low, high]."""
        low, high = max(low, pair.infimum), min(high, pair.supremum)
        ends = math.isfinite(pair.cut) and high == pair.supremum
        start = pair.infimum if pair.beta == 1.0 else 0.0
        origin = high if ends else start  # where the law is cut, the last point must be the cut itself
        first = math.floor((low - origin) / spacing)
        last = max(math.ceil((high - origin) / spacing - 1e-6), first + 1)
        t = np.asarray(origin + np.arange(first, last + 1) * spacing, dtype=float)
        is_last = high == pair.supremum
        if is_last:
            t[-1] = max(
                t[-1], high * (1.0 + 8.0 * UNIT_ROUNDOFF)
            )  # rounding must not leave an atom beyond it
        turn = int(np.clip(np.searchsorted(t, 0.0, side="right") - 1, 0, len(t) - 1))
        left, right = far_side(pair.whole, t[: turn + 1]), hockey_stick(pair.whole, t[turn:])
        if t[turn] > 0.0:  # a grid that begins beyond the turn needs of the other form only its first value
            value, error = right.value[:1] - 1.0, right.error[:1] + 4.0 * UNIT_ROUNDOFF
            left = HockeyStick(value, error, -value)
        else:  # both forms must agree at the turn, or all of the left side is off by as much
            left.value[-1] = right.value[0] + math.expm1(t[turn])
            left.error[-1] = right.error[0] + 2.0 * UNIT_ROUNDOFF * (right.value[0] + spacing)
        if is_last and not ends:
            right.value[-1] = right.error[-1] = right.slope[-1] = 0.0  # no loss is larger
        return GridCurve(pair, origin, first, spacing, turn, float(t[turn]), ends, left, right)

    def masses(self, left: Array, right: Array) -> Array:
        """P-masses x (slope after - slope before) at the grid points.

        The kink of (1 - x)_+ between the two forms is the mass e^t at the turn. Left of the grid the curve
        is the chord from x = 0; right of it it is constant, or, where the law is cut, its own tangent, which
        adds no mass. A grid of positive losses has one form, and delta - 1 in place of the other.
        """
        grow = math.expm1(self.spacing)
        step = np.concatenate([np.diff(left), np.diff(right)])
        beyond = -float(self.right.slope[-1]) if self.ends else 0.0
        # step / grow after a point, less step / (1 - e^-spacing) = step / grow + step before it. Written so
        # that no two quotients round apart, which would add up over the grid.
        after, before = np.append(step, 0.0), np.insert(step, 0, 0.0)
        mass: Array = np.asarray((after - before) / grow - before, dtype=np.float64)
        mass[0] -= left[0]
        mass[-1] += beyond
        mass[self.turn] += math.exp(self.t_turn) if self.t_turn <= 0.0 or self.turn > 0 else 0.0
        return mass

    def hull_above(self) -> GridLaw:
        """A law above values that may be off by more than the small masses between them.

        A convex curve that is nowhere above the points raised by their errors is not above their lower convex
        hull either, nor above chords between any of them. The hull begins at 1 for x = 0 and is constant
        beyond the last point. delta falls, and delta - (1 - x) rises, with x.
        """
        left, right = self.left.value + self.left.error, self.right.value + self.right.error
        right = np.minimum.accumulate(right)
        left[-1] = right[0] + math.expm1(self.t_turn)
        left = np.minimum.accumulate(left[::-1])[::-1].copy()
        mass = hull_masses(left, np.append(right, right[-1]), self.spacing, self.t_turn, 3 * MOST_ROUNDS)
        if mass is None:
            raise CannotCertifyError("no hull above the curve")
        mass, infinite = mass[:-1] * (1.0 + 64.0 * UNIT_ROUNDOFF), float(right[-1])
        mass[self.turn] += 64.0 * UNIT_ROUNDOFF / -math.expm1(-self.spacing)
        mass[0] += max(1.0 - float(mass.sum()) - infinite, 0.0) + 64.0 * UNIT_ROUNDOFF
        return GridLaw(
            origin=self.origin,
            first=self.first,
            spacing=self.spacing,
            mass=mass,
            infinite=infinite,
            raised=0.0,
            moved=math.inf,
            excess_mass=0.0,
            excess_factor=0.0,
        )

    def moved(self) -> float:
        """Mean distance to the nearest grid point, in spacings: per cell, the lesser of the masses sent to
        its two ends.
        """
        if self.pair is None:
            return math.inf
        grow, fall = math.expm1(self.spacing), -math.expm1(-self.spacing)
        total = 0.0
        for stick, sign in ((self.left, 1.0), (self.right, -1.0)):
            step, slope = np.diff(stick.value), sign * stick.slope
            down = np.maximum(step / grow - slope[:-1], 0.0)
            up = np.maximum(slope[1:] - step / fall, 0.0)
            noise = (stick.error[1:] + stick.error[:-1]) / fall
            total += float(np.minimum(down + noise, up + noise).sum())
        # the cells left of the grid and at infinite loss are charged in full, though they hold next to
        # nothing
        total += float(self.left.slope[0]) + (0.0 if self.ends else float(self.right.value[-1]))
        return min(total * math.exp(2.0 * self.spacing), 0.5 * math.exp(self.spacing))

    def dominated(self) -> GridLaw | None:
        """The law below, on a grid of its own: most of the mass may lie within one cell, and is worth
        something only where a grid point lies at its mean.
        """
        CLOCK.check()
        if self.pair is None:
            return self._hull_law()
        for start in dict.fromkeys((self._heaviest(), self.t_turn)):
            if (found := self._aligned(start)) is not None:
                return found
        return None

    def _aligned(self, start: float) -> GridLaw | None:
        """The law below with a point of its grid near the place given, where the mass around it meets."""
        assert self.pair is not None
        ends = self.t_turn + (np.array([0, len(self.right.value) - 1]) - [self.turn, 0]) * self.spacing
        origin = _meeting(self.pair.whole, self.spacing, start)
        middle = round(-origin / self.spacing)  # the point nearest to zero
        first = min(math.floor((ends[0] - origin) / self.spacing), middle - 4)
        last = math.floor((ends[1] - origin) / self.spacing)
        # beyond all losses the curve is known: two points left of them, and three right of them
        if math.isfinite(self.pair.infimum):
            outside = math.floor((self.pair.infimum - origin) / self.spacing) - 2
            first = outside if first - outside <= _FURTHER else first
        if math.isinf(self.pair.cut) and math.isfinite(self.pair.supremum):
            outside = math.ceil((self.pair.supremum - origin) / self.spacing) + 3
            last = outside if outside - last <= _FURTHER else last
        if last < middle + 6 or self.t_turn > 0.0:
            return None
        t = np.asarray(origin + np.arange(first, last + 1) * self.spacing, dtype=float)
        turn = middle - first
        left, right = far_side(self.pair.whole, t[: turn + 1]), hockey_stick(self.pair.whole, t[turn:])
        t_turn = float(t[turn])
        return replace(
            self, origin=origin, first=first, turn=turn, t_turn=t_turn, left=left, right=right
        )._hull_law()

    def _heaviest(self) -> float:
        """The place of the point with the most mass, if that is a good part of all; else the turn."""
        mass = self.masses(self.left.value, self.right.value)
        heaviest = int(np.argmax(mass))
        return self.t_turn + (heaviest - self.turn) * self.spacing if mass[heaviest] > _HEAVY else self.t_turn

    def _hull_law(self) -> GridLaw | None:
        """Lowered values, their lower convex hull, its masses."""
        size, turn = self.turn + len(self.right.value), self.turn
        fall = -math.expm1(-self.spacing)
        left_error, right_error = (
            side.error + 8.0 * UNIT_ROUNDOFF * side.value + 1e-300 for side in (self.left, self.right)
        )
        left, right = self.left.value - left_error, self.right.value - right_error
        # the two forms of the value at the turn differ by rounding
        apart = abs(math.expm1(self.t_turn))
        joint = min(float(left[-1]), float(right[0]) + math.expm1(self.t_turn))
        left[-1], right[0] = joint, joint - math.expm1(self.t_turn)
        mismatch = 8.0 * UNIT_ROUNDOFF * (abs(joint) + apart)
        right_error[0] = 2.0 * (left_error[-1] + right_error[0]) + mismatch
        error = np.concatenate([left_error[:-1], right_error])
        # masses at least as large as those of the exact values, whichever way these are off
        doubt = np.zeros(size)
        doubt[1:-1] = 4.0 * (error[:-2] + error[1:-1] + error[2:]) / fall
        doubt[turn] += 32.0 * UNIT_ROUNDOFF
        mass = np.maximum(self.masses(left, right), 0.0) + doubt
        one, other = mass[:-1], math.exp(-self.spacing) * mass[1:]
        share = one / (one + other)
        share = np.where(share > _ALONE, 1.0, np.where(share < 1.0 - _ALONE, 0.0, share))
        weight = (1.0 + 64.0 * UNIT_ROUNDOFF) * math.expm1(self.spacing) / (share**2 + (1.0 - share) ** 2)
        first, second = np.zeros(size), np.zeros(size)  # what the cell right of a point asks for, and left
        first[:-1] = weight * other * share**2
        second[1:] = weight * one * (1.0 - share) ** 2
        lowered = np.maximum(first, second)
        lone = float(left[-1]) - float(first[turn])
        ray, floor = self._ray(left, left_error), self._floor(right_error)
        if self.is_atom:  # left of an atom there may be nothing but this line, which may lie lower
            ray = ray - max(float(ray[-1]) - lone, 0.0) * (1.0 + 1e-9)
        # a point below one of the two lines is raised to it, so its neighbours are lowered to it: a chord
        # from there to a point above the line could lie above the curve. Not so the next point where the
        # continued chord of the cell after that passes above the line: the chord between them lies below it.
        low_left, low_right = left - lowered[: turn + 1] <= ray, right - lowered[turn:] <= floor
        low_left[:2], low_right[-3:] = True, True
        last, start = int(np.flatnonzero(low_left)[-1]), int(np.argmax(low_right))
        low_left, low_right = _with_neighbours(low_left), _with_neighbours(low_right)
        forms = [math.expm1(self.t_turn + side * self.spacing) for side in (-1, 1)]
        rounding = 64.0 * UNIT_ROUNDOFF * (abs(forms[0]) + abs(forms[1]))
        if last < turn:
            near, far = left[last + 1], left[last + 2] if last + 2 <= turn else right[1] + forms[1]
            if _continued(near, far + 2.0 * error[last + 2] + rounding, math.exp(-self.spacing)) >= ray[last]:
                low_left[last + 1], lowered[last + 1] = False, first[last + 1]
        if start > 0:
            near, far = right[start - 1], right[start - 2] if start > 1 else left[-2] - forms[0]
            far += 2.0 * error[turn + start - 2] + rounding
            if _continued(near, far, math.exp(self.spacing)) >= floor[start]:
                low_right[start - 1], lowered[turn + start - 1] = False, second[turn + start - 1]
        left, right = left - lowered[: turn + 1], right - lowered[turn:]
        left[low_left], right[low_right] = ray[low_left], floor[low_right]
        if low_left[-1]:
            right[0] = left[-1] - math.expm1(self.t_turn)
        raised = low_left[-1] and not lone >= ray[-1]  # the cell right of the turn does not allow that
        if raised or low_right[0] or not right[0] > floor[0] or not np.all(np.isfinite(ray)):
            return None
        hull = hull_masses(left, right, self.spacing, self.t_turn)
        if hull is None:
            return None
        # less mass at the turn lowers the curve left of it, by more than the two forms differ
        hull[turn] -= 64.0 * UNIT_ROUNDOFF + 2.0 * mismatch / fall
        return GridLaw(
            origin=self.origin,
            first=self.first,
            spacing=self.spacing,
            mass=np.maximum(hull, 0.0) * (1.0 - 64.0 * UNIT_ROUNDOFF),
            infinite=0.0,
            raised=0.0,
            moved=0.0,
            excess_mass=0.0,
            excess_factor=0.0,
        )

    def _ray(self, low: Array, error: Array) -> Array:
        """A line below the curve that the law below begins with, at the points up to the turn.

        The chord of the first two points, continued to both sides, lies below the curve there. Steeper by
        what the values may be off, it still does on the left, and on the right after it is lowered. Between
        the two points the curve is below the chord, and above the continued chord of the next two: the line
        is lowered by as much as these two are apart at the first point.
        """
        fall, places = -math.expm1(-self.spacing), np.arange(-1, self.turn)
        doubt = 4.0 * float(error[:3].sum())
        rise = (float(low[1] - low[0]) + doubt) / fall
        bend = max(float((low[2] - low[1]) * math.exp(-self.spacing) - (low[1] - low[0])), 0.0) + doubt
        with np.errstate(over="ignore", invalid="ignore"):
            away = np.expm1(places * self.spacing)
            lost = (2.0 * doubt + 64.0 * UNIT_ROUNDOFF * abs(rise)) / fall * (1.0 + away[-1])
            return np.asarray(low[1] - bend - lost + rise * away, dtype=float)

    def _floor(self, error: Array) -> Array:
        """A line that is taken off the curve at its right end, as the law below ends before the grid does.

        Let E be the noise beyond the last point, or beyond the cut. Leaving E out takes P(E) - x Q(E) off the
        curve, a line that touches it there. The chord of the two points next to last, both raised, lies above
        that line from there to the left: it is steeper.
        """
        near = float(self.right.value[-2] + error[-2])
        far = float(self.right.value[-3] + error[-3] + 2.0 * error[-2]) * (1.0 + 256.0 * UNIT_ROUNDOFF)
        rise = (far - near) / -math.expm1(-self.spacing)
        away = (np.arange(len(error)) - (len(error) - 2)) * self.spacing
        line = (near - rise * np.expm1(away)) * (1.0 - 16.0 * UNIT_ROUNDOFF)
        line[-3:-1] = far, near
        return np.asarray(line, dtype=float)


def _continued(near: float, far: float, factor: float) -> float:
    """No more than the chord between two points, continued to a third one that is so much as far off."""
    rise = (far - near) * factor
    return float(near - rise - 64.0 * UNIT_ROUNDOFF * (abs(near) + abs(far) * factor))


def _with_neighbours(low: Mask) -> Mask:
    """The points that are low or next to one that is."""
    spread = low.copy()
    spread[1:] |= low[:-1]
    spread[:-1] |= low[1:]
    return spread


def _meeting(pair: ShiftPair, spacing: float, start: float) -> float:
    """Where the continuations of the chords on both sides of one point's cells meet: roughly the mean loss of
    what lies between. The point is moved there, within a spacing of where it starts.
    """
    h, place = spacing, start
    grow, fall = math.expm1(h), -math.expm1(-h)
    for _ in range(4):
        left = far_side(pair, np.array([place - 2.0 * h, place - h])).value
        right = hockey_stick(pair, np.array([place + h, place + 2.0 * h])).value
        # both lines at the point, and their slopes times its place
        rise, drop = (left[1] - left[0]) / fall * math.exp(h), (right[1] - right[0]) / grow * math.exp(-h)
        at_left, at_right = left[1] + rise * fall, right[0] - drop * grow
        bottom = math.exp(place) - rise + drop
        if not bottom > 0.0:
            return start
        step = float((at_left - math.expm1(place) - at_right) / bottom)
        place = float(np.clip(place + math.log1p(max(step, -0.5)), start - h, start + h))
    return place + 1e-9 * abs(place)


def law_below(law: GridLaw, log_mass: float = 0.0) -> GridLaw:
    """The law below; where the grid is too coarse for one, the mass of the release alone, of which the
    logarithm is given: it says next to nothing."""
    if law.below is not None:
        return law.below
    return GridLaw(
        origin=log_mass,  # P over Q is at least the mass under P
        first=0,
        spacing=law.spacing,
        mass=np.array([math.exp(log_mass) * (1.0 - 1e-15)]),
        infinite=0.0,
        raised=0.0,
        moved=0.0,
        excess_mass=0.0,
        excess_factor=0.0,
    )
