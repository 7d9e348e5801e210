# SPDX-License-Identifier: Apache-2.0
"""What a run of PATE cost on the votes it saw (Papernot et al. 2018, "Scalable Private Learning with PATE").

Their Theorem 6: let a mechanism have Renyi divergence at most e1 at order m1 and e2 at order m2 between any
two neighbours, and let it miss its likeliest outcome on D with probability at most q. Then for orders a <= m1

    (a - 1) D_a(M(D) || M(D')) <= log( (1 - q) A^(a-1) + q B^(a-1) ),
    A = (1 - q) / (1 - (q e^e2)^(1 - 1/m2)),    B = e^e1 / q^(1/(m1 - 1)),

where q e^e2 < 1, and the right side grows with q while q <= e^((m2-1) e2) / ((m1/(m1-1)) (m2/(m2-1)))^m2. The
proof uses only the two divergences and q. So it holds for noise of every exponent, with the divergences of a
count that moves by one (`shift_divergence`). A replaced voter moves two counts, which costs twice as much; a
threshold check sees the largest count move by one. The m1 that makes B least and the m2 that makes A least do
not depend on a; both are searched on a grid of orders.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from ggdp import arguments
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import Adjacency
from ggdp.numerics import Array
from ggdp.privacy_loss.renyi_divergence import gains
from ggdp.selection.argmax import NoisyArgmax, histograms_from
from ggdp.selection.win_probability import log_plurality_loss

CAVEAT = (
    "This epsilon was computed from the votes and is itself private data: do not publish it, nor decide "
    "anything public by it, without smooth sensitivity (Papernot et al. 2018, Section B)."
)

ORDERS: Array = 1.0 + np.geomspace(0.05, 399.0, 300)
"""Orders at which the whole run is charged, evenly spaced in log(order - 1)."""

_HIGH_ORDERS: Array = 1.0 + np.geomspace(0.05, 2e4 - 1.0, 500)
"""Orders m1 and m2 of the theorem."""

_LARGEST_GAIN = 1e6
"""(order - 1) times a divergence from which on an order is of no use and counts as infinite."""

_TOGETHER = 25
"""Orders that share their quadrature: near ones, whose integrands lie in the same place."""


class Analysis(StrEnum):
    """How a query is charged.

    `EXACT`: q by quadrature, m1 and m2 searched, the conversion of Balle et al. 2020 (Theorem 21). Any beta.
    `PUBLISHED`: the analysis of 2018 to the letter, for Gaussian noise: q by a union bound (Proposition 7),
    m1 and m2 in closed form (Proposition 10), and epsilon = divergence + log(1/delta) / (order - 1).
    """

    EXACT = "exact"
    PUBLISHED = "published"


@dataclass(frozen=True)
class DataDependentEpsilon:
    """An epsilon that holds for one set of votes, and is itself PRIVATE DATA. See `caveat`.

    It is neither `Bounds` nor `Estimate`, so that nothing which expects a publishable number accepts it. It
    bounds how well anyone can tell the actual votes D from a neighbour's D', in the direction (M(D), M(D')).

    Attributes:
        value: epsilon.
        delta: at which delta.
        order: the Renyi order that gave it.
        answered: how many argmax releases were charged; an expectation if charged by probability.
        analysis: how each query was charged.
        caveat: why it must not be published.
    """

    value: float
    delta: float
    order: float
    answered: float
    analysis: Analysis
    caveat: str = CAVEAT


def data_dependent_epsilon(
    votes: NDArray[np.generic],
    noise: GeneralizedGaussian,
    *,
    delta: float,
    threshold: float | None = None,
    threshold_noise: GeneralizedGaussian | None = None,
    answered: NDArray[np.generic] | None = None,
    adjacency: Adjacency = Adjacency.REPLACE,
    analysis: Analysis = Analysis.EXACT,
) -> DataDependentEpsilon:
    """Epsilon of noisy votes on these histograms, threshold checks included. The answer is private data.

    Args:
        votes: histograms, [queries, classes].
        noise: on each count, for the argmax.
        delta: in (0, 1).
        threshold: the check's threshold, with `threshold_noise`; without them every query is answered.
        threshold_noise: on the largest count, for the check. Every query is charged for its check.
        answered: which queries were answered, one truth value each. Left out, each is charged in proportion
            to its probability of passing the check: the expected cost, as published.
        adjacency: REPLACE if a voter may change its vote.
        analysis: see `Analysis`.

    Raises:
        ValueError: an argument is out of range, or `PUBLISHED` is asked for noise that is not Gaussian.
    """
    histograms = histograms_from("votes", votes)
    delta = arguments.real("delta", delta, above=0.0, below=1.0)
    _check_pair(threshold, threshold_noise)
    analysis = Analysis(analysis)
    if analysis is Analysis.PUBLISHED and not noise.beta == 2.0 == (threshold_noise or noise).beta:
        raise ValueError("analysis must be 'exact' where the noise is not Gaussian, got 'published'")
    total = np.zeros_like(ORDERS)
    weights = np.ones(len(histograms))
    if threshold is not None and threshold_noise is not None:
        log_pass = threshold_noise.logsf(threshold - histograms.max(axis=1))
        total += _charged(_log_rarer(log_pass), threshold_noise, 1, analysis, np.ones(len(histograms)))
        weights = np.exp(log_pass)
    if answered is not None:
        weights = _mask(answered, len(histograms))
    moved = NoisyArgmax(noise, adjacency).counts_moved
    charged = weights > 0.0
    log_q = _log_q(histograms[charged], noise, analysis)
    total += _charged(log_q, noise, moved, analysis, weights[charged])
    values = _converted(total, delta, analysis)
    best = int(np.argmin(values))
    value = max(float(values[best]), 0.0)
    return DataDependentEpsilon(value, delta, float(ORDERS[best]), float(weights.sum()), analysis)


def shift_divergence(noise: GeneralizedGaussian, orders: Array) -> Array:
    """The Renyi divergence between a noise and the same noise moved by one, for each order > 1.

    Guarantees:
        Relative error at most 1e-10; infinite where that cannot be proved, or where the divergence is beyond
        use: a weaker promise, never a wrong one.

    >>> from ggdp import Gaussian
    >>> shift_divergence(Gaussian(std=2.0), np.array([3.0])).round(9).tolist()  # order / (2 std^2)
    [0.375]
    """
    near = np.array_split(orders, math.ceil(len(orders) / _TOGETHER))
    found = [gains(noise.beta, some, 1.0 / noise.scale, _LARGEST_GAIN) for some in near]
    return np.asarray(np.concatenate(found) / (orders - 1.0))


def theorem6(log_q: Array, orders: Array, m1: Array, e1: Array, m2: Array, e2: Array) -> Array:
    """The theorem's bound of D_a for each log q (rows) and order a (columns); infinite where it says nothing.

    `m1`, `e1`, `m2` and `e2` belong to the rows.
    """
    q, m1, e1, m2, e2 = (np.asarray(column)[:, None] for column in (log_q, m1, e1, m2, e2))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
        rises = q <= (m2 - 1.0) * e2 - m2 * (np.log1p(1.0 / (m1 - 1.0)) + np.log1p(1.0 / (m2 - 1.0)))
        holds = rises & (orders < m1) & (m2 > 1.0) & (q + e2 < 0.0)
        log_stay = _log1mexp(q)
        log_a = log_stay - _log1mexp((q + e2) * (1.0 - 1.0 / m2))
        log_b = e1 - q / (m1 - 1.0)
        power = orders - 1.0
        bound = np.logaddexp(log_stay + power * log_a, q + power * log_b) / power
    bound = np.where(np.isneginf(q), 0.0, np.where(holds, bound, np.inf))
    return np.asarray(bound)


def _charged(
    log_q: Array, noise: GeneralizedGaussian, moved: int, analysis: Analysis, weights: Array
) -> Array:
    """The divergence of all queries at ORDERS: each the better of Theorem 6 and the data-independent one."""
    distinct, back = np.unique(log_q, return_inverse=True)
    counts = np.bincount(back.reshape(-1), weights, minlength=len(distinct))
    plain = moved * shift_divergence(noise, ORDERS)
    chosen = _published_orders if analysis is Analysis.PUBLISHED else _searched_orders
    bound = theorem6(distinct, ORDERS, *chosen(distinct, noise, moved))
    return np.asarray(counts @ np.minimum(bound, plain))


def _published_orders(
    log_q: Array, noise: GeneralizedGaussian, moved: int
) -> tuple[Array, Array, Array, Array]:
    """Proposition 10: m2 = sigma sqrt(log 1/q), m1 = m2 + 1, for Gaussian noise of divergence m / sigma^2."""
    per_order = moved / noise.scale**2
    m2 = np.sqrt(np.maximum(-log_q, 0.0) / per_order)
    with np.errstate(invalid="ignore"):
        return m2 + 1.0, (m2 + 1.0) * per_order, m2, m2 * per_order


def _searched_orders(
    log_q: Array, noise: GeneralizedGaussian, moved: int
) -> tuple[Array, Array, Array, Array]:
    """The m1 with the least B and the m2 with the least A, among a grid; each row by itself."""
    divergences = moved * shift_divergence(noise, _HIGH_ORDERS)
    first, second = np.zeros(len(log_q), dtype=np.intp), np.zeros(len(log_q), dtype=np.intp)
    for row, q in enumerate(np.maximum(log_q, -1e6)):
        first[row] = np.argmin(divergences - q / (_HIGH_ORDERS - 1.0))
        second[row] = np.argmin((q + divergences) * (1.0 - 1.0 / _HIGH_ORDERS))
    return _HIGH_ORDERS[first], divergences[first], _HIGH_ORDERS[second], divergences[second]


def _log_q(histograms: Array, noise: GeneralizedGaussian, analysis: Analysis) -> Array:
    """Log of (a bound of) the probability that the plurality does not win."""
    if len(histograms) == 0:
        return np.zeros(0)
    if analysis is Analysis.EXACT:
        return log_plurality_loss(histograms, noise)
    num_classes = histograms.shape[1]
    if num_classes == 1:
        return np.full(len(histograms), -np.inf)
    ranked = -np.sort(-histograms, axis=1)
    # Proposition 7: the difference of two Gaussians has standard deviation sqrt(2) std = scale.
    pairwise = log_ndtr((ranked[:, 1:] - ranked[:, :1]) / noise.scale)
    return np.asarray(np.minimum(np.logaddexp.reduce(pairwise, axis=1), math.log1p(-1.0 / num_classes)))


def _converted(divergence: Array, delta: float, analysis: Analysis) -> Array:
    if analysis is Analysis.PUBLISHED:
        return np.asarray(divergence - math.log(delta) / (ORDERS - 1.0))
    gain = np.log1p(-1.0 / ORDERS) - np.log(ORDERS) / (ORDERS - 1.0)
    return np.asarray(divergence + gain - math.log(delta) / (ORDERS - 1.0))


def _log_rarer(log_prob: Array) -> Array:
    """Log of the smaller of p and 1 - p."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(log_prob, _log1mexp(log_prob)))


def _log1mexp(log_prob: Array) -> Array:
    """log(1 - p) from log p <= 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        near_one = np.log(-np.expm1(log_prob))
        return np.asarray(np.where(log_prob > -math.log(2.0), near_one, np.log1p(-np.exp(log_prob))))


def _mask(answered: NDArray[np.generic], num_queries: int) -> Array:
    mask = np.asarray(answered)
    if mask.shape != (num_queries,) or mask.dtype != np.bool_:
        raise ValueError(
            f"answered must be one truth value for each of {num_queries} queries, "
            f"got shape {mask.shape} of {mask.dtype}"
        )
    return mask.astype(np.float64)


def _check_pair(threshold: float | None, threshold_noise: GeneralizedGaussian | None) -> None:
    if (threshold is None) != (threshold_noise is None):
        raise ValueError(
            "threshold and threshold_noise must be given together or not at all, "
            f"got {threshold!r} and {threshold_noise!r}"
        )
