# SPDX-License-Identifier: Apache-2.0
"""The lower convex hull of the values of a curve on a grid of losses, as the masses of a law.

The curve is given in two forms, joined at the turn, a grid point near zero: delta - (1 - x) up to it, and
delta from it on, as functions of x = e^t. A law on the grid has a convex curve with corners at the grid
points, and its masses are x times the changes of slope there.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ggdp.numerics import Array
from ggdp.privacy_loss.hockey_stick import Mask

MOST_ROUNDS = 100
"""In which points above the chord of their neighbours are dropped."""

_ROUNDS_AT_ONCE = 8  # of these, in which all of them are dropped at once

Indices = NDArray[np.intp]


def hull_masses(left: Array, right: Array, spacing: float, t_turn: float, rounds: int = 0) -> Array | None:
    """Masses of the lower convex hull of the points, which goes on as its first and last chord.

    A point above the chord of its neighbours is no corner of the hull. All such points are dropped at
    once; where few are left, as beside a chord that passes over thousands of points, one after the other.
    A slope times its place is subtracted from the next one before it is multiplied by the small step
    between the places: rounding is then relative to the curve. Where a number of rounds is given, masses
    that are negative after them are left out: that raises the curve. None if the turn is no corner.
    """
    turn = len(left) - 1
    size = turn + len(right)
    values = np.concatenate([left, right])  # the turn twice, once in either form
    kept = np.arange(size)
    for count in range(rounds or MOST_ROUNDS):
        place = int(np.searchsorted(kept, turn))
        step = np.diff(np.concatenate([values[kept[: place + 1]], values[kept[place:] + 1]]))
        step = np.delete(step, place)
        with np.errstate(over="ignore", invalid="ignore"):
            grow = np.expm1(np.diff(kept) * spacing)
            scaled = step / grow
            mass = np.diff(scaled) - scaled[:-1] * grow[:-1]
        mass[place - 1] += math.exp(t_turn)
        if not np.all(np.isfinite(mass)) or mass[place - 1] < 0.0:
            return None
        drop = mass < 0.0
        if not drop.any() or count + 1 == rounds:
            masses = np.zeros(size)
            masses[kept[1:-1]] = np.maximum(mass, 0.0)
            return masses
        if count < _ROUNDS_AT_ONCE:
            kept = np.concatenate([kept[:1], kept[1:-1][~drop], kept[-1:]])
        else:
            kept = kept[~_eroded(values, turn, spacing, kept, kept[1:-1][drop].tolist())[kept]]
    return None


def _eroded(values: Array, turn: int, spacing: float, kept: Indices, found: list[int]) -> Mask:
    """The points that are no corners, beginning with those found, and of their neighbours in turn."""
    gone = np.zeros(len(values), dtype=bool)
    before, after = (np.full(len(values), -1) for _ in range(2))
    before[kept[1:]], after[kept[:-1]] = kept[:-1], kept[1:]

    def scaled(start: int, end: int) -> float:
        form = int(start >= turn)
        return float(values[end + form] - values[start + form]) / math.expm1((end - start) * spacing)

    for one in found:  # its mass was negative as computed before, which may round otherwise here
        is_first, points = True, [one]
        while points:
            point = points.pop()
            left, right = int(before[point]), int(after[point])
            if gone[point] or left < 0 or right < 0 or point == turn:
                continue
            rise = scaled(left, point)
            mass = scaled(point, right) - rise - rise * math.expm1((point - left) * spacing)
            if mass < 0.0 or is_first:
                gone[point], after[left], before[right] = True, right, left
                points += [left, right]
            is_first = False
    return gone
