# SPDX-License-Identifier: Apache-2.0
"""The smallest law on a grid of losses that dominates one release: its curve joined by chords.

Values of the curve come from the closed form with their rounding errors. They are raised before the chords are
drawn, so the law dominates in exact arithmetic too; by how much its curve lies above the exact chords is recorded, for the
sake of the lower bound.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ggdp.privacy_loss.hockey_stick import far_side, hockey_stick
from ggdp.privacy_loss.shift_pair import Array, ShiftPair

_UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True)
class GridLaw:
    """Masses under P at losses origin + (first + i) * spacing, and mass at infinite loss.

    Attributes:
        moved_mass: probability that a loss did not lie on the grid already.
        excess_mass: the curve lies at most this much above the exact chords, or
        excess_factor: at most this share above them.
    """

    origin: float
    first: int
    spacing: float
    mass: Array
    infinite: float
    moved_mass: float
    excess_mass: float
    excess_factor: float

    @cached_property
    def loss(self) -> Array:
        """The losses that carry the masses."""
        return self.origin + (self.first + np.arange(len(self.mass))) * self.spacing

    @cached_property
    def log_mass(self) -> Array:
        """log of the masses, minus infinity where there is none."""
        with np.errstate(divide="ignore"):
            return np.log(self.mass)


def discretize(pair: ShiftPair, spacing: float, low: float, high: float, negligible: float) -> GridLaw:
    """Join the curve at the points of a grid that covers [low, high].

    Losses above `high` become infinite, losses below `low` are raised to it. A Laplace loss starts the grid at its lower atom, so
    that both atoms lie on it when `spacing` divides their distance.

    Args:
        pair: the release.
        spacing: distance of grid points.
        low: where the grid begins, at the latest.
        high: where it ends, at the earliest.
        negligible: mass at infinite loss that does not matter to the answer.
    """
    low, high = max(low, pair.infimum), min(high, pair.supremum)
    origin = pair.infimum if pair.beta == 1.0 else 0.0
    first = math.floor((low - origin) / spacing)
    last = max(math.ceil((high - origin) / spacing - 1e-6), first + 1)
    t = origin + np.arange(first, last + 1) * spacing
    if high == pair.supremum:
        t[-1] = max(t[-1], high)  # rounding must not leave the top atom beyond the grid
    turn = int(np.clip(np.searchsorted(t, 0.0, side="right") - 1, 0, len(t) - 1))
    left, right = far_side(pair, t[: turn + 1]), hockey_stick(pair, t[turn:])
    on_grid = pair.beta == 1.0 and high == pair.supremum and low == pair.infimum
    errors = np.concatenate([left.error, right.error])
    if float(right.error.max()) <= negligible:
        # raise every value by the bound on its error; that of the last one ends up at infinite loss
        top = np.maximum(right.error, right.error[-2:].max())
        mass = _masses(left.value + left.error, right.value + top, t[turn], turn, spacing)
        infinite = float(right.value[-1] + top[-1])
        excess_mass, excess_factor = 3.0 * float(errors.max()), 0.0
    else:
        values = np.concatenate([left.value, right.value])
        shown = values > 1e-290
        share = float((errors[shown] / values[shown]).max()) if shown.any() else 0.0
        mass = (1.0 + share) * _masses(left.value, right.value, t[turn], turn, spacing)
        infinite = (1.0 + share) * float(right.value[-1])
        excess_mass, excess_factor = 0.0, 3.0 * share
    negative = -float(mass[mass < 0.0].sum())  # noise of a grid finer than the closed form; dropping it raises the curve
    return GridLaw(
        origin=origin,
        first=first,
        spacing=spacing,
        mass=(1.0 + 8.0 * _UNIT_ROUNDOFF) * np.maximum(mass, 0.0),
        infinite=infinite,
        moved_mass=pair.interior_mass if on_grid else 1.0,
        excess_mass=excess_mass + negative,
        excess_factor=excess_factor + 16.0 * _UNIT_ROUNDOFF,
    )


def _masses(left: Array, right: Array, t_turn: float, turn: int, spacing: float) -> Array:
    """P-masses x (slope after - slope before) at the grid points of a curve given in two forms.

    `left` holds delta - (1 - x) up to the turn and `right` delta from the turn on; the kink of (1 - x)_+ between the two forms
    is the mass e^t at the turn. Left of the grid the curve is the chord from x = 0, right of it constant.
    """
    grow, fall = math.expm1(spacing), -math.expm1(-spacing)
    step = np.concatenate([np.diff(left), np.diff(right)])
    mass = np.append(step / grow, 0.0) - np.insert(step / fall, 0, left[0])
    mass[turn] += math.exp(t_turn)
    return mass
