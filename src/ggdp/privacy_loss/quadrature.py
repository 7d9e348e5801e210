# SPDX-License-Identifier: Apache-2.0
"""Moment generating functions of one release's loss, by quadrature with a proved error.

    phi(s) = E_P[e^{s L}] = integral over z of  e^{F(z)},
    F(z) = -|z|^beta - log_normalizer + (1 + s) log r_up(z) - s log r_down(z),

with r_v = 1 - rate + rate N(v)/N(0). The line is cut at the kinks and into panels, each with n Gauss-Legendre nodes.

Theorem (Bernstein; Trefethen, Approximation Theory and Approximation Practice, Theorem 8.2 and chapter 19). If f is
analytic in the ellipse with foci at the ends of a panel of half-length r and semi-axis sum r*rho, and |f| <= M there,
the n-node rule errs by at most 8 r M rho^(1-2n) / (rho - 1).
  Proof: the rule is exact on degree 2n - 1 and has positive weights, so its error is at most twice the panel's length
  times the distance of f to that degree, which the Chebyshev series bounds by 2 M rho^(1-2n) / (rho - 1).

M is certified, not sampled: |f| = e^{Re F} takes its maximum on the ellipse's rim, and between the rim points where it
is evaluated it can grow by no more than e^{distance * sup|F'|}. Panels that touch a kink of non-integer beta, where f is
only Lipschitz, are graded until length^2 * sup|f'| is negligible. The test that would fail if any of this were wrong:
tests/privacy_loss/test_quadrature.py, against mpmath at 50 digits.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ggdp.privacy_loss.shift_pair import Array, ShiftPair

NODES_PER_PANEL = 20
_RIM = np.exp(1j * np.linspace(0.0, math.pi, 13))
_ELLIPSES = (5.0, 2.5)  # candidate rho; a kink nearer than the ellipse shrinks it
Tilts = tuple[float, ...]
Complex = NDArray[np.complex128]

MOST_PANELS = 2000
_MOST_ROUNDS = 60
_NEGLIGIBLE = -41.0  # log of the error allowed per panel, relative to phi(theta)
_UNIT_ROUNDOFF = 2.0**-53


class CannotCertifyError(ArithmeticError):
    """A method could not bound its own error here; another one must answer."""


@dataclass(frozen=True)
class Nodes:
    """Losses and log P-masses such that phi(s) is sum exp(log_mass + s loss), and what that sum may miss.

    Attributes:
        loss: the loss at each node.
        log_mass: log of quadrature weight times density of P.
        share: each node's share of phi at the first tilt.
        mean: mean of the loss under the first tilted law.
        deviation: its standard deviation.
        log_phi: log phi(theta) for each tilt the nodes were made for.
        quadrature: for each tilt, a bound on |sum - phi(s)| / phi(theta) for Re s = theta, |Im s| <= omega.
        roundoff: the same for floating-point evaluation.
    """

    loss: Array
    log_mass: Array
    share: Array
    mean: float
    deviation: float
    log_phi: tuple[float, ...]
    quadrature: tuple[float, ...]
    roundoff: tuple[float, ...]


@lru_cache(maxsize=4)
def _gauss_legendre(count: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(count)


def log_tilted(pair: ShiftPair, z: Array, theta: float) -> Array:
    """log of the P-density times e^{theta L} at z: F(z) for real s."""
    up, down = pair.log_mixture(z, pair.up), pair.log_mixture(z, pair.down)
    return np.asarray((1.0 + theta) * up - theta * down - np.abs(z) ** pair.beta - pair.log_normalizer)


def tail_ends(pair: ShiftPair, theta: float, log_phi: float, depth: float = 44.0) -> tuple[float, float, float]:
    """Ends of the line that hold all but a share e^-depth of phi(theta), with a bound on the share left out.

    Right of z, with share_down <= its value at z, F'(x) <= beta x^(beta-1) * bracket(z) for every x >= z, where bracket =
    -1 + (1+theta)(1 - (1-up/z)^(beta-1)) + theta share_down (( 1+|down|/z)^(beta-1) - 1) decreases in z; so once it is
    negative the tail is at most e^{F(z)} / |beta z^(beta-1) bracket|. Left of -u both mixtures only push F down.
    """
    power = pair.beta - 1.0

    def right(z: float) -> float:
        share = float(pair.share(np.float64(z), pair.down)) if pair.down else 0.0
        growth = (1.0 + theta) * -math.expm1(power * math.log1p(-pair.up / z)) if pair.up else 0.0
        growth += theta * share * math.expm1(power * math.log1p(-pair.down / z))
        if growth >= 1.0:
            return math.inf
        return float(log_tilted(pair, np.float64(z), theta)) - math.log((1.0 - growth) * pair.beta * z**power)

    def left(u: float) -> float:
        return float(log_tilted(pair, np.float64(-u), theta)) - math.log(pair.beta * u**power)

    enough = log_phi - depth
    low = _first_below(left, 1e-3 - pair.down, enough)
    share = math.exp(min(left(low) - log_phi, 0.0))
    if math.isfinite(pair.cut) and right(pair.cut) > enough:
        return -low, pair.cut, share  # the law ends here, nothing is left out
    high = min(_first_below(right, 1.001 * pair.up + 1e-3, enough), pair.cut)
    return -low, high, share + math.exp(min(right(high) - log_phi, 0.0))


def _first_below(bound, start: float, enough: float) -> float:  # type: ignore[no-untyped-def]
    """A point, not much beyond the first, where a bound that falls towards infinity has reached `enough`."""
    step, point = 0.25, start
    while bound(point) > enough:
        step *= 1.6
        point += step
        if point > 1e9:
            raise CannotCertifyError("the tail of the tilted noise does not fall off")
    inside, outside = max(point - step, start), point
    for _ in range(5):  # the end need not be exact, only not wasteful
        middle = 0.5 * (inside + outside)
        inside, outside = (middle, outside) if bound(middle) > enough else (inside, middle)
    return outside


def first_edges(pair: ShiftPair, low: float, high: float, smallest: float, ratio: float) -> Array:
    """Panel edges on [low, high]: the kinks, graded towards them down to `smallest` when beta is not whole."""
    anchors = [low, *(kink for kink in pair.kinks if kink < high), high]
    pieces = [np.asarray(anchors)]
    for left, right in zip(anchors[:-1], anchors[1:], strict=True):
        ends = [(left, 1.0, right - left)] if left != low else []
        ends += [(right, -1.0, right - left)] if right != high else []
        for kink, side, length in ends:
            reach = length if len(ends) == 1 else 0.5 * length
            if pair.beta == int(pair.beta):
                pieces.append(kink + side * reach * np.linspace(0.0, 1.0, 2 + math.ceil(reach / 1.5))[1:])
            else:
                count = max(2, math.ceil(math.log(max(reach / smallest, ratio)) / math.log(ratio)))
                pieces.append(kink + side * reach * ratio ** -np.arange(count, dtype=float))
    return np.unique(np.concatenate(pieces))


def certified_nodes(
    pair: ShiftPair,
    tilts: Tilts,
    omega: float,
    log_phis: Tilts,
    *,
    cut: float = math.inf,
    most_panels: int = MOST_PANELS,
) -> Nodes:
    """Nodes whose sum is phi(s) up to a proved error, for Re s each of the tilts.

    Args:
        pair: the release.
        tilts: real parts > -1 that will be asked for.
        omega: largest imaginary part that will be asked for at the first tilt; the others are asked for on the real axis.
        log_phis: log phi at each tilt, only as a yardstick; a rough value is enough.
        cut: leave out the noise beyond this point; the sums are then those of the rest.
        most_panels: give up rather than use more.

    Raises:
        CannotCertifyError: too many panels would be needed.
    """
    ends = [tail_ends(pair, theta, log_phi) for theta, log_phi in zip(tilts, log_phis, strict=True)]
    low, high = min(end[0] for end in ends), min(max(end[1] for end in ends), cut)
    edges = first_edges(pair, low, high, smallest=1e-9, ratio=6.0)
    left, right, errors = _refined(pair, edges[:-1], edges[1:], tilts, omega, log_phis, most_panels)
    return _nodes_on(pair, left, right, tilts, tuple(e + end[2] for e, end in zip(errors, ends, strict=True)))


def _nodes_on(pair: ShiftPair, left: Array, right: Array, tilts: Tilts, errors: Tilts) -> Nodes:
    unit_nodes, unit_weights = _gauss_legendre(NODES_PER_PANEL)
    half = 0.5 * (right - left)
    z = ((0.5 * (right + left))[:, None] + half[:, None] * unit_nodes).ravel()
    log_weight = (np.log(half)[:, None] + np.log(unit_weights)).ravel()
    up, down = pair.log_mixture(z, pair.up), pair.log_mixture(z, pair.down)
    power = np.abs(z) ** pair.beta
    loss = up - down
    log_mass = up - power - pair.log_normalizer + log_weight
    log_phi, shares, roundoff = [], [], []
    for theta in tilts:
        exponent = log_mass + theta * loss
        peak = float(exponent.max())
        term = np.exp(exponent - peak)
        total = float(term.sum())
        shares.append(term / total)
        log_phi.append(peak + math.log(total))
        # An exponent is off by a few ulps of each of its parts, and that is its term's relative error.
        ulps = 8.0 + (pair.beta + 3.0) * power + 6.0 * ((1.0 + theta) * np.abs(up) + theta * np.abs(down))
        roundoff.append(_UNIT_ROUNDOFF * (float(shares[-1] @ ulps) + len(z)))
    mean = float(shares[0] @ loss)
    deviation = math.sqrt(max(float(shares[0] @ (loss - mean) ** 2), 0.0))
    return Nodes(loss, log_mass, shares[0], mean, deviation, tuple(log_phi), errors, tuple(roundoff))


def _refined(
    pair: ShiftPair,
    left: Array,
    right: Array,
    tilts: Tilts,
    omega: float,
    log_phis: Tilts,
    most_panels: int,
) -> tuple[Array, Array, Tilts]:
    """Split panels until each one's proved error is negligible; return them with the sums of the errors."""
    done: list[tuple[Array, Array]] = []
    totals, count = np.zeros(len(tilts)), 0
    for _ in range(_MOST_ROUNDS):
        log_error = _log_panel_error(pair, left, right, tilts, omega) - np.array(log_phis)[:, None]
        good = np.all(log_error <= _NEGLIGIBLE, axis=0)
        done.append((left[good], right[good]))
        totals += np.exp(log_error[:, good]).sum(axis=1)
        count += int(good.sum())
        left, right = left[~good], right[~good]
        if not len(left):
            return np.concatenate([a for a, _ in done]), np.concatenate([b for _, b in done]), tuple(totals.tolist())
        if count + 2 * len(left) > most_panels:
            break
        cut = _cut(pair, left, right)
        left, right = np.concatenate([left, cut]), np.concatenate([cut, right])
    raise CannotCertifyError("the loss oscillates too fast for quadrature")


def _cut(pair: ShiftPair, left: Array, right: Array) -> Array:
    """Where to split: the middle, or close to the kink a panel touches."""
    share = np.full(len(left), 0.5)
    if pair.beta != int(pair.beta):
        share[np.isin(left, pair.kinks)] = 1.0 / 6.0
        share[np.isin(right, pair.kinks)] = 5.0 / 6.0
    return left + share * (right - left)


def _log_panel_error(pair: ShiftPair, left: Array, right: Array, tilts: Tilts, omega: float) -> Array:
    """log of the proved error of the n-node rule, one row per tilt and one column per panel."""
    best = np.full((len(tilts), len(left)), np.inf)
    touching = np.zeros(len(left), dtype=bool)
    if pair.beta != int(pair.beta):
        touching = np.isin(left, pair.kinks) | np.isin(right, pair.kinks)
        best[:, touching] = _log_lipschitz_error(pair, left[touching], right[touching], tilts, omega)
    best[:, ~touching] = _log_ellipse_error(pair, left[~touching], right[~touching], tilts, omega)
    return np.minimum(best, _log_whole(pair, left, right, tilts))


def _log_whole(pair: ShiftPair, left: Array, right: Array, tilts: Tilts) -> Array:
    """The trivial bound, twice the panel's integral of |f|: panels that hold nothing need no resolution."""
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


def _log_ellipse_error(pair: ShiftPair, left: Array, right: Array, tilts: Tilts, omega: float) -> Array:
    """The theorem's bound, the better of two ellipses, each shrunk where it would reach a kink."""
    panels = len(left)
    centre, half = np.tile(0.5 * (left + right), 2), np.tile(0.5 * (right - left), 2)
    rho = np.repeat(_ELLIPSES, panels)
    if pair.beta != int(pair.beta):
        nearest = np.min([np.abs(centre - kink) for kink in pair.kinks], axis=0) / half
        rho = np.minimum(rho, 0.98 * (nearest + np.sqrt(np.maximum(nearest**2 - 1.0, 0.0))))
    rho = np.maximum(rho, 1.001)
    rim = centre[:, None] + 0.5 * half[:, None] * (rho[:, None] * _RIM + _RIM.conj() / rho[:, None])
    reach = half * 0.5 * (rho + 1.0 / rho)
    gap = reach * (0.5 * math.pi / (len(_RIM) - 1))  # to the nearest rim point, along the rim
    base, up, down, odds_up, odds_down = _on_rim(pair, rim, centre)
    pulls = _Pulls.on(pair, centre, reach, gap, odds_up.real.max(axis=1), odds_down.real.max(axis=1))
    fixed = math.log(8.0) - pair.log_normalizer + np.log(half) - (2 * NODES_PER_PANEL - 1) * np.log(rho) - np.log(rho - 1.0)
    if pair.rate < 1.0:  # log r must stay analytic: |Im l| <= pi/2 keeps 1 - rate + rate e^l in the right half plane
        for odds, slope in ((odds_up, pulls.odds_up), (odds_down, pulls.odds_down)):
            fixed = np.where(np.abs(odds.imag).max(axis=1) + gap * slope > 0.5 * math.pi, np.inf, fixed)
    swing = np.abs((up - down).imag)
    rows = []
    for theta, frequency in zip(tilts, _frequencies(tilts, omega), strict=True):
        log_modulus = ((1.0 + theta) * up.real - theta * down.real - base.real + frequency * swing).max(axis=1)
        rows.append(fixed + log_modulus + gap * pulls.slope(theta, frequency))
    return np.stack(rows).reshape(len(tilts), 2, panels).min(axis=1)


def _on_rim(pair: ShiftPair, rim: Complex, centre: Array) -> tuple[Complex, Complex, Complex, Complex, Complex]:
    """z^beta, log r_up, log r_down and the log odds of both shifts at complex points, continued from the real panel."""

    def power(kink: float) -> Complex:
        moved = np.where(centre > kink, 1.0, -1.0)[:, None] * (rim - kink)
        if pair.beta == 2.0:
            return moved * moved
        return np.asarray(np.exp(pair.beta * np.log(np.where(moved == 0.0, 1e-300, moved))))

    def mixture(odds: Complex) -> Complex:
        if pair.rate == 1.0:
            return odds
        high = odds.real > 0.0
        flipped = np.exp(np.where(high, -odds, odds))
        one, other = np.where(high, pair.rate, 1.0 - pair.rate), np.where(high, 1.0 - pair.rate, pair.rate)
        return np.asarray(np.log(one + other * flipped) + np.where(high, odds, 0.0))

    base = power(0.0)
    zero = np.zeros_like(base)
    odds_up = base - power(pair.up) if pair.up else zero
    odds_down = base - power(pair.down) if pair.down else zero
    return base, mixture(odds_up) if pair.up else zero, mixture(odds_down) if pair.down else zero, odds_up, odds_down


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
        highest_up: Array | None = None,
        highest_down: Array | None = None,
    ) -> "_Pulls":
        """Bounds over discs of radius `reach`; `highest` is the largest Re l at points `gap` apart on their rims.

        While |Im l| <= pi/2, |1-rate+rate e^l| is at least each of its parts: |share| <= min(1, rate e^(Re l)/(1-rate)).
        """
        base = pair.beta * (np.abs(centre) + reach) ** (pair.beta - 1.0)
        odds, pulls = [], []
        for shift, highest in ((pair.up, highest_up), (pair.down, highest_down)):
            slope = _odds_slope_bound(pair, centre, reach, shift)
            odds.append(slope)
            if pair.rate < 1.0 and shift and gap is not None and highest is not None:
                slope = slope * np.minimum(1.0, pair.rate / (1.0 - pair.rate) * np.exp(np.minimum(highest + gap * slope, 700.0)))
            pulls.append(slope)
        return _Pulls(base, pulls[0], pulls[1], odds[0], odds[1])


def _odds_slope_bound(pair: ShiftPair, centre: Array, reach: Array, shift: float) -> Array:
    """sup |d/dz log_odds| over the disc of radius `reach` around `centre`.

    Either by the two powers apart, or, where 0 and the shift lie on the same side, as an integral of the second
    derivative beta (beta-1) t^(beta-2) over a segment of length |shift|.
    """
    if shift == 0.0:
        return np.zeros_like(centre)
    beta = pair.beta
    to_zero, to_shift = np.abs(centre), np.abs(centre - shift)
    apart = beta * ((to_zero + reach) ** (beta - 1.0) + (to_shift + reach) ** (beta - 1.0))
    farthest = np.maximum(to_zero, to_shift) + reach
    nearest = np.maximum(np.minimum(to_zero, to_shift) - reach, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        curvature = beta * (beta - 1.0) * (farthest if beta >= 2.0 else nearest) ** (beta - 2.0)
    same_side = (centre - reach > max(0.0, shift)) | (centre + reach < min(0.0, shift))
    return np.where(same_side, np.minimum(apart, abs(shift) * curvature), apart)
