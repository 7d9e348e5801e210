# SPDX-License-Identifier: Apache-2.0
"""What every engine returns, how epsilon is found from it, and the simplest engine: one release.

An engine returns a curve: bounds of log delta at any epsilon near the one that the curve was built for. The
upper bound of the epsilon at a given delta is then a point at which the curve's upper bound is at most that
delta. The curve is evaluated at the very point that is returned, so the search itself need not be trusted.
"""

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ggdp.accounting.bounds import Bounds, ErrorLedger
from ggdp.errors import CannotCertifyError, EpsilonTooLargeError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.hockey_stick import hockey_stick
from ggdp.privacy_loss.shift_pair import ShiftPair

MOST_EPSILON = 2000.0
"""The largest epsilon that is computed where there is no closed form."""

_SMALL_EPSILONS = (1e-16, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9)
_MOST_USUAL_PARTS = 400  # different releases up to which a question may take the usual time
_MOST_TIMES_USUAL = 2.5  # how many times the usual time a question about more of them may take

LEAST_DELTA = 5e-324
"""A positive delta never becomes an upper bound of zero."""


def seconds_for(parts: int, usual: float) -> float:
    """Seconds that a question may take: the usual ones, or more if there are very many parts."""
    return usual * min(max(parts / _MOST_USUAL_PARTS, 1.0), _MOST_TIMES_USUAL)


def too_large(at_least: float, about: float | None = None) -> EpsilonTooLargeError:
    """The error for an epsilon above `MOST_EPSILON`.

    Args:
        at_least: a certified lower bound of epsilon.
        about: an estimate of epsilon, where there is one; the message then names it.
    """
    known = "" if at_least > MOST_EPSILON else "known only to be "
    size = f"{known}at least {at_least:g}" if about is None else f"about {about:g}"
    return EpsilonTooLargeError(
        f"epsilon at this delta must be at most {MOST_EPSILON:g} to be computed, and is {size}: "
        "take more noise, fewer steps or a larger delta",
        at_least,
    )


@dataclass(frozen=True)
class LogDelta:
    """log delta at one epsilon: certified bounds, the best value, and the slope d log(delta) / d eps."""

    lower: float
    estimate: float
    upper: float
    slope: float
    ledger: ErrorLedger

    def as_delta(self, method: str) -> Bounds:
        """Bounds on delta itself."""
        upper = raised(self.upper)
        lower = min(math.exp(min(self.lower, 0.0)) * (1.0 - 4.0 * UNIT_ROUNDOFF), upper)
        return Bounds.clipped(lower, math.exp(min(self.estimate, 0.0)), upper, method, self.ledger)


def raised(log_delta: float) -> float:
    """An upper bound of the delta with this logarithm, rounding included; positive and at most 1."""
    return min(math.exp(min(log_delta, 0.0)) * (1.0 + 4.0 * UNIT_ROUNDOFF) + LEAST_DELTA, 1.0)


class Curve(Protocol):
    """Certified log delta as a function of epsilon."""

    def log_delta(self, epsilon: float) -> LogDelta:
        """The curve at one epsilon."""
        ...


@dataclass(frozen=True)
class EpsilonSandwich:
    """Bounds of the epsilon at a given delta, and the slope d log(delta) / d eps there."""

    lower: float
    estimate: float
    upper: float
    slope: float
    ledger: ErrorLedger

    @property
    def width(self) -> float:
        """upper - lower."""
        return self.upper - self.lower


def crossing(
    curve: Curve, log_delta: float, start: float, reach: float, resolution: float = 0.0
) -> EpsilonSandwich:
    """Find the epsilon at which a curve has a given log delta.

    Args:
        curve: certified bounds of log delta.
        log_delta: the value asked for.
        start: where to begin.
        reach: about how far epsilon may be from there; no step is longer.
        resolution: a relative error of the estimate that is good enough. It saves evaluations of a slow
            curve; the lower and the upper bound are certified all the same.

    Raises:
        CannotCertifyError: the curve could not be followed to this value.
    """
    estimate, here = _newton(curve, log_delta, start, reach, resolution)
    return EpsilonSandwich(
        lower=_walk(curve, log_delta, estimate, here, -1.0),
        estimate=estimate,
        upper=_walk(curve, log_delta, estimate, here, 1.0),
        slope=here.slope,
        ledger=here.ledger,
    )


def _newton(
    curve: Curve, log_delta: float, start: float, reach: float, resolution: float
) -> tuple[float, LogDelta]:
    """Newton's method on log delta, kept between the closest points known to be too low and too high.

    Returns epsilon and the curve's value there.
    """
    low, high, point = -math.inf, math.inf, start
    for _ in range(100):
        here = curve.log_delta(point)
        if not here.slope < 0.0:
            break
        gap = log_delta - here.estimate
        low, high = (point, high) if gap < 0.0 else (low, point)
        step = max(-reach, min(reach, gap / here.slope))
        following = point + step
        if not low < following < high and math.isfinite(high - low):
            # where losses are discrete the curve has kinks: a step may be too long
            following = 0.5 * (low + high)
        close = 4.0 * math.ulp(abs(point)) + resolution * abs(point)
        if abs(following - point) <= close or high - low <= 2.0 * close:
            return point, here
        point = following
    raise CannotCertifyError("no epsilon found where delta has the value asked for")


def _walk(curve: Curve, log_delta: float, estimate: float, here: LogDelta, side: float) -> float:
    """A bound of epsilon: a point on one side of the estimate whose certified log delta proves it.

    With `side` 1 it is an upper bound: the curve's upper bound there is at most the log delta asked for. With
    `side` -1 it is a lower bound. Infinite if no such point is found.
    """
    error = here.upper - log_delta if side > 0.0 else log_delta - here.lower
    if not math.isfinite(error):
        return math.inf * side
    step = max(error / -here.slope, 0.0) * (1.0 + 1e-6) + 2.0 * math.ulp(estimate)
    for _ in range(60):
        point = estimate + side * step
        try:
            there = curve.log_delta(point)
        except CannotCertifyError:
            return math.inf * side
        slip = 2.0**-52 * abs(log_delta)  # rounding of the logarithm of the delta asked for
        if (there.upper <= log_delta - slip) if side > 0.0 else (there.lower >= log_delta + slip):
            return point
        step *= 1.5
    return math.inf * side


@dataclass(frozen=True)
class ClosedForm:
    """The curve of one release, which has a formula; only rounding makes it inexact."""

    pair: ShiftPair

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon."""
        stick = hockey_stick(self.pair, np.array([epsilon]))
        value, error = max(float(stick.value[0]), 5e-324), float(stick.error[0]) + 5e-324
        slip = 4.0 * UNIT_ROUNDOFF * (1.0 + abs(math.log(value)))  # rounding of the logarithm itself
        return LogDelta(
            lower=math.log(value - error) - slip if value > error else -math.inf,
            estimate=math.log(value),
            upper=math.log(value + error) + slip,
            slope=-float(stick.slope[0]) / value,
            ledger=ErrorLedger(roundoff=error / value),
        )

    def epsilon(self, log_delta: float, ceiling: float) -> EpsilonSandwich:
        """Certified epsilon at log delta.

        Args:
            log_delta: the value asked for.
            ceiling: the largest loss, which epsilon does not exceed.

        Returns:
            Bounds of epsilon. A slope of 0 means that the slope is not known.

        Raises:
            EpsilonTooLargeError: epsilon is so large that nothing about it can be certified.
        """
        if self.log_delta(0.0).upper <= log_delta:
            return EpsilonSandwich(0.0, 0.0, 0.0, 0.0, ErrorLedger())
        start = self.start(log_delta)
        with suppress(ArithmeticError):
            found = crossing(self, log_delta, start, 0.1 * start)
            if math.isfinite(found.width):
                return found
        # epsilon is so large, or so close to the largest loss, that the curve's rounding error hides how it
        # falls. Then points on both sides are tried, ever farther away
        for share in (1e-12, 1e-9, 1e-6, 1e-3, 0.1):
            low, high = start * (1.0 - share), min(start * (1.0 + share), ceiling)
            if self.log_delta(low).lower >= log_delta and (
                high >= ceiling or self.log_delta(high).upper <= log_delta
            ):
                return EpsilonSandwich(low, min(start, high), high, 0.0, ErrorLedger())
        # epsilon is so close to 0 that the lower bound of delta(0) is below the delta asked for
        for high in _SMALL_EPSILONS:
            if start < high and self.log_delta(high).upper <= log_delta:
                return EpsilonSandwich(0.0, min(start, high), high, 0.0, ErrorLedger())
        raise too_large(0.0, about=start)

    def start(self, log_delta: float) -> float:
        """An epsilon close to the one at log delta, not certified: many points are evaluated at once."""
        low, high = 0.0, min(self.pair.supremum, 4.0)
        while high < self.pair.supremum and self._is_above(np.array([high]), log_delta)[0]:
            low, high = high, 4.0 * high
        # next to a largest loss, where log delta falls without bound, Newton's method needs a closer start
        close = 1e-3 if math.isinf(self.pair.supremum) else 1e-14
        while high - low > close * high and high > 1e-18:
            points = np.linspace(low, high, 33)
            last = int(np.count_nonzero(self._is_above(points[1:-1], log_delta)))
            low, high = float(points[last]), float(points[last + 1])
        return low if low > 0.0 else high

    def _is_above(self, epsilons: Array, log_delta: float) -> NDArray[np.bool_]:
        value = hockey_stick(self.pair, epsilons).value
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(value, 0.0)) > log_delta
