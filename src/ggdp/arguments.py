# SPDX-License-Identifier: Apache-2.0
"""Every check of a user's argument, in one place.

A refused value is a `ValueError` whose one line names the argument, the value and the allowed range.
"""

import math
import operator
from typing import SupportsFloat, SupportsIndex

Number = SupportsFloat | SupportsIndex


def real(
    name: str,
    value: Number,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    hint: str = "",
) -> float:
    """Return `value` as a finite float in [least, most] and strictly inside (above, below).

    >>> real("beta", 0.5, least=1, most=64)
    Traceback (most recent call last):
    ...
    ValueError: beta must be a number in [1, 64], got 0.5
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(_refusal(name, value, _interval(least, most, above, below), hint)) from None
    inside = math.isfinite(number) and least <= number <= most and above < number < below
    if isinstance(value, bool) or not inside:
        raise ValueError(_refusal(name, value, _interval(least, most, above, below), hint))
    return number


def extended_real(name: str, value: Number, *, least: float, hint: str = "") -> float:
    """Return `value` as a float in [least, inf], infinity allowed."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not number >= least:
        raise ValueError(_refusal(name, value, f"[{least:g}, inf], infinity included", hint))
    return number


def whole(name: str, value: SupportsIndex, *, least: int = 1, most: int | None = None, hint: str = "") -> int:
    """Return `value` as an int in [least, most].

    >>> whole("times", 2.5, least=1)
    Traceback (most recent call last):
    ...
    ValueError: times must be a whole number >= 1, got 2.5
    """
    span = f"whole number >= {least}" if most is None else f"whole number in [{least}, {most}]"
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a {span}, got {value!r}{hint}") from None
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        raise ValueError(f"{name} must be a {span}, got {value!r}{hint}")
    return number


def _interval(least: float, most: float, above: float, below: float) -> str:
    left = f"({above:g}" if above >= least else f"[{least:g}"
    right = f"{below:g})" if below <= most else f"{most:g}]"
    return f"{left}, {right}".replace("[-inf", "(-inf").replace("inf]", "inf)")


def _refusal(name: str, value: object, interval: str, hint: str) -> str:
    return f"{name} must be a number in {interval}, got {value!r}{'; ' + hint if hint else ''}"
