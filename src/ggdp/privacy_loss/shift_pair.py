# SPDX-License-Identifier: Apache-2.0
"""The pair (P, Q) of one scalar release, Poisson-sampled or not.

With N(v) the law of unit-scale noise moved by v, density proportional to exp(-|z - v|^beta), every scalar
release of this library compares

    P = (1 - rate) N(0) + rate N(up)     with     Q = (1 - rate) N(0) + rate N(down),      down <= 0 <= up.

| adjacency | up | down | why |
|---|---|---|---|
| REMOVE | m | 0 | the record shifts the value by m whenever it is sampled |
| ADD | 0 | -m | the same pair exchanged and reflected, z -> -z |
| REPLACE | m | -m | the old record pulls one way, the new one the other |

where m = sensitivity / scale. That these are the worst cases over all records is proved in
docs/adjacency.md. Because noise is log-concave, the privacy loss log P/Q is non-decreasing in z, so every
event {loss > t} is a half line and its probability is a survival function at one point.
"""

import math
from dataclasses import dataclass

import numpy as np

from ggdp.numerics import Array

# Beyond this 1 - rate is negligible beside rate e^l, and log(1 - rate + rate e^l) is taken around l itself.
_LARGE_LOG_ODDS = 30.0


def log_mixed(log_odds: Array, rate: float) -> Array:
    """log(1 - rate + rate e^l) for l whose exponential does not overflow, to full relative accuracy.

    Where rate (e^l - 1) is close to -1 it has too few digits. There 1 - rate is added instead, which is exact
    for rates above a half.
    """
    less = rate * np.expm1(log_odds)
    if rate <= 0.5:
        return np.asarray(np.log1p(less))
    rest = (1.0 - rate) + rate * np.exp(np.minimum(log_odds, 0.0))
    return np.asarray(np.where(less < -0.5, np.log(rest), np.log1p(np.maximum(less, -0.5))))


@dataclass(frozen=True)
class ShiftPair:
    """The pair P = (1-rate) N(0) + rate N(up), Q = (1-rate) N(0) + rate N(down), for noise of scale 1.

    With a finite `cut` both laws are restricted to noise up to it, with a finite `floor` to noise from there
    on. Their masses are then below 1; `engines.rare` and `engines.jumps` account for the rest separately.
    """

    beta: float
    up: float
    down: float
    rate: float
    cut: float = math.inf
    floor: float = -math.inf

    @property
    def whole(self) -> "ShiftPair":
        """The pair that is not restricted."""
        return ShiftPair(self.beta, self.up, self.down, self.rate)

    @property
    def kinks(self) -> tuple[float, ...]:
        """Points where a density is not smooth: the centres of the noise."""
        return tuple(sorted({0.0, self.up, self.down}))

    @property
    def supremum(self) -> float:
        """The largest loss, its limit for z -> infinity: finite for beta = 1, a cut, or sampled ADD."""
        if math.isfinite(self.cut):
            return float(self.loss(np.array(self.cut)))
        return self._limit(self.up) - self._limit(self.down)

    @property
    def reverse(self) -> "ShiftPair":
        """The pair (Q, P), reflected so that its loss is non-decreasing too. Its loss is minus this one's."""
        return ShiftPair(self.beta, -self.down, -self.up, self.rate)

    @property
    def infimum(self) -> float:
        """The smallest loss, which is the limit for z -> -infinity."""
        if math.isfinite(self.floor):
            return float(self.loss(np.array(self.floor)))
        return self._limit(-self.up) - self._limit(-self.down)

    def _limit(self, shift: float) -> float:
        """log(1 - rate + rate e^l) as the log odds l of a shift reach their limit for z -> infinity."""
        if shift == 0.0:
            return 0.0
        if self.beta == 1.0:
            return float(self._mix(np.array(shift)))
        if shift > 0.0:
            return math.inf
        return math.log1p(-self.rate) if self.rate < 1.0 else -math.inf

    def log_odds(self, z: Array, shift: float) -> Array:
        """log N(shift)/N(0) at z, that is |z|^beta - |z - shift|^beta, without cancellation for small
        shifts.
        """
        if shift == 0.0:
            return np.zeros_like(z)
        if self.beta == 2.0:
            return np.asarray(shift * (2.0 * z - shift))
        far = np.abs(z) > 2.0 * abs(shift)
        safe = np.where(far, z, 4.0 * abs(shift))
        apart = -(np.abs(safe) ** self.beta) * np.expm1(self.beta * np.log1p(-shift / safe))
        near = np.where(far, 0.0, z)
        return np.where(far, apart, np.abs(near) ** self.beta - np.abs(near - shift) ** self.beta)

    def log_odds_slope(self, z: Array, shift: float) -> Array:
        """d/dz of `log_odds`: beta (sgn(z)|z|^(beta-1) - sgn(z-shift)|z-shift|^(beta-1)); has the sign of
        shift.
        """
        if shift == 0.0:
            return np.zeros_like(z)
        moved = z - shift
        power = self.beta - 1.0
        slope = self.beta * (np.sign(z) * np.abs(z) ** power - np.sign(moved) * np.abs(moved) ** power)
        return np.asarray(slope)

    def _mix(self, log_odds: Array) -> Array:
        """log(1 - rate + rate e^l), to full relative accuracy also when the rate is tiny."""
        if self.rate == 1.0:
            return log_odds
        small = log_mixed(np.minimum(log_odds, _LARGE_LOG_ODDS), self.rate)
        high = np.maximum(log_odds, _LARGE_LOG_ODDS)
        large = high + np.log(self.rate + (1.0 - self.rate) * np.exp(-high))
        return np.where(log_odds > _LARGE_LOG_ODDS, large, small)

    def log_mixture(self, z: Array, shift: float) -> Array:
        """log of (1-rate) N(0) + rate N(shift) relative to N(0)."""
        return self._mix(self.log_odds(z, shift)) if shift != 0.0 else np.zeros_like(z)

    def share(self, z: Array, shift: float) -> Array:
        """Posterior probability that the record was sampled: rate e^l / (1 - rate + rate e^l); monotone in
        z.
        """
        if self.rate == 1.0:
            return np.ones_like(z)
        odds = self.log_odds(z, shift)
        return np.asarray(np.exp(math.log(self.rate) + odds - self._mix(odds)))

    def loss(self, z: Array) -> Array:
        """The privacy loss log P/Q at z."""
        return self.log_mixture(z, self.up) - self.log_mixture(z, self.down)

    def loss_slope(self, z: Array) -> Array:
        """d/dz of the loss, non-negative."""
        up = self.share(z, self.up) * self.log_odds_slope(z, self.up) if self.up else 0.0
        down = self.share(z, self.down) * self.log_odds_slope(z, self.down) if self.down else 0.0
        return np.asarray(up - down + np.zeros_like(z))

    @property
    def log_normalizer(self) -> float:
        """log of the integral of exp(-|z|^beta)."""
        return math.log(2.0) + math.lgamma(1.0 + 1.0 / self.beta)
