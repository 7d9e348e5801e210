# SPDX-License-Identifier: Apache-2.0
"""Discrete losses moved to a uniform grid, each move in the direction that its bound needs.

Above: an atom of P-mass p at loss l between grid points a and a + h goes to both so that its P- and its
Q-mass stay what they are, p_a = p (e^(a+h-l) - 1) / (e^h - 1) and p_b = p - p_a: the chord construction of
`accounting.grid_law`.

Below, two ways. Either the same construction, charged by the lattice with how far losses were moved: close
for few releases. Or every outcome is sent to one of the two grid points around its loss at random, the
nearer the likelier, and all that arrive at a point are merged: that is post-processing, so the merged pair
is dominated. Its losses lie close to the grid points, by symmetry, and are lowered to the nearest points of
a grid moved down by a common offset: close for many releases.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggdp.accounting.engines.grid_law import GridLaw
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.cells import Atoms


def grid_above(atoms: Atoms, spacing: float, low: float, high: float, origin: float) -> GridLaw:
    """A law that dominates: losses below the grid are raised to it, those above become infinite."""
    loss = np.maximum(_moved(atoms.loss, origin, 1.0), low)
    beyond = loss > high
    infinite = float(atoms.mass[beyond].sum()) * (1.0 + 64.0 * UNIT_ROUNDOFF)
    return _on_grid(loss[~beyond], atoms.mass[~beyond], infinite, spacing, origin)


def grid_below(atoms: Atoms, spacing: float, low: float, high: float, origin: float) -> GridLaw:
    """A law for lower bounds, charged by the lattice: losses below are left out, those above lowered."""
    loss = np.minimum(_moved(atoms.loss, origin, -1.0), high)
    kept = loss >= low - spacing
    return _on_grid(loss[kept], atoms.mass[kept], 0.0, spacing, origin)


def grid_merged(atoms: Atoms, spacing: float, low: float, high: float, origin: float) -> GridLaw:
    """A dominated law on a grid of its own origin; ends as in `grid_below`."""
    loss = np.minimum(_moved(atoms.loss, origin, -1.0), high)
    kept = loss >= low - spacing
    if not kept.any():
        return _nothing(spacing, origin, 0.0)
    points, place, mass = _merged(loss[kept], atoms.mass[kept], spacing, origin)
    offset = _offset(place, mass)
    # rounding may not leave a loss below its point: 1e-12 of a spacing is more than it can do
    points = np.where(
        place + offset >= 1e-12, points, points - np.ceil(1e-12 - place - offset).astype(np.int64)
    )
    first = int(points.min())
    total = np.bincount(points - first, weights=mass)
    # the lattice charges nothing for losses that lie on its grid; of a distance of zero it cannot take the
    # logarithm
    return _law(total * (1.0 - 32.0 * UNIT_ROUNDOFF), first, 0.0, spacing, origin - offset * spacing, 1e-300)


def _merged(
    loss: Array, mass: Array, spacing: float, origin: float
) -> tuple[NDArray[np.int64], Array, Array]:
    """Grid points, and for each the merged atom's distance from it in spacings, and its mass."""
    place = (loss - origin) / spacing
    below = np.floor(place)
    up = place - below
    first = int(below.min())
    index = (below - first).astype(np.int64)
    size = int(index.max()) + 2
    p, excess = np.zeros(size), np.zeros(size)  # excess: Q-mass times e^(grid point), less P-mass
    for step, weight, distance in ((0, 1.0 - up, -up), (1, up, 1.0 - up)):
        p += np.bincount(index + step, weights=mass * weight, minlength=size)
        excess += np.bincount(
            index + step, weights=mass * weight * np.expm1(distance * spacing), minlength=size
        )
    there = p > 0.0
    points = first + np.nonzero(there)[0]
    slack = 64.0 * UNIT_ROUNDOFF * (1.0 + np.abs(origin) + np.abs(points) * spacing)
    return points, (-np.log1p(excess[there] / p[there]) - slack) / spacing, p[there]


def _offset(distance: Array, mass: Array) -> float:
    """How far to move the grid down, in spacings, so that lowering losses to it costs least on average."""
    candidates = np.concatenate([[1e-9], np.geomspace(1e-7, 0.5, 60)])
    order = np.argsort(distance)
    sorted_distance, left_out = distance[order], np.cumsum(mass[order])
    fall = np.searchsorted(sorted_distance, -candidates)  # those below their point fall by a whole spacing
    costs = candidates * left_out[-1] + np.where(fall > 0, left_out[fall - 1], 0.0)
    return float(candidates[int(np.argmin(costs))])


def _moved(loss: Array, origin: float, side: float) -> Array:
    return np.asarray(loss + side * 4.0 * UNIT_ROUNDOFF * (np.abs(loss) + abs(origin)))


def _on_grid(loss: Array, mass: Array, infinite: float, spacing: float, origin: float) -> GridLaw:
    if not len(loss):
        return _nothing(spacing, origin, infinite)
    place = (loss - origin) / spacing
    below = np.floor(place)
    down = mass * np.expm1((below + 1.0 - place) * spacing) / math.expm1(spacing)
    down = np.clip(down, 0.0, mass)
    first = int(below.min())
    index = (below - first).astype(np.int64)
    size = int(index.max()) + 2
    total = np.bincount(index, weights=down, minlength=size)
    total += np.bincount(index + 1, weights=mass - down, minlength=size)
    moved = math.exp(spacing) * float(mass @ np.minimum(place - below, below + 1.0 - place)) + 1e-300
    return _law(
        total * (1.0 + 32.0 * UNIT_ROUNDOFF),
        first,
        infinite,
        spacing,
        origin,
        min(moved * (1.0 + 1e-9), 0.5),
    )


def _nothing(spacing: float, origin: float, infinite: float) -> GridLaw:
    return _law(np.full(1, 1e-320), 0, infinite, spacing, origin, 0.5)


def _law(
    mass: NDArray[np.floating[Any]], first: int, infinite: float, spacing: float, origin: float, moved: float
) -> GridLaw:
    return GridLaw(
        origin=origin,
        first=first,
        spacing=spacing,
        mass=np.asarray(mass, dtype=np.float64),
        infinite=infinite,
        raised=0.0,
        moved=moved,
        excess_mass=0.0,
        excess_factor=64.0 * UNIT_ROUNDOFF,
    )
