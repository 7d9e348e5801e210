# SPDX-License-Identifier: Apache-2.0
"""The Renyi divergence between unit-scale noise and the same noise moved by one number, for many orders at
once.

With p and q the two densities, l = log p/q and a the order, the *gain* is

    gain_a(m) = (a - 1) D_a(p || q) = log E_q[(p/q)^a].

Moved so that the two centres are +-h, h = m/2, reflection y -> -y exchanges p and q. Averaging the integrand
with its reflection, and subtracting (p + q)/2, which integrates to one,

    e^gain - 1  =  integral of sqrt(p q) [cosh((a - 1/2) l) - cosh(l / 2)]
                =  integral of sqrt(p q) 2 sinh(a l / 2) sinh((a - 1) l / 2):                              (1)

every term is positive, so a tiny shift, or an order next to one, costs no digits. The integrand is even and
analytic but for the kink at y = h; Gauss-Legendre panels are graded towards it by factors of four, on which
16 nodes leave 3^-32.

The relative error is below 1e-10 for orders up to 1e5 (tests/privacy_loss/test_renyi_divergence.py, against
mpmath); `SLACK` is what upper bounds are raised by on its account.
"""

import math

import numpy as np

from ggdp.privacy_loss.shift_pair import Array

SLACK = 1e-9
LARGEST_GAIN = 700.0  # beyond, an order is of no use to any delta down to 1e-100 and counts as infinite

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_DEEP = 50.0  # log of the share of the integrand left out in the tail
_INNERMOST = 1e-6  # first panel next to the kink, in units of h
_GRADING = 3.0  # a panel is at most this many times as long as its distance to the kink


def gains(beta: float, orders: Array, shift: float, largest: float = LARGEST_GAIN) -> Array:
    """gain_a(shift) for each order a > 1; infinite where it exceeds `largest`.

    Guarantees:
        Relative error below 1e-10. Non-decreasing and convex in the shift; convex in the order, zero at order
        one.

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
    rest = ~closed & (_peak_gain(beta, orders, shift) <= largest)
    if np.any(rest):
        answer[rest] = _by_quadrature(beta, orders[rest], shift)
    return np.where(answer <= largest, answer, np.inf)


def _laplace(orders: Array, shift: float) -> Array:
    """The closed form at beta = 1: log of (a e^((a-1)m) + (a-1) e^(-a m)) / (2a - 1)."""
    spread = 2.0 * orders - 1.0
    return np.asarray((orders - 1.0) * shift + np.log1p((orders - 1.0) / spread * np.expm1(-spread * shift)))


def _ratio_less_one(beta: float, orders: Array) -> Array:
    """(a/(a-1))^(1/(beta-1)) - 1: where the tilted density peaks; infinite for Laplace noise."""
    if beta == 1.0:
        return np.full(orders.shape, np.inf)
    with np.errstate(over="ignore"):
        return np.asarray(np.expm1(np.log(orders / (orders - 1.0)) / (beta - 1.0)))


def _peak(beta: float, orders: Array, shift: float) -> Array:
    """The y > h at which (a-1)(y+h)^beta - a(y-h)^beta is largest."""
    return np.asarray(0.5 * shift * (1.0 + 2.0 / _ratio_less_one(beta, orders)))


def _exponent(beta: float, order: Array | float, y: Array | float, half: float) -> Array:
    """log of sqrt(p q) e^((a - 1/2) l), but for the normalizer."""
    return np.asarray((order - 1.0) * (y + half) ** beta - order * np.abs(y - half) ** beta)


def _peak_gain(beta: float, orders: Array, shift: float) -> Array:
    """About the gain, from below up to a few units: the exponent at its peak."""
    return _exponent(beta, orders, _peak(beta, orders, shift), 0.5 * shift)


def _by_quadrature(beta: float, orders: Array, shift: float) -> Array:
    half = 0.5 * shift
    edges = np.concatenate(
        [half - _graded(half, beta, half)[::-1], half + _graded(_reach(beta, orders, shift), beta, half)[1:]]
    )
    middle, radius = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    y = (middle[:, None] + radius[:, None] * _NODES).ravel()
    weight = (radius[:, None] * _WEIGHTS).ravel()
    odds = _log_odds(beta, y, half)
    log_root = -0.5 * ((y + half) ** beta + np.abs(y - half) ** beta)
    log_root += (
        np.log(weight) - math.lgamma(1.0 + 1.0 / beta) - math.log(2.0)
    )  # both halves of an even integrand
    exponent = log_root + (orders[:, None] - 0.5) * odds
    peak = exponent.max(axis=1)
    terms = (
        np.exp(exponent - peak[:, None])
        * np.expm1(-orders[:, None] * odds)
        * np.expm1(-(orders[:, None] - 1.0) * odds)
    )
    return np.asarray(np.logaddexp(0.0, peak + np.log(terms.sum(axis=1))))


def _log_odds(beta: float, y: Array, half: float) -> Array:
    """(y + h)^beta - |y - h|^beta for y >= 0, without cancellation for a small shift."""
    far = y > 4.0 * half
    safe = np.where(far, y, 8.0 * half)
    share = half / safe
    apart = (
        safe**beta * np.exp(beta * np.log1p(-share)) * np.expm1(beta * (np.log1p(share) - np.log1p(-share)))
    )
    return np.where(far, apart, (y + half) ** beta - np.abs(y - half) ** beta)


def _reach(beta: float, orders: Array, shift: float) -> float:
    """How far right of the kink the integrand of the largest order has to be followed."""
    half, order = 0.5 * shift, float(orders.max())
    peak = float(_peak(beta, np.array([order]), shift)[0])
    floor = max(float(_exponent(beta, order, peak, half)), 0.0) - _DEEP
    step = 2.0
    while float(_exponent(beta, order, peak + step, half)) > floor:
        step *= 1.3
    return peak + step - half


def _width(beta: float, y: float) -> float:
    """How long a panel at y may be: about two deviations of a tilted density that peaks there."""
    return (
        2.0 / math.sqrt(1.0 + beta**2 * y ** (beta - 2.0))
        if beta > 2.0
        else max(1.5, y ** (1.0 - 0.5 * beta))
    )


def _graded(length: float, beta: float, half: float) -> Array:
    """Panel edges from 0, the kink, to `length`: graded, and nowhere wider than a tilted density can be
    narrow."""
    edges, here = [0.0], min(_INNERMOST * half, length)
    while here < length:
        edges.append(here)
        step = _GRADING * here
        for _ in range(3):  # narrow enough at the panel's far end too
            step = min(step, _width(beta, here + half + step))
        here += max(step, 1e-3 * here)
    # a sliver at the end is joined to the panel before it
    if len(edges) > 2 and length - edges[-1] < 0.3 * (edges[-1] - edges[-2]):
        edges.pop()
    return np.array([*edges, length])
