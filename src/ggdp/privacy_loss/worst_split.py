# SPDX-License-Identifier: Apache-2.0
"""How a shift may be spread over coordinates, and the most Renyi divergence that any spreading has.

Let gain_a(m) be that of one coordinate (`renyi_divergence`), s the largest shift in the l_p norm, d the
dimension. The gain of a vector is the sum over its coordinates, so what is wanted is

    W = sup of sum gain_a(m_i)  subject to  sum (m_i / s)^p <= 1,    i = 1..d.

For any price x >= 0, with c(x) = sup over m in [0, s] of gain_a(m) - x (m/s)^p (which is >= 0, take m = 0),

    W  <=  sum (x (m_i/s)^p + c(x))  <=  x + d c(x).                              (1)

The best price makes (1) equal d E(1/d), E the upper concave envelope of u -> gain_a(s u^(1/p)). Any price is
valid, so nothing about the search for it has to be trusted; c(x) alone does. gain_a is convex in m (it is the
logarithm of an integral of functions log-convex in m) and zero at zero. Hence it lies below its chords: on
each cell of a grid of m, alpha + gamma m - x (m/s)^p is concave and its largest value has a closed form. Near
zero, where chords would be too crude for d = infinity,

    gain_a(m) <= a (a-1)/2 F m^2   for m <= m_1,    F = E[ w(y)^2 sinhc(a m_1 w(y) / 2)^2 ],               (2)

y of density proportional to e^{-|y|^beta} and w(y) a bound of |l|/m for all m <= m_1: in the notation of
`renyi_divergence` sqrt(p q) <= that density by convexity of |y|^beta, and |l| <= m beta |y|^(beta-1) for beta
<= 2, because the slope of |y|^beta is concave for y > 0 and odd; for beta > 2 it is convex, and its mean over
[y-h, y+h] grows with h. docs/vector-releases.md has the proofs in full;
tests/privacy_loss/test_worst_split.py tries splits against the bound.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ggdp.distributions.gamma_tail import upper
from ggdp.numerics import Array
from ggdp.privacy_loss.cells import Cells
from ggdp.privacy_loss.renyi_divergence import SLACK, gains

_FRACTIONS = (1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.65, 1.8, 2.25, 2.5, 2.75, 3.5, 4.5, 5.5)
_EVERY_ORDER_TO = 48
_MOST_ORDER = 60_000.0
_GROWTH = 1.12  # ratio of neighbouring orders beyond those
_LARGEST_SHIFT = 80.0
_SPACING = 0.1  # spacing of the grid of log shifts; chords are too high by at most 0.1%
_SMALL = 0.01  # order times shift up to which (2) is used
_SUMS = 2**15  # number of values of a sum of rounded log-likelihood ratios
_MASS_ERROR = 1e-13  # error of the mass of a cell
_SMALLEST_GROUP = 1e-7  # probability up to which neighbouring sums are put into one cell
_CELLS = 20_001  # cells of the integral F for beta above 2


def _order_list() -> Array:
    orders = list(range(2, _EVERY_ORDER_TO + 1))
    while orders[-1] < _MOST_ORDER:
        orders.append(math.ceil(orders[-1] * _GROWTH))
    return np.sort(np.array([*_FRACTIONS, *orders], dtype=np.float64))


ORDERS = _order_list()
_SHIFTS = (
    _LARGEST_SHIFT
    * np.exp(
        -_SPACING * np.arange(math.ceil(math.log(_LARGEST_SHIFT * _MOST_ORDER * 2.0 / _SMALL) / _SPACING))
    )[::-1]
)


def worst_gains(beta: float, shift: float, p: float, dimension: float) -> Array:
    """An upper bound, for each of `ORDERS`, of the gain of any vector whose l_p norm is at most `shift`.

    Guarantees:
        Valid for every split over at most `dimension` coordinates; non-decreasing in the dimension, and
        bounded in it for p <= 2. Infinite where an order is of no use, and everywhere for p > 2 and infinite
        dimension.
    """
    one = one_coordinate(beta, shift)
    if dimension == 1 or p == 1.0:  # the gain is convex and 0 at 0: in the l_1 norm no split has a larger one
        return _raised(one)
    if math.isinf(p):
        return _raised(one * dimension)
    bounds = np.full(len(ORDERS), np.inf)
    for index in np.flatnonzero(np.isfinite(one)):
        # one coordinate is one of the splits, so that only rounding can make the bound smaller
        bounds[index] = max(_worst(beta, int(index), shift, p, dimension), float(one[index]))
    return _raised(bounds)


def known_gains(beta: float, shifts: tuple[tuple[float, int], ...]) -> Array:
    """The gain, for each of `ORDERS`, of a vector of known shifts given as pairs (size, count); rounded
    up."""
    return _raised(np.sum([count * one_coordinate(beta, size) for size, count in shifts], axis=0))


@lru_cache(maxsize=512)
def one_coordinate(beta: float, shift: float) -> Array:
    """gain_a(shift) for each of `ORDERS`."""
    found = gains(beta, ORDERS, shift)
    found.setflags(write=False)
    return found


@lru_cache(maxsize=64)
def equal_split(beta: float, each: float, count: int) -> Cells:
    """A discrete pair that is dominated by a shift of `count` coordinates by `each`.

    It is the pair of laws of a function of the noisy vector: the sum of its rounded log-likelihood ratios,
    modulo a large number.

    Each coordinate's noise is put into a cell, the log-likelihood ratio of the cell rounded to a multiple of
    a spacing; the laws of the sum are powers of a discrete Fourier transform. Their errors come from the
    cells' masses (survival functions, with errors of 1e-13) and from the transform (6 units per level), both
    raised to the power `count`. Sums that are too rare to be known are dropped, which lowers the pair.
    """
    reach = np.concatenate([np.linspace(0.0, 1.2, 121)[1:], np.linspace(1.25, 7.0, 60)]) ** max(
        2.0 / beta, 1.0
    )
    edges = np.concatenate([-reach[::-1], [0.0], reach]) + 0.5 * each
    still, moved = _cell_masses(beta, edges), _cell_masses(beta, edges - each)
    ratio = np.log(np.maximum(moved, 1e-300) / np.maximum(still, 1e-300))
    size, deviation = _SUMS, math.sqrt(count * float(still @ ratio**2))
    place = np.round(ratio * (size / (12.0 * deviation + 24.0))).astype(np.int64) % size
    (q, q_error), (p, p_error) = (_law_of_sum(place, mass, count, size) for mass in (still, moved))
    groups = np.floor(np.cumsum(p + q) / _SMALLEST_GROUP)
    starts = np.flatnonzero(np.diff(groups, prepend=-1.0))
    sizes = np.diff(np.append(starts, size))
    p, q = np.add.reduceat(p, starts), np.add.reduceat(q, starts)
    endless = np.full(len(p), math.inf)
    return Cells(
        np.maximum(p - sizes * p_error, 0.0),
        p + sizes * p_error,
        np.maximum(q - sizes * q_error, 0.0),
        q + sizes * q_error,
        -endless,
        endless,
    )


def _cell_masses(beta: float, edges: Array) -> Array:
    tail = 0.5 * upper(1.0 / beta, np.abs(edges) ** beta)
    below = np.where(edges < 0.0, tail, 1.0 - tail)
    above = np.where(edges < 0.0, 1.0 - tail, tail)
    inside = np.where(edges[1:] <= 0.0, np.diff(below), -np.diff(above))
    return np.asarray(np.maximum(np.concatenate([below[:1], inside, above[-1:]]), 0.0))


def _law_of_sum(place: NDArray[np.int64], mass: Array, count: int, size: int) -> tuple[Array, float]:
    """Probabilities of the sum of `count` independent places modulo `size`, and a bound on the error of each.

    The first one belongs to half a period below zero.
    """
    transform = np.fft.rfft(np.bincount(place, weights=mass, minlength=size))
    off = len(mass) * _MASS_ERROR + 6.0 * math.log2(size) * 2.0**-53
    growth = count * np.log1p(off / np.maximum(np.abs(transform), 1e-300))
    modulus = np.minimum(np.abs(transform), 1.0) ** count
    error = np.where(growth < 1.0, modulus * np.expm1(np.minimum(growth, 1.0)), 1.0)
    with np.errstate(under="ignore"):
        large = np.exp(np.minimum(count * np.log(np.abs(transform) + off), 0.0))
    error = np.where(growth < 1.0, error, large) + modulus * (6.0 * math.log2(size) + 8.0 * count) * 2.0**-53
    law = np.maximum(np.fft.irfft(transform**count, size), 0.0)
    return np.roll(law, size // 2), 2.0 * float(error.sum()) / size


def _raised(values: Array) -> Array:
    return np.asarray(values * (1.0 + SLACK))


_FIRST = np.array([int(np.searchsorted(_SHIFTS, _SMALL / order, side="right")) - 1 for order in ORDERS])


_BLOCK = 16  # orders are tabulated in blocks, as many as a question needs


@lru_cache(maxsize=8192)
def _column(beta: float, index: int, orders: int) -> Array:
    """The gains, at one shift of the grid, of those of the first orders for which it is not too small."""
    found = np.full(orders, np.nan)
    wanted = index >= _FIRST[:orders]
    found[wanted] = gains(beta, ORDERS[:orders][wanted], float(_SHIFTS[index]))
    found.setflags(write=False)
    return found


@lru_cache(maxsize=64)
def _table(beta: float, columns: int, orders: int) -> Array:
    """The columns of all shifts side by side, with a row for each of the first orders."""
    found = np.stack([_column(beta, index, orders) for index in range(columns)], axis=1)
    found.setflags(write=False)
    return found


@lru_cache(maxsize=64)
def _information(beta: float) -> float:
    """F of (2), rounded up; for a m_1 -> 0 it is the Fisher information of the noise."""
    return (_information_by_series(beta) if beta <= 2.0 else _information_by_chords(beta)) * (1.0 + SLACK)


def _information_by_series(beta: float) -> float:
    """F for w = beta |y|^(beta-1).

    sinhc(t)^2 is the sum of 2^(2k+1) t^(2k) / (2k+2)!, and E|y|^s = Gamma((s+1)/beta) / Gamma(1/beta). A term
    is less than 2 t_0^2 / (2k+3) times the one before, t_0 = beta _SMALL / 2: the sixth is below rounding.
    """
    log_swing = math.log(0.5 * _SMALL * beta)
    return beta**2 * math.fsum(
        math.exp(
            (2 * k + 1) * math.log(2.0)
            + 2 * k * log_swing
            - math.lgamma(2 * k + 3)
            + math.lgamma(((2 * k + 2) * (beta - 1.0) + 1.0) / beta)
            - math.lgamma(1.0 / beta)
        )
        for k in range(6)
    )


def _information_by_chords(beta: float) -> float:
    """F for the mean slope w over [y-h, y+h], y >= h, with h = _SMALL / 2.

    w, and with it w^2 sinhc^2, is convex in y, hence below its chords; the mass of a cell and its first
    moment are incomplete gamma functions. Below h the constant beta (2h)^(beta-1) bounds w; beyond the last
    cell nothing is left but e^-700 times a power.
    """
    half = 0.5 * _SMALL
    edges = np.linspace(half, 700.0 ** (1.0 / beta), _CELLS)
    mass = -np.diff(upper(1.0 / beta, edges**beta))
    moment = -np.diff(upper(2.0 / beta, edges**beta)) * math.exp(
        math.lgamma(2.0 / beta) - math.lgamma(1.0 / beta)
    )
    worth = _worth(((edges + half) ** beta - (edges - half) ** beta) / (2.0 * half))
    slope = np.diff(worth) / np.diff(edges)
    inside = float(np.sum((worth[:-1] - slope * edges[:-1]) * mass + slope * moment))
    below = 1.0 - float(upper(1.0 / beta, np.array([half**beta]))[0])
    return inside + below * float(_worth(np.array(beta * (2.0 * half) ** (beta - 1.0))))


def _worth(pull: Array) -> Array:
    """w^2 sinhc(a m_1 w / 2)^2."""
    swing = 0.5 * _SMALL * pull
    return np.asarray((pull * np.sinh(swing) / swing) ** 2)


@lru_cache(maxsize=100_000)
def _worst(beta: float, index: int, shift: float, p: float, dimension: float) -> float:
    """The bound (1) for one order, at the best of a list of prices that does not depend on the dimension."""
    cells = _Cells.of(beta, index, shift)
    bound = math.inf
    if p <= 2.0:  # the price at which the bound holds for infinitely many coordinates too
        bound = cells.highest_ratio(p)
        if math.isinf(dimension):
            return bound
    elif math.isinf(dimension):
        return math.inf
    prices = cells.prices(p)
    return min(bound, float(np.min(prices + dimension * cells.surplus(prices, p))))


@dataclass(frozen=True)
class _Cells:
    """Upper bounds of one order's gain over [0, largest]: quadratic up to `edge[0]`, then chords between the
    edges."""

    edge: Array
    gain: Array
    quadratic: float

    @staticmethod
    def of(beta: float, index: int, largest: float) -> "_Cells":
        columns = int(np.searchsorted(_SHIFTS, largest * (1.0 - 1e-9)))
        usable = int(np.isfinite(one_coordinate(beta, largest)).sum())
        rows = min(-(-usable // _BLOCK) * _BLOCK, len(ORDERS))
        row = _table(beta, columns, rows)[index, _FIRST[index] :]
        edge = np.append(_SHIFTS[_FIRST[index] : columns], largest)
        gain = np.append(row, one_coordinate(beta, largest)[index])
        order = float(ORDERS[index])
        return _Cells(edge, gain, 0.5 * order * (order - 1.0) * _information(beta))

    @property
    def _chords(self) -> tuple[Array, Array]:
        """(alpha, gamma) of alpha + gamma m on each cell."""
        gamma = np.diff(self.gain) / np.diff(self.edge)
        return self.gain[:-1] - gamma * self.edge[:-1], gamma

    def prices(self, p: float) -> Array:
        """Slopes of the gain against (m/s)^p: between the edges, and in the quadratic part."""
        share = (self.edge / self.edge[-1]) ** p
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            slopes = np.diff(self.gain) / np.diff(share)
            prices = np.concatenate([[0.0], slopes])
            if p > 2.0:
                tiny = self.edge[0] * np.geomspace(1e-9, 1.0, 181)
                near = 2.0 / p * self.quadratic * tiny**2 / (tiny / self.edge[-1]) ** p
                prices = np.concatenate([prices, near])
        return np.asarray(prices[np.isfinite(prices)])

    def surplus(self, prices: Array, p: float) -> Array:
        """c(x) of (1) for each price x."""
        largest = self.edge[-1]
        alpha, gamma = self._chords
        price = prices[:, None]
        with np.errstate(divide="ignore", over="ignore"):
            at = largest * (gamma * largest / (p * price)) ** (1.0 / (p - 1.0))
            at = np.clip(at, self.edge[:-1], self.edge[1:])
            inside = np.max(alpha + gamma * at - price * (at / largest) ** p, axis=1, initial=0.0)
            first = self.edge[0]
            at_zero = np.full(len(prices), first)
            if p > 2.0:
                steep = 2.0 * self.quadratic * largest**2 / (p * prices)
                at_zero = np.minimum(largest * steep ** (1.0 / (p - 2.0)), first)
            near = self.quadratic * at_zero**2 - prices * (at_zero / largest) ** p
        return np.asarray(np.maximum(inside, np.maximum(near, 0.0)))

    def highest_ratio(self, p: float) -> float:
        """sup of gain / (m/s)^p for p <= 2."""
        largest, first = self.edge[-1], self.edge[0]
        near = self.quadratic * first ** (2.0 - p) * largest**p
        if len(self.edge) == 1:
            return float(near)
        alpha, gamma = self._chords
        at = np.clip(-p * alpha / ((p - 1.0) * gamma), self.edge[:-1], self.edge[1:])
        return float(max(near, np.max((alpha + gamma * at) * (largest / at) ** p)))
