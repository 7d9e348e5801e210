# SPDX-License-Identifier: Apache-2.0
"""The largest count at which something still fits, in few evaluations."""

import math
from collections.abc import Callable

# Smallest part of the bracket that an interpolated point keeps from its ends, so that the bracket always shrinks.
_MARGIN = 1.0 / 64.0


def largest_that_fits(log_excess: Callable[[int], float], most: int) -> int:
    """The largest k in [0, most] found with log_excess(k) <= 0 and log_excess(k + 1) > 0.

    `log_excess` is non-decreasing up to numerical noise; infinities are allowed. A step that does not fit once is
    0, whatever log_excess(0) is. Brackets grow by squaring their factor; inside, points are interpolated linearly in log k
    and alternate with halving, so that the count of evaluations is about 2 log2 log2 k + a few where the
    function is smooth and at most 2 log2 k where it is not.

    >>> largest_that_fits(lambda k: 3.0 * math.log(k / 1234.5), most=10**7)
    1234
    """
    if most < 1 or log_excess(1) > 0.0:
        return 0
    low, at_low = 1, log_excess(1)
    high, at_high, factor = low, at_low, 4
    while at_high <= 0.0:
        low, at_low = high, at_high
        if low == most:
            return most
        high = min(low * factor, most)
        factor = min(factor * factor, 64)
        at_high = log_excess(high)
    for turn in range(200):
        if high - low <= 1:
            break
        middle = _between(low, at_low, high, at_high, turn)
        value = log_excess(middle)
        if value <= 0.0:
            low, at_low = middle, value
        else:
            high, at_high = middle, value
    return low


def _between(low: int, at_low: float, high: int, at_high: float, turn: int) -> int:
    """A whole number strictly between low and high: where the chord crosses zero, or the middle."""
    share = 0.5
    if math.isfinite(at_low) and math.isfinite(at_high) and turn % 3 != 2:
        share = at_low / (at_low - at_high)
    point = low * (high / low) ** share
    # on the far side of the root first, then on the near one, so that both ends close in on it
    inside = math.ceil(point) + (1 if turn % 2 else 0) if turn % 2 else math.floor(point)
    return min(max(inside, low + 1), high - 1)
