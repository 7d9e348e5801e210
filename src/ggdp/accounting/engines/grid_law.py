# SPDX-License-Identifier: Apache-2.0
"""The smallest law with losses on a grid that dominates one release.

The curve delta(x), x = e^loss, of the release is evaluated at the grid points, and neighbouring points are
joined by chords. The values come from the closed form, which has rounding errors. Each value is raised by a
bound on its error before the chords are drawn, so that the law dominates the release in exact arithmetic. By
how much its curve may lie above the exact chords is recorded; lower bounds need that number.

The *turn* is the grid point next to loss zero. Left of it delta - (1 - x) is used in place of delta, because
delta is then close to 1 - x and the difference keeps more digits.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ggdp.clock import CLOCK
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.hockey_stick import HockeyStick, far_side, hockey_stick
from ggdp.privacy_loss.shift_pair import ShiftPair

_LARGEST_MASS = 1e11  # mass that is as large as the answer, in units of a negligible one
_SMALLEST_VALUE = 1e-295  # values of a curve below this are only known to be below it


@dataclass(frozen=True)
class GridLaw:
    """A law of a privacy loss that is on a grid or infinite.

    Attributes:
        origin: a point of the grid.
        first: the number of the first point, counted from the origin.
        spacing: the distance of grid points.
        mass: the masses under P of the losses origin + (first + i) * spacing.
        infinite: the mass under P of infinite loss.
        raised: the mass of losses below the grid, which were raised to its first point.
        moved: mean distance, in spacings, from a loss to the nearest grid point; at most a half.
        furthest: the largest such distance.
        excess_mass: by how much the curve may lie above the exact chords, in addition to
        excess_factor: the share of its value by which it may lie above them.
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
    furthest: float = 0.5

    @cached_property
    def loss(self) -> Array:
        """The losses that carry the masses."""
        return np.asarray(self.origin + (self.first + np.arange(len(self.mass))) * self.spacing, dtype=float)

    @cached_property
    def log_mass(self) -> Array:
        """log of the masses; minus infinity where a mass is 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.mass)


def discretize(pair: ShiftPair, spacing: float, low: float, high: float, negligible: float) -> GridLaw:
    """The law of one release on a grid that covers [low, high].

    Losses above `high` become infinite, unless the pair's noise is cut there; losses below `low` are raised
    to it. A Laplace loss takes its smallest and its largest value with positive probability. The grid begins
    at the smallest one, so that both lie on it if `spacing` divides their distance.

    Args:
        pair: the release.
        spacing: distance of grid points.
        low: where the grid begins, at the latest.
        high: where it ends, at the earliest.
        negligible: a mass at infinite loss that does not matter to the answer. If the errors of the values do
            not exceed it, every value is raised by its error; otherwise by a share of itself, unless that
            costs more.
    """
    CLOCK.check()
    curve = GridCurve.on(pair, spacing, low, high)
    errors = np.concatenate([curve.left.error, curve.right.error])
    values = np.concatenate([curve.left.value, curve.right.value])
    shown = values > _SMALLEST_VALUE
    share = float((errors[shown] / values[shown]).max()) if shown.any() else 0.0
    absolute = float(curve.right.error.max())
    if absolute <= max(negligible, min(share, 1.0) * _LARGEST_MASS * negligible):
        # every value is raised by the bound on its error; the last value's becomes mass at infinite loss
        top = np.maximum(curve.right.error, curve.right.error[-2:].max())
        bottom = curve.left.error.copy()
        bottom[-1] = top[0]
        mass = curve.masses(curve.left.value + bottom, curve.right.value + top)
        lifted = float(top[-1])
        excess_mass, excess_factor = 3.0 * float(errors.max()), 0.0
    else:
        # every value is raised by a share of itself: the largest relative error from the turn to this value
        relative = np.where(shown, errors / np.where(shown, values, 1.0), 0.0)
        near, far = relative[: curve.turn + 1][::-1], relative[curve.turn + 1 :]
        left = np.maximum.accumulate(near) * np.maximum(curve.left.value[::-1], 0.0)
        right = np.maximum.accumulate(far) * curve.right.value
        left[0] = right[0] = max(float(left[0]), float(right[0]))
        mass = curve.masses(curve.left.value + left[::-1], curve.right.value + right)
        lifted = 2.0 * _SMALLEST_VALUE + (0.0 if curve.ends else float(right[-1]))
        excess_mass, excess_factor = 2.0 * _SMALLEST_VALUE, 3.0 * share
    # rounding can make masses negative on a very fine grid; setting these to 0 raises the curve
    negative = -float(mass[mass < 0.0].sum())
    mass = np.maximum(mass, 0.0)
    mass[curve.turn] += 16.0 * UNIT_ROUNDOFF  # the terms of the mass at the turn are of order one
    if curve.ends:
        # if the noise is cut, the curve is that of the whole release less the line that touches it at the
        # cut. The errors of both, and of the line's slope, may be large beside the difference: more mass at
        # the cut covers them
        off = float((curve.right.error[-3:] / np.maximum(curve.right.value[-3:], _SMALLEST_VALUE)).max())
        off = max(off, 64.0 * UNIT_ROUNDOFF)
        value, slope = float(curve.right.value[-3:].max()), float(curve.right.slope[-1])
        more = 4.0 * off * (value / -math.expm1(-curve.spacing) + slope)
        mass[-1] += more
        excess_mass += more
    return GridLaw(
        origin=curve.origin,
        first=curve.first,
        spacing=curve.spacing,
        mass=(1.0 + 8.0 * UNIT_ROUNDOFF) * mass,
        infinite=lifted + (0.0 if curve.ends else float(curve.right.value[-1])),
        raised=float(curve.left.slope[0]),
        moved=curve.moved(),
        excess_mass=excess_mass + negative,
        excess_factor=excess_factor + 48.0 * UNIT_ROUNDOFF,
    )


@dataclass(frozen=True)
class GridCurve:
    """Values of a curve at grid points, in two forms: delta - (1 - x) up to the turn, delta from the turn on.

    Attributes:
        origin: a point of the grid.
        first: the number of the first point, counted from the origin.
        spacing: the distance of grid points.
        turn: the place of the turn among the points.
        t_turn: its loss.
        ends: whether the noise is cut at the last point.
        left: delta - (1 - x) up to the turn.
        right: delta from the turn on.
    """

    origin: float
    first: int
    spacing: float
    turn: int
    t_turn: float
    ends: bool
    left: HockeyStick
    right: HockeyStick

    @staticmethod
    def on(pair: ShiftPair, spacing: float, low: float, high: float) -> "GridCurve":
        """The curve of a release on a grid that covers [low, high]."""
        low, high = max(low, pair.infimum), min(high, pair.supremum)
        ends = math.isfinite(pair.cut) and high == pair.supremum
        start = pair.infimum if pair.beta == 1.0 else 0.0
        origin = high if ends else start  # if the noise is cut, the last point must be the loss at the cut
        first = math.floor((low - origin) / spacing)
        last = max(math.ceil((high - origin) / spacing - 1e-6), first + 1)
        t = np.asarray(origin + np.arange(first, last + 1) * spacing, dtype=float)
        is_last = high == pair.supremum
        if is_last:
            # rounding must not leave a loss beyond the last point
            t[-1] = max(t[-1], high * (1.0 + 8.0 * UNIT_ROUNDOFF))
        turn = int(np.clip(np.searchsorted(t, 0.0, side="right") - 1, 0, len(t) - 1))
        left, right = far_side(pair.whole, t[: turn + 1]), hockey_stick(pair.whole, t[turn:])
        if t[turn] > 0.0:  # all losses of the grid are positive: the left form has a single value
            value, error = right.value[:1] - 1.0, right.error[:1] + 4.0 * UNIT_ROUNDOFF
            left = HockeyStick(value, error, -value)
        else:  # both forms must agree at the turn; a difference would shift the whole left side
            left.value[-1] = right.value[0] + math.expm1(t[turn])
            left.error[-1] = right.error[0] + 2.0 * UNIT_ROUNDOFF * (right.value[0] + spacing)
        if is_last and not ends:
            right.value[-1] = right.error[-1] = right.slope[-1] = 0.0  # no loss is larger
        return GridCurve(origin, first, spacing, turn, float(t[turn]), ends, left, right)

    def masses(self, left: Array, right: Array) -> Array:
        """The P-masses of the law whose curve joins the given values: x (slope after - slope before).

        The slopes are by x, before and after each grid point. Left of the grid the curve is the chord from
        x = 0. Right of it the curve is constant, or, if the noise is cut, its own tangent, which adds no
        mass. At the turn the form changes by 1 - x, which adds the mass e^t.
        """
        grow = math.expm1(self.spacing)
        step = np.concatenate([np.diff(left), np.diff(right)])
        beyond = -float(self.right.slope[-1]) if self.ends else 0.0
        # the mass is step / grow after a point, less step / (1 - e^-spacing) = step / grow + step before it.
        # One quotient is computed in place of two, whose different rounding would add up over the grid
        after, before = np.append(step, 0.0), np.insert(step, 0, 0.0)
        mass: Array = np.asarray((after - before) / grow - before, dtype=np.float64)
        mass[0] -= left[0]
        mass[-1] += beyond
        mass[self.turn] += math.exp(self.t_turn) if self.t_turn <= 0.0 or self.turn > 0 else 0.0
        return mass

    def moved(self) -> float:
        """Mean distance of a loss to the nearest grid point, in spacings, at most about a half.

        A cell adds the smaller of the two masses that it sends to its ends.
        """
        grow, fall = math.expm1(self.spacing), -math.expm1(-self.spacing)
        total = 0.0
        for stick, sign in ((self.left, 1.0), (self.right, -1.0)):
            step, slope = np.diff(stick.value), sign * stick.slope
            down = np.maximum(step / grow - slope[:-1], 0.0)
            up = np.maximum(slope[1:] - step / fall, 0.0)
            doubt = (stick.error[1:] + stick.error[:-1]) / fall
            total += float(np.minimum(down + doubt, up + doubt).sum())
        # losses left of the grid and infinite ones are counted in full, since there is very little of them
        total += float(self.left.slope[0]) + (0.0 if self.ends else float(self.right.value[-1]))
        return min(total * math.exp(2.0 * self.spacing), 0.5 * math.exp(self.spacing))
