# SPDX-License-Identifier: Apache-2.0
"""Gaussian differential privacy: the smallest mu whose Gaussian release is no more private than a mechanism.

A mechanism is mu-GDP if its trade-off function is nowhere below that of telling N(0, 1) from N(mu, 1), which
is so exactly if delta(epsilon) <= delta_mu(epsilon) for every epsilon >= 0 (Dong, Roth, Su 2022). Both sides
are convex functions of a = e^epsilon. Between two points at which delta was computed, delta is below its
chord and delta_mu is above its tangents. So it is enough to compare two lines at both ends of the interval.
docs/risk.md has the proofs of these bounds, and of those of the regret.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggdp.accounting.bounds import Bounds
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.hockey_stick import HockeyStick, hockey_stick
from ggdp.privacy_loss.shift_pair import ShiftPair
from ggdp.search import geometric, halve

_ROUNDING = 16.0 * UNIT_ROUNDOFF
_SLOPE = 1e-8  # relative error allowed to the slope of a line, and to a distance; both have less than 1e-12
_LEAST_GAP = 1e-12  # smallest distance of two epsilons
_MU_TOLERANCE = 1e-7  # relative width of mu that is narrow enough
_REGRET_TOLERANCE = 1e-7
_MU_QUESTIONS = 1500  # most values of delta that are computed, if they have about six digits,
_MU_WIDE_QUESTIONS = 30  # and if they have fewer, when more values would not help
_MU_FIRST = 17
_SHARP = 3e-6  # relative width of a delta that has about six digits
_MOST_MU = 1e3
_LEAST_MU = 1e-12
_NEARLY_ONE = 1e-13

Mask = NDArray[np.bool_]

_Delta = Callable[[float], tuple[float, float]]
"""Lower and upper bound of delta at an epsilon."""


@dataclass(frozen=True)
class GaussianPrivacy:
    """A mechanism compared with one Gaussian release of sensitivity mu and standard deviation 1.

    Attributes:
        mu: bounds of the smallest mu such that delta(epsilon) <= max(delta_mu(epsilon), least_delta) for
            every epsilon >= 0, where delta_mu belongs to the Gaussian release. Quote `mu.upper`.
        regret: bounds of how much `mu.upper` overstates the risk: the smallest k such that the trade-off of
            the mechanism, moved by k to the left and by k down, nowhere exceeds that of the Gaussian release.
        least_delta: where the comparison ends. At 0 the mechanism is mu-GDP; else its trade-off function is
            at least the Gaussian one minus `least_delta`.
    """

    mu: Bounds
    regret: Bounds
    least_delta: float


def _gaussian(shift: float, epsilons: Array) -> HockeyStick:
    """delta of a Gaussian release moved by `shift` where the noise has the density exp(-x^2)."""
    return hockey_stick(ShiftPair(2.0, shift, 0.0, 1.0), epsilons)


def of_shift(mu: float) -> GaussianPrivacy:
    """Of releases that are themselves Gaussian, where mu is known up to rounding.

    delta_mu(epsilon) changes by no more than mu does, and so does the regret.
    """
    bounds = Bounds(mu * (1.0 - _ROUNDING), mu, mu * (1.0 + _ROUNDING), "closed form")
    return GaussianPrivacy(bounds, Bounds(0.0, 0.0, bounds.width, "closed form"), 0.0)


def gaussian_privacy(delta: _Delta, last: float, least_delta: float, seconds: float) -> GaussianPrivacy:
    """mu and regret from bounds of delta on a grid of epsilons in [0, last], refined where this matters.

    After so many seconds of this thread's time no more is asked; the bounds are then wider.
    delta(last) <= least_delta is certified already. docs/risk.md, "Gaussian differential privacy", proves
    both bounds of mu and of the regret.
    """
    grid = _Grid(delta, last, least_delta, seconds)
    for _ in range(64):
        lower = grid.least_shift()
        tight = lower * (1.0 + _MU_TOLERANCE)
        if lower == 0.0 or grid.covers(tight) or not grid.refine(tight):
            break
    upper = grid.covering_shift(lower)
    low, high = math.sqrt(2.0) * lower * (1.0 - _ROUNDING), math.sqrt(2.0) * upper * (1.0 + _ROUNDING)
    mu = Bounds(low, low, high, "profile")
    return GaussianPrivacy(mu, grid.regret(high / math.sqrt(2.0)), least_delta)


class _Grid:
    """Bounds of delta at increasing epsilons, from 0 to the last one that matters."""

    def __init__(self, delta: _Delta, last: float, least_delta: float, seconds: float) -> None:
        self._ask, self._least_delta, self._until = delta, least_delta, time.thread_time() + seconds
        if delta(0.0)[1] > 1.0 - _NEARLY_ONE:
            raise ValueError(
                f"delta at epsilon = 0 must be below 1 - {_NEARLY_ONE:g} for mu to be found, and its upper "
                "bound is not; the mechanism needs more noise or fewer steps"
            )
        self._epsilons = np.linspace(0.0, max(last, _LEAST_GAP), _MU_FIRST)
        asked = [delta(float(epsilon)) for epsilon in self._epsilons]
        self._low, self._high = np.array(asked).T
        wide = float(np.max((self._high - self._low)[self._high > least_delta] / self._high[0], initial=0.0))
        self._left = self._budget = _MU_QUESTIONS if wide <= _SHARP else _MU_WIDE_QUESTIONS
        self._high[-1] = min(self._high[-1], max(least_delta, self._low[-1]))

    def least_shift(self) -> float:
        """A lower bound of the smallest shift that covers delta, which means that delta <= delta_mu."""
        matter = self._low > self._least_delta
        epsilons, low = self._epsilons[matter], self._low[matter]

        def falls_short(shift: float) -> bool:
            stick = _gaussian(shift, epsilons)
            return bool(np.any(stick.value + stick.error < low))

        if not len(epsilons) or not falls_short(_LEAST_MU):
            return 0.0
        if falls_short(_MOST_MU):
            raise ValueError(f"mu must be at most {_MOST_MU:g} to be found; the mechanism needs more noise")
        return halve(falls_short, _LEAST_MU, _MOST_MU, middle=geometric, relative=1e-12)[0]

    def covering_shift(self, lower: float) -> float:
        """The smallest shift found that certainly covers delta, between the points of the grid too."""
        if self.covers(lower):
            return lower
        high = max(lower, _LEAST_MU)
        while not self.covers(high):
            high *= 1.0 + min(max(1e-8, 2.0 * (high / max(lower, _LEAST_MU) - 1.0)), 1.0)
            if high > _MOST_MU:
                raise ValueError(
                    f"mu must be at most {_MOST_MU:g} to be found; the mechanism needs more noise"
                )
        return halve(self.covers, high, max(lower, _LEAST_MU), middle=geometric, relative=1e-9)[0]

    def covers(self, shift: float) -> bool:
        """Whether delta(epsilon) <= max(delta_mu(epsilon), least_delta) is certain for every epsilon >= 0."""
        return not np.any(self._uncovered(shift))

    def _uncovered(self, shift: float) -> Mask:
        """For each interval, whether the chord of delta may lie above a tangent of delta_mu.

        The tangent touches at the middle. Where delta is at most `least_delta` nothing needs to be shown.
        """
        if shift <= 0.0:
            return np.asarray(self._high[:-1] > self._least_delta)
        middles = 0.5 * (self._epsilons[:-1] + self._epsilons[1:])
        stick = _gaussian(shift, middles)
        touched = stick.value - stick.error

        def tangent(ends: Array) -> Array:
            moved = np.expm1(ends - middles)
            return np.asarray(touched - stick.slope * (moved + _SLOPE * np.abs(moved)))

        above = (self._high[:-1] > tangent(self._epsilons[:-1])) | (
            self._high[1:] > tangent(self._epsilons[1:])
        )
        return np.asarray(above & (self._high[:-1] > self._least_delta))

    def refine(self, shift: float) -> bool:
        """Compute delta in the middle of intervals that the shift may not cover; False if nothing is left."""
        return self._halve_intervals(self._uncovered(shift))

    def _halve_intervals(self, chosen: Mask) -> bool:
        where = np.flatnonzero(chosen)
        where = where[np.diff(self._epsilons)[where] > 2.0 * _LEAST_GAP][: max(self._left, 0)]
        self._left -= len(where)
        middles = 0.5 * (self._epsilons[where] + self._epsilons[where + 1])
        asked = [self._ask(float(epsilon)) for epsilon in middles if not self._is_late()]
        if not asked:
            return False
        where, middles = where[: len(asked)], middles[: len(asked)]
        low, high = np.array(asked).T
        self._epsilons, self._low, self._high = (
            np.insert(old, where + 1, new)
            for old, new in ((self._epsilons, middles), (self._low, low), (self._high, high))
        )
        return True

    def _is_late(self) -> bool:
        return time.thread_time() > self._until

    def regret(self, shift: float) -> Bounds:
        """Bounds of the largest (delta_mu(epsilon) - delta(epsilon)) / (1 + e^epsilon), epsilon >= 0."""
        if shift <= 0.0:
            return Bounds(0.0, 0.0, 0.0, "profile")
        self._left = self._budget
        while True:
            lower, uppers, beyond = self._overstated(shift)
            if not self._halve_intervals(uppers > max(lower, beyond) + _REGRET_TOLERANCE):
                break
        lower = max(lower - _ROUNDING, 0.0)
        upper = max(float(np.max(uppers)), beyond, lower) + _ROUNDING
        return Bounds(lower, lower, upper, "profile")

    def _overstated(self, shift: float) -> tuple[float, Array, float]:
        """A lower bound of the regret, an upper one for each interval, and one beyond the last point."""
        stick = _gaussian(shift, self._epsilons)
        a = np.exp(self._epsilons)
        width = a[:-1] * np.expm1(np.diff(self._epsilons))
        above = stick.value + stick.error  # between neighbours delta_mu is below its chord
        # Lines below delta, from the left and from the right; either bounds the whole interval. The ratio of
        # two linear functions is largest at an end.
        rise = np.concatenate([[-1.0], (self._low[1:-1] - self._high[:-2]) / width[:-1]])
        fall = np.concatenate([(self._high[2:] - self._low[1:-1]) / width[1:], [0.0]])
        rise, fall = np.maximum(rise * (1.0 + _SLOPE), -1.0), np.minimum(fall * (1.0 - _SLOPE), 0.0)
        from_left = np.maximum(
            (above[:-1] - self._low[:-1]) / (1.0 + a[:-1]),
            (above[1:] - self._low[:-1] - rise * width * (1.0 + _SLOPE)) / (1.0 + a[1:]),
        )
        from_right = np.maximum(
            (above[1:] - self._low[1:]) / (1.0 + a[1:]),
            (above[:-1] - self._low[1:] + fall * width * (1.0 - _SLOPE)) / (1.0 + a[:-1]),
        )
        lower = float(np.max((stick.value - stick.error - self._high) / (1.0 + a)))
        return lower, np.minimum(from_left, from_right), float(above[-1] / (1.0 + a[-1]))
