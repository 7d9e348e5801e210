# SPDX-License-Identifier: Apache-2.0
"""Searches for the last point at which something still holds, in few evaluations of it.

| search | where it looks | evaluations |
|---|---|---|
| `halve` | between a point where it holds and one where it does not | one for each halving |
| `border` | on a grid of numbered places, from a planned start and slope | three to five if both are good |
| `largest_that_fits` | among counts, with a cheap function of nearly the same shape | at most seven |

`border` and `largest_that_fits` take an *excess*, the logarithm of cost over budget, which rises from place
to place; something holds where the excess is at most 0. A question to an accountant costs milliseconds, so
both walk by the slope of the excess. What they promise does not rest on slopes or plans: a place is returned
only after it was asked.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

_HURRY_AFTER = 8
"""Questions after which every other one halves the bracket, whatever the slope says."""

_SLOPE = 0.5  # d log epsilon / d log k of a composition of many equal steps: where to look first
_MOST_PLANNED = 5  # evaluations that a plan has
_MOST_RESCUES = 2  # further ones at much smaller counts, where none has fitted yet
_BY_PLAN_ALONE = 3  # of them that the plan alone decides on
_SPARING = 0.85  # how far the last one goes from what fits towards the root

Number = TypeVar("Number", int, float)


def arithmetic(low: float, high: float) -> float:
    """The middle of two numbers."""
    return 0.5 * (low + high)


def geometric(low: float, high: float) -> float:
    """The middle of two positive numbers by their ratio."""
    return math.sqrt(low) * math.sqrt(high)


def whole(one: int, other: int) -> int:
    """A count between two others, about the middle by their ratio; the smaller one if none lies between."""
    low, high = min(one, other), max(one, other)
    if low == 0 or high - low <= 1:
        return (low + high) // 2
    return max(min(math.isqrt(low * high), high - 1), low + 1)


def halve(
    holds: Callable[[Number], bool],
    inside: Number,
    outside: Number,
    *,
    middle: Callable[[Number, Number], Number],
    halvings: int = 200,
    relative: float = 0.0,
) -> tuple[Number, Number]:
    """Halve the interval between a point where something holds and one where it does not.

    Args:
        holds: the question.
        inside: where it is known to hold; it is not asked there again.
        outside: where it is known not to hold, or where nobody need know; larger or smaller than `inside`.
        middle: `arithmetic`, `geometric` or `whole`.
        halvings: after how many to stop.
        relative: stop as well once the larger end exceeds the smaller one by no more than this share.

    Returns:
        The last point at which it held and the last at which it did not; between them lies no other number
        where neither limit stopped the halving.

    >>> halve(lambda x: x * x <= 2.0, 1.0, 2.0, middle=arithmetic)
    (1.414213562373095, 1.4142135623730951)
    >>> halve(lambda k: k * k <= 2000, 0, 1000, middle=whole)
    (44, 45)
    """
    for _ in range(halvings):
        low, high = min(inside, outside), max(inside, outside)
        point = middle(inside, outside)
        if not low < point < high or high <= low * (1.0 + relative):
            break
        inside, outside = (point, outside) if holds(point) else (inside, point)
    return inside, outside


class Axis(Protocol):
    """Places least..most, numbered so that a later place is less private; each place has a positive value."""

    @property
    def least(self) -> int:
        """The first place."""
        ...

    @property
    def most(self) -> int:
        """The last place."""
        ...

    def value(self, place: int) -> float:
        """The number that stands at a place, increasing in it."""
        ...

    def place(self, log_value: float) -> int:
        """The last place whose value does not exceed exp(log_value)."""
        ...

    def middle(self, low: int, high: int) -> int:
        """A place between two that are no neighbours, about half-way in the logarithm of the value."""
        ...


@dataclass(frozen=True)
class LogAxis:
    """Real numbers in [low, high] on a grid of relative spacing `resolution` that contains 1."""

    low: float
    high: float
    resolution: float

    @property
    def least(self) -> int:
        """The first place, not below `low`."""
        return math.ceil(math.log(self.low) / self.resolution)

    @property
    def most(self) -> int:
        """The last place, not above `high`."""
        return math.floor(math.log(self.high) / self.resolution)

    def value(self, place: int) -> float:
        """exp(place * resolution), kept inside [low, high] against rounding."""
        return min(max(math.exp(place * self.resolution), self.low), self.high)

    def place(self, log_value: float) -> int:
        """The grid place at or just below a logarithm."""
        return math.floor(log_value / self.resolution)

    def middle(self, low: int, high: int) -> int:
        """Half-way; logarithms are evenly spaced."""
        return (low + high) // 2


@dataclass(frozen=True)
class CountAxis:
    """The whole numbers 1..most, each its own place."""

    most: int
    least: int = 1

    def value(self, place: int) -> float:
        """The count itself."""
        return float(place)

    def place(self, log_value: float) -> int:
        """The whole part of exp(log_value), bounded by the axis."""
        return math.floor(math.exp(min(log_value, math.log(self.most))))

    def middle(self, low: int, high: int) -> int:
        """A count between two others."""
        return whole(low, high)


@dataclass(frozen=True)
class Border:
    """Two neighbouring places on either side of the border, and what was learnt on the way.

    Attributes:
        private: the last place seen private; None if the first place is not.
        lost: the next one, seen not private; None if the last place is private.
        log_value: about where the excess is zero.
        slope: of the excess against the logarithm of the value, about there.
    """

    private: int | None
    lost: int | None
    log_value: float
    slope: float


def border(
    axis: Axis,
    excess: Callable[[int], float],
    *,
    start: int | None = None,
    slope: float = 1.0,
    learn_from: float = 1e-5,
) -> Border:
    """Walk to the border of an excess that rises along the axis; a place is private where its excess is <= 0.

    Args:
        axis: where to search.
        excess: log of cost over budget at a place; infinities are allowed.
        start: where to ask first, the middle if left out.
        slope: of the excess against the logarithm of the value; any positive guess.
        learn_from: least distance in log value over which a slope is learnt; closer points show rounding
            errors.

    Guarantees:
        Where `private` and `lost` are both places, they are neighbours and each was asked. If one is None,
        the end of the axis on its side was asked and lies on the other side. tests/test_search.py
    """
    low, high = axis.least - 1, axis.most + 1  # the border lies in between; both ends are fictitious at first
    place = min(max(axis.middle(low, high) if start is None else start, axis.least), axis.most)
    misses = asked = 0
    last: tuple[float, float] | None = None
    while True:
        here = (math.log(axis.value(place)), excess(place))
        if last is not None and abs(here[0] - last[0]) >= learn_from:
            slope = _secant(last, here, slope)
        private = here[1] <= 0.0
        misses = misses + 1 if last is not None and _fell_short(last[1], here[1]) else 0
        low, high = (place, high) if private else (low, place)
        last, asked = here, asked + 1
        if high - low == 1:
            root = here[0] - here[1] / slope if math.isfinite(here[1]) else here[0]
            seen = (low if low >= axis.least else None, high if high <= axis.most else None)
            return Border(*seen, log_value=root, slope=slope)
        if not math.isfinite(here[1]) or (asked >= _HURRY_AFTER and asked % 2 == 0):
            place = axis.middle(low, high)
        else:
            # After steps that fell short, reach beyond: 3, 15, 63, ... places, so that the border is passed
            # soon.
            beyond = (4 ** min(max(misses - 1, 0), 20) - 1) * (1 if private else -1)
            place = axis.place(here[0] - here[1] / slope) + beyond
        place = min(max(place, low + 1), high - 1)


def _fell_short(last: float, here: float) -> bool:
    """Whether a step stayed on its side of the border without coming much nearer."""
    return (last <= 0.0) == (here <= 0.0) and abs(here) > 0.25 * abs(last)


def _secant(last: tuple[float, float], here: tuple[float, float], slope: float) -> float:
    """The slope between two points where it means something, else the old one."""
    secant = (here[1] - last[1]) / (here[0] - last[0])
    return secant if math.isfinite(secant) and secant > 0.0 else slope


def largest_that_fits(
    log_excess: Callable[[int], float], most: int, planned: Callable[[int], float] | None = None
) -> int:
    """The largest count k in [0, most] with log_excess(k) <= 0; 0 if there is none.

    Args:
        log_excess: non-decreasing up to numerical noise; infinities are allowed.
        most: the largest count of interest.
        planned: a cheap function that differs from `log_excess` by about a constant.

    Guarantees:
        log_excess(k) <= 0 was seen, unless k = 0. Without a plan log_excess(k + 1) > 0 was seen too, unless
        k = most. With one there are never more than five evaluations, or seven where none of five fits, and k
        may be smaller than the largest that fits where five were not enough to see the end.

    >>> largest_that_fits(lambda k: 3.0 * math.log(k / 1234.5), most=10**7)
    1234
    """
    if most < 1:
        return 0
    if planned is not None:
        return _by_plan(log_excess, planned, most)
    return border(CountAxis(most), log_excess, start=1, slope=_SLOPE).private or 0


def _by_plan(log_excess: Callable[[int], float], planned: Callable[[int], float], most: int) -> int:
    """Evaluate where the plan, corrected by what it was off by, says that fitting ends, and beside it.

    What it is off by is taken as a straight line in log k through the last two evaluations. A plan that has
    not led to the end after three is joined by two chords of the function itself, and the last evaluation
    stays a little below the root, so that it is likely to fit.
    """
    low, at_low, high, at_high, value = 0, -math.inf, most + 1, math.inf, 0.0
    seen: list[tuple[float, float]] = []  # log k and what the plan was off by there
    for turn in range(_MOST_PLANNED + _MOST_RESCUES):
        if high - low == 1 or (turn >= _MOST_PLANNED and low > 0):
            return low
        if turn >= _MOST_PLANNED:
            guess = high // 16
        elif not math.isfinite(value):  # says nothing but on which side it lies
            guess = math.isqrt(low * high) if low else high // 8
        else:
            guess, _ = halve(_fits(planned, seen), low, high, middle=whole)
        if _BY_PLAN_ALONE <= turn < _MOST_PLANNED and math.isfinite(at_high - at_low):
            straight = low + (high - low) * at_low / (at_low - at_high)
            middle = sorted([guess, _crossing(low, at_low, high, at_high), straight])[1]
            guess = math.floor(middle if turn < _MOST_PLANNED - 1 else low + _SPARING * (middle - low))
        guess = min(max(guess, low + 1), high - 1)
        value = log_excess(guess)
        if value <= 0.0:
            low, at_low = guess, value
        else:
            high, at_high = guess, value
        if math.isfinite(off := value - planned(guess)):
            seen = [*seen[-1:], (math.log(guess), off)]
    return low


def _fits(planned: Callable[[int], float], seen: list[tuple[float, float]]) -> Callable[[int], bool]:
    """Whether a count fits by the plan plus what it was off by."""
    if not seen:
        return lambda k: planned(k) <= 0.0
    (first, off), (second, other) = seen[0], seen[-1]
    slope = (other - off) / (second - first) if first != second else 0.0
    return lambda k: planned(k) + other + slope * (math.log(k) - second) <= 0.0


def _crossing(low: int, at_low: float, high: int, at_high: float) -> float:
    """Where the chord of two finite values is zero, in log k."""
    return float(low * math.exp(at_low / (at_low - at_high) * math.log(high / low)))


def lowest_between(
    seen: dict[float, float], best: float, ends: tuple[float, float], reach: float
) -> tuple[float, float]:
    """Where to look next, and by how much the value may be less there.

    It is the bottom of the parabola through the lowest place and its two neighbours, or the two next ones on
    one side where there is none on the other, but never further than `reach` from what was seen.
    """
    places = sorted(seen)
    number = places.index(best)
    first = min(max(number - 1, 0), len(places) - 3)
    (a, b, c) = places[first : first + 3]
    left, right = max(a - reach, ends[0]), min(c + reach, ends[1])
    if number not in (0, len(places) - 1):
        left, right = a, c
    bend = ((seen[c] - seen[b]) / (c - b) - (seen[b] - seen[a]) / (b - a)) / (c - a)
    if not math.isfinite(bend):
        # beside the best no noise meets the target: half-way towards there
        sides = [x for x in places[max(number - 1, 0) : number + 2] if math.isinf(seen[x])]
        return 0.5 * (best + (sides or [best])[-1]), math.inf
    tilt = (seen[b] - seen[a]) / (b - a) - bend * (a + b)
    if bend > 0.0:
        aim = min(max(-0.5 * tilt / bend, left), right)
    else:
        aim = left if best == places[0] else right if best == places[-1] else 0.5 * (left + right)
    there = seen[a] + (aim - a) * (tilt + bend * (aim + a))
    return aim, seen[best] - there
