# SPDX-License-Identifier: Apache-2.0
"""The privacy loss of spherical noise, as certified cells of two coordinates: docs/spherical-noise.md.

The noise has the density C |x|^-c exp(-|x|^beta) on R^d, d >= 2, 0 <= c <= d - 1, in units of its scale; P is
the noise moved by a vector of length m, Q the noise itself. Let r and s be the distances of an outcome from
the centres of Q and of P. The loss is L = r^beta - s^beta + c log(r/s). In the elliptic coordinates

    r = m/2 (cosh xi + sin phi),    s = m/2 (cosh xi - sin phi),    xi >= 0,  |phi| <= pi/2,

Q has the density F(xi, phi), proportional to

    (sinh xi cos phi)^(d-2) (sinh^2 xi + cos^2 phi) r^-c exp(-r^beta),

and P has F(xi, -phi). The plane of coordinates is cut into rectangles. On each of them

- either part of the loss is monotone in both coordinates, so that its corners bound it;
- the mass is that of a Gauss-Legendre rule, two or four nodes along xi and two along phi, with an error that
  is proved: F is analytic around the rectangle's centre, and bounded on a polydisc there by its logarithm's
  Taylor polynomial of first order and bounds on the second derivatives, so that Cauchy's estimate bounds all
  terms that the rule does not integrate exactly.

Masses are divided by their sum. Rectangles of nearly equal loss are put together. What lies outside of all
rectangles is bounded by Chernoff's bound for the radius and by the area of a cap of the sphere.

Any grid gives valid bounds; a poor one gives wide ones.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ggdp import arguments
from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.cells import Cells

BETA = arguments.Range("beta", least=1.0, most=32.0, typical=(1.0, 4.0))
LENGTH = arguments.Range("sensitivity / scale", least=1e-6, most=1e6, typical=(0.01, 10.0))

_MOST_LOSS = 4000.0
_FAR = 310.0  # the probability of everything outside of the grid is below e^-310
_BULK = 45.0  # the grid is fine where probabilities are above e^-45
_LOW_BULK = 20.0  # the same for small radii, where losses are small
_COARSER = 8.0  # how many times larger rectangles are outside of this bulk
_ANGLES = 800  # rectangles in one half of the bulk of angles
_FEW = 20  # dimension below which the grid is long along xi
_RADII, _MOST_RADII = 150, 3000  # rectangles along the bulk of xi, usually and at most
_LOSS_STEP = 1e-3  # largest relative change of the loss over a rectangle, along xi
_GROUPS = 2000  # groups of rectangles while the loss grows by its typical size, or by a factor e beyond
_ENOUGH = 1 << 20  # rectangles in one half of the angles
_KINDS = 6  # kinds of groups: narrow rectangles are not grouped with wide ones, which are rare
_BLOCK = 1 << 18  # rectangles that are treated at once
_AT_POLE = 1e-8  # value of 1 - sin phi / cosh xi below which, near a pole, the loss counts as infinite
_AT_POLES = 1e-16  # probability of losses that count as infinite because of the poles
_KEPT = 1e-120  # a probability above that of everything outside of the grid
_NEGLIGIBLE = 1e-290  # masses below this share of the largest one may have lost digits to underflow
_SKETCH = ((64, 400), (160, 300))  # nodes along xi and along one half of the angles, for estimates alone
_RULES = {n: np.polynomial.legendre.leggauss(n) for n in (2, 4)}


@dataclass(frozen=True)
class _Pair:
    """Noise of exponent beta on R^dimension moved by `length` scales, its density times |x|^-pole."""

    beta: float
    dimension: int
    length: float
    pole: float = 0.0

    @property
    def nodes(self) -> int:
        """Number of nodes along xi: two if rectangles are narrow because of the loss, else four."""
        return 2 if self.dimension < _FEW and self.beta > 1.4 else 4

    @property
    def shape(self) -> float:
        """r^beta has a Gamma law of this shape."""
        return (self.dimension - self.pole) / self.beta


@dataclass(frozen=True)
class _Grid:
    """Edges in xi, as differences from `centre`; and in phi, symmetric about zero, which is one of them."""

    centre: float
    steps: Array
    angles: Array
    outside: float  # bound on the probability, under P and under Q, of everything outside


def spherical_cells(beta: float, dimension: int, length: float, pole: float = 0.0) -> Cells:
    """Cells of noise with density proportional to |x|^-pole exp(-|x|^beta) moved by `length`, d >= 2."""
    pair = _Pair(beta, dimension, length, pole)
    _check_loss(pair)
    grid = _grid(pair)
    peak = _peak(pair, grid)
    typical = max(_typical_loss(pair), 1e-300)
    per_size = _GROUPS * _refinement(grid.steps)
    groups = 2 * int(per_size * math.asinh(1e3)) + 1
    q_low, q_high, p_low, p_high = np.zeros((4, _KINDS * groups))
    count = np.zeros(_KINDS * groups)
    loss_low, loss_high = np.full(_KINDS * groups, math.inf), np.full(_KINDS * groups, -math.inf)
    rows = max(_BLOCK // (len(grid.angles) - 1), 1)
    for start in range(0, len(grid.steps) - 1, rows):
        steps = grid.steps[start : start + rows + 1]
        low, high = _masses(pair, grid.centre, steps, grid.angles, peak)
        smallest, largest = _losses(pair, grid.centre, steps, grid.angles)
        place = per_size * np.arcsinh(0.5 * (smallest + largest) / typical)
        room = np.hypot(smallest + largest, 2.0 * typical) / per_size  # two groups wide
        with np.errstate(invalid="ignore"):  # losses are unbounded next to a pole
            kind = np.clip(np.ceil(np.log2((largest - smallest) / room)), 0.0, _KINDS - 1.0)
        kind = np.where(np.isfinite(room), kind, _KINDS - 1.0)
        index = np.clip(np.rint(place) + groups // 2, 0.0, groups - 1.0) + groups * kind
        index = index.astype(np.int64).ravel()
        for total, mass in ((q_low, low), (q_high, high), (p_low, low[:, ::-1]), (p_high, high[:, ::-1])):
            total += np.bincount(index, weights=mass.ravel(), minlength=_KINDS * groups)
        count += np.bincount(index, minlength=_KINDS * groups)
        np.minimum.at(loss_low, index, smallest.ravel())
        np.maximum.at(loss_high, index, largest.ravel())
    there = loss_low <= loss_high
    sums = 2.0 * UNIT_ROUNDOFF * (64.0 + float(count.max()))  # rounding of the sums, term by term
    least, most = float(q_low.sum()), float(q_high.sum())
    if not 0.0 < least <= most < math.inf:
        raise CannotCertifyError(_too_large(pair))
    shrink, stretch = (1.0 - sums) * (1.0 - grid.outside) / most, (1.0 + sums) / least
    found = Cells(
        np.append(p_low[there] * shrink, 0.0),
        np.append(p_high[there] * stretch, grid.outside),
        np.append(q_low[there] * shrink, 0.0),
        np.append(q_high[there] * stretch, grid.outside),
        np.append(loss_low[there], -math.inf),
        np.append(loss_high[there], math.inf),
    )
    if pole:
        return _cut_at_poles(found)
    return within(found, length) if beta == 1.0 else found


_legendre = lru_cache(np.polynomial.legendre.leggauss)  # of many nodes it takes longer than all the rest


def sketch(beta: float, dimension: int, length: float, pole: float = 0.0) -> Cells:
    """An approximation of `spherical_cells` by the nodes of one quadrature rule, some fifty times faster.

    It proves nothing: for plans and estimates alone.
    """
    pair = _Pair(beta, dimension, length, pole)
    _check_loss(pair)
    ends = [_gamma_end(pair.shape, _BULK, side) ** (1.0 / beta) for side in (-1, 1)]
    first, last = (
        _angle_of((2.0 * r + side * length) / length) for r, side in zip(ends, (-1, 1), strict=True)
    )
    centre = _angle_of(max(2.0 * pair.shape ** (1.0 / beta), 1.5 * length) / length)
    (x, x_share), (y, y_share) = (_legendre(n) for n in _SKETCH[dimension < _FEW])
    steps = 0.5 * (first + last) - centre + 0.5 * (last - first) * x
    half = 0.5 * _angles(pair, ends[0], ends[0])[0] * (1.0 + y)
    phi, shares = np.concatenate([-half[::-1], half]), np.concatenate([y_share[::-1], y_share])
    log_sinh, log_cosh, cosh = (part[:, None] for part in _radial(centre, steps))
    middle = _middle(pair, centre)
    growth = middle * np.expm1(beta * log_cosh)
    leans = [np.log1p(side * np.sin(phi) / cosh) for side in (1.0, -1.0)]
    far, near = ((middle + growth) * np.expm1(beta * lean) for lean in leans)
    exponent = (dimension - 2.0) * (log_sinh + np.log(np.cos(phi))) - growth - far
    exponent = exponent - pole * (log_cosh + leans[0])
    area = np.sinh(centre + steps)[:, None] ** 2 + np.cos(phi) ** 2
    with np.errstate(under="ignore"):
        q = x_share[:, None] * shares * area * np.exp(exponent - exponent.max())
        q /= q.sum()
        loss = far - near + pole * (leans[0] - leans[1])
        p = np.exp(np.minimum(np.log(np.maximum(q, 1e-300)) + loss, 0.0))
    return Cells(*(part.ravel() for part in (p, p, q, q, loss, loss)))


def _cut_at_poles(cells: Cells) -> Cells:
    """The same cells, with the rarest losses, next to the two poles, made infinite.

    Otherwise exponential moments of high orders, which a composition needs, would not exist.
    """
    high, low = cells.loss_high.copy(), cells.loss_low.copy()
    for loss, mass, end in ((high, cells.p_high, math.inf), (low, cells.q_high, -math.inf)):
        order = np.argsort(-loss if end > 0.0 else loss)
        loss[order[np.cumsum(mass[order]) <= _AT_POLES]] = end
    return Cells(cells.p_low, cells.p_high, cells.q_low, cells.q_high, low, high)


def within(cells: Cells, largest: float) -> Cells:
    """The same cells, if |loss| is known to be at most `largest`; the last cell is for everything outside.

    The last cell's masses are raised, since a largest loss of very small mass would be taken as infinite.
    """
    largest *= 1.0 + 4.0 * UNIT_ROUNDOFF
    raised = np.zeros_like(cells.p_high)
    raised[-1] = _KEPT
    return Cells(
        cells.p_low,
        cells.p_high + raised,
        cells.q_low,
        cells.q_high + raised,
        np.clip(cells.loss_low, -largest, largest),
        np.clip(cells.loss_high, -largest, largest),
    )


def _check_loss(pair: _Pair) -> None:
    """Raise an error for losses far above the largest epsilon that is computed."""
    radius = pair.shape ** (1.0 / pair.beta)
    with np.errstate(over="ignore"):
        mean = np.hypot(radius, pair.length) ** np.float64(pair.beta) - pair.shape
    if not mean <= _MOST_LOSS:
        raise CannotCertifyError(_too_large(pair))


def _too_large(pair: _Pair) -> str:
    return (
        f"sensitivity / scale must be smaller for spherical noise of beta={pair.beta:g} in dimension "
        f"{pair.dimension}, got {pair.length:g}: losses lie beyond what can be certified; use a larger scale"
    )


# --- the grid; of it only `outside` is certified


def _grid(pair: _Pair) -> _Grid:
    """Fine over the bulk of radius and angle, coarse beyond, with enough covered that `outside` is small."""
    a, m = pair.shape, pair.length
    bulk, far = (
        [_gamma_end(a, depth, side) ** (1.0 / pair.beta) for depth, side in zip(depths, (-1, 1), strict=True)]
        for depths in ((_LOW_BULK, _BULK), (_FAR, _FAR))
    )
    # u = r + s lies in [2r - m, 2r + m], and cosh xi = u / m
    first, second, third, last = (
        _angle_of((2.0 * r + side * m) / m)
        for r, side in ((far[0], -1), (bulk[0], -1), (bulk[1], 1), (far[1], 1))
    )
    centre = _angle_of(max(2.0 * a ** (1.0 / pair.beta), 1.5 * m) / m)
    spread = 1.0 / math.sqrt(pair.beta * pair.dimension)
    few = pair.dimension < _FEW
    loss_step = (2.0 if few else 1.0) * _LOSS_STEP / max(pair.beta - 1.0, 1e-9)
    loss_step = max(loss_step, (third - second) / _MOST_RADII)
    width = min(spread * (0.02 if few else 0.12), loss_step, (third - second) / _RADII)
    steps = _graded(first - centre, second - centre, third - centre, last - centre, width, spread)
    near, end, beyond = _angles(pair, bulk[0], far[0])
    finer = _refinement(steps)
    fine = np.linspace(0.0, near, _ANGLES * finer + 1)
    coarse = near + np.arange(1, math.ceil((end - near) / (fine[1] * _COARSER)) + 1) * fine[1] * _COARSER
    half = np.append(fine[fine < end * (1.0 - 1e-9)], np.append(coarse[coarse < end * (1.0 - 1e-9)], end))
    outside = 2.0 * math.exp(-_FAR) + beyond
    return _Grid(centre, steps, np.concatenate([-half[:0:-1], half]), outside * (1.0 + 1e-6))


def _refinement(steps: Array) -> int:
    """By how many times the number of angles is raised if few radii are needed."""
    return int(min(max(_ENOUGH // (len(steps) * _ANGLES), 1), 8))


def _graded(first: float, second: float, third: float, last: float, width: float, spread: float) -> Array:
    """Edges `width` apart between second and third, and up to `_COARSER` widths apart beyond."""
    fine = np.linspace(second, third, math.ceil((third - second) / width) + 1)
    wide = min(_COARSER * width, 0.15 * spread)
    below, above = (
        np.linspace(low, high, math.ceil((high - low) / wide) + 1) if high > low else np.array([low])
        for low, high in ((first, second), (third, last))
    )
    return np.concatenate([below[:-1], fine, above[1:]])


def _angle_of(cosh: float) -> float:
    return math.acosh(max(cosh, 1.0))


def _gamma_end(shape: float, depth: float, side: int) -> float:
    """y on a side of the shape a where y - a - a log(y/a) = depth; by Chernoff's bound the Gamma law of shape
    a has a probability below e^-depth beyond.
    """
    low, high = (shape, 4.0 * (shape + depth)) if side > 0 else (0.0, shape)
    for _ in range(200):
        middle = 0.5 * (low + high)
        inside = middle > 0.0 and middle - shape - shape * math.log(middle / shape) < depth
        low, high = (middle, high) if inside == (side > 0) else (low, middle)
    return high * (1.0 + 1e-12) if side > 0 else low * (1.0 - 1e-12)


def _angles(pair: _Pair, small_radius: float, least_radius: float) -> tuple[float, float, float]:
    """Ends of the bulk and of the grid, and a bound on the probability of what lies beyond.

    Where sin phi > x the angle to the shift has a cosine above x; where sin phi < -x, below m/(2r) - x. A cap
    with a cosine above y >= 0 has at most the share (1 - y^2)^((d-1)/2) / 2 of the sphere.
    """
    power = 0.5 * (pair.dimension - 1)
    ends = []
    for depth, radius in ((_BULK, small_radius), (_FAR + 1.0, least_radius)):
        lean = pair.length / (2.0 * radius) if radius > 0.0 else math.inf
        sine = math.sqrt(-math.expm1(-depth / power)) + lean
        ends.append(math.asin(sine) if sine < 0.999 else 0.5 * math.pi)
    return ends[0], ends[1], (0.0 if ends[1] == 0.5 * math.pi else math.exp(-_FAR))


def _typical_loss(pair: _Pair) -> float:
    y = max(pair.shape, 0.5)
    lever = pair.beta * y ** ((pair.beta - 1.0) / pair.beta)
    return float(pair.length * lever / math.sqrt(pair.dimension) + pair.length**pair.beta * 1e-3)


# --- masses and losses of rectangles


def _radial(centre: float, step: Array) -> tuple[Array, Array, Array]:
    """At xi = centre + step: log sinh xi and log cosh xi less those at the centre, and cosh xi.

    Near the centre by the differences themselves, since they are multiplied by the dimension.
    """
    small, turn = 2.0 * np.sinh(0.5 * step) ** 2, np.sinh(step)
    far = step < -0.5
    xi = np.where(far, centre + step, 1.0)
    logs = []
    with np.errstate(divide="ignore"):
        for function, slope in ((np.sinh, 1.0 / math.tanh(centre)), (np.cosh, math.tanh(centre))):
            near = np.log1p(np.where(far, 0.0, small + turn * slope))
            logs.append(np.where(far, np.log(function(xi)) - math.log(function(centre)), near))
    return logs[0], logs[1], np.maximum(math.cosh(centre) * np.exp(logs[1]), 1.0)


def _middle(pair: _Pair, centre: float) -> float:
    return float((0.5 * pair.length * math.cosh(centre)) ** pair.beta)


def _peak(pair: _Pair, grid: _Grid) -> float:
    """About the largest exponent that occurs, from some of the grid's points."""
    k, beta = pair.dimension - 2.0, pair.beta
    steps, angles = (edges[:: max(len(edges) // 256, 1)] for edges in (grid.steps, grid.angles))
    log_sinh, log_cosh, cosh = (part[1:, None] for part in _radial(grid.centre, steps))
    middle = _middle(pair, grid.centre)
    growth = middle * np.expm1(beta * log_cosh)
    inner = angles[np.abs(angles) < 0.5 * math.pi]
    lean = np.log1p(np.sin(inner) / cosh)
    tilt = (middle + growth) * np.expm1(beta * lean) + pair.pole * (log_cosh + lean)
    return float((k * (log_sinh + np.log(np.cos(inner))) - growth - tilt).max())


def _masses(pair: _Pair, centre: float, steps: Array, angles: Array, peak: float) -> tuple[Array, Array]:
    """Bounds on the Q-masses of rectangles, up to one common factor."""
    beta, k = pair.beta, pair.dimension - 2.0
    half_step, half_angle = 0.5 * np.diff(steps), 0.5 * np.diff(angles)
    mid_step, mid_angle = steps[:-1] + half_step, angles[:-1] + half_angle
    middle, unit = _middle(pair, centre), 1.0 / math.cosh(centre)
    mean = np.zeros((len(mid_step), len(mid_angle)))
    size = np.zeros_like(mean)
    many, few = _RULES[pair.nodes], _RULES[2][0]
    for side, share in zip(*many, strict=True):
        step = mid_step + side * half_step
        log_sinh, log_cosh, cosh = (part[:, None] for part in _radial(centre, step))
        sinh = unit * np.sinh(centre + step)[:, None]
        growth = middle * np.expm1(beta * log_cosh)
        y = middle + growth
        size = np.maximum(size, k * np.abs(log_sinh) + np.abs(growth))
        for turn in few:
            phi = mid_angle + turn * half_angle
            cosine = np.cos(phi)
            ratio = np.sin(phi) / cosh
            lean = np.log1p(ratio)
            tilt = y * np.expm1(beta * lean)
            across = k * np.log(cosine)
            size = np.maximum(size, np.abs(tilt) - across)
            if pair.pole:
                tilt = tilt + pair.pole * (log_cosh + lean)
                lost = 1.0 + np.abs(log_cosh) + np.abs(lean) + 4.0 / (1.0 + ratio)
                size = np.maximum(size, np.abs(tilt) - across + pair.pole * lost)
            with np.errstate(under="ignore"):
                value = np.exp(k * log_sinh - growth - peak + across - tilt)
                mean += share * (sinh**2 + (unit * cosine) ** 2) * value
    mass = mean * (half_step[:, None] * half_angle)
    xi = (centre + mid_step)[:, None]
    # sinh and cos lose digits where they vanish, and the double nearest to pi/2 is not pi/2
    ends = (1.0 + centre) / xi + 2.0 / np.cos(mid_angle)
    rounding = 64.0 * UNIT_ROUNDOFF * (4.0 + 2.0 * size + abs(peak) + (k + 2.0) * ends)
    error = _rule_error(pair, xi, mid_angle[None, :], half_step[:, None], half_angle[None, :])
    doubtful = ~(error < 0.5)
    low = np.where(mass > _NEGLIGIBLE, mass * np.maximum(1.0 - error, 0.0) / (1.0 + rounding), 0.0)
    with np.errstate(invalid="ignore"):
        high = mass * (1.0 + error) * (1.0 + rounding)
    if doubtful.any():
        row, column = np.nonzero(doubtful)
        most = _largest(pair, centre, steps, angles, row, column, peak)
        high[row, column] = np.fmin(high[row, column], most)
    return low, high + _NEGLIGIBLE


def _largest(
    pair: _Pair, centre: float, steps: Array, angles: Array, row: Any, column: Any, peak: float
) -> Array:
    """Bounds on masses by the largest value of every factor: each is monotone in xi and in |phi| or phi."""
    k, unit = pair.dimension - 2.0, 1.0 / math.cosh(centre)
    top, left, right = steps[row + 1], angles[column], angles[column + 1]
    inner = np.minimum(np.abs(left), np.abs(right))
    log_sinh = _radial(centre, top)[0]
    least = np.maximum((np.cosh(centre + steps[row]) + np.sin(left)) * (1.0 - 1e-12) - 1e-12, 0.0)
    factor = unit**2 * (np.sinh(centre + top) ** 2 + np.cos(inner) ** 2)
    with np.errstate(divide="ignore", under="ignore", over="ignore"):
        fall = (0.5 * pair.length * least) ** pair.beta
        log_value = k * (log_sinh + np.log(np.cos(inner))) + _middle(pair, centre) - peak - fall + 1e-6
        if pair.pole:  # at the smallest distance; next to the pole sinh xi cos phi is at most that distance
            first, rest = min(pair.pole, 1.0), max(pair.pole - 1.0, 0.0)
            far, near = (
                np.log(np.cosh(centre + top) + 1e-12 + side) for side in (np.sin(right), -np.sin(left))
            )
            beside = (2.0 - pair.pole) * math.log(unit) + (1.0 - first) * far + near
            beside -= rest * np.log(np.sinh(centre + top) * np.cos(inner))
            log_value = log_value + np.fmin(np.log(factor) - pair.pole * np.log(unit * least), beside)
            factor = np.ones(1)
        value = np.exp(log_value)
    return np.asarray(value * factor * (top - steps[row]) * (right - left) * (1.0 + 1e-6))


def _rule_error(pair: _Pair, xi: Array, phi: Array, half_xi: Array, half_phi: Array) -> Array:
    """Relative error of the rule on each rectangle; infinite where nothing is proved.

    With |F| <= M on the polydisc of radii R1 and R2 about the centre, the coefficient of x^i y^j in F is at
    most M / (R1^i R2^j). Odd powers have integral and rule zero, powers below 2n are integrated exactly by n
    nodes, and of any other power integral and rule have means in [0, h^i]. So the error of the mean value is
    at most M (t1^2n + t2^4) / ((1 - t1^2)(1 - t2^2)), t = h / R, with n nodes along xi and two along phi.
    """
    beta, k, weight = pair.beta, pair.dimension - 2.0, (0.5 * pair.length) ** pair.beta
    y = weight * np.cosh(xi) ** beta
    curvature = beta * np.maximum(pair.dimension, beta * y)
    pull = np.abs(pair.dimension - beta * y)
    to_focus = 0.1 * np.hypot(xi, 0.5 * math.pi - np.abs(phi))
    r1 = np.minimum(np.minimum(1.0 / np.sqrt(curvature), 4.0 / (pull + 1e-9)), 0.2)
    r2 = np.minimum(1.0 / math.sqrt(pair.dimension), 4.0 / (max(k - 4.0, 0.0) * np.tan(np.abs(phi)) + 1e-9))
    r2 = np.minimum(r2, 0.2)
    if np.any(r1 > to_focus) or np.any(r2 > to_focus):
        r1, r2 = np.minimum(r1, to_focus), np.minimum(r2, to_focus)
    sinh, cosh, sine, cosine = np.sinh(xi), np.cosh(xi), np.sin(phi), np.cos(phi)
    top_sinh, top_cosh = np.sinh(xi + r1), np.cosh(xi + r1)
    turned = np.cosh(r2)  # bounds |sin| and |cos| on the disc
    reach = (top_cosh - cosh) + cosine * np.sinh(r2) + np.abs(sine) * (turned - 1.0)
    a, b = cosh + sine, cosh - sine
    with np.errstate(all="ignore"):
        a_low, b_low, a_high = a - reach, b - reach, a + reach
        lead = abs(1.0 - pair.pole)
        once, twice = lead / a_low + 1.0 / b_low, lead / a_low**2 + 1.0 / b_low**2
        power = weight * beta * a_high ** (beta - 1.0)
        bend = weight * beta * (beta - 1.0) * (a_high if beta >= 2.0 else a_low) ** (beta - 2.0)
        hess_11 = top_cosh * (once + power) + top_sinh**2 * (twice + bend)
        hess_12 = top_sinh * turned * (twice + bend)
        hess_22 = turned * (once + power) + turned**2 * (twice + bend)
        pull_of_power = weight * beta * a ** (beta - 1.0)
        slope_1 = sinh * ((1.0 - pair.pole) / a + 1.0 / b - pull_of_power)
        slope_2 = cosine * ((1.0 - pair.pole) / a - 1.0 / b - pull_of_power)

        def growth(first: Array, second: Array, more_11: Array, more_22: Array) -> Array:
            linear = np.abs(first) * r1 + np.abs(second) * r2
            bent = 0.5 * (hess_11 + more_11) * r1**2 + 0.5 * (hess_22 + more_22) * r2**2
            return np.asarray(linear + bent + hess_12 * r1 * r2)

        # the powers of sinh and cos, as factors that are entire, or in the logarithm
        factors = np.log(top_sinh / sinh) + np.log((cosine * turned + np.abs(sine) * np.sinh(r2)) / cosine)
        log_m = growth(slope_1, slope_2, np.zeros(1), np.zeros(1)) + k * factors
        inside = (xi > r1) & (np.abs(phi) + r2 < 0.5 * math.pi)
        in_log = growth(
            slope_1 + k / np.tanh(xi),
            slope_2 - k * np.tan(phi),
            k / np.sinh(xi - r1) ** 2,
            k / np.cos(np.abs(phi) + r2) ** 2,
        )
        log_m = np.where(inside, np.fmin(log_m, in_log), log_m)
        t1, t2 = half_xi / r1, half_phi / r2
        # by how much the logarithm of the value at the centre may exceed that of the nodes' mean
        last_1, last_2 = _RULES[pair.nodes][0][-1] * half_xi, _RULES[2][0][-1] * half_phi
        sag = (t1**2 + t2**2) * growth(np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1))
        sag = sag + 0.5 * k * (last_1 / np.sinh(xi - last_1)) ** 2
        sag = sag + 0.5 * k * (last_2 / np.cos(np.abs(phi) + last_2)) ** 2
        error = 1.001 * np.exp(log_m + sag) * (t1 ** (2 * pair.nodes) + t2**4)
        error /= (1.0 - t1**2) * (1.0 - t2**2)
        proved = (a_low > 0.0) & (b_low > 0.0) & (t1 < 0.7) & (t2 < 0.7) & np.isfinite(error)
    return np.where(proved, error, math.inf)


def _losses(pair: _Pair, centre: float, steps: Array, angles: Array) -> tuple[Array, Array]:
    """Bounds on the losses in rectangles. r^beta - s^beta is odd and increasing in phi, for phi >= 0
    non-decreasing in xi; log(r/s) is odd and increasing in phi, for phi >= 0 decreasing in xi.
    """
    _, log_cosh, cosh = (part[:, None] for part in _radial(centre, steps))
    y = _middle(pair, centre) * np.exp(pair.beta * log_cosh)
    half = angles[len(angles) // 2 :]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sin(half) / cosh
        up, down = pair.beta * np.log1p(ratio), pair.beta * np.log1p(-np.minimum(ratio, 1.0))
        loss = y * np.where(down > -30.0, np.exp(down) * np.expm1(up - down), np.exp(up) - np.exp(down))
    slack = 1e-14 * (1.0 + pair.beta) * (1.0 + abs(centre)) * loss
    low, high = (loss - slack)[:-1, :-1], (loss + slack)[1:, 1:]
    if pair.pole:
        gap = np.maximum(1.0 - ratio, _AT_POLE)
        lean = np.log1p(ratio) - np.log(gap)
        doubt = 1e-14 * (1.0 + abs(centre)) * (lean + 1.0 / gap)
        low = low + pair.pole * np.maximum(lean - doubt, 0.0)[1:, :-1]
        high = high + pair.pole * np.where(gap > _AT_POLE, lean + doubt, math.inf)[:-1, 1:]
    return np.concatenate([-high[:, ::-1], low], axis=1), np.concatenate([-low[:, ::-1], high], axis=1)
