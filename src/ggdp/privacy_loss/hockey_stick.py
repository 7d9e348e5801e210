# SPDX-License-Identifier: Apache-2.0
"""The privacy profile of one release in closed form: delta(t) = P(L > t) - e^t Q(L > t), with its rounding
error.

The loss is non-decreasing in the noise, so {L > t} = {z > z(t)} and both probabilities are survival
functions S at one point. Written as

    delta = rate (S_up - S_down) - (e^t - 1) ((1 - rate) S_0 + rate S_down),

every term is about as large as the rate if losses are small, so that a rate of 1e-7 costs no digits.

From a loss of about 40 on, Q may underflow while e^t Q is an ordinary number. Where e^t or 1/Q is very large,
delta is therefore computed as -P expm1(t + log Q - log P), from the logarithms of both survival functions. A
bound on everything that underflows is added to the absolute error.

z(t) maximises P(z > x) - e^t Q(z > x) over x. So an error of the computed threshold changes delta only by
about its square, which is added to the error too.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ggdp.distributions.gamma_tail import log_upper, upper
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.shift_pair import ShiftPair

_GAMMA_ULPS = 400.0
_LARGE = 600.0  # largest exponent of a factor e^t or 1/Q; both overflow soon after
_SMALLEST_FACTOR = math.exp(-_LARGE)
_UNDERFLOW = 1e-320  # more than products, sums and tails lose by underflow
_TABLE = 3000
_LOG_LEAST_PROB = 740.0  # log(1/p) of a probability p that nearly underflows

Mask = NDArray[np.bool_]
Sticks = tuple[Array, Array, Array]


@dataclass(frozen=True)
class HockeyStick:
    """The profile at each t.

    Attributes:
        value: delta(t), or delta(t) - (1 - e^t) on the far side.
        error: bound on its absolute error.
        slope: e^t Q(L > t) = -d value/dt; on the far side e^t Q(L <= t) = d value/dt.
    """

    value: Array
    error: Array
    slope: Array


def hockey_stick(pair: ShiftPair, t: Array) -> HockeyStick:
    """delta(t), with full relative accuracy for t >= 0."""
    z, residual = thresholds(pair, t)
    return _sharpened(_half_line(pair, t, z, residual, 1.0), pair, t, 1.0)


def far_side(pair: ShiftPair, t: Array) -> HockeyStick:
    """delta(t) - (1 - e^t) = e^t Q(L <= t) - P(L <= t), with full relative accuracy for t <= 0."""
    z, residual = thresholds(pair, t)
    # e^t Q(L <= t) - P(L <= t) is e^t times the profile of (Q, P) at -t
    return _sharpened(_half_line(pair, t, z, residual, -1.0), pair.reverse, -t, np.exp(np.minimum(t, _LARGE)))


def beyond(pair: ShiftPair, t: Array, cut: float) -> HockeyStick:
    """delta(t) of both laws restricted to noise beyond a cut; needs a loss that is not negative there."""
    z, residual = thresholds(pair, t)
    early = z < cut
    return _half_line(pair, t, np.where(early, cut, z), np.where(early, 0.0, residual), 1.0)


def _sharpened(stick: HockeyStick, pair: ShiftPair, t: Array, factor: Array | float) -> HockeyStick:
    """Laplace noise keeps its relative accuracy up to the largest loss s, where delta vanishes.

    With d = s - t, an unsampled release has delta = 1 - e^{-d/2} for |t| <= s; REMOVE is rate delta_1(t')
    and ADD is a delta_1(t') with a = 1 - (1 - rate) e^t, where t' differs from the unsampled supremum by
    log1p(e^{s - up} (e^-d - 1) / rate) and -d - log1p(-(1 - rate) e^s (e^-d - 1) / a_s).
    """
    if pair.beta != 1.0 or (pair.up > 0.0 and pair.down < 0.0):
        return stick
    top, bottom = pair.supremum, pair.infimum
    inside = (t < top) & (t > bottom)
    distance = np.where(inside, top - t, 0.0)
    shrink, off = np.expm1(-distance), abs(top) + np.abs(t)  # rounding of the distance, in ulps
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if pair.down == 0.0:
            weight: Array | float = pair.rate
            lever = math.exp(top - pair.up) / pair.rate if pair.rate < 1.0 else 1.0
            moved = lever * shrink
            short = np.log1p(np.maximum(moved, -1.0)) if pair.rate < 1.0 else -distance
            spoiled = np.abs(moved) * (8.0 + abs(top) + pair.up) + lever * np.exp(-distance) * off
            slip = np.exp(-short) * spoiled
        else:
            at_top = pair.rate * math.exp(top + pair.down)
            lever = (1.0 - pair.rate) * math.exp(top) / at_top
            weight, moved = at_top * (1.0 - lever * shrink), -lever * shrink
            short = -distance - np.log1p(moved)
            slip = off + (moved * (16.0 + 3.0 * abs(top) - pair.down) + lever * off) / (1.0 + moved)
        value = -weight * np.expm1(0.5 * short) * factor
        ulps = 64.0 + 4.0 * (abs(top) + pair.up - pair.down) + np.abs(t)
        error = value * ulps + 2.0 * weight * np.exp(0.5 * short) * slip * factor
    better = inside & (error * UNIT_ROUNDOFF + _UNDERFLOW < stick.error)
    return HockeyStick(
        np.where(better, value, stick.value),
        np.where(better, error * UNIT_ROUNDOFF + _UNDERFLOW, stick.error),
        stick.slope,
    )


def survivals(pair: ShiftPair, z: float) -> tuple[float, float, float]:
    """Pr[N(up) > z], Pr[N(down) > z] and Pr[N(0) > z]."""
    up, down, still = _Tail.of(pair.beta, z - np.array([pair.up, pair.down, 0.0]), 0.0).mass
    return float(up), float(down), float(still)


def log_masses(pair: ShiftPair, z: Array) -> tuple[Array, Array, Array]:
    """log of the P- and of the Q-mass of noise beyond z, also where these are below the smallest double.

    The third is a bound on the error of either.
    """
    log_p, ulps_p = _log_mixture(pair, z, pair.up)
    log_q, ulps_q = _log_mixture(pair, z, pair.down)
    size = np.abs(log_p) + np.abs(log_q) + 16.0
    return log_p, log_q, 2.0 * UNIT_ROUNDOFF * (np.maximum(ulps_p, ulps_q) + size)


def _half_line(pair: ShiftPair, t: Array, z: Array, residual: Array, side: float) -> HockeyStick:
    """P - e^t Q of {z > threshold} (side 1), or e^t Q - P of {z <= threshold} (side -1)."""
    inside = np.isfinite(z)
    z = np.where(inside, z, 0.0)
    up = _Tail.of(pair.beta, side * (z - pair.up), pair.up)
    down = _Tail.of(pair.beta, side * (z - pair.down), pair.down)
    still = _Tail.of(pair.beta, side * z, 0.0)
    p, q = _Tail.mixture(pair.rate, still, up), _Tail.mixture(pair.rate, still, down)
    with np.errstate(over="ignore", invalid="ignore"):
        excess = np.expm1(np.minimum(t, _LARGE))
        factor = np.exp(np.minimum(t, _LARGE))
        # far below zero e^t - 1 is not small, and P - e^t Q is computed directly
        below = t < -1.0
        terms = np.where(below, p.mass, pair.rate * (up.mass - down.mass)), np.where(below, factor, excess)
        value = side * (terms[0] - terms[1] * q.mass)
        size = np.where(below, p.mass, pair.rate * (up.mass + down.mass)) + np.abs(terms[1]) * q.mass
        spoiled = np.where(below, p.error, pair.rate * (up.error + down.error)) + np.abs(terms[1]) * q.error
        log_up, log_down = pair.log_mixture(z, pair.up), pair.log_mixture(z, pair.down)
        density = np.exp(np.minimum(log_up - np.abs(z) ** pair.beta, 0.0))
        off = residual + 8.0 * UNIT_ROUNDOFF * (np.abs(log_up) + np.abs(log_down))
        slack = density * off**2 / np.maximum(pair.loss_slope(z), 1e-300)
        error = spoiled + (16.0 + np.abs(t)) * UNIT_ROUNDOFF * size + slack + _UNDERFLOW * (1.0 + factor)
        slope = factor * q.mass
    apart = (t > _LARGE) | ((t > 1.0) & (q.mass < _SMALLEST_FACTOR))
    if side > 0.0 and np.any(apart):
        _by_logarithms(pair, apart, t[apart], z[apart], slack[apart], p.error[apart], (value, error, slope))
    # beyond the largest loss one half line is empty and the other is everything; before the smallest loss it
    # is the other way round
    everything = ~inside & (t <= pair.infimum if side > 0.0 else t >= pair.supremum)
    whole = -side * np.expm1(np.minimum(t, _LARGE))
    return HockeyStick(
        np.where(inside, np.maximum(value, 0.0), np.where(everything, whole, 0.0)),
        np.where(
            inside,
            np.minimum(error, 1.0),
            _beyond_the_ends(pair, t) + np.where(everything, 4.0 * UNIT_ROUNDOFF * np.abs(whole), 0.0),
        ),
        np.where(inside, slope, np.where(everything, np.exp(np.minimum(t, _LARGE)), 0.0)),
    )


def _beyond_the_ends(pair: ShiftPair, t: Array) -> Array:
    """A bound on the curve at t beyond the largest or the smallest loss, both of which are rounded."""
    found = np.zeros_like(t)
    for end, side in ((pair.supremum, 1.0), (pair.infimum, -1.0)):
        if math.isfinite(end):
            excess = side * (end - t) + 16.0 * UNIT_ROUNDOFF * abs(end)
            near = (side * (t - end) >= 0.0) & (excess > 0.0)
            found[near] = excess[near] * np.exp(np.minimum(t[near], 0.0))
    return found


def _by_logarithms(
    pair: ShiftPair, apart: Mask, t: Array, z: Array, slack: Array, p_error: Array, into: Sticks
) -> None:
    """Replace value, error and slope where `apart` by those of -P expm1(t + log Q - log P)."""
    log_p, ulps_p = _log_mixture(pair, z, pair.up)
    log_q, ulps_q = _log_mixture(pair, z, pair.down)
    p, ratio = np.exp(log_p), np.minimum(t + log_q - log_p, 0.0)
    farther = 4.0 * UNIT_ROUNDOFF * np.abs(t) + 4.0 * UNIT_ROUNDOFF * (np.abs(log_p) + np.abs(log_q))
    doubt = UNIT_ROUNDOFF * (ulps_p + ulps_q) + farther
    value, error, slope = into
    scaled = p * np.exp(ratio)
    value[apart] = -p * np.expm1(ratio)
    error[apart] = (
        p_error
        + p * UNIT_ROUNDOFF * (16.0 + 2.0 * np.abs(log_p))
        + scaled * np.expm1(np.minimum(doubt, _LARGE))
        + slack
        + _UNDERFLOW
    )
    slope[apart] = scaled


@dataclass(frozen=True)
class _Tail:
    """Pr[noise > x] with a bound on its error; near 1 that is the error of the small difference to 1."""

    mass: Array
    error: Array

    @staticmethod
    def of(beta: float, x: Array, shift: float) -> "_Tail":
        # products of 0 and infinity are not used
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            exponent = np.abs(x) ** beta
            half = 0.5 * (np.exp(-exponent) if beta == 1.0 else upper(1.0 / beta, exponent))
            mass = np.where(x < 0.0, 1.0 - half, half)
            spoiled = np.where(half > 0.0, half * _ulps(beta, x, exponent, shift), 0.0)
            return _Tail(mass, UNIT_ROUNDOFF * (spoiled + 2.0 * mass))

    @staticmethod
    def mixture(rate: float, still: "_Tail", moved: "_Tail") -> "_Tail":
        mass = (1.0 - rate) * still.mass + rate * moved.mass
        error = (1.0 - rate) * still.error + rate * moved.error
        return _Tail(mass, error + 4.0 * UNIT_ROUNDOFF * mass)


def _ulps(beta: float, x: Array, exponent: Array, shift: float) -> Array:
    """Relative error of Q(1/beta, |x|^beta), in units of round-off.

    It has three parts: that of gamma_tail, measured against mpmath, that of the power, and that of
    x = z - shift, as the shift is rounded.
    """
    moved = beta * np.abs(x) ** (beta - 1.0) * abs(shift) if shift else 0.0
    return np.asarray((16.0 if beta == 1.0 else _GAMMA_ULPS) + (beta + 3.0) * exponent + 4.0 * moved)


def _log_mixture(pair: ShiftPair, z: Array, shift: float) -> tuple[Array, Array]:
    """log of a mixture's mass beyond z, and its error in units of rounding."""
    moved, ulps = _log_survival(pair.beta, z - shift, shift)
    if pair.rate == 1.0:
        return moved, ulps
    still, still_ulps = _log_survival(pair.beta, z, 0.0)
    both = np.logaddexp(math.log1p(-pair.rate) + still, math.log(pair.rate) + moved)
    return np.asarray(both), np.maximum(ulps, still_ulps)


def _log_survival(beta: float, x: Array, shift: float) -> tuple[Array, Array]:
    with np.errstate(over="ignore"):
        exponent = np.abs(x) ** beta
        half = log_upper(1.0 / beta, exponent) - math.log(2.0)
    return np.where(x < 0.0, np.log1p(-np.exp(half)), half), _ulps(beta, x, exponent, shift)


def thresholds(pair: ShiftPair, t: Array) -> tuple[Array, Array]:
    """z with L(z) = t, and |L(z) - t|.

    z is infinity if the loss never exceeds t, and minus infinity if it always does.
    """
    table, known = _table(pair)
    reachable = (t < min(pair.supremum, known[-1])) & (t > max(pair.infimum, known[0]))
    wanted = np.where(reachable, t, known[len(known) // 2])
    place = np.clip(np.searchsorted(known, wanted), 1, len(known) - 1)
    low, high = table[place - 1], table[place]
    z = _inverse_interpolation(low, high, known[place - 1], known[place], wanted)
    for _ in range(6):
        residual = pair.loss(z) - wanted
        if np.all(np.abs(residual) <= 1e-11 * np.abs(wanted)):
            break
        low, high = np.where(residual < 0.0, z, low), np.where(residual > 0.0, z, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = z - residual / pair.loss_slope(z)
        z = np.where(
            (newton >= low) & (newton <= high), newton, np.where(residual == 0.0, z, 0.5 * (low + high))
        )
    residual = np.abs(pair.loss(z) - wanted)
    beyond = np.where(t >= pair.supremum, np.inf, table[-1])
    before = np.where(t <= pair.infimum, -np.inf, table[0])
    z = np.where(reachable, z, np.where(t > wanted, beyond, before))
    return z, np.where(reachable, residual, 0.0)


def _inverse_interpolation(low: Array, high: Array, at_low: Array, at_high: Array, t: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (t - at_low) / (at_high - at_low)
    return low + np.where(np.isfinite(share), share, 0.5) * (high - low)


@lru_cache(maxsize=256)
def _table(pair: ShiftPair) -> tuple[Array, Array]:
    """Increasing points over all noise whose probability is a positive double, and the losses there.

    The points are closer together near the kinks.
    """
    reach = _LOG_LEAST_PROB ** (1.0 / pair.beta)
    grades = np.geomspace(1e-6, 1.0, 300) * (reach + pair.up - pair.down)
    spread = np.linspace(pair.down - reach, pair.up + reach, _TABLE)
    near = [kink + side * grades for kink in pair.kinks for side in (-1.0, 1.0)]
    points = np.unique(np.concatenate([spread, *near, pair.kinks]))
    points = points[(points >= pair.down - reach) & (points <= pair.up + reach)]
    return np.asarray(points), pair.loss(points)
