# SPDX-License-Identifier: Apache-2.0
"""Every check of a user's argument, in one place.

A refused value is a `ValueError` whose one line names the argument, the value and the allowed range.
"""

import math
import operator
from collections.abc import Collection
from dataclasses import dataclass
from typing import SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

Number = SupportsFloat | SupportsIndex


@dataclass(frozen=True)
class Range:
    """A parameter's name, its domain [least, most], the `typical` part of it, and a hint for error messages.

    Declared once, beside the class that owns the parameter; property tests draw values from it, good and bad.
    """

    name: str
    least: float
    most: float
    typical: tuple[float, float]
    hint: str = ""

    def check(self, value: Number) -> float:
        """Return `value` as a float inside the domain, or refuse it."""
        return real(self.name, value, least=self.least, most=self.most, hint=self.hint)


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
    number = _float(value)
    if not (math.isfinite(number) and least <= number <= most and above < number < below):
        raise ValueError(_refusal(name, value, _interval(least, most, above, below), hint))
    return number


def extended_real(name: str, value: Number, *, least: float, hint: str = "") -> float:
    """Return `value` as a float in [least, inf], infinity allowed."""
    number = _float(value)
    if not number >= least:
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
        raise ValueError(f"{name} must be a {span}, got {shown(value)}{_way_out(hint)}") from None
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        raise ValueError(f"{name} must be a {span}, got {shown(value)}{_way_out(hint)}")
    return number


def instance(name: str, value: object, kinds: type | tuple[type, ...], *, hint: str = "") -> None:
    """Refuse a `value` that is not of one of the `kinds`.

    >>> instance("noise", 3, dict)
    Traceback (most recent call last):
    ...
    ValueError: noise must be of type dict, got int: 3
    """
    if not isinstance(value, kinds):
        names = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        kind = type(value).__name__
        raise ValueError(f"{name} must be of type {names}, got {kind}: {shown(value)}{_way_out(hint)}")


def one_of(name: str, value: object, choices: Collection[object], *, hint: str = "") -> None:
    """Refuse a `value` that is not among the `choices`.

    >>> one_of("dtype", "int8", ("float32", "float64"))
    Traceback (most recent call last):
    ...
    ValueError: dtype must be one of float32, float64, got 'int8'
    """
    if value not in choices:
        allowed = ", ".join(str(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {allowed}, got {shown(value)}{_way_out(hint)}")


def array(
    name: str, value: ArrayLike | None, *, least: float = -math.inf, most: float = math.inf
) -> NDArray[np.float64]:
    """Return `value` as a float64 array whose entries lie in [least, most]; NaN passes through as NaN."""
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must hold numbers that doubles can hold, got {shown(value)}") from None
    outside = (numbers < least) | (numbers > most)
    if np.any(outside):
        first = float(numbers[outside][0])
        raise ValueError(_refusal(name, first, _interval(least, most, -math.inf, math.inf), ""))
    return numbers


def finite_array(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return `value` as a float64 array that is numeric, not empty, and finite everywhere.

    >>> finite_array("value", [1.0, float("nan")])
    Traceback (most recent call last):
    ...
    ValueError: value must hold finite numbers only, got nan at position 1
    """
    try:
        raw = np.asarray(value)
    except ValueError:
        raise ValueError(
            f"{name} must be a rectangular array of numbers, got rows of unequal length"
        ) from None
    if raw.size == 0:
        raise ValueError(f"{name} must hold at least one number, got an empty array of shape {raw.shape}")
    if raw.dtype.kind not in "iuf":
        raise ValueError(f"{name} must hold real numbers, got {_kind_of(raw)}")
    numbers = raw.astype(np.float64)
    if raw.dtype.kind in "iu" and np.any(np.abs(numbers) >= 2.0**53):
        first = float(numbers[np.abs(numbers) >= 2.0**53].ravel()[0])
        raise ValueError(
            f"{name} must hold whole numbers below 2^53, which doubles have exactly, got about {first:g}; "
            "subtract a public number first"
        )
    bad = np.argwhere(~np.isfinite(numbers))
    if len(bad):
        where = ", ".join(str(place[0] if len(place) == 1 else tuple(map(int, place))) for place in bad[:3])
        first = float(numbers[tuple(bad[0])])
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        at = f" at position {where}{more}" if numbers.ndim else ""
        raise ValueError(f"{name} must hold finite numbers only, got {first}{at}")
    return numbers


def _kind_of(raw: NDArray[np.generic]) -> str:
    words = {
        "b": "booleans",
        "U": "text",
        "S": "bytes",
        "c": "complex numbers",
        "M": "dates",
        "O": "mixed objects",
    }
    example = raw.ravel()[:1].tolist()[0]
    return f"{words.get(raw.dtype.kind, str(raw.dtype))} such as {shown(example)}"


def _interval(least: float, most: float, above: float, below: float) -> str:
    left = f"({above:g}" if above >= least else f"[{least:g}"
    right = f"{below:g})" if below <= most else f"{most:g}]"
    return f"{left}, {right}".replace("[-inf", "(-inf").replace("inf]", "inf)")


def _refusal(name: str, value: object, interval: str, hint: str) -> str:
    return f"{name} must be a number in {interval}, got {shown(value)}{_way_out(hint)}"


def _float(value: object) -> float:
    """The value as a float, NaN if it is not a number; text and truth values are not numbers."""
    if isinstance(value, (bool, np.bool_, str, bytes, bytearray)):
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def shown(value: object) -> str:
    """The value as one short line."""
    try:
        line = " ".join(repr(value).split())
    except (RecursionError, ValueError):  # of data nested too deeply, or of thousands of digits
        line = f"a value of type {type(value).__name__} that is too large to show"
    return line if len(line) <= 80 else f"{line[:77]}..."


def _way_out(hint: str) -> str:
    return f"; {hint}" if hint else ""
