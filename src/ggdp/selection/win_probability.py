# SPDX-License-Identifier: Apache-2.0
"""How likely each class wins a noisy vote, by quadrature: no trials, no sampling error.

With counts c_1, ..., c_n and independent noise of density f and distribution function F,

    P(i wins) = integral of f(x - c_i) * prod over j != i of F(x - c_j) dx.

Lengths are measured in units of the noise's scale, from the largest count: u = (x - max c) / scale, and class
j lies at -g_j with g_j = (max c - c_j) / scale >= 0. Below u = -R the largest count's own F is smaller than
1e-18, above u = R every density is, so [-R, R] holds all of every integral to 1e-16.

For beta that is not an even whole number f is not smooth at 0. The panels of each histogram therefore end at
its counts, and nodes crowd towards the ends of a panel (t -> t^3 (10 - 15 t + 6 t^2)), which turns the
|u|^beta of a kink into |t|^(3 beta).

Density and tail at so many points come from a table (`TabulatedLaw`). With a = 1/beta and y = u^beta the tail
is Q(a, y) / 2, and both halves of the table are smooth functions of y:

    y < 1:   Q(a, y) = 1 - u h(y),      h entire (DLMF 8.7.1),
    y >= 1:  Q(a, y) = exp(-y) w(y),    w slowly falling (DLMF 8.11.2).

Each is a polynomial of degree 5 on cells of width 1/32, through Chebyshev points: relative error below 1e-11,
and 1e-13 where beta <= 2.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gamma, gammainc

from ggdp.distributions import GeneralizedGaussian, gamma_tail
from ggdp.numerics import Array
from ggdp.selection.argmax import histograms_from

_NODES = 20
_LOG_NEGLIGIBLE = 41.0
"""exp(-41) = 1.6e-18: where a density or a tail is left out."""

_STEEPEST = 8.0
"""Most that an exponent |u|^beta changes over a panel: 20 nodes then integrate its exponential to 1e-14."""

_WIDEST = 2.0
_CHUNK = 1 << 21
"""Most values of F held at once, whatever the number of histograms."""

_CRUDE_LOG = -50.0
"""A chance of losing below exp(-50) is only bounded; no accountant can tell it from zero."""

_CELLS = 32
_DEGREE = 5
_MIDDLE = 1.0
_END = 140.0
"""Of the table. Beyond, w is taken as at the end: it is larger than the truth there, by a factor below
y / 140."""


def win_probabilities(counts: ArrayLike, noise: GeneralizedGaussian) -> Array:
    """The probability that each class has the largest noisy count, in the shape of `counts`.

    Guarantees:
        1. Absolute error at most 1e-10, for every beta in [1, 8]; tests hold it against mpmath.
        2. Equal rows have equal answers, and a permutation of the classes permutes the answer.

    Args:
        counts: Votes for each class, shape [classes] or [queries, classes]; real numbers, finite.
        noise: The law of the noise on each count.

    >>> from ggdp import Laplace
    >>> [round(float(prob), 6) for prob in win_probabilities([3, 0], Laplace(scale=2.0))]
    [0.804761, 0.195239]
    """
    histograms = histograms_from("counts", counts)
    # A class more than 2 R behind wins with a chance below 1e-17: all such gaps are the same gap.
    gaps, order, back = _distinct_gaps(histograms, noise, 2.0 * _radius(noise.beta))
    probs = np.concatenate([_wins(chunk, noise.beta) for chunk in _chunks(gaps, noise.beta, 0.0)])
    found = np.empty_like(histograms)
    np.put_along_axis(found, order, probs[back], axis=1)
    return found[0] if np.ndim(counts) == 1 else found


def hardmax_utility(counts: ArrayLike, noise: GeneralizedGaussian) -> Array:
    """The probability that a class with the largest count wins, one number for each histogram.

    Where several classes share the largest count, any of them is right.

    >>> from ggdp import Laplace
    >>> round(float(hardmax_utility([3, 0], Laplace(scale=2.0))), 6)
    0.804761
    """
    histograms = histograms_from("counts", counts)
    probs = np.atleast_2d(win_probabilities(histograms, noise))
    best = histograms == histograms.max(axis=1, keepdims=True)
    utility = np.minimum(np.sum(np.where(best, probs, 0.0), axis=1), 1.0)
    return np.asarray(utility[0] if np.ndim(counts) == 1 else utility)[()]


def evaluations(histograms: Array, noise: GeneralizedGaussian) -> float:
    """How many values of the noise's law `win_probabilities` computes, each some 40 nanoseconds."""
    gaps, _, _ = _distinct_gaps(histograms, noise, 2.0 * _radius(noise.beta))
    panels = float(len(gaps) * len(_mesh(-_radius(noise.beta), _radius(noise.beta), noise.beta)))
    if noise.beta % 2.0 != 0.0:
        panels += float(np.count_nonzero(np.diff(gaps, axis=1)))
    return float(panels * _NODES * gaps.shape[1])


def log_plurality_loss(counts: ArrayLike, noise: GeneralizedGaussian) -> Array:
    """Log of the probability that the first class with the largest count does not win, each histogram's own.

    It is integrated as it stands, f(u) (1 - prod F(u + g_j)), so that it keeps its relative accuracy however
    small it is. To beat the plurality, one of two noises must span half the gap; where that bound, the sum
    over j of 2 P(noise > g_j scale / 2), is below exp(-50), the bound itself is the answer.

    Guarantees:
        1. Relative error of the probability at most 1e-9 where the bound is above exp(-50), else the bound.

    >>> from ggdp import Laplace
    >>> round(float(np.exp(log_plurality_loss([3, 0], Laplace(scale=2.0)))), 6)
    0.195239
    """
    histograms = histograms_from("counts", counts)
    gaps, _, back = _distinct_gaps(histograms, noise, np.inf)
    if gaps.shape[1] == 1:
        losses = np.full(len(gaps), -np.inf)
    else:
        unit = GeneralizedGaussian(noise.beta, 1.0)
        losses = np.log(2.0) + np.logaddexp.reduce(unit.logsf(gaps[:, 1:] / 2.0), axis=1)
        exact = np.flatnonzero(losses > _CRUDE_LOG)
        # alike in range, so that chunks waste little
        exact = exact[np.argsort(gaps[exact, 1], kind="stable")]
        done = 0
        for chunk in _chunks(gaps[exact], noise.beta, gaps[exact, 1].max(initial=0.0)):
            losses[exact[done : done + len(chunk)]] = _log_losses(chunk, noise.beta)
            done += len(chunk)
    found = losses[back]
    return np.asarray(found[0] if np.ndim(counts) == 1 else found)[()]


def _distinct_gaps(
    histograms: Array, noise: GeneralizedGaussian, most: float
) -> tuple[Array, NDArray[np.intp], NDArray[np.intp]]:
    """Scaled gaps to the largest count in rising order, each row once; the sorting; and where a row went.

    Votes of many teachers repeat themselves: only the gaps matter, not which class has them.
    """
    order = np.argsort(-histograms, axis=1, kind="stable")
    ranked = np.take_along_axis(histograms, order, axis=1)
    scaled = np.minimum((ranked[:, :1] - ranked) / noise.scale, most)
    gaps, back = np.unique(scaled, axis=0, return_inverse=True)
    return gaps, order, back.reshape(-1)


def _chunks(gaps: Array, beta: float, gap: float) -> list[Array]:
    panels = len(_mesh(_left_end(gap, beta), _radius(beta), beta)) + gaps.shape[1]
    rows = max(1, _CHUNK // (panels * _NODES * gaps.shape[1]))
    return [gaps[start : start + rows] for start in range(0, len(gaps), rows)]


def _radius(beta: float) -> float:
    return math.pow(_LOG_NEGLIGIBLE, 1.0 / beta)


def _left_end(gap: float, beta: float) -> float:
    """Left of it f is below 1e-18 of the chance that a runner-up at this gap wins.

    That chance is at least P(noise > gap / 2)^2, whose exponent is 2 (gap / 2)^beta.
    """
    return -math.pow(2.0 * math.pow(gap / 2.0, beta) + _LOG_NEGLIGIBLE, 1.0 / beta)


def _mesh(low: float, high: float, beta: float) -> Array:
    """Ends of panels over [low, high], narrow where |u|^beta is steep."""
    steepest = beta * max(-low, high) ** (beta - 1.0)
    width = min(_WIDEST if beta > 1.0 else 2.0 * _WIDEST, _STEEPEST / steepest)
    return np.linspace(low, high, 1 + max(2, math.ceil((high - low) / width)))


def _nodes(gaps: Array, low: float, beta: float) -> tuple[Array, Array]:
    """Nodes and weights of each row, [rows, nodes], from low to R; panels end where the row's counts lie."""
    plain = _mesh(low, _radius(beta), beta)
    mesh = np.broadcast_to(plain, (len(gaps), len(plain)))
    t, weight = np.polynomial.legendre.leggauss(_NODES)
    t, weight = 0.5 * (t + 1.0), 0.5 * weight
    if beta % 2.0 != 0.0:
        mesh = np.sort(np.concatenate([mesh, np.maximum(-gaps, low)], axis=1), axis=1)
        t, weight = t**3 * (10.0 + t * (6.0 * t - 15.0)), weight * 30.0 * (t * (1.0 - t)) ** 2
    widths = np.diff(mesh, axis=1)[:, :, None]
    shape = (len(gaps), -1)
    return (mesh[:, :-1, None] + widths * t).reshape(shape), (widths * weight).reshape(shape)


def _wins(gaps: Array, beta: float) -> Array:
    """P(j wins) for each class j of each row, [rows, classes]."""
    u, weight = _nodes(gaps, -_radius(beta), beta)
    rows, columns = np.nonzero(weight)
    u, weight = u[rows, columns], weight[rows, columns]  # panels between equal counts have no width
    law = tabulated(beta)
    all_below = np.ones_like(u)
    ratios = []
    for j in range(gaps.shape[1]):
        position = u + gaps[rows, j]
        density, beyond = law.density_and_tail(np.abs(position))
        below = np.where(position < 0.0, beyond, 1.0 - beyond)  # never zero, for u + g >= u >= -R
        all_below *= below
        ratios.append(density / below)
    all_below *= weight
    wins = [np.bincount(rows, ratio * all_below, minlength=len(gaps)) for ratio in ratios]
    return np.minimum(np.stack(wins, axis=1), 1.0)


def _log_losses(gaps: Array, beta: float) -> Array:
    """Log of the chance that class 0 of each row loses; rows are alike in their runner-up's gap."""
    u, weight = _nodes(gaps, _left_end(float(gaps[:, 1].max()), beta), beta)
    rows, columns = np.nonzero(weight)
    u, weight = u[rows, columns], weight[rows, columns]
    law = tabulated(beta)
    lost, kept = np.zeros_like(u), np.ones_like(u)
    for j in range(1, gaps.shape[1]):
        # 1 - prod F is the sum over j of (1 - F_j) prod over k < j of F_k: nothing cancels.
        position = u + gaps[rows, j]
        _, beyond = law.density_and_tail(np.abs(position))
        ahead = position < 0.0
        lost += kept * np.where(ahead, 1.0 - beyond, beyond)
        kept *= np.where(ahead, beyond, 1.0 - beyond)
    density, _ = law.density_and_tail(np.abs(u))
    with np.errstate(under="ignore"):
        return np.asarray(np.log(np.bincount(rows, density * lost * weight, minlength=len(gaps))))


@dataclass(frozen=True, eq=False)
class TabulatedLaw:
    """The law with density exp(-|u|^beta) / (2 Gamma(1 + 1/beta)); build it with `tabulated`."""

    beta: float
    table: tuple[Array, ...]

    def density_and_tail(self, distance: Array) -> tuple[Array, Array]:
        """f(u) and P(noise > u) at u = distance >= 0."""
        normaliser = 2.0 * gamma(1.0 + 1.0 / self.beta)
        with np.errstate(under="ignore", over="ignore"):
            y = distance**self.beta if self.beta != 1.0 else distance
            decay = np.exp(-y)
            if self.beta == 1.0:
                return 0.5 * decay, 0.5 * decay
            smooth = self._smooth(y)
            tail = np.where(y < _MIDDLE, 0.5 - distance * smooth, decay * smooth)
        return decay / normaliser, tail

    def _smooth(self, y: Array) -> Array:
        """h(y) / 2 below the middle, w(y) / 2 above it."""
        position = np.minimum(y, _END - 0.5 / _CELLS) * _CELLS
        cell = position.astype(np.intp)
        position -= cell
        value = self.table[-1][cell]
        for coefficient in self.table[-2::-1]:
            value *= position
            value += coefficient[cell]
        return value


@functools.lru_cache(maxsize=64)
def tabulated(beta: float) -> TabulatedLaw:
    """The table of one exponent, in [1, 64]."""
    if beta == 1.0:
        return TabulatedLaw(beta, ())
    a = 1.0 / beta
    nodes = 0.5 - 0.5 * np.cos(math.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
    starts = np.arange(int(_END * _CELLS))
    y = (starts[:, None] + nodes) / _CELLS
    near = 0.5 * gammainc(a, y) / y**a
    far = 0.5 * np.exp(gamma_tail.log_upper(a, y) + y)
    values = np.where(y < _MIDDLE, near, far)
    coefficients = values @ np.linalg.inv(np.vander(nodes, increasing=True)).T
    return TabulatedLaw(beta, tuple(np.ascontiguousarray(column) for column in coefficients.T))
