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

**Sampled releases** are pairs (P, Q) of mixtures, with loss L = log P/Q. Since P and Q integrate to one,

    e^gain - 1  =  integral of Q h(L),       h(L) = e^{aL} - 1 - a (e^L - 1)  >=  0,                       (2)

and again nothing cancels: h is computed from e^L expm1((a-1) L) - (a-1) expm1(L), or, for small
L, from its series, whose coefficients are positive. Q h is a sum of P e^{(a-1) L}, P and Q, each of which has
a proved quadrature error on every panel (`panel_error`; Q, reflected, is the P of another pair). Panels are
split until those errors are negligible against the integral itself; the rounding of every node is added.
"""

import math

import numpy as np

from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.panel_error import NODES_PER_PANEL, log_panel_error
from ggdp.privacy_loss.quadrature import first_edges, split_points, tail_ends
from ggdp.privacy_loss.renyi_panels import integrals, peak_gain
from ggdp.privacy_loss.shift_pair import ShiftPair

PROVED_ERROR = 1e-10
"""The most relative error of a gain, in either direction."""
SLACK = 1e-9
"""What upper bounds are raised by: the proved error of gains, and rounding in what is made of them."""
_PANEL_ERROR = -32.0  # log of the error allowed per panel, relative to the integral of (2)
_MOST_PANELS = 1500
_SERIES = 0.5  # largest |loss| times order for which h is computed by its series
_TERMS = 22
LARGEST_GAIN = 700.0  # larger gains are of no use at any delta down to 1e-100, and count as infinite


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


def sampled_gain(pair: ShiftPair, order: float) -> tuple[float, float]:
    """Certified bounds on the gain of any order > 1 of one Poisson-sampled release, by (2).

    Raises:
        CannotCertifyError: too many panels would be needed.
    """
    log_order, log_theta = math.log(order), math.log(order - 1.0)
    other = ShiftPair(pair.beta, abs(pair.down), 0.0, pair.rate)  # reflected, its P is Q
    shift = min(max(pair.up, -pair.down), 1.0)
    # certainly too small
    yard = min(2.0 * math.log(pair.rate) + log_theta, 0.0) + 4.0 * math.log(shift) - 10.0
    tails = [
        (tail_ends(pair, order - 1.0, yard), 0.0),
        (tail_ends(pair, 0.0, yard), log_order),
        (tail_ends(other, 0.0, yard), log_theta),
    ]
    low = min(tails[0][0][0], tails[1][0][0], -tails[2][0][1])
    high = max(tails[0][0][1], tails[1][0][1], -tails[2][0][0])
    edges = first_edges(pair, low, high, smallest=1e-9, ratio=6.0)
    left, right = edges[:-1], edges[1:]
    for _ in range(60):
        log_sum, roundoff = _excess(pair, order, left, right)
        own = log_panel_error(pair, left, right, (order - 1.0, 0.0), 0.0)
        mirrored = log_panel_error(other, -right, -left, (0.0,), 0.0)
        worst = np.max([own[0], own[1] + log_order, mirrored[0] + log_theta], axis=0)
        log_error = worst + math.log(3.0) - log_sum
        coarse = log_error > _PANEL_ERROR
        if not np.any(coarse) or len(left) + int(coarse.sum()) > _MOST_PANELS:
            break
        cut = split_points(pair, left[coarse], right[coarse])
        left = np.concatenate([left[~coarse], left[coarse], cut])
        right = np.concatenate([right[~coarse], cut, right[coarse]])
    with np.errstate(over="ignore"):
        error = roundoff + float(np.exp(np.minimum(log_error, 700.0)).sum())
    error += sum(end[2] * math.exp(min(yard + weight - log_sum, 700.0)) for end, weight in tails)
    if not error < 0.5:
        raise CannotCertifyError("the sampled loss is too sharp for quadrature")
    return (
        float(np.logaddexp(0.0, log_sum + math.log1p(-error))) * (1.0 - 8.0 * UNIT_ROUNDOFF),
        float(np.logaddexp(0.0, log_sum + math.log1p(error))) * (1.0 + 8.0 * UNIT_ROUNDOFF),
    )


def _excess(pair: ShiftPair, order: float, left: Array, right: Array) -> tuple[float, float]:
    """log of the sum over the nodes of (2), and a bound on its relative error by rounding."""
    unit, weights = np.polynomial.legendre.leggauss(NODES_PER_PANEL)
    theta, half = order - 1.0, 0.5 * (right - left)
    z = ((0.5 * (right + left))[:, None] + half[:, None] * unit).ravel()
    down = pair.log_mixture(z, pair.down)
    loss, power = pair.log_mixture(z, pair.up) - down, np.abs(z) ** pair.beta
    log_q = down - power - pair.log_normalizer + (np.log(half)[:, None] + np.log(weights)).ravel()
    # each term is e^exponent times a factor, which is h, or h e^(-aL) for positive losses
    small, positive = order * np.abs(loss) < _SERIES, loss > 0.0
    exponent = log_q + np.where(positive & ~small, order * loss, 0.0)
    near = np.where(small, loss, 0.0)
    low, high = np.minimum(loss, 0.0), np.maximum(loss, 0.0)
    parts = (
        np.where(positive, -np.expm1(-theta * high), np.exp(low) * np.expm1(theta * low)),
        np.where(positive, theta * np.exp(-theta * high) * np.expm1(-high), -theta * np.expm1(low)),
    )
    factor = np.where(small, _series(order, near), parts[0] + parts[1])
    slope = order * np.abs(np.where(small, np.exp(near) * np.expm1(theta * near), parts[0]))
    own = np.where(small, 32.0 * factor, 8.0 * (np.abs(parts[0]) + np.abs(parts[1])))
    ulps = 16.0 + (pair.beta + 3.0) * power + 6.0 * np.abs(down) + 4.0 * order * np.abs(loss)
    spoiled = factor * ulps + own + slope * _loss_ulps(pair, z, loss)
    peak = float(exponent.max())
    weight = np.exp(exponent - peak)
    total = float(weight @ factor)
    if not total > 0.0:
        raise CannotCertifyError("the sampled loss is lost in rounding")
    return peak + math.log(total), UNIT_ROUNDOFF * (float(weight @ spoiled) / total + len(z))


def _series(order: float, loss: Array) -> Array:
    """h(L) = (a-1) sum over k >= 2 of a (1 + a + ... + a^(k-2)) L^k / k!."""
    coefficient, geometric, total = 0.5, 1.0, np.zeros_like(loss)
    terms = []
    for k in range(2, _TERMS):
        terms.append(coefficient * order * geometric)
        geometric, coefficient = 1.0 + order * geometric, coefficient / (k + 1.0)
    for term in reversed(terms):
        total = total * loss + term
    return np.asarray((order - 1.0) * loss**2 * total)


def _loss_ulps(pair: ShiftPair, z: Array, loss: Array) -> Array:
    """Bound on the error of the loss at a node, in units of rounding: of its powers, its shifts and of z."""
    ulps = 8.0 * np.abs(loss)
    for shift in (pair.up, pair.down):
        if shift:
            odds = np.abs(pair.log_odds(z, shift))
            apart = np.abs(z) ** pair.beta + np.abs(z - shift) ** pair.beta
            spoiled = (pair.beta + 8.0) * np.where(np.abs(z) > 2.0 * abs(shift), odds, apart)
            moved = 2.0 * np.abs(z * pair.log_odds_slope(z, shift))
            ulps = ulps + pair.share(z, shift) * (spoiled + moved)
    return np.asarray(ulps)
