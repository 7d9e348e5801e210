# SPDX-License-Identifier: Apache-2.0
"""The inverse distribution function of |noise| as piecewise polynomials: one table per beta for all backends.

A draw without rejection needs x = G(u) with P(|X| > G(u)) = u. Both ends of G are singular (u -> 0 is the
tail; at u -> 1, x vanishes and G has a term (1 - u)^(beta + 1)), so u is read like a floating-point number
from the nearer end:

    one bit chooses the end: `tail` has u = w and `center` has 1 - u = w, with w uniform in (0, 1/2);
    the binary exponent of w and its first two bits choose a piece; the other bits are the place in it.

On each piece the singular ends are at least a piece's length away and a short polynomial in the place is
enough. Deep pieces are reached with their true probability, which is what keeps the tail.

**Words.** Element n of a stream owns three 32-bit words a, b, c. The top bit of `a` is the sign, the next one
chooses the end (1 is the tail), its other 30 bits are q, and w = (q + b 2^-32 + (c + 1/2) 2^-64) 2^-31: a
fixed-point number of 95 bits. Below, w is in units of 2^-31: f = q + b 2^-32 + (c + 1/2) 2^-64, from 2^-65 up
to 2^30.

Arithmetic in float32 drops b and c and takes f = q + 1/2, except in the tail with q < 2^17, that is where
u < 2^-14. There it reads b; c changes a float32 only where q = 0, and a kernel may leave it out elsewhere.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv

LOWEST_EXPONENT = -65  # f >= 2^-65: the smallest value of 95 bits.
NUM_EXPONENTS = 95  # up to f < 2^30
PIECE_BITS = 2  # four pieces per octave
FINE_TAIL = 1 << 17  # float32 reads the words b and c in the tail when q is below this
FLOAT32_DEGREE = 5
FLOAT64_DEGREE = 12
# Both keep an f that would round up to 2^30 inside the last piece.
SHRINK_FLOAT32 = 1.0 - 2.0**-24  # a factor
LARGEST_FLOAT64 = 0x41CFFFFFFFFFFFFF  # a bound, as bits: the number before 2^30
_UNIT = 2.0**-31


@dataclass(frozen=True)
class QuantileTable:
    """Polynomials for G at scale 1.

    `coefficients[k, row]` multiplies t^k, where t = m - 9/8 and m in [1, 5/4) is f's significand with the two
    bits that chose the piece cleared. The row of a piece is 2 p + end, where p is the two bits plus
    4 (exponent - LOWEST_EXPONENT). So the 32 rows that hold 15 of 16 draws lie side by side.
    """

    beta: float
    coefficients: NDArray[np.float64]

    @property
    def num_rows(self) -> int:
        """Number of pieces, both ends together."""
        return int(self.coefficients.shape[1])


@lru_cache(maxsize=64)
def quantile_table(beta: float, degree: int) -> QuantileTable:
    """Interpolate G at Chebyshev points of every piece.

    Guarantees:
        * |polynomial - G| <= 1e-8 G at degree 5 and <= 2e-14 G at degree 12, on every piece, for 1 <= beta <=
          64.

    >>> quantile_table(1.0, 5).coefficients.shape
    (6, 760)
    """
    points = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)) / 8.0  # t in (-1/8, 1/8)
    exponents = np.arange(LOWEST_EXPONENT, LOWEST_EXPONENT + NUM_EXPONENTS)
    pieces = np.arange(1 << PIECE_BITS) / (1 << PIECE_BITS)
    significands = 1.125 + pieces[:, None] + points  # (piece, point)
    w = _UNIT * np.ldexp(significands, exponents[:, None, None])
    center, tail = center_quantile(beta, w), tail_quantile(beta, w)
    values = np.stack([center, tail], axis=2).reshape(-1, degree + 1)  # (exponent, piece, end, point)
    powers = np.vander(8.0 * points, degree + 1, increasing=True)
    coefficients = np.linalg.solve(powers, values.T) * 8.0 ** np.arange(degree + 1)[:, None]
    return QuantileTable(beta, coefficients)


def tail_quantile(beta: float, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return x with P(|X| > x) = u for scale 1: Q(1/beta, x^beta) = u."""
    if beta == 1.0:
        return np.asarray(-np.log(u))
    return np.asarray(gammainccinv(1.0 / beta, u) ** (1.0 / beta))


def center_quantile(beta: float, v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return x with P(|X| <= x) = v for scale 1 and v <= 1/2, with full relative accuracy as v -> 0.

    The series v Gamma(1 + 1/beta) = x sum_k (-1)^k x^(beta k) / (k! (beta k + 1)) is solved by Newton's
    method, whose derivative is the density exp(-x^beta); x^beta <= log 2 there, so that twenty terms are
    exact.
    """
    target = v * math.gamma(1.0 + 1.0 / beta)
    x = np.array(target)
    for _ in range(6):
        power = x**beta
        term, total = np.ones_like(x), np.ones_like(x)
        for k in range(1, 20):
            term = term * (-power / k)
            total += term / (beta * k + 1.0)
        x -= (x * total - target) * np.exp(power)
    return x
