# SPDX-License-Identifier: Apache-2.0
"""The largest stop loss of the score of a shift, over all shifts in the ball of a norm.

The stop loss of a variable A is E(A - t)_+ as a function of t. With independent scores s_i (`ScoreLaw`), this
module computes an upper bound, for all t >= 0, of

    pi(t) = sup E(v.s - t)_+     over all v in d coordinates with |v|_p <= 1.                              (1)

The scale of the noise and the length of the shift do not occur in it: one table is enough for all of them.

**Laws.** A symmetric variable A of mean zero is determined by its stop loss at t >= 0. Values on a
grid, joined by chords and lowered by the last one, e, are the stop loss of a law on the grid, A'. So if
the values are no less than those of A, then E(A - t)_+ <= E(A' - t)_+ + e for all t; and since a -> E(a +
B - t)_+ is convex with slopes from 0 to 1, a mean of such functions, also E(A + B - t)_+ <= E(A' + B -
t)_+ + e.

**Merging.** Let A and B be such laws for the balls of k and of l coordinates. A shift of the ball of k + l
is (x u, y w), with u and w in their balls and x^p + y^p <= 1. Hence it is enough to bound E(x A + y B -
t)_+ over all such (x, y): a function that is convex, and even in x and in y, so that it grows with both.
It is at most its largest value at points V_i in the quadrant such that the arc x^p + y^p = 1 lies in the
convex hull of all that is below them.

**The points.** Let w_0, ..., w_n follow the arc of the dual norm q, and w_i.V_i >= 1 and w_(i+1).V_i >= 1.
If some u of the arc were not below the hull, a w on the dual arc would have w.u > w.V_i for all i. But w =
c (a w_i + (1-a) w_(i+1)) with c >= 1 for some i, since the dual ball is convex, so w.V_i >= 1 >= w.u. With
tangents at n equal angles, V_i is 1 + O(1/n^2) times too long. For two equal laws half of the arc is
enough, by symmetry.

**Rounding.** Only neighbouring values of a table are subtracted. Everything else is a sum or a product of
positive numbers, and is raised by more than its rounding error.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.matched_norm import ScoreLaw

_FINE = 0.03  # spacing of the grid, in standard deviations of a score
_MOST_POINTS = 2000
_TANGENTS = 16  # number of tangents on half an arc
_LEAST_FACTOR = 1e-6  # smallest factor x or y of a law that is added
_MARGIN = 1.15
_UNDERFLOW = 1e-290  # more than any number that underflows
_DOUBT = 1e-12  # relative error of the terms of a stop loss, twice that of incomplete gamma functions


@dataclass(frozen=True)
class StopLoss:
    """Upper bounds of a stop loss at 0, h, 2h, ...; the last one holds beyond the last point too.

    Attributes:
        spacing: h, a number of few bits, so that multiples of it are exact.
        value: the bounds, non-increasing.
    """

    spacing: float
    value: Array

    @property
    def drops(self) -> Array:
        """Falls between neighbouring points, over h: non-increasing, and at most 1/2 but for rounding.

        They are raised where rounding made them rise, which raises the function that they belong to.
        """
        falls = -np.diff(self.value) / self.spacing
        return np.asarray(np.maximum.accumulate(falls[::-1])[::-1])

    def law(self) -> Array:
        """Masses at -n h, ..., n h of the law whose stop loss is this one less its last value."""
        drops = np.append(self.drops, 0.0)
        right = drops[:-1] - drops[1:]
        middle = max(1.0 - 2.0 * float(drops[0]), 0.0) + 8.0 * UNIT_ROUNDOFF
        raised = 1.0 + 4.0 * (len(right) + 8.0) * UNIT_ROUNDOFF
        return np.concatenate([right[::-1], [middle], right]) * raised

    def scaled(self, factor: float) -> "StopLoss":
        """The bounds for factor times the variable: factor times the chords at t / factor."""
        place = np.arange(len(self.value)) / factor
        index = np.minimum(place, len(self.value) - 1.0).astype(np.intp)
        after = np.minimum(index + 1, len(self.value) - 1)
        share = np.minimum(place - index, 1.0)
        left, right = self.value[index], self.value[after]
        # rounding of the place, times the fall of the chord
        slip = 8.0 * (index + 2.0) * UNIT_ROUNDOFF * left
        value = (left * (1.0 - share) + right * share + slip) * factor * (1.0 + 8.0 * UNIT_ROUNDOFF)
        return StopLoss(self.spacing, np.minimum.accumulate(value))


@lru_cache(maxsize=32)
def envelope(beta: float, p: float, dimension: int, depth: float) -> StopLoss:
    """A bound of (1), for beta > 1, p > 1, and up to a threshold that grows with `depth`.

    Args:
        beta: exponent of the noise.
        p: the norm.
        dimension: d, which may be rounded upwards.
        depth: about how small the bound is to become, as -log; it decides how far the grid goes.

    Guarantees:
        At every t >= 0 the chords of the bound are at least (1), and the last value beyond the last point.
    """
    information = beta**2 * math.gamma(2.0 - 1.0 / beta) / math.gamma(1.0 / beta)
    spacing = max(_FINE * math.sqrt(information), furthest(beta, p, dimension, depth) / _MOST_POINTS)
    spacing = _few_bits(spacing)
    points = spacing * np.arange(math.ceil(furthest(beta, p, dimension, depth) / spacing) + 1)
    law = ScoreLaw(beta, 1)
    known: dict[int, StopLoss] = {}

    def block(count: int, factor: float) -> StopLoss:
        if count > 1:
            return ball(count).scaled(factor)
        place = np.minimum(points / factor, law.largest)
        x = law.place(place)
        doubt = _DOUBT * (law.density(x) + place * law.survival(x))
        value = factor * (np.maximum(law.stop_loss(place), 0.0) + doubt) + _UNDERFLOW
        return StopLoss(spacing, np.minimum.accumulate(value))

    def ball(count: int) -> StopLoss:
        if count not in known:
            half = count // 2
            known[count] = _merged(
                [(block(count - half, x), block(half, y)) for x, y in _corners(p, 2 * half == count)]
            )
        return known[count]

    return ball(_rounded_up(dimension)) if dimension > 1 else block(1, 1.0)


def furthest(beta: float, p: float, dimension: int, depth: float) -> float:
    """About the score of a shift at which the density of the noise has fallen by e^-depth."""
    conjugate = beta / (beta - 1.0)
    wide = float(dimension)
    reach = beta * depth ** (1.0 / conjugate) * wide ** max(1.0 - 1.0 / p - 1.0 / conjugate, 0.0)
    if beta < 2.0:  # a sum of many coordinates has Gaussian tails
        std = math.sqrt(0.5 * math.pi) / math.gamma(1.0 + 1.0 / beta)
        reach = min(reach, 1.1 * std * math.sqrt(2.0 * depth) * wide ** max(0.5 - 1.0 / p, 0.0))
        reach *= _MARGIN  # a law on a grid has less steep tails
    return float(reach)


def _merged(pairs: list[tuple[StopLoss, StopLoss]]) -> StopLoss:
    """The largest stop loss of a sum of two independent variables, over several pairs of them."""
    spacing, count = pairs[0][0].spacing, len(pairs[0][0].value)
    largest = np.zeros(count)
    for one, other in pairs:
        total = np.convolve(_trimmed(one.law()), _trimmed(other.law()))
        right = total[len(total) // 2 + 1 :]
        beyond = np.cumsum(np.append(right, 0.0)[::-1])[::-1]
        value = np.zeros(max(count, len(beyond)))
        value[: len(beyond)] = spacing * np.cumsum(beyond[::-1])[::-1]
        value = value[:count] + (one.value[-1] + other.value[-1])
        largest = np.maximum(largest, value)
    return StopLoss(spacing, largest * (1.0 + 16.0 * (4.0 * count + 8.0) * UNIT_ROUNDOFF) + _UNDERFLOW)


def _trimmed(mass: Array) -> Array:
    """The masses without the zeros at both ends, of which there are equally many on both sides."""
    kept = np.flatnonzero(mass)
    return mass[kept[0] : kept[-1] + 1]


def _corners(p: float, half: bool) -> list[tuple[float, float]]:
    """The points V_i: on half an arc, from the first axis to the diagonal, or on all of it."""
    angle = np.linspace(0.0, 0.25 * math.pi, _TANGENTS + 1)
    if not half:
        angle = np.concatenate([angle, 0.5 * math.pi - angle[-2::-1]])
    power = 2.0 * (1.0 - 1.0 / p)
    normals = np.stack([np.cos(angle) ** power, np.sin(angle) ** power], axis=1) * (1.0 - 1e-14)
    found = []
    for one, other in pairwise(normals):
        turn = one[0] * other[1] - one[1] * other[0]
        corner = np.array([other[1] - one[1], one[0] - other[0]]) / turn
        corner = np.maximum(corner, _LEAST_FACTOR)
        corner *= (1.0 + 1e-14) / min(float(one @ corner), float(other @ corner))
        found.append((float(corner[0]), float(corner[1])))
    return found


def _rounded_up(dimension: int) -> int:
    """At most an eighth more, and twice a number over and over again: so that few sizes are merged."""
    power = 1
    while dimension > 16 * power:
        power *= 2
    return -(-dimension // power) * power


def _few_bits(spacing: float) -> float:
    """The number, rounded up to 20 significant bits."""
    fraction, exponent = math.frexp(spacing)
    return math.ldexp(math.ceil(fraction * 2**20), exponent - 20)
