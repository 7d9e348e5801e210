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

**Replacing a sampled record** is removing one and adding another. With M = (1-q) R + q N(u) and M' = (1-q) R
+ q N(v), R the law without either, Hoelder's inequality gives for any 0 < t < 1, with a' = 1 + (a-1)/(1-t),

    gain_a(M || M') = log E_R[(M/R)^a (M'/R)^(1-a)] <= t gain_{a/t}(M || R) + (1-t) gain_{a'}(R || M').    (2)

The addition has small moments of every order, since y = M'/R >= 1 - q: there y^-n <= 1 - n (y-1) + c (y-1)^2
with the c that makes them equal at 1-q, so that

    e^{gain_{n+1}(R || M')} <= 1 + ((1-q)^-n - 1 - n q) (e^{g_2} - 1).                                    (3)

By joint convexity e^{gain_a(M || M')} is also at most 1 - q + q e^g, g the gain of N(u) against N(v).
"""

import math
from dataclasses import replace

import numpy as np

from ggdp import arguments
from ggdp.accounting.bounds import Bounds
from ggdp.accounting.steps import NoiseStep, Steps, Vote, steps_of
from ggdp.accounting.vectors.explicit_shifts import one_coordinate
from ggdp.mechanisms import AdditiveNoise, Adjacency, Mechanism
from ggdp.numerics import Array
from ggdp.privacy_loss.dominating import Sizes, worst_shift
from ggdp.privacy_loss.renyi_divergence import LARGEST_GAIN, PROVED_ERROR, SLACK, gains, sampled_gain
from ggdp.privacy_loss.worst_split import ORDERS, known_gains, worst_gains

MOST_ORDER = 10_000.0
_NEXT_TO_ONE = 1.0 + 2.0**-20
_MOST_WHOLE_ORDER = 1000  # orders up to which the binomial sum is computed
_HOELDER = (1.01, 1.03, 1.07, 1.15, 1.25, 1.4, 1.7, 2.0, 2.5, 3.5, 6.0, 12.0)


def renyi_divergence(
    mechanism: Mechanism | Vote, order: float, *, adjacency: Adjacency | None = None
) -> Bounds:
    """The largest Renyi divergence of an order between the outputs on neighbouring data.

    Args:
        mechanism: what is released.
        order: in [1, 10^4], or infinity. Order 1 is the Kullback-Leibler divergence, the mean of the privacy
            loss; order infinity is the largest loss.
        adjacency: which datasets are neighbours; ADD_REMOVE if left out.

    Guarantees:
        lower <= truth <= upper. For numbers and known worst shifts, sampled or not, at every order and for
        every adjacency, the two differ by about 1e-10 relative; where that cannot be certified (gains
        beyond some 1e4, or below 1e-20), `upper` is a bound and `lower` zero. For other vectors `upper` is
        a bound and `lower` what a shift of one coordinate has. At order 1 `upper` is the divergence of
        order 1 + 2^-20, which is no smaller, and `lower` zero.

    Raises:
        ValueError: the order is out of range or too large to be computed, the loss has no largest value
            (order infinity), or the mechanism is custom.
        NoDominatingPairError: order infinity of a vector without a known worst shift.

    >>> from ggdp import AdditiveNoise, Gaussian
    >>> round(renyi_divergence(AdditiveNoise(Gaussian(std=2.0)), 8.0).estimate, 12)
    1.0
    """
    if order != math.inf:
        order = arguments.real("order", order, least=1.0, most=MOST_ORDER)
    steps = steps_of(mechanism, adjacency)
    if steps.custom or steps.below or steps.charge:
        raise ValueError(
            "mechanism must be of type AdditiveNoise here, got a custom mechanism or batches whose Renyi "
            "divergences are not computed; epsilon and delta are"
        )
    if order == math.inf:
        return _largest_loss(steps)
    if order == 1.0:
        upper = renyi_divergence(mechanism, _NEXT_TO_ONE, adjacency=adjacency).upper
        return Bounds(0.0, upper, upper, "bound")
    direction = steps.directions[0]  # removing a record costs no less than adding it
    low = high = 0.0
    for step in steps.noisy:
        below, above = _gain_bounds(step, direction, order)
        low, high = low + step.times * below, high + step.times * above
    if math.isinf(high):
        raise ValueError(
            f"order must be smaller for a divergence that can be computed, got {order:g}, at which it is "
            "above 1e5; ask for a smaller order, or add more noise"
        )
    low, high = low * (1.0 - PROVED_ERROR) / (order - 1.0), high * (1.0 + PROVED_ERROR) / (order - 1.0)
    exact = high <= low * (1.0 + 4.0 * PROVED_ERROR)
    return Bounds(low, 0.5 * (low + high) if exact else high, high, "exact" if exact else "bound")


def _largest_loss(steps: Steps) -> Bounds:
    """The divergence of order infinity: the sum of the largest losses, in the worse direction."""
    found = max(
        sum(count * pair.supremum for pair, count in steps.pairs_in(direction))
        for direction in steps.directions
    )
    if math.isinf(found):
        raise ValueError(
            "order must be finite for this mechanism, got inf: its privacy loss has no upper bound; ask for "
            f"an order in [1, {MOST_ORDER:g}]"
        )
    return Bounds(found * (1.0 - PROVED_ERROR), found, found * (1.0 + PROVED_ERROR), "largest loss")


def _gain_bounds(step: NoiseStep, direction: Adjacency, order: float) -> tuple[float, float]:
    """Gain of one release of a step at one order, from below and from above."""
    worst = step.worst_shift
    if worst is None:
        above = _tabled(step, direction, order)
        (one,) = one_coordinate(Steps((step,), (), (direction,))).noisy
        return min(_gain_bounds(one, direction, order)[0], above), above
    if step.rate == 1.0:
        exact = float(_unsampled(step, worst.sizes, np.array([order]))[0])
        return exact, exact
    low, high = _by_quadrature(step, direction, order)
    if high <= low * (1.0 + PROVED_ERROR):
        return low, high
    top = math.ceil(order)
    if direction is Adjacency.REPLACE or top > _MOST_WHOLE_ORDER:
        above = _tabled(step, direction, order)
        return min(low, above), min(high, above)
    inner = _unsampled(step, worst.sizes, np.arange(2.0, top + 1.0))
    above = amplified(inner, top, step.rate)
    if top == order and direction is not Adjacency.ADD:
        return above, above
    below = amplified(inner, top - 1, step.rate) if top > 2 else 0.0
    share = order - (top - 1.0)
    chord = (1.0 - share) * below + share * above
    return min(low, chord), min(high, chord)


def _unsampled(step: NoiseStep, sizes: Sizes, orders: Array) -> Array:
    found = [count * gains(step.noise.noise.beta, orders, size, math.inf) for size, count in sizes]
    return np.asarray(np.sum(found, axis=0))


def _tabled(step: NoiseStep, direction: Adjacency, order: float) -> float:
    """An upper bound by chords between the orders of the list."""
    table = sampled_gains(*worst_step(step, direction))
    return float(np.interp(order, [1.0, *ORDERS], [0.0, *table], right=math.inf))


def _by_quadrature(step: NoiseStep, direction: Adjacency, order: float) -> tuple[float, float]:
    """Bounds by the integral over the dominating pair; anything, where it cannot be certified.

    That pair's shift is one that the step allows, so its gain is the largest one.
    """
    ((pair, _),) = step.pairs(direction)
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow gives no certified value
            return sampled_gain(pair, order)
    except ArithmeticError:
        return 0.0, math.inf


def worst_step_gains(noise: AdditiveNoise, rate: float) -> Array:
    """An upper bound, at each of `ORDERS`, of the gain of one release before sampling, whatever the record
    and the direction."""
    worst = worst_shift(noise, rate)
    unit = noise.sensitivity / noise.noise.scale
    if worst is not None:
        return known_gains(noise.noise.beta, worst.sizes)
    if noise.shift is not None:
        return known_gains(
            noise.noise.beta, tuple((abs(value) * unit, count) for value, count in noise.shift if value)
        )
    return worst_gains(noise.noise.beta, unit, noise.p, float(noise.dimension))


def worst_step(step: NoiseStep, direction: Adjacency) -> tuple[Array, float]:
    """An upper bound of a step's gain at `ORDERS`, and the rate at which it is still to be sampled."""
    gains_of_either = worst_step_gains(step.noise, step.rate)
    if step.rate == 1.0 or direction is not Adjacency.REPLACE:
        return gains_of_either, step.rate
    apart = replace(step.noise, sensitivity=2.0 * step.noise.sensitivity)  # the shift between the two records
    either = replaced_gains(gains_of_either, step.rate)
    return np.minimum(either, _mixed(worst_step_gains(apart, 1.0), step.rate)), 1.0


def replaced_gains(unsampled: Array, rate: float) -> Array:
    """(2) at `ORDERS`, at the best of a few t, from upper bounds of the gains of either record against none.

    t = a / (1 + k (a-1)) makes the two orders 1 + k (a-1) and 1 + (1 + k (a-1)) / (k-1): for k = 2 they are
    2a - 1 and 2a.
    """
    either = sampled_gains(unsampled, rate)
    usable = np.isfinite(either)
    corners, values = [1.0, *ORDERS[usable]], [0.0, *either[usable]]
    second = float(unsampled[np.searchsorted(ORDERS, 2.0)])
    best = np.full(len(ORDERS), np.inf)
    for k in _HOELDER:
        first = 1.0 + k * (ORDERS - 1.0)
        share = ORDERS / first
        removed = np.interp(first, corners, values, right=np.inf)
        last = 1.0 + first / (k - 1.0)
        added = np.minimum(np.interp(last, corners, values, right=np.inf), _added(second, last, rate))
        best = np.minimum(best, share * removed + (1.0 - share) * added)
    return np.asarray(best * (1.0 + SLACK))


def _added(second: float, orders: Array, rate: float) -> Array:
    """(3), from the gain of order two before sampling."""
    with np.errstate(over="ignore"):
        rise = np.expm1(-(orders - 1.0) * math.log1p(-rate)) - (orders - 1.0) * rate
        return (
            np.log1p(np.maximum(rise, 0.0) * math.expm1(second)) if second < LARGEST_GAIN else rise + np.inf
        )


def sampled_gains(unsampled: Array, rate: float) -> Array:
    """Gains after sampling at `ORDERS`, from upper bounds before it.

    (1) at whole orders and chords between them; or, where that is less, 1 - q + q e^{g_a}, which bounds
    E[(1 - q + q x)^a] by convexity at every real order and helps below order two when g_2 is large.
    """
    if rate == 1.0:
        return unsampled
    usable = np.isfinite(unsampled)
    convex = _mixed(unsampled, rate)
    whole = (np.mod(ORDERS, 1.0) == 0.0) & usable
    if not np.any(whole):
        return convex
    top = int(ORDERS[whole][-1])
    inner = np.interp(np.arange(2.0, top + 1.0), ORDERS[usable], unsampled[usable])
    at_whole = [amplified(inner, int(order), rate) for order in ORDERS[whole]]
    between = np.interp(ORDERS, [1.0, *ORDERS[whole]], [0.0, *at_whole])
    return np.asarray(np.minimum(np.where(top >= ORDERS, between, np.inf) * (1.0 + SLACK), convex))


def _mixed(unsampled: Array, rate: float) -> Array:
    """log(1 - q + q e^g), rounded up."""
    usable = np.isfinite(unsampled)
    with np.errstate(over="ignore"):
        mixed = np.log1p(rate * np.expm1(np.where(usable, unsampled, 0.0)))
    return np.where(usable, mixed * (1.0 + SLACK), np.inf)


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
    if math.isinf(peak):
        return max(peak, 0.0)
    return float(np.logaddexp(0.0, peak + math.log(float(np.exp(terms - peak).sum()))))
