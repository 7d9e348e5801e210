# SPDX-License-Identifier: Apache-2.0
"""One release and two, by mpmath: mixtures, losses, profiles and moments written again from their
definitions.
"""

import math

import mpmath
import numpy as np
from scipy.special import gammaincc

from ggdp.privacy_loss.shift_pair import ShiftPair

DIGITS = 50


class ExactPair:
    """P = (1-q) N(0) + q N(up) against Q = (1-q) N(0) + q N(down), at 50 digits."""

    def __init__(self, pair: ShiftPair) -> None:
        self.beta, self.rate = mpmath.mpf(pair.beta), mpmath.mpf(pair.rate)
        self.up, self.down = mpmath.mpf(pair.up), mpmath.mpf(pair.down)
        self.kinks = sorted({mpmath.mpf(0), self.up, self.down})

    def density(self, z, shift):
        return mpmath.exp(-(abs(z - shift) ** self.beta)) / (2 * mpmath.gamma(1 + 1 / self.beta))

    def mixture(self, z, shift):
        return (1 - self.rate) * self.density(z, 0) + self.rate * self.density(z, shift)

    def loss(self, z):
        return mpmath.log(self.mixture(z, self.up)) - mpmath.log(self.mixture(z, self.down))

    def survival(self, x):
        far = mpmath.gammainc(1 / self.beta, abs(x) ** self.beta, mpmath.inf, regularized=True) / 2
        return far if x >= 0 else 1 - far

    def mixture_survival(self, z, shift):
        return (1 - self.rate) * self.survival(z) + self.rate * self.survival(z - shift)

    def threshold(self, t, reach=60):
        """Where the loss crosses t, by bisection; None where it never does."""
        low, high = mpmath.mpf(-reach), mpmath.mpf(reach)
        if not self.loss(low) < t < self.loss(high):
            return None
        for _ in range(120 if reach > 60 else 190):
            middle = (low + high) / 2
            low, high = (middle, high) if self.loss(middle) < t else (low, middle)
        return (low + high) / 2

    def delta(self, t):
        z = self.threshold(t)
        if z is None:
            return mpmath.mpf(0) if self.loss(mpmath.mpf(60)) <= t else 1 - mpmath.exp(t)
        return self.mixture_survival(z, self.up) - mpmath.exp(t) * self.mixture_survival(z, self.down)

    def delta_far_out(self, t):
        """delta(t) at any t > 0, None where no double can hold it."""
        z = self.threshold(t, reach=5000 if self.beta < 1.3 else 250)
        if z is None:
            return None
        found = self.mixture_survival(z, self.up) - mpmath.exp(t) * self.mixture_survival(z, self.down)
        return found if found > mpmath.mpf("1e-300") else None

    def moment(self, s, low=-30, high=40):
        """E_P[e^{s L}]."""
        ends = [low, *self.kinks, high]
        # a large beta is a box whose walls, and those of the moved one, are steep
        marks = (-4, -1, 1, 4) if self.beta < 8 else [mpmath.mpf(d) / 10 for d in range(-14, 15, 2)]
        points = sorted({*ends, *(k + d for k in self.kinks for d in marks if low < k + d < high)})
        return mpmath.quad(lambda z: self.mixture(z, self.up) * mpmath.exp(s * self.loss(z)), points)


def delta_of_two(pair: ShiftPair, epsilon: float) -> float:
    """delta of two independent releases in plain floats: E_P[delta_1(epsilon - L)], one integral over a
    closed form.

    Written from the definitions alone. Panels end wherever the integrand has a kink: at the centres of the
    noise, and where epsilon - L is the loss at one of them. Good to about 1e-10.
    """
    beta, q = pair.beta, pair.rate

    def log_mixture(z, shift):
        with np.errstate(divide="ignore"):
            still = np.log1p(-q) if q < 1.0 else -np.inf
        return np.logaddexp(still - np.abs(z) ** beta, np.log(q) - np.abs(z - shift) ** beta)

    def loss(z):
        return log_mixture(z, pair.up) - log_mixture(z, pair.down)

    def survival(x):
        far = 0.5 * gammaincc(1.0 / beta, np.abs(x) ** beta)
        return np.where(x > 0.0, far, 1.0 - far)

    reach = 60.0 ** (1.0 / beta)
    ends = pair.down - reach, pair.up + reach

    def threshold(t):
        low, high = np.full_like(t, ends[0]), np.full_like(t, ends[1])
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = loss(middle) < t
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.where(
            t >= loss(np.array(ends[1])), np.inf, np.where(t <= loss(np.array(ends[0])), -np.inf, low)
        )

    def delta_one(t):
        z = threshold(t)
        p = (1.0 - q) * survival(z) + q * survival(z - pair.up)
        return p - np.exp(t) * ((1.0 - q) * survival(z) + q * survival(z - pair.down))

    kinks = np.array(pair.kinks)
    breaks = threshold(epsilon - loss(np.concatenate([kinks, ends])))
    marks = np.unique(np.concatenate([kinks, ends, breaks[np.isfinite(breaks)]]))
    # graded towards every mark, since powers beta < 2 are not smooth there
    grades = np.geomspace(1e-8, 1.0, 60)
    edges = np.unique(
        np.concatenate([m + s * grades * (ends[1] - ends[0]) for m in marks for s in (-1.0, 1.0)] + [marks])
    )
    edges = edges[(edges >= ends[0]) & (edges <= ends[1])]
    nodes, weights = np.polynomial.legendre.leggauss(12)
    half, middle = 0.5 * np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
    z = (middle[:, None] + half[:, None] * nodes).ravel()
    density = np.exp(log_mixture(z, pair.up)) / (2.0 * math.gamma(1.0 + 1.0 / beta))
    return float(((half[:, None] * weights).ravel() * density * delta_one(epsilon - loss(z))).sum())
