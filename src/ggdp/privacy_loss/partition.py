# SPDX-License-Identifier: Apache-2.0
"""Where to cut the line into cells. Plans only: a poor choice makes an answer wide, not wrong."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ggdp.numerics import Array
from ggdp.privacy_loss.density import Density
from ggdp.privacy_loss.enclosure import Edges

_BULK, _FAR = 45.0, 330.0  # depth, in nats below the peak, of the bulk and of the last cell
_SCAN = 2001
_FEWEST = 16  # cells in a piece
_GRADES = 24  # further points close to each break


@dataclass(frozen=True)
class _Range:
    """Where a density is within reach of its peak."""

    low: float
    bulk_low: float
    peak: float
    bulk_high: float
    high: float


def partition(densities: Sequence[Density], cells: int) -> Edges:
    """Edges fine over the bulk of every density, coarse in the tails, close together near break points."""
    ranges = [_range(density) for density in densities]
    low, high = min(r.low for r in ranges), max(r.high for r in ranges)
    inside = {point for density in densities for point in density.all_breaks if low < point < high}
    breaks = _distinct(np.array(sorted({low, high, *inside})))
    share = max(cells // len(ranges), 64)
    layers: list[Array] = []
    for r in ranges:
        layers.append(np.linspace(r.bulk_low, r.bulk_high, share // 2))
        # heavy tails are long against their peak: points whose distance to it grows geometrically
        layers.extend(
            r.peak + side * np.geomspace(1e-6 * reach, reach, share // 8)
            for side, reach in ((-1.0, r.peak - r.low), (1.0, r.high - r.peak))
            if reach > 0.0
        )
        layers.extend(np.linspace(a, b, share // 8) for a, b in ((r.low, r.bulk_low), (r.bulk_high, r.high)))
    grades = np.geomspace(1e-7, 0.3, _GRADES)
    for a, b in itertools.pairwise(breaks):
        layers.append(np.linspace(a, b, _FEWEST + 1))
        layers.append(a + grades * (b - a))
        layers.append(b - grades * (b - a))
    return _edges(np.concatenate(layers), breaks)


def _distinct(breaks: Array) -> Array:
    """Break points; those a few ulps apart are meant to be one, and values are taken beside it."""
    size = np.maximum(np.abs(breaks), 2.0**-4 * np.abs(breaks).max())
    return np.asarray(breaks[np.append(True, np.diff(breaks) > 4.0 * np.spacing(size[1:]))], dtype=np.float64)


def _edges(points: Array, breaks: Array) -> Edges:
    """Sorted points; those too close to their neighbour for a slope to mean anything are dropped."""
    points = np.unique(points[(points > breaks[0]) & (points < breaks[-1])])
    place = np.clip(np.searchsorted(breaks, points), 1, len(breaks) - 1)
    piece = breaks[place] - breaks[place - 1]
    size = np.abs(breaks).max()
    to_break = np.minimum(points - breaks[place - 1], breaks[place] - points)
    points = points[to_break > np.maximum(1e-9 * piece, 1e-12 * size)]
    spaced = np.concatenate([[True], np.diff(points) > 1e-12 * size + 1e-9 * np.diff(points).mean()])
    merged = np.unique(np.concatenate([points[spaced], breaks]))
    return Edges(merged, np.isin(merged, breaks))


def _range(density: Density) -> _Range:
    low, high = _bracket(density)
    scan = np.unique(
        np.concatenate([np.linspace(low, high, _SCAN), [p for p in density.all_breaks if low < p < high]])
    )
    for _ in range(3):  # look closer at the peak: it may be narrow against the bracket
        value = density.log_density(scan)
        top = int(np.argmax(value))
        around = np.linspace(scan[max(top - 1, 0)], scan[min(top + 1, len(scan) - 1)], _SCAN)
        scan = np.unique(np.concatenate([scan, around]))
    value = density.log_density(scan)
    peak = float(value.max())
    if not math.isfinite(peak):
        raise ValueError(
            "log_density_fn is minus infinity wherever it was tried; name its support, or a break point in it"
        )
    ends = [_outermost(scan, value > peak - depth) for depth in (_BULK, _FAR)]
    bulk, far = ([max(a, low), min(b, high)] for a, b in ends)
    if math.isfinite(density.support[0]):
        far[0], bulk[0] = density.support[0], bulk[0]
    if math.isfinite(density.support[1]):
        far[1] = density.support[1]
    return _Range(far[0], bulk[0], float(scan[int(np.argmax(value))]), bulk[1], far[1])


def _outermost(scan: Array, there: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[float, float]:
    """The scan points just outside the first and the last that count."""
    found = np.nonzero(there)[0]
    return float(scan[max(int(found[0]) - 1, 0)]), float(scan[min(int(found[-1]) + 1, len(scan) - 1)])


def _bracket(density: Density) -> tuple[float, float]:
    """An interval that holds everything down to the last cell's depth."""
    marks = density.all_breaks or (0.0,)
    ends = []
    for side, bound, anchor in ((-1.0, density.support[0], marks[0]), (1.0, density.support[1], marks[-1])):
        if math.isfinite(bound):
            ends.append(bound)
            continue
        steps = anchor + side * np.ldexp(1.0, np.arange(-40, 80))
        value = density.log_density(steps)
        seen = np.maximum.accumulate(value)
        below = np.nonzero((value < seen - _FAR) & (seen > -math.inf))[0]
        if not len(below):
            raise ValueError(
                "log_density_fn must fall towards the unbounded ends of its support; for heavy tails end the "
                "support and bound the rest by outside_mass"
            )
        ends.append(float(steps[below[0]]))
    return ends[0], ends[1]
