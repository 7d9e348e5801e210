# SPDX-License-Identifier: Apache-2.0
"""Find the border between private and not private on an axis of numbered places, in few questions.

A question to the accountant costs milliseconds, so the search walks by Newton's method with a slope it is
given or learns. What it promises does not rest on that slope: it ends only when it has seen two neighbouring
places, one private and one not, or an end of the axis.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

_HURRY_AFTER = 8
"""Questions after which every other one halves the bracket, whatever the slope says."""


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
        the end of the axis on its side was asked and lies on the other side. tests/calibration/test_search.py
    """
    low, high = axis.least - 1, axis.most + 1  # the border lies in between; both ends are fictitious at first
    place = min(max((low + high) // 2 if start is None else start, axis.least), axis.most)
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
            place = (low + high) // 2
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
