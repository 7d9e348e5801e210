# SPDX-License-Identifier: Apache-2.0
"""(x / scale)^beta, right for the exact doubles x, scale and beta.

A density at exponent y = (x/scale)^beta is exp(-y): an error e in the quotient x/scale becomes a relative
error beta * y * e in the density. At beta = 64 and y = 700 the half ulp of an ordinary division would cost
5e-12. So the remainder of the division is computed exactly (Dekker 1971) and put back to first order.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SPLITTER = 134217729.0  # 2^27 + 1, Veltkamp's constant for 53-bit numbers


def power_of_ratio(x: Floats, scale: float, beta: float) -> Floats:
    """(x / scale)^beta for x >= 0; relative error a few ulp, whatever beta is."""
    x_fraction, x_exponent = np.frexp(x)
    scale_fraction, scale_exponent = np.frexp(scale)
    quotient = x_fraction / scale_fraction  # in (1/2, 2), so nothing below can overflow
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        remainder = (x_fraction - quotient * scale_fraction) - _product_error(quotient, scale_fraction)
        correction = np.where(quotient > 0.0, remainder / (quotient * scale_fraction), 0.0)
        power = np.ldexp(quotient, x_exponent - scale_exponent) ** beta
        power = np.where(np.isfinite(power), power * (1.0 + beta * correction), power)
    return np.asarray(power, dtype=np.float64)


def _product_error(left: Floats, right: np.float64) -> Floats:
    """The rounding error of left * right, exactly (Dekker's product)."""
    left_high, left_low = _split(left)
    right_high, right_low = _split(np.asarray(right))
    error = left_high * right_high - left * right
    error = error + left_high * right_low
    error = error + left_low * right_high
    return error + left_low * right_low


def _split(value: Floats) -> tuple[Floats, Floats]:
    """Two halves of 26 bits that add up to value exactly (Veltkamp)."""
    shifted = _SPLITTER * value
    high = shifted - (shifted - value)
    return high, value - high
