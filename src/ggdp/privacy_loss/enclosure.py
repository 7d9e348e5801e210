# SPDX-License-Identifier: Apache-2.0
"""Certified enclosures of a piecewise log-concave or log-convex density, cell by cell, from its values alone.

On a cell [u, v] inside a piece, with s the slope of the chord of g = log f, and A, B the amounts by which
the slope changes to the chords of the two neighbouring cells, a concave g satisfies

    chord <= g <= chord + gap,        gap = A B (v - u) / (A + B),

because g lies below the neighbours' chords prolonged; a convex g lies as much below. A cell at the end of
its piece has one neighbour, and gap = B (v - u). Then the mass of the cell is that of e^chord, a closed
form, times a number in [1, e^gap]. Beyond the last cell of an unbounded concave piece, f falls at least as
fast as the last chord.

Values at break points are limits from inside, taken a few ulps off; an end where g does not level off there
(it may reach minus infinity) is enclosed by the neighbour's chord from above and by nothing from below.

`partition` says where to cut the line into cells. It only plans: a poor choice makes an answer wide, not
wrong.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.density import Density, Mixture

_NUDGE = 8.0  # distance from a break point at which values are taken, in ulps
_WILD = 1e-5  # change of g over that distance from which on g has no finite slope at this end

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Edges:
    """Points between cells; `at_break` marks the break points among them, the two ends included."""

    points: Array
    at_break: Mask

    @property
    def length(self) -> Array:
        """The length of each cell."""
        return np.diff(self.points)


@dataclass(frozen=True)
class Enclosure:
    """On each cell log f lies in [chord - under, chord + over], the chord running from `left` to `right`."""

    left: Array
    right: Array
    over: Array
    under: Array
    mass_low: Array
    mass_high: Array
    tail_low: float
    tail_high: float

    @property
    def total(self) -> tuple[float, float]:
        """Bounds on the integral, tails included."""
        tails = self.tail_low + self.tail_high
        return float(self.mass_low.sum()), float(self.mass_high.sum()) + tails


def enclose(law: Density | Mixture, edges: Edges) -> Enclosure:
    """The enclosure of a density whose break points are all among the edges.

    Raises:
        ValueError: between two break points the log density is neither concave nor convex, or a tail is too
        heavy.
    """
    parts = [(weight, _enclose_one(density, edges)) for weight, density in law.components]
    if len(parts) == 1:
        return parts[0][1]
    return _sum(parts, edges.length)


def _enclose_one(density: Density, edges: Edges) -> Enclosure:
    left, right, doubt_left, doubt_right = _end_values(density, edges)
    empty = np.isneginf(left) & np.isneginf(right)
    length = edges.length
    with np.errstate(invalid="ignore", over="ignore"):
        slope = np.where(np.isfinite(left) & np.isfinite(right), (right - left) / length, math.nan)
    doubt = density.relative_error * (1.0 + np.where(empty, 0.0, np.maximum(_size(left), _size(right))))
    # rounding error of a slope
    noise = (2.0 * doubt + doubt_left + doubt_right) / length + _nudged(edges, slope)
    bend = _bends(edges, left, slope, noise, empty)
    starts, ends = edges.at_break[:-1], edges.at_break[1:]
    before, after = _slope_changes(slope, noise, starts, ends)
    gap = _gaps(before, after, length)
    left, right, wild = _tamed(density, edges, left, right, slope, noise, bend)
    over = np.where(bend >= 0, np.where(wild, 0.0, gap), 0.0) + doubt
    under = np.where(bend < 0, gap, 0.5 * noise * length) + np.where(wild, math.inf, doubt)
    over, under = over + doubt_left + doubt_right, under + doubt_left + doubt_right
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        chord = _chord_mass(left, right, length)
        mass_low = chord * np.exp(-under) * (1.0 - 32.0 * UNIT_ROUNDOFF)
        mass_high = np.where(over < _MOST, chord * np.exp(over) * (1.0 + 32.0 * UNIT_ROUNDOFF), np.inf)
    tail_low, tail_high = _tails(density, edges, left, right, slope, noise, bend)
    spare = 0.5 * density.outside_mass
    return Enclosure(
        left,
        right,
        np.where(empty, 0.0, over),
        np.where(empty, 0.0, under),
        np.where(empty, 0.0, mass_low),
        np.where(empty, 0.0, mass_high),
        tail_low + spare,
        tail_high + spare,
    )


def _nudged(edges: Edges, slope: Array) -> Array:
    """A bound on the error of a slope at a break point, whose value is taken a few ulps inside."""
    at_end = edges.at_break[:-1] | edges.at_break[1:]
    share = 4.0 * _nudge(edges).max() / edges.length
    return np.where(at_end & np.isfinite(slope), share * np.abs(slope), 0.0)


def _nudge(edges: Edges) -> Array:
    """How far inside of a break point a value is taken; z - shift has the rounding of both numbers."""
    size = np.abs(edges.points)
    return np.asarray(_NUDGE * np.spacing(np.maximum(size, 2.0**-4 * size.max())))


def _size(value: Array) -> Array:
    return np.where(np.isfinite(value), np.abs(value), 0.0)


def _end_values(density: Density, edges: Edges) -> tuple[Array, Array, Array, Array]:
    """g at both ends of every cell, taken from inside at break points, and bounds on the error."""
    points = edges.points
    value = density.log_density(points)
    left, right = value[:-1].copy(), value[1:].copy()
    doubt_left, doubt_right = np.zeros(len(left)), np.zeros(len(left))
    nudge = _nudge(edges)
    for cells, at, side, into, doubt in (
        (edges.at_break[:-1], points[:-1], 1.0, left, doubt_left),
        (edges.at_break[1:], points[1:], -1.0, right, doubt_right),
    ):
        step = nudge[:-1] if side > 0.0 else nudge[1:]
        near = density.log_density(at[cells] + side * step[cells])
        next_to = density.log_density(at[cells] + 2.0 * side * step[cells])
        into[cells] = near
        with np.errstate(invalid="ignore"):
            doubt[cells] = np.where(near == next_to, 0.0, 4.0 * np.abs(near - next_to))
    return left, right, doubt_left, doubt_right


def _bends(edges: Edges, left: Array, slope: Array, noise: Array, empty: Mask) -> NDArray[np.int64]:
    """1 on cells of concave pieces, -1 on those of convex ones; an error if a piece is neither."""
    starts = np.nonzero(edges.at_break[:-1])[0]
    lengths = np.diff(np.append(starts, len(slope)))
    inner = ~edges.at_break[:-1]  # cells whose left end lies inside a piece
    missing = np.add.reduceat((inner & np.isneginf(left)).astype(np.int64), starts)
    partly = (missing > 0) & (np.add.reduceat(empty.astype(np.int64), starts) < lengths)
    change = np.nan_to_num(np.diff(slope, prepend=math.nan))
    tolerance = noise + np.concatenate([[0.0], noise[:-1]])
    rises = np.add.reduceat((inner & (change > tolerance)).astype(np.int64), starts)
    falls = np.add.reduceat((inner & (change < -tolerance)).astype(np.int64), starts)
    mixed = (rises > 0) & (falls > 0)
    if mixed.any() or partly.any():
        piece = int(np.nonzero(mixed | partly)[0][0])
        a, b = edges.points[starts[piece]], edges.points[starts[piece] + lengths[piece]]
        what = "minus infinity on a part" if partly[piece] else "neither"
        raise ValueError(
            "log_density_fn must be concave, convex or minus infinity between break points, "
            f"and is {what} between {a:g} and {b:g}; list in breaks every jump, kink and change of bend, "
            "in support where the density ends, or write it as a Mixture"
        )
    return np.repeat(np.where(rises > 0, -1, 1), lengths)


def _slope_changes(slope: Array, noise: Array, starts: Mask, ends: Mask) -> tuple[Array, Array]:
    """By how much the slope changes at either end of a cell; NaN where its piece ends."""
    change = np.abs(np.diff(slope)) + noise[1:] + noise[:-1]  # NaN beside an end at minus infinity
    before = np.where(starts, math.nan, np.concatenate([[math.nan], change]))
    after = np.where(ends, math.nan, np.concatenate([change, [math.nan]]))
    return before, after


def _gaps(before: Array, after: Array, length: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        both = before * after / (before + after)
    one = np.where(np.isnan(before), after, before)
    found = np.where(np.isnan(before) | np.isnan(after), one, np.where(before + after > 0.0, both, 0.0))
    return np.where(np.isnan(found), math.inf, found * length)


def _tamed(
    density: Density,
    edges: Edges,
    left: Array,
    right: Array,
    slope: Array,
    noise: Array,
    bend: NDArray[np.int64],
) -> tuple[Array, Array, Mask]:
    """Replace ends without a finite slope by the neighbour's prolonged chord: a bound if g is concave."""
    left, right = left.copy(), right.copy()
    wild = np.zeros(len(left), dtype=bool)
    for side, cells in ((1, np.nonzero(edges.at_break[:-1])[0]), (-1, np.nonzero(edges.at_break[1:])[0])):
        for cell in cells:
            mine, other = (left, right) if side > 0 else (right, left)
            if np.isneginf(left[cell]) and np.isneginf(right[cell]):
                continue
            if np.isfinite(mine[cell]) and not _is_wild(density, edges, int(cell), side):
                continue
            neighbour = cell + side
            steep = slope[neighbour] - side * noise[neighbour]
            if bend[cell] < 0 or not math.isfinite(steep):
                point = edges.points[cell if side > 0 else cell + 1]
                raise ValueError(
                    f"log_density_fn does not level off at the break point {point:g}, and is not concave "
                    "there; such a density cannot be bounded from values"
                )
            mine[cell] = other[cell] - side * steep * edges.length[cell]
            wild[cell] = True
    return left, right, wild


def _is_wild(density: Density, edges: Edges, cell: int, side: int) -> bool:
    point = edges.points[cell if side > 0 else cell + 1]
    step = side * _nudge(edges)[cell if side > 0 else cell + 1]
    near, next_to = density.log_density(np.array([point + step, point + 2.0 * step]))
    return not abs(float(near) - float(next_to)) <= _WILD


def _tails(
    density: Density,
    edges: Edges,
    left: Array,
    right: Array,
    slope: Array,
    noise: Array,
    bend: NDArray[np.int64],
) -> tuple[float, float]:
    """Bounds on the masses below the first and above the last edge."""
    found = []
    for side, cell, end in ((-1.0, 0, left[0]), (1.0, -1, right[-1])):
        last = edges.points[0] if side < 0.0 else edges.points[-1]
        bound = density.support[0] if side < 0.0 else density.support[1]
        if math.isfinite(bound) and side * (last - bound) >= 0.0:
            found.append(0.0)
            continue
        fall = -side * slope[cell] - noise[cell]
        if np.isneginf(end):
            found.append(0.0)
        elif bend[cell] < 0 or not fall > 0.0:
            raise ValueError(
                "log_density_fn must be concave and falling beyond its outermost break points; for "
                "heavier tails end the support and bound the rest by outside_mass, or describe the loss by "
                "LossSurvival"
            )
        else:
            found.append(math.exp(min(end - math.log(fall) + 1e-9, 700.0)))
    return found[0], found[1]


def _chord_mass(left: Array, right: Array, length: Array) -> Array:
    """Integral of e^line: length * e^max * (1 - e^-d) / d with d the distance of the end values."""
    with np.errstate(invalid="ignore"):
        high = np.maximum(left, right)
        distance = np.where(np.isneginf(high), 0.0, np.abs(right - left))
        tiny = distance < 1e-8
        mean = np.where(tiny, 1.0 - 0.5 * distance, -np.expm1(-distance) / np.where(tiny, 1.0, distance))
    return np.asarray(length * np.exp(high) * mean)


def _sum(parts: list[tuple[float, Enclosure]], length: Array) -> Enclosure:
    """The enclosure of a weighted sum.

    log-sum-exp of lines is convex, and its curvature is at most (range of slopes)^2 / 4.
    """
    log_weights = [math.log(weight) for weight, _ in parts]
    lefts = np.stack(
        [log_weight + part.left for log_weight, (_, part) in zip(log_weights, parts, strict=True)]
    )
    rights = np.stack(
        [log_weight + part.right for log_weight, (_, part) in zip(log_weights, parts, strict=True)]
    )
    there = np.isfinite(lefts)
    with np.errstate(invalid="ignore", divide="ignore"):
        slopes = (rights - lefts) / length
        top = np.where(there, slopes, -math.inf).max(axis=0)
        bottom = np.where(there, slopes, math.inf).min(axis=0)
        sag = np.where(top > bottom, (length * (top - bottom)) ** 2 / 32.0, 0.0)
    some = there.any(axis=0)
    over = np.where(there, np.stack([part.over for _, part in parts]), 0.0).max(axis=0)
    under = np.where(there, np.stack([part.under for _, part in parts]), 0.0).max(axis=0)
    return Enclosure(
        np.asarray(np.logaddexp.reduce(lefts, axis=0)),
        np.asarray(np.logaddexp.reduce(rights, axis=0)),
        over,
        np.where(some, under + sag, 0.0),
        np.asarray(sum(weight * part.mass_low for weight, part in parts)),
        np.asarray(sum(weight * part.mass_high for weight, part in parts)),
        sum(weight * part.tail_low for weight, part in parts),
        sum(weight * part.tail_high for weight, part in parts),
    )


_MOST = 700.0  # log of the largest ratio of a density in a cell to its chord that is told from infinity
_BULK, _FAR = 45.0, 330.0  # how far log f is below its peak at the ends of the bulk and of the last cell
_SCAN = 2001
_FEWEST = 16  # fewest cells in a piece
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
        # heavy tails are much longer than the peak is wide: their points have geometrically growing distances
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
    """Break points, without those that are only a few ulps from another, which are taken to be the same."""
    size = np.maximum(np.abs(breaks), 2.0**-4 * np.abs(breaks).max())
    return np.asarray(breaks[np.append(True, np.diff(breaks) > 4.0 * np.spacing(size[1:]))], dtype=np.float64)


def _edges(points: Array, breaks: Array) -> Edges:
    """Sorted points, without those so close to a neighbour that the slope between them would be rounding."""
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
    for _ in range(3):  # the peak may be much narrower than the bracket
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
    """The scan points just outside of the first and the last one that are not negligible."""
    found = np.nonzero(there)[0]
    return float(scan[max(int(found[0]) - 1, 0)]), float(scan[min(int(found[-1]) + 1, len(scan) - 1)])


def _bracket(density: Density) -> tuple[float, float]:
    """An interval outside of which log f is below its peak by more than the last cell's depth."""
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
