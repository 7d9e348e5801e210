# SPDX-License-Identifier: Apache-2.0
"""The largest count at which something still fits, in few evaluations."""

import math
from collections.abc import Callable

_SLOPE = 0.5  # d log epsilon / d log k of a composition of many equal steps: where to look first
_BEYOND = 1.2  # aim this much past the root that was extrapolated, so that it is bracketed
_MOST_PLANNED = 5  # evaluations that a plan has
_MOST_RESCUES = 2  # further ones at much smaller counts, where none has fitted yet
_BY_PLAN_ALONE = 3  # of them that the plan alone decides on
_SPARING = 0.85  # how far the last one goes from what fits towards the root


def largest_that_fits(
    log_excess: Callable[[int], float], most: int, planned: Callable[[int], float] | None = None
) -> int:
    """A k in [0, most] with log_excess(k) <= 0 (or 0), and log_excess(k + 1) > 0 unless k = most.

    `log_excess` is non-decreasing up to numerical noise; infinities are allowed. Both ends of the bracket are
    moved to where a straight line in log k crosses zero, with a bisection every third time: about a dozen
    evaluations for a k in the millions where the function is smooth, and never more than 3 log2(most).
    `planned`, a cheap function that differs from it by about a constant, makes three or four of them enough.
    With it there are never more than five, or seven where none of five fits, and the answer may be smaller
    than the largest k that fits: log_excess(k) <= 0 always holds, log_excess(k + 1) > 0 only where five were
    enough to see it.

    >>> largest_that_fits(lambda k: 3.0 * math.log(k / 1234.5), most=10**7)
    1234
    """
    if most < 1:
        return 0
    if planned is not None:
        return _by_plan(log_excess, planned, most)
    low, at_low = 1, log_excess(1)
    if at_low > 0.0:
        return 0
    high, at_high, slope = low, at_low, _SLOPE
    while at_high <= 0.0:
        if high == most:
            return most
        further = min(max(math.ceil(high * _growth(at_high, slope)), high + 1), most)
        low, at_low, high, at_high = high, at_high, further, log_excess(further)
        if math.isfinite(at_high - at_low) and at_high > at_low:
            slope = (at_high - at_low) / math.log(high / low)
    return _closed_in(log_excess, low, at_low, high, at_high)


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
            guess = _last_planned(_corrected(planned, seen), low, high)
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


def _corrected(planned: Callable[[int], float], seen: list[tuple[float, float]]) -> Callable[[int], float]:
    """The plan plus what it was off by."""
    if not seen:
        return planned
    (first, off), (second, other) = seen[0], seen[-1]
    slope = (other - off) / (second - first) if first != second else 0.0
    return lambda k: planned(k) + other + slope * (math.log(k) - second)


def _last_planned(planned: Callable[[int], float], low: int, high: int) -> int:
    """The largest count between two that the plan lets fit; the smaller one where it lets none."""
    while high - low > 1:
        middle = (low + high) // 2 if low == 0 else max(min(math.isqrt(low * high), high - 1), low + 1)
        low, high = (middle, high) if planned(middle) <= 0.0 else (low, middle)
    return low


def _growth(excess: float, slope: float) -> float:
    """The factor that would take k a little past the root, within reason."""
    exponent = -excess / slope if math.isfinite(excess) else math.inf
    return _BEYOND * min(math.exp(min(exponent, 50.0)), 64.0)


def _closed_in(log_excess: Callable[[int], float], low: int, at_low: float, high: int, at_high: float) -> int:
    """The place inside a bracket where fitting ends."""
    turn, above = 0, False
    while high - low > 1:
        point = _crossing(low, at_low, high, at_high) if turn % 3 != 2 else math.sqrt(low * high)
        # just above the crossing after a count that fitted, just below after one that did not: both ends
        # close in
        middle = min(max(math.floor(point) + above, low + 1), high - 1)
        value = log_excess(middle)
        above, turn = value <= 0.0, turn + 1
        if above:
            low, at_low = middle, value
        else:
            high, at_high = middle, value
    return low


def _crossing(low: int, at_low: float, high: int, at_high: float) -> float:
    """Where the chord in log k is zero; the middle where it has no ends."""
    share = at_low / (at_low - at_high) if math.isfinite(at_high - at_low) else 0.5
    return float(low * math.exp(share * math.log(high / low)))
