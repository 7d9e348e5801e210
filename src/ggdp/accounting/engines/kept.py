# SPDX-License-Identifier: Apache-2.0
"""Curves that engines have built. They are kept, so that a further question nearby needs no new curve."""

from collections.abc import Callable
from dataclasses import dataclass

from ggdp.accounting.engines.curve import Curve

_MOST_CURVES = 6
_HOME_SHARE = 0.1  # share of a curve's reach within which a new curve would be no better


@dataclass
class KeptCurve:
    """A curve that an engine has built, and the last point at which it was evaluated.

    Attributes:
        method: the engine's name.
        curve: the curve.
        reach: about how far from the last epsilon the curve is useful.
        epsilon: the last point.
        log_delta: log delta there.
        slope: d log(delta) / d eps there.
        home: the epsilon that the curve was built for.
        enough_epsilon: a relative width of epsilon that is accepted near `home`, because all engines were
            tried there and none gave a narrower answer.
        enough_delta: the same for delta.
    """

    method: str
    curve: Curve
    reach: float
    epsilon: float
    log_delta: float
    slope: float
    home: float
    enough_epsilon: float = 0.0
    enough_delta: float = 0.0

    def is_at_home(self, epsilon: float) -> bool:
        """Whether an epsilon is so close to `home` that a new curve would be no better."""
        return abs(epsilon - self.home) <= _HOME_SHARE * self.reach


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
        self._curves = [*self._curves[1 - _MOST_CURVES :], kept]
        return kept

    def nearest(self, distance: Callable[[KeptCurve], float]) -> list[KeptCurve]:
        """The two curves with the smallest distance."""
        return sorted(self._curves, key=distance)[:2]
