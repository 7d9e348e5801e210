# SPDX-License-Identifier: Apache-2.0
"""Curves that engines have built, kept so that further questions nearby are read off them."""

from collections.abc import Callable
from dataclasses import dataclass

from ggdp.accounting.engines.curve import Curve

_MOST = 6  # curves that are kept
_HOME = 0.1  # of a curve's reach


@dataclass
class KeptCurve:
    """A curve that an engine has built, and the last point that was read off it."""

    method: str
    curve: Curve
    reach: float  # how far, about, an epsilon may be from the last one
    epsilon: float
    log_delta: float
    slope: float
    home: float  # the epsilon that it was built for
    enough_epsilon: float = 0.0  # relative width that is good enough there, since no engine did better
    enough_delta: float = 0.0  # likewise

    def is_at_home(self, epsilon: float) -> bool:
        """Whether an epsilon is so close to the one it was built for that a new curve would be no better."""
        return abs(epsilon - self.home) <= _HOME * self.reach


class KeptCurves:
    """The last few curves that were built."""

    def __init__(self) -> None:
        self._curves: list[KeptCurve] = []

    def keep(
        self, method: str, curve: Curve, reach: float, epsilon: float, log_delta: float, slope: float
    ) -> KeptCurve:
        """Keep a curve that has this log delta and slope at epsilon."""
        slope = min(slope, -1e-300)
        kept = KeptCurve(method, curve, max(reach, 1e-300), epsilon, log_delta, slope, home=epsilon)
        self._curves = [*self._curves[1 - _MOST :], kept]
        return kept

    def nearest(self, distance: Callable[[KeptCurve], float]) -> list[KeptCurve]:
        """The two curves at the smallest distance."""
        return sorted(self._curves, key=distance)[:2]
