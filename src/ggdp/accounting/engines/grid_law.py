# SPDX-License-Identifier: Apache-2.0
"""The smallest law on a grid of losses that dominates one release.

The curve of the release is joined by chords. Its values come from the closed form with their rounding errors.
They are raised before the chords are drawn, so the law dominates in exact arithmetic too; by how much its
curve lies above the exact chords is recorded, for the sake of the lower bound.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ggdp.clock import CLOCK
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.hockey_stick import HockeyStick, far_side, hockey_stick
from ggdp.privacy_loss.shift_pair import ShiftPair

_MATTERS = 1e11  # a mass that is all of the answer, in units of one that is negligible
_SMALLEST = 1e-295  # value of a curve up to which it may be off by as much


@dataclass(frozen=True)
class GridLaw:
    """Masses under P at losses origin + (first + i) * spacing, and mass at infinite loss.

    Attributes:
        raised: mass of losses below the grid, raised to its first point.
        moved: mean distance, in spacings, from a loss to the nearest grid point; at most a half.
        furthest: largest distance, in spacings.
        excess_mass: the curve lies at most this much above the exact chords, or
        excess_factor: at most this share above them.
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
    CLOCK.check()
    curve = GridCurve.on(pair, spacing, low, high)
    errors = np.concatenate([curve.left.error, curve.right.error])
    values = np.concatenate([curve.left.value, curve.right.value])
    shown = values > _SMALLEST
    share = float((errors[shown] / values[shown]).max()) if shown.any() else 0.0
    absolute = float(curve.right.error.max())
    if absolute <= max(negligible, min(share, 1.0) * _MATTERS * negligible):
        # raise every value by the bound on its error; that of the last one ends up at infinite loss
        top = np.maximum(curve.right.error, curve.right.error[-2:].max())
        bottom = curve.left.error.copy()
        bottom[-1] = top[0]
        mass = curve.masses(curve.left.value + bottom, curve.right.value + top)
        lifted = float(top[-1])
        excess_mass, excess_factor = 3.0 * float(errors.max()), 0.0
    else:
        # each value by a share of itself, no less than that of any value nearer to the turn
        relative = np.where(shown, errors / np.where(shown, values, 1.0), 0.0)
        near, far = relative[: curve.turn + 1][::-1], relative[curve.turn + 1 :]
        left = np.maximum.accumulate(near) * np.maximum(curve.left.value[::-1], 0.0)
        right = np.maximum.accumulate(far) * curve.right.value
        left[0] = right[0] = max(float(left[0]), float(right[0]))
        mass = curve.masses(curve.left.value + left[::-1], curve.right.value + right)
        lifted = 2.0 * _SMALLEST + (0.0 if curve.ends else float(right[-1]))
        excess_mass, excess_factor = 2.0 * _SMALLEST, 3.0 * share
    # noise of a grid finer than the closed form; dropping it raises the curve
    negative = -float(mass[mass < 0.0].sum())
    mass = np.maximum(mass, 0.0)
    mass[curve.turn] += 16.0 * UNIT_ROUNDOFF  # the terms of the mass at the turn are of order one
    if curve.ends:
        # a law that is cut is the curve less a line that touches it at the cut: errors of the two there, and
        # of the line's slope, are no small share of the difference. So much more mass at the cut covers them
        off = float((curve.right.error[-3:] / np.maximum(curve.right.value[-3:], _SMALLEST)).max())
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
    """Values of a curve in two forms: delta - (1 - x) up to the turn at loss zero, delta from it on."""

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
        return GridCurve(origin, first, spacing, turn, float(t[turn]), ends, left, right)

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

    def moved(self) -> float:
        """Mean distance to the nearest grid point, in spacings: per cell, the lesser of the masses sent to
        its two ends.
        """
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
