# SPDX-License-Identifier: Apache-2.0
"""A proved bound on the error of Gauss-Legendre quadrature on one panel.

Theorem (Bernstein; Trefethen, Approximation Theory and Approximation Practice, Theorem 8.2 and chapter 19).
If f is analytic in the ellipse with foci at the ends of a panel of half-length r and semi-axis sum r*rho, and
|f| <= M there, the n-node rule errs by at most 8 r M rho^(1-2n) / (rho - 1).
  Proof: the rule is exact on degree 2n - 1 and has positive weights, so its error is at most twice the
  panel's length times the distance of f to that degree, which the Chebyshev series bounds by
  2 M rho^(1-2n) / (rho - 1).

Here f = e^F with F from `privacy_loss.quadrature`. M is certified, not sampled: |f| = e^{Re F} takes its
maximum on the ellipse's rim, and between the rim points where it is evaluated it can grow by no more than
e^{distance * sup|F'|}. For panels that touch a kink of non-integer beta, where f is only Lipschitz, the bound
is length^2 * sup|f'|. For panels with negligible mass it is twice their integral of |f|. The test that would
fail if any of this were wrong: tests/privacy_loss/test_quadrature.py, against mpmath at 50 digits.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ggdp.numerics import Array
from ggdp.privacy_loss.shift_pair import ShiftPair

NODES_PER_PANEL = 20
Tilts = tuple[float, ...]
Complex = NDArray[np.complex128]

_RIM = np.exp(1j * np.linspace(0.0, math.pi, 13))
_APART = math.log(2.0)  # log of a ratio of two terms at which their sum has no zero, whatever their phases
_ELLIPSES = (5.0, 2.5)  # candidate rho, the usually better one first; a nearer kink shrinks the ellipse


def log_tilted(pair: ShiftPair, z: Array, theta: float) -> Array:
    """log of the P-density times e^{theta L} at z: F(z) for real s."""
    up, down = pair.log_mixture(z, pair.up), pair.log_mixture(z, pair.down)
    return np.asarray((1.0 + theta) * up - theta * down - np.abs(z) ** pair.beta - pair.log_normalizer)


def log_panel_error(
    pair: ShiftPair, left: Array, right: Array, tilts: Tilts, omega: float, enough: Tilts | None = None
) -> Array:
    """log of the proved error of the n-node rule, one row per tilt and one column per panel.

    Where a bound is no more than `enough`, for each tilt, no better one is sought.
    """
    wanted = np.array([-math.inf] * len(tilts) if enough is None else enough)[:, None]
    touching = np.zeros(len(left), dtype=bool)
    if pair.beta != int(pair.beta):
        touching = np.isin(left, pair.kinks) | np.isin(right, pair.kinks)
    bounds = [(touching, _log_lipschitz_error)]
    bounds += [(~touching, partial(_log_ellipse_error, rho=rho)) for rho in _ELLIPSES]
    with np.errstate(divide="ignore"):  # a panel that is a single point has no error
        best = _log_whole(pair, left, right, tilts)
        for where, bound in bounds:
            some = where & ~np.all(best <= wanted, axis=0)
            if some.any():
                best[:, some] = np.minimum(best[:, some], bound(pair, left[some], right[some], tilts, omega))
    return best


def _log_whole(pair: ShiftPair, left: Array, right: Array, tilts: Tilts) -> Array:
    """The trivial bound, twice the panel's integral of |f|, which is enough where that is negligible."""
    half = 0.5 * (right - left)
    pulls = _Pulls.on(pair, 0.5 * (left + right), half)
    rows = []
    for theta in tilts:
        highest = np.maximum(log_tilted(pair, left, theta), log_tilted(pair, right, theta))
        rows.append(np.log(4.0 * half) + highest + half * pulls.slope(theta, 0.0))
    return np.stack(rows)


def _log_lipschitz_error(pair: ShiftPair, left: Array, right: Array, tilts: Tilts, omega: float) -> Array:
    centre, half = 0.5 * (left + right), 0.5 * (right - left)
    pulls = _Pulls.on(pair, centre, half)
    rows = []
    for theta, frequency in zip(tilts, _frequencies(tilts, omega), strict=True):
        slope = pulls.slope(theta, frequency)
        rows.append(2.0 * np.log(2.0 * half) + np.log(slope) + log_tilted(pair, centre, theta) + half * slope)
    return np.stack(rows)


def _frequencies(tilts: Tilts, omega: float) -> Tilts:
    return (omega,) + (0.0,) * (len(tilts) - 1)


def _log_ellipse_error(
    pair: ShiftPair, left: Array, right: Array, tilts: Tilts, omega: float, *, rho: float
) -> Array:
    """The theorem's bound for one ellipse, which is shrunk where it would reach a kink."""
    centre, half = 0.5 * (left + right), 0.5 * (right - left)
    rhos = np.full(len(left), rho)
    if pair.beta != int(pair.beta):
        nearest = np.min([np.abs(centre - kink) for kink in pair.kinks], axis=0) / half
        rhos = np.minimum(rhos, 0.98 * (nearest + np.sqrt(np.maximum(nearest**2 - 1.0, 0.0))))
    rhos = np.maximum(rhos, 1.001)
    rim = centre[:, None] + 0.5 * half[:, None] * (rhos[:, None] * _RIM + _RIM.conj() / rhos[:, None])
    reach = half * 0.5 * (rhos + 1.0 / rhos)
    gap = reach * (0.5 * math.pi / (len(_RIM) - 1))  # to the nearest rim point, along the rim
    base, up, down, odds_up, odds_down = _on_rim(pair, rim, centre)
    pulls = _Pulls.on(pair, centre, reach, gap, odds_up.real, odds_down.real)
    fixed = (
        math.log(8.0)
        - pair.log_normalizer
        + np.log(half)
        - (2 * NODES_PER_PANEL - 1) * np.log(rhos)
        - np.log(rhos - 1.0)
    )
    # log r must stay analytic: |Im l| <= pi/2 keeps 1 - rate + rate e^l in the right half plane, and where
    # one of the two parts is less than half the other all over the ellipse, their sum has no zero
    if pair.rate < 1.0:
        for odds, slope in ((odds_up, pulls.odds_up), (odds_down, pulls.odds_down)):
            narrow = np.abs(odds.imag).max(axis=1) + gap * slope <= 0.5 * math.pi
            least, most = _ratio_range(pair, odds.real, gap * slope)
            fixed = np.where(narrow | (most <= -_APART) | (least >= _APART), fixed, np.inf)
    swing = np.abs((up - down).imag)
    rows = []
    for theta, frequency in zip(tilts, _frequencies(tilts, omega), strict=True):
        log_modulus = ((1.0 + theta) * up.real - theta * down.real - base.real + frequency * swing).max(
            axis=1
        )
        rows.append(fixed + log_modulus + gap * pulls.slope(theta, frequency))
    return np.stack(rows)


def _on_rim(
    pair: ShiftPair, rim: Complex, centre: Array
) -> tuple[Complex, Complex, Complex, Complex, Complex]:
    """z^beta, log r_up, log r_down and the log odds of both shifts at complex points, continued from the
    real panel.
    """

    def power(kink: float) -> Complex:
        moved = np.where(centre > kink, 1.0, -1.0)[:, None] * (rim - kink)
        if pair.beta == 2.0:
            return np.asarray(moved * moved)
        return np.asarray(np.exp(pair.beta * np.log(np.where(moved == 0.0, 1e-300, moved))))

    def mixture(odds: Complex) -> Complex:
        if pair.rate == 1.0:
            return odds
        high = odds.real > math.log1p(-pair.rate) - math.log(pair.rate)  # then rate e^l is the larger part
        flipped = np.exp(np.where(high, -odds, odds))
        one, other = np.where(high, pair.rate, 1.0 - pair.rate), np.where(high, 1.0 - pair.rate, pair.rate)
        return np.asarray(np.log(one + other * flipped) + np.where(high, odds, 0.0))

    base = power(0.0)
    zero = np.zeros_like(base)
    odds_up = base - power(pair.up) if pair.up else zero
    odds_down = base - power(pair.down) if pair.down else zero
    return (
        base,
        mixture(odds_up) if pair.up else zero,
        mixture(odds_down) if pair.down else zero,
        odds_up,
        odds_down,
    )


@dataclass(frozen=True)
class _Pulls:
    """Bounds over discs: on |beta z^(beta-1)|, on each shift's |share * l'|, and on each |l'|."""

    base: Array
    up: Array
    down: Array
    odds_up: Array
    odds_down: Array

    def slope(self, theta: float, omega: float) -> Array:
        """sup |F'| <= |beta z^(beta-1)| + |1+s| |share_up l_up'| + |s| |share_down l_down'|."""
        tilt = abs(theta) + omega
        return np.asarray(self.base + (1.0 + tilt) * self.up + tilt * self.down)

    @staticmethod
    def on(
        pair: ShiftPair,
        centre: Array,
        reach: Array,
        gap: Array | None = None,
        odds_up: Array | None = None,
        odds_down: Array | None = None,
    ) -> "_Pulls":
        """Bounds over discs of radius `reach`; the odds are Re l at points `gap` apart on their rims.

        With e^t the ratio of rate e^(Re l) to 1 - rate: while |Im l| <= pi/2, |1 - rate + rate e^l| is at
        least each of its parts, so |share| <= min(1, e^t). Elsewhere e^t is below a half or above two all
        over the disc, and |share| <= e^t / |1 - e^t|.
        """
        base = pair.beta * (np.abs(centre) + reach) ** (pair.beta - 1.0)
        slopes, pulls = [], []
        for shift, odds in ((pair.up, odds_up), (pair.down, odds_down)):
            slope = _odds_slope_bound(pair, centre, reach, shift)
            slopes.append(slope)
            if pair.rate < 1.0 and shift and gap is not None and odds is not None:
                least, most = _ratio_range(pair, odds, gap * slope)
                apart = np.exp(-np.abs(np.where(most <= -_APART, most, least)))
                share = np.where(most <= -_APART, apart / (1.0 - apart), np.exp(np.minimum(most, 0.0)))
                slope = slope * np.where(least >= _APART, 1.0 / (1.0 - apart), share)
            pulls.append(slope)
        return _Pulls(base, pulls[0], pulls[1], slopes[0], slopes[1])


def _ratio_range(pair: ShiftPair, odds: Array, slack: Array) -> tuple[Array, Array]:
    """The least and the largest log of rate e^(Re l) / (1 - rate) over an ellipse, from Re l on its rim."""
    ratio = math.log(pair.rate) - math.log1p(-pair.rate)
    return ratio + odds.min(axis=1) - slack, ratio + odds.max(axis=1) + slack


def _odds_slope_bound(pair: ShiftPair, centre: Array, reach: Array, shift: float) -> Array:
    """sup |d/dz log_odds| over the disc of radius `reach` around `centre`.

    Either by the two powers apart, or, where 0 and the shift lie on the same side, as an integral of the
    second derivative beta (beta-1) t^(beta-2) over a segment of length |shift|.
    """
    if shift == 0.0:
        return np.zeros_like(centre)
    beta = pair.beta
    to_zero, to_shift = np.abs(centre), np.abs(centre - shift)
    apart = beta * ((to_zero + reach) ** (beta - 1.0) + (to_shift + reach) ** (beta - 1.0))
    farthest = np.maximum(to_zero, to_shift) + reach
    nearest = np.maximum(np.minimum(to_zero, to_shift) - reach, 0.0)
    if beta == 1.0:
        curvature = np.zeros_like(centre)
    else:
        with np.errstate(divide="ignore"):
            curvature = beta * (beta - 1.0) * (farthest if beta >= 2.0 else nearest) ** (beta - 2.0)
    same_side = (centre - reach > max(0.0, shift)) | (centre + reach < min(0.0, shift))
    return np.where(same_side, np.minimum(apart, abs(shift) * curvature), apart)
