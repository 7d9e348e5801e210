# SPDX-License-Identifier: Apache-2.0
"""Quadrature of the Renyi integrand of one coordinate, for many orders at once, with a proved error.

In the notation of `renyi_divergence`, with u = y + h, v = |y - h|, l = u^beta - v^beta and Z = 2 Gamma(1 +
1/beta), what is integrated over y > 0 is

    f(y) = (4/Z) e^{-(u^beta + v^beta)/2} sinh(a l/2) sinh((a-1) l/2).

It is analytic but for the kink at y = h, and for whole beta on each side of it. On a panel of half-length r
around c, Gauss-Legendre with n nodes errs by at most 8 r M rho^(1-2n) / (rho-1), M a bound of |f| in the
ellipse of semi-axis sum r rho (`panel_error` has the theorem). The ellipse lies in the disc of radius
R = r (rho + 1/rho)/2, and, because |sinh w| <= min(1, |w|) e^{|Re w|},

    |f|  <=  (4/Z) e^{max(Re phi, Re phi~)} min(1, a|l|/2) min(1, (a-1)|l|/2),                             (1)

    phi = (a-1) u^beta - a v^beta,     phi~ = (a-1) v^beta - a u^beta.

By Taylor's formula Re phi <= phi(c) + R |phi'(c)| + R^2/2 sup|phi''|, and the same for phi~; the suprema of
powers over a disc on one side of the kink are at its nearest or farthest point, and |u^(beta-2) -
v^(beta-2)| <= 2h |beta-2| sup|t|^(beta-3) right of the kink, where u - v = 2h. No maximum is sampled.

On the real line phi rises to one peak and falls: phi' = beta y^(beta-1) times (a-1)(1+h/y)^(beta-1) -
a (1-h/y)^(beta-1), which decreases, for y > h, and phi' > 0 for y < h. So a panel with negligible mass has a
simple bound: its error is at most 2 (2r) sup f. For the two panels that touch the kink, of length w, it is
w^2 sup|f'| unless beta is whole; for the tail beyond a point Y right of the peak, (4/Z) e^phi(Y) / |phi'(Y)|.
Panels whose bound is not negligible are cut in two. The rounding of every node is added. The test that would
fail if any of this were wrong: tests/privacy_loss/test_renyi_divergence.py, against mpmath.
"""

import math
from dataclasses import dataclass

import numpy as np

from ggdp.numerics import UNIT_ROUNDOFF, Array

_COUNT = 20
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(_COUNT)
_ELLIPSES = (2.4, 4.0, 7.0)  # candidates for rho
_MOST_ROUNDS = 40
_MOST_PANELS = 3000
_NEGLIGIBLE = -31.0  # log of the error allowed per panel, relative to the integral
_DEEP = 60.0  # -log of the share of the integral in the tail, which is bounded and not computed
_INNERMOST = 1e-8  # first panel next to the kink, in units of h
_GRADING = 3.0  # a panel is at most this many times as long as its distance to the kink


@dataclass(frozen=True)
class Integrals:
    """log of the integral of f for each order, and a bound on the relative error of the integral."""

    log_value: Array
    error: Array


def integrals(beta: float, orders: Array, shift: float) -> Integrals:
    """The integral of f, which is e^gain - 1, for each order.

    Guarantees:
        |sum - truth| <= error * sum, quadrature, tail and rounding included; the error is infinite where the
        panels cannot be made fine enough.
    """
    half = 0.5 * shift
    reach = _reach(beta, orders, shift)
    edges = np.concatenate([half - _graded(half, beta, half)[::-1], half + _graded(reach, beta, half)[1:]])
    for _ in range(_MOST_ROUNDS):
        found, roundoff = _sums(beta, orders, half, edges)
        log_error = _log_panel_errors(beta, orders, half, edges) - found[:, None]
        coarse = np.any(log_error > _NEGLIGIBLE, axis=0)
        if not np.any(coarse) or len(edges) > _MOST_PANELS:
            break
        edges = np.sort(np.concatenate([edges, _cuts(beta, half, edges, coarse)]))
    with np.errstate(over="ignore"):
        left_out = np.exp(_log_tail(beta, orders, half, float(edges[-1])) - found)
        missed = np.exp(log_error).sum(axis=1) + left_out + roundoff
    # the errors are relative to the integral; made relative to the sum, if they are at most a half
    return Integrals(found, np.where(missed <= 0.5, missed, np.inf))


def _log_odds(beta: float, y: Array, half: float) -> Array:
    """(y + h)^beta - |y - h|^beta for y >= 0, without cancellation for a small shift."""
    far = y > 4.0 * half
    safe = np.where(far, y, 8.0 * half)
    share = half / safe
    apart = (
        safe**beta * np.exp(beta * np.log1p(-share)) * np.expm1(beta * (np.log1p(share) - np.log1p(-share)))
    )
    return np.where(far, apart, (y + half) ** beta - np.abs(y - half) ** beta)


def _sums(beta: float, orders: Array, half: float, edges: Array) -> tuple[Array, Array]:
    """log of the sum over the nodes, and a bound on its relative error by rounding."""
    middle, radius = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    y = (middle[:, None] + radius[:, None] * _NODES).ravel()
    weight = (radius[:, None] * _WEIGHTS).ravel()
    odds = _log_odds(beta, y, half)
    powers = (y + half) ** beta + np.abs(y - half) ** beta
    # (4/Z) sinh sinh e^{-powers/2}; 4 sinh(x) sinh(x') = e^{x+x'} expm1(-2x) expm1(-2x')
    log_root = np.log(weight) - 0.5 * powers - math.lgamma(1.0 + 1.0 / beta) - math.log(2.0)
    exponent = log_root + (orders[:, None] - 0.5) * odds
    peak = exponent.max(axis=1)
    terms = (
        np.exp(exponent - peak[:, None])
        * np.expm1(-orders[:, None] * odds)
        * np.expm1(-(orders[:, None] - 1.0) * odds)
    )
    total = terms.sum(axis=1)
    # ulps of a term: those of the powers; of the odds, where they enter times a - 1/2 and where they enter
    # as a factor; and of y itself, through the slope of log f
    spoiled = (beta + 6.0) * np.where(y > 4.0 * half, odds, powers)
    left, right = (y + half) ** (beta - 1.0), np.abs(y - half) ** (beta - 1.0)
    slope = beta * np.abs(left - np.sign(y - half) * right)
    fixed = 80.0 + (beta + 4.0) * powers + 2.0 * (spoiled + y * slope) / odds + y * beta * (left + right)
    growing = spoiled + y * slope
    ulps = (terms @ fixed + (orders - 0.5) * (terms @ growing)) / total
    return np.asarray(peak + np.log(total)), np.asarray(UNIT_ROUNDOFF * ulps)


def _log_panel_errors(beta: float, orders: Array, half: float, edges: Array) -> Array:
    """log of the proved error, one row per order and one column per panel."""
    left, right = edges[:-1], edges[1:]
    touching = np.zeros(len(left), dtype=bool)
    if beta != int(beta):
        touching = (left == half) | (right == half)
    errors = np.empty((len(orders), len(left)))
    errors[:, touching] = _log_lipschitz_errors(beta, orders, half, (right - left)[touching])
    errors[:, ~touching] = _log_ellipse_errors(beta, orders, half, left[~touching], right[~touching])
    return np.asarray(np.minimum(errors, _log_whole(beta, orders, half, edges)))


def _log_whole(beta: float, orders: Array, half: float, edges: Array) -> Array:
    """Twice the length times sup f: phi is largest at the end nearer to its peak, or at the peak."""
    peak = _peak(beta, orders, 2.0 * half)[:, None]
    highest = np.clip(peak, edges[:-1], edges[1:])
    return np.asarray(
        _log_front(beta) + np.log(2.0 * np.diff(edges)) + _exponent(beta, orders[:, None], highest, half)
    )


def _log_lipschitz_errors(beta: float, orders: Array, half: float, width: Array) -> Array:
    """w^2 sup|f'| on a panel of length w < h that touches the kink, through sup|(log f)'|."""
    order = orders[:, None]
    far, near = 2.0 * half + width, 2.0 * half - width  # u and its least value
    pulls = beta * (far ** (beta - 1.0) + width ** (beta - 1.0))
    least = near**beta - width**beta  # of l
    steepness = pulls * (order + 2.0 / least)  # (a/2) coth(a l/2) <= a/2 + 1/l
    at_kink = (order - 1.0) * (2.0 * half) ** beta + _log_factor(order, far**beta)
    return np.asarray(
        _log_front(beta) + 2.0 * np.log(width) + np.log(steepness) + at_kink + width * steepness
    )


def _log_front(beta: float) -> float:
    return math.log(2.0) - math.lgamma(1.0 + 1.0 / beta)


def _log_factor(order: Array, odds: Array) -> Array:
    """log of min(1, a l/2) min(1, (a-1) l/2)."""
    return np.asarray(
        np.minimum(np.log(0.5 * order * odds), 0.0) + np.minimum(np.log(0.5 * (order - 1.0) * odds), 0.0)
    )


def _log_ellipse_errors(beta: float, orders: Array, half: float, left: Array, right: Array) -> Array:
    """The theorem's bound with (1), the best of a few ellipses."""
    order = orders[:, None]
    centre, radius = 0.5 * (left + right), 0.5 * (right - left)
    side = np.where(centre > half, 1.0, -1.0)
    u, v = centre + half, np.abs(centre - half)
    up, vp = beta * u ** (beta - 1.0), side * beta * v ** (beta - 1.0)
    value, slope = (order - 1.0) * u**beta - order * v**beta, np.abs((order - 1.0) * up - order * vp)
    other, other_slope = (order - 1.0) * v**beta - order * u**beta, np.abs((order - 1.0) * vp - order * up)
    best = np.full((len(orders), len(left)), np.inf)
    for rho in _ELLIPSES:
        reach = 0.5 * radius * (rho + 1.0 / rho)
        bend, other_bend = _bends(beta, order, half, centre, reach)
        tilted = np.maximum(
            value + reach * slope + 0.5 * reach**2 * bend,
            other + reach * other_slope + 0.5 * reach**2 * other_bend,
        )
        length = np.where(side > 0.0, 2.0 * half, 2.0 * (centre + reach))  # of the segment from v to u
        odds = length * beta * (u + reach) ** (beta - 1.0)
        fixed = math.log(8.0) + np.log(radius) - (2 * _COUNT - 1) * math.log(rho) - math.log(rho - 1.0)
        bound = _log_front(beta) + fixed + tilted + _log_factor(order, odds)
        best = np.minimum(best, np.where(np.isnan(bound), np.inf, bound))
    return best


def _bends(
    beta: float, order: Array, half: float, centre: Array, reach: Array
) -> tuple[Array | float, Array | float]:
    """sup|phi''| and sup|phi~''| over the disc; infinite where it holds a kink of beta that is not whole."""
    if beta == 1.0:
        return 0.0, 0.0
    power = beta - 2.0
    u, v = centre + half, np.abs(centre - half)
    at_u, at_v = _highest(power, u, reach, beta), _highest(power, v, reach, beta)
    apart = (
        2.0
        * half
        * abs(power)
        * np.maximum(_highest(power - 1.0, u, reach, beta), _highest(power - 1.0, v, reach, beta))
    )
    gap = np.where((centre > half) & (v > reach), np.minimum(at_u + at_v, apart), at_u + at_v)
    front = beta * (beta - 1.0)
    return front * ((order - 1.0) * gap + at_v), front * ((order - 1.0) * gap + at_u)


def _highest(power: float, centre: Array, reach: Array, beta: float) -> Array:
    """sup of |t|^power over the disc around a positive centre; infinite where t^beta is not analytic."""
    near = centre - reach
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(power >= 0.0, centre + reach, np.maximum(near, 0.0)) ** power
    return np.asarray(found if beta == int(beta) and power >= 0.0 else np.where(near > 0.0, found, np.inf))


def _log_tail(beta: float, orders: Array, half: float, end: float) -> Array:
    """log of a bound on the integral beyond `end`.

    f <= (4/Z) e^phi, and phi' falls further once it is negative.
    """
    u, v = end + half, end - half
    slope = beta * ((orders - 1.0) * u ** (beta - 1.0) - orders * v ** (beta - 1.0))
    value = (orders - 1.0) * u**beta - orders * v**beta
    with np.errstate(invalid="ignore", divide="ignore"):
        bound = _log_front(beta) + value - np.log(-slope)
    return np.where(slope < 0.0, bound, np.inf)


def _cuts(beta: float, half: float, edges: Array, coarse: Array) -> Array:
    """Where to cut panels that are too coarse: the middle, or close to the kink."""
    left, right = edges[:-1][coarse], edges[1:][coarse]
    share = np.full(len(left), 0.5)
    if beta != int(beta):
        share = np.where(left == half, 0.1, np.where(right == half, 0.9, share))
    return np.asarray(left + share * (right - left))


def _ratio_less_one(beta: float, orders: Array) -> Array:
    """(a/(a-1))^(1/(beta-1)) - 1: where the tilted density peaks; infinite for Laplace noise."""
    if beta == 1.0:
        return np.full(orders.shape, np.inf)
    with np.errstate(over="ignore"):
        return np.asarray(np.expm1(np.log(orders / (orders - 1.0)) / (beta - 1.0)))


def _peak(beta: float, orders: Array, shift: float) -> Array:
    """The y > h at which phi is largest."""
    return np.asarray(0.5 * shift * (1.0 + 2.0 / _ratio_less_one(beta, orders)))


def _exponent(beta: float, order: Array | float, y: Array | float, half: float) -> Array:
    """phi on the real line."""
    return np.asarray((order - 1.0) * (y + half) ** beta - order * np.abs(y - half) ** beta)


def peak_gain(beta: float, orders: Array, shift: float) -> Array:
    """About the gain, from below up to a few units: phi at its peak."""
    return _exponent(beta, orders, _peak(beta, orders, shift), 0.5 * shift)


def _reach(beta: float, orders: Array, shift: float) -> float:
    """How far right of the kink the integrand of the largest order is not negligible."""
    half, order = 0.5 * shift, float(orders.max())
    peak = float(_peak(beta, np.array([order]), shift)[0])
    small = min(2.0 * math.log(shift) + math.log(float(orders.min()) - 1.0), 0.0)  # e^gain - 1, about
    floor = max(float(_exponent(beta, order, peak, half)), 0.0) - _DEEP + small
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
        for _ in range(3):  # the panel must be short enough at its far end too
            step = min(step, _width(beta, here + half + step))
        here += max(step, 1e-3 * here)
    # a very short last panel is joined to the one before it
    if len(edges) > 2 and length - edges[-1] < 0.3 * (edges[-1] - edges[-2]):
        edges.pop()
    return np.array([*edges, length])
