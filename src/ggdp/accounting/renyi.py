# SPDX-License-Identifier: Apache-2.0
"""Renyi accounting: one release, Poisson sampling, composition.

Throughout, the *gain* of order a is (a - 1) D_a. It is zero at a = 1 and convex in a (a logarithm of a moment
generating function), so that a chord between two orders bounds it from above, and gains of a composition add
up.

**Sampling** (REMOVE, whole orders; Mironov, Talwar, Zhang 2019, section 3.3). With g_k the gain of order k
before sampling,

    e^gain  =  1 + sum over k = 2..a of  binomial(a, k) (1-q)^(a-k) q^k (e^{g_k} - 1),                     (1)

increasing in each g_k: upper bounds go in, an upper bound comes out. ADD costs no more, because a reflection
exchanges the two laws (docs/renyi.md has a short proof). `renyi_conversion` leads back to epsilon and delta.
"""

import math

import numpy as np

from ggdp import arguments
from ggdp.accounting.bounds import Bounds
from ggdp.mechanisms import AdditiveNoise, Adjacency, Mechanism
from ggdp.privacy_loss.dominating import checked_steps, worst_shift
from ggdp.privacy_loss.renyi_divergence import PROVED_ERROR, SLACK, gains
from ggdp.privacy_loss.shift_pair import Array
from ggdp.privacy_loss.worst_split import ORDERS, known_gains, worst_gains

MOST_ORDER = 10_000.0


def renyi_divergence(
    mechanism: Mechanism, order: float, *, adjacency: Adjacency = Adjacency.ADD_REMOVE
) -> Bounds:
    """The largest Renyi divergence of an order > 1 between the outputs on neighbouring data.

    Args:
        mechanism: what is released.
        order: in (1, 10^4].
        adjacency: which datasets are neighbours.

    Guarantees:
        lower <= truth <= upper. For numbers and known worst shifts, at whole orders or without sampling, and
        not for ADD alone with sampling, the two differ by 1e-10 relative; elsewhere `upper` is a bound and
        `lower` that of one coordinate, or zero.

    >>> from ggdp import AdditiveNoise, Gaussian
    >>> round(renyi_divergence(AdditiveNoise(Gaussian(std=2.0)), 8.0).estimate, 12)
    1.0
    """
    order = arguments.real("order", order, above=1.0, most=MOST_ORDER)
    adjacency = Adjacency(adjacency)
    low = high = 0.0
    for step, rate, times in checked_steps(mechanism, adjacency):
        below, above = _gain_bounds(step, rate, adjacency, order)
        low, high = low + times * below, high + times * above
    if math.isinf(low):
        raise ValueError(
            f"order must be smaller for a divergence that can be computed, got {order:g}, at which it exceeds "
            "1e5; ask for a smaller order, or add more noise"
        )
    low, high = low * (1.0 - PROVED_ERROR) / (order - 1.0), high * (1.0 + PROVED_ERROR) / (order - 1.0)
    exact = high <= low * (1.0 + 4.0 * PROVED_ERROR)
    return Bounds(low, 0.5 * (low + high) if exact else high, high, "exact" if exact else "bound")


def _gain_bounds(step: AdditiveNoise, rate: float, adjacency: Adjacency, order: float) -> tuple[float, float]:
    """Gain of one step at one order, from below and from above."""
    if rate < 1.0 and adjacency is Adjacency.REPLACE:
        raise ValueError(
            "adjacency must be add-remove, add or remove for a sampled release, got replace, which the "
            "formula for sampling does not cover"
        )
    worst = worst_shift(step, rate, adjacency)
    if worst is None:
        table = sampled_gains(worst_step_gains(step, rate, adjacency), rate)
        return 0.0, float(np.interp(order, [1.0, *ORDERS], [0.0, *table]))
    sizes = worst.sizes
    if adjacency is Adjacency.REPLACE and step.dimension == 1 and step.shift is None:
        sizes = tuple((2.0 * size, count) for size, count in sizes)

    def before(orders: Array) -> Array:
        return np.asarray(
            np.sum([count * gains(step.noise.beta, orders, size, math.inf) for size, count in sizes], axis=0)
        )

    if rate == 1.0:
        exact = float(before(np.array([order]))[0])
        return exact, exact
    top = math.ceil(order)
    inner = before(np.arange(2.0, top + 1.0))
    above = amplified(inner, top, rate)
    if top == order:
        return (0.0 if adjacency is Adjacency.ADD else above), above
    below = amplified(inner, top - 1, rate) if top > 2 else 0.0
    share = order - (top - 1.0)
    return 0.0, (1.0 - share) * below + share * above


def worst_step_gains(step: AdditiveNoise, rate: float, adjacency: Adjacency) -> Array:
    """An upper bound, at each of `ORDERS`, of one step's gain before sampling, whatever the record and the
    direction."""
    worst = worst_shift(step, rate, adjacency)
    unit = step.sensitivity / step.noise.scale
    double = 2.0 if adjacency is Adjacency.REPLACE else 1.0
    if worst is not None:
        once = double if step.dimension == 1 and step.shift is None else 1.0  # the others are doubled already
        return known_gains(step.noise.beta, tuple((once * size, count) for size, count in worst.sizes))
    if step.shift is not None:
        return known_gains(
            step.noise.beta, tuple((abs(value) * unit, count) for value, count in step.shift if value)
        )
    return worst_gains(step.noise.beta, double * unit, step.p, float(step.dimension))


def sampled_gains(unsampled: Array, rate: float) -> Array:
    """Gains after sampling at `ORDERS`, from upper bounds before it.

    (1) at whole orders and chords between them; or, where that is less, 1 - q + q e^{g_a}, which bounds
    E[(1 - q + q x)^a] by convexity at every real order and helps below order two when g_2 is large.
    """
    if rate == 1.0:
        return unsampled
    usable = np.isfinite(unsampled)
    with np.errstate(over="ignore"):
        convex = np.where(usable, np.log1p(rate * np.expm1(np.where(usable, unsampled, 0.0))), np.inf)
    whole = (np.mod(ORDERS, 1.0) == 0.0) & usable
    if not np.any(whole):
        return np.asarray(convex * (1.0 + SLACK))
    top = int(ORDERS[whole][-1])
    inner = np.interp(np.arange(2.0, top + 1.0), ORDERS[usable], unsampled[usable])
    at_whole = [amplified(inner, int(order), rate) for order in ORDERS[whole]]
    between = np.interp(ORDERS, [1.0, *ORDERS[whole]], [0.0, *at_whole])
    return np.asarray(np.minimum(np.where(top >= ORDERS, between, np.inf), convex) * (1.0 + SLACK))


def amplified(inner: Array, order: int, rate: float) -> float:
    """(1) at one whole order from g_2, g_3, ... ."""
    from scipy.special import gammaln

    k = np.arange(2.0, order + 1.0)
    g = inner[: order - 1]
    log_binomial = gammaln(order + 1.0) - gammaln(k + 1.0) - gammaln(order - k + 1.0)
    with np.errstate(divide="ignore"):
        log_excess = g + np.log(-np.expm1(-g))
    terms = log_binomial + (order - k) * math.log1p(-rate) + k * math.log(rate) + log_excess
    peak = float(terms.max())
    if peak == -math.inf:
        return 0.0
    return float(np.logaddexp(0.0, peak + math.log(float(np.exp(terms - peak).sum()))))
