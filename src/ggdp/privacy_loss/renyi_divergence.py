# SPDX-License-Identifier: Apache-2.0
"""The Renyi divergence between unit-scale noise and the same noise moved by one number, for many orders at
once.

With p and q the two densities, l = log p/q and a the order, the *gain* is

    gain_a(m) = (a - 1) D_a(p || q) = log E_q[(p/q)^a].

Moved so that the two centres are +-h, h = m/2, reflection y -> -y exchanges p and q. Averaging the integrand
with its reflection, and subtracting (p + q)/2, which integrates to one,

    e^gain - 1  =  integral of sqrt(p q) [cosh((a - 1/2) l) - cosh(l / 2)]
                =  integral of sqrt(p q) 2 sinh(a l / 2) sinh((a - 1) l / 2):                              (1)

every term is positive, so a tiny shift, or an order next to one, costs no digits. `renyi_panels` takes the
integral with a proved error.
"""

import numpy as np

from ggdp.privacy_loss.renyi_panels import integrals, peak_gain
from ggdp.privacy_loss.shift_pair import Array

PROVED_ERROR = 1e-10
"""The most relative error of a gain, in either direction."""
SLACK = 1e-9
"""What upper bounds are raised by: the proved error of gains, and rounding in what is made of them."""
LARGEST_GAIN = 700.0  # beyond, an order is of no use to any delta down to 1e-100 and counts as infinite


def gains(beta: float, orders: Array, shift: float, largest: float = LARGEST_GAIN) -> Array:
    """gain_a(shift) for each order a > 1; infinite where it exceeds `largest`.

    Guarantees:
        Relative error at most `PROVED_ERROR`; infinite where that cannot be proved. Non-decreasing and
        convex in the shift; convex in the order, zero at order one.

    >>> gains(2.0, np.array([3.0]), 0.5)  # a (a - 1) m^2
    array([1.5])
    """
    orders = np.asarray(orders, dtype=np.float64)
    if shift == 0.0:
        return np.zeros_like(orders)
    if beta == 2.0:
        found = orders * (orders - 1.0) * shift**2
        return np.where(found <= largest, found, np.inf)
    answer = np.full(orders.shape, np.inf)
    closed = (orders * shift > 1.0) & (beta == 1.0)
    answer[closed] = _laplace(orders[closed], shift)
    rest = ~closed & (peak_gain(beta, orders, shift) <= largest)
    if np.any(rest):
        answer[rest] = _by_quadrature(beta, orders[rest], shift)
    return np.where(answer <= largest, answer, np.inf)


def _laplace(orders: Array, shift: float) -> Array:
    """The closed form at beta = 1: log of (a e^((a-1)m) + (a-1) e^(-a m)) / (2a - 1)."""
    spread = 2.0 * orders - 1.0
    return np.asarray((orders - 1.0) * shift + np.log1p((orders - 1.0) / spread * np.expm1(-spread * shift)))


def _by_quadrature(beta: float, orders: Array, shift: float) -> Array:
    """log1p of the integral; an integral off by a share e moves its log1p by at most e min(1, log1p)."""
    found = integrals(beta, orders, shift)
    gain = np.logaddexp(0.0, found.log_value)
    return np.where(found.error <= 0.9 * PROVED_ERROR * np.maximum(gain, 1.0), gain, np.inf)
