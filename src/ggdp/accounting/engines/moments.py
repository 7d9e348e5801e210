# SPDX-License-Identifier: Apache-2.0
"""Bounds that always exist, and are usually wide: Chernoff's inequality above, one event below.

They are used where no engine certifies its own error well enough. S is the sum of all losses, K(theta) is
log E_P[e^{theta S}].

Above, for any theta > 0, delta(eps) <= e^{K(theta) - theta eps} times the largest value of
(1 - e^-x) e^{-theta x} over x > 0. K is certified by quadrature. And releases that are (eps_i, delta_i)
private each are (sum of eps_i, sum of delta_i) private together (basic composition). This is better where
a few releases hardly ever sample the record, whose tails no tilt suits.

Below, there are three bounds, of which the largest is taken:

- delta of a composition is at least delta of any one of its releases;
- delta(eps) >= P(E) - e^eps Q(E) for the event E that some loss exceeds a number c. Where one large loss
  decides and the sum of the others hardly varies, this is close to delta for the best c;
- delta(eps) >= P(E) (1 - e^(eps - l)) for the event E that all noise exceeds a point, if l is the sum of the
  losses at this point: on E, S is at least l. This is good where losses are bounded.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ggdp.accounting.bounds import Bounds
from ggdp.accounting.engines.curve import ClosedForm
from ggdp.accounting.engines.tilt import Parts, TiltPlan
from ggdp.clock import CLOCK
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.hockey_stick import hockey_stick, log_masses, survivals, thresholds
from ggdp.privacy_loss.quadrature import NEGLIGIBLE, certified_nodes_of_all

_TILT_FACTORS = (1.0, 0.85, 0.7, 0.55, 0.4, 0.25, 0.1, 0.03, 0.01, 0.001)  # tilts tried, over the saddle's
_MOST_SINGLE = 3  # parts of which the cost of one release is computed
_MOST_PARTS = 50  # parts up to which events are tried; with more it takes too long
_MOST_ALONE = 12  # parts up to which each is asked for its own cost
_POINTS = 40  # points that are tried at once
_LOG_ZERO = -1e9  # stands for the logarithm of a mass of 0


def log_chernoff_constant(theta: float) -> float:
    """log of sup over x > 0 of (1 - e^-x) e^{-theta x}, which is theta^theta / (1 + theta)^(1 + theta)."""
    if theta <= 0.0:
        return 0.0
    # theta log(theta) - (1 + theta) log(1 + theta) would lose all digits at large theta
    one = math.log1p(1.0 / theta) if theta > 1.0 else math.log1p(theta) - math.log(theta)
    return -math.log1p(theta) - theta * one


def log_delta_above(parts: Parts, plan: TiltPlan, theta: float, epsilon: float) -> float:
    """A certified upper bound of log delta at epsilon, from the best of several tilts up to theta."""

    def bound(tilt: float, cumulant: float) -> float:
        rounding = 8.0 * UNIT_ROUNDOFF * (abs(cumulant) + tilt * epsilon + 1.0)
        return cumulant - tilt * epsilon + log_chernoff_constant(tilt) + rounding

    return min(_best_tilt(parts, plan, theta, bound), 0.0)


def epsilon_above(
    parts: Parts, plan: TiltPlan, theta: float, log_delta: float, wanted: float = math.inf
) -> float:
    """A certified upper bound of the epsilon at a delta, from the best of several tilts up to theta.

    Infinite if the plan shows that the bound would exceed `wanted`; nothing is certified then.
    """

    def bound(tilt: float, cumulant: float) -> float:
        rounding = 8.0 * UNIT_ROUNDOFF * (abs(cumulant) - log_delta + 1.0)
        return (cumulant + log_chernoff_constant(tilt) - log_delta + rounding) / tilt

    return max(_best_tilt(parts, plan, theta, bound, wanted), 0.0)


def _best_tilt(
    parts: Parts,
    plan: TiltPlan,
    theta: float,
    bound: Callable[[float, float], float],
    wanted: float = math.inf,
) -> float:
    """The certified bound at the tilt whose planned bound is best; infinite if none can be certified.

    Args:
        parts: the composition.
        plan: its rough nodes. A planned K(theta) costs little, a certified one a quadrature per part.
        theta: the largest tilt tried.
        bound: the bound that a tilt and its K(theta) give.
        wanted: a planned bound above this is not certified.
    """
    tilts = [factor * theta for factor in _TILT_FACTORS]
    planned = np.array([bound(tilt, float(plan.times @ plan.log_phis(tilt))) for tilt in tilts])
    for place in np.argsort(np.where(np.isnan(planned), math.inf, planned), kind="stable"):
        if planned[place] > wanted:
            break
        try:
            return bound(tilts[place], certified_cumulant(parts, plan, tilts[place]))
        except ArithmeticError:  # the plan was wrong there, or the tail does not fall off
            continue
    return math.inf


def certified_cumulant(parts: Parts, plan: TiltPlan, theta: float) -> float:
    """A certified upper bound of K(theta)."""
    pairs, yardsticks = [pair for pair, _ in parts], plan.log_phis(theta)[:, None]
    # the errors of all releases add up to about 1e-6 at most, far less than what Chernoff's inequality loses
    accuracy = max(-18.0 - math.log(float(plan.times.sum())), NEGLIGIBLE)
    with CLOCK.stopped():
        nodes = certified_nodes_of_all(pairs, (theta,), 0.0, yardsticks, negligible=accuracy)
    return sum(
        times * (part.log_phi[0] + part.quadrature[0] + part.roundoff[0])
        for (_, times), part in zip(parts, nodes, strict=True)
    )


def epsilon_of_each(parts: Parts, log_delta: float) -> float:
    """A certified upper bound of the epsilon at a delta by basic composition, every release with the same
    share of delta; infinite where one of them has no answer or there are too many kinds.
    """
    if len(parts) > _MOST_ALONE:
        return math.inf
    share = log_delta - math.log(sum(times for _, times in parts)) - 1e-12 * (1.0 - log_delta)
    total = 0.0
    for pair, times in parts:
        try:
            total += times * ClosedForm(pair).epsilon(share, pair.supremum).upper
        except ArithmeticError:
            return math.inf
    return total * (1.0 + 1e-12)


def log_delta_of_each(parts: Parts, epsilon: float) -> float:
    """A certified upper bound of log delta at epsilon by basic composition, every release with the same
    share of epsilon; zero where there are too many kinds.
    """
    if len(parts) > _MOST_ALONE:
        return 0.0
    share = epsilon / sum(times for _, times in parts) * (1.0 - 1e-12)
    logs = [math.log(times) + ClosedForm(pair).log_delta(share).upper for pair, times in parts]
    return min(float(np.logaddexp.reduce(logs)) + 1e-12, 0.0)


def epsilon_below(parts: Parts, plan: TiltPlan, log_delta: float) -> float:
    """A certified lower bound of the epsilon at a delta, from the best single release or the best event.

    delta >= P(E) - e^eps Q(E) for every event E, so epsilon >= log((P(E) - delta) / Q(E)). The events are
    those of the module docstring, for many numbers c and many points.
    """
    best = 0.0
    for index in _most_revealing(parts, plan, log_delta):
        curve = ClosedForm(parts[index][0])
        point = curve.start(log_delta) * (1.0 - 1e-9)
        if point > best and curve.log_delta(point).lower >= log_delta:
            best = point

    def value(event: "_SomeLossExceeds") -> Array:
        share = np.minimum(log_delta - event.log_p, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = event.log_p - event.log_q + np.log1p(-np.exp(share))
        return np.where(share < 0.0, found, -np.inf)

    return max(best, _largest(parts, plan, value, best), _epsilon_of_all_noise(parts, log_delta))


def _epsilon_of_all_noise(parts: Parts, log_delta: float) -> float:
    """A lower bound of epsilon, from the events that all noise exceeds a point: l + log(1 - delta/P).

    l is the least sum of losses on the event, P its probability, and the best event is taken.
    """

    def value(log_p: Array, least: Array) -> Array:
        share = log_delta - log_p
        return np.where(share < 0.0, least + np.log1p(-np.exp(np.minimum(share, 0.0))), -np.inf)

    return _best_of_all_noise(parts, value) * (1.0 - 1e-14)


def _log_delta_of_all_noise(parts: Parts, epsilon: float) -> float:
    """A lower bound of log delta, from the events that all noise exceeds a point: P (1 - e^(epsilon - l)).

    l and P are as in `_epsilon_of_all_noise`.
    """

    def value(log_p: Array, least: Array) -> Array:
        found = log_p + np.log(-np.expm1(np.minimum(epsilon - least, 0.0)))
        return np.where(least > epsilon, found, -np.inf)

    return _best_of_all_noise(parts, value) - 1e-12


def _best_of_all_noise(parts: Parts, value: Callable[[Array, Array], Array]) -> float:
    """The largest value of the events that all noise exceeds a point.

    Points over the whole range are tried first, then points closer and closer to the best one. `value` gets
    lower bounds of log P of the events, and of the sum of losses on them.
    """
    if len(parts) > _MOST_PARTS:
        return -math.inf
    # from points that the noise of hardly any release lies below, to points that it hardly ever all exceeds
    releases = float(sum(times for _, times in parts))
    far = np.array([700.0 ** (1.0 / pair.beta) for pair, _ in parts])
    near = np.array([(700.0 / releases) ** (1.0 / pair.beta) for pair, _ in parts])
    places, best = (
        np.concatenate([np.linspace(-1.0, 0.0, _POINTS), np.linspace(0.0, 1.0, _POINTS)[1:]]),
        -math.inf,
    )
    for _ in range(3):
        log_p, least, size = (np.zeros_like(places) for _ in range(3))
        for (pair, times), furthest, nearest in zip(parts, far, near, strict=True):
            # up to 0 all noise from `far` to `near` below the shift, then to `near` beyond it
            noise = pair.up + np.where(
                places < 0.0,
                -nearest + places * (furthest - nearest),
                (2.0 * places - 1.0) * nearest,
            )
            one_p, _, slip = log_masses(pair, noise)
            log_p += times * (one_p - slip)
            losses = times * pair.loss(noise)
            least, size = least + losses, size + np.abs(losses)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = value(log_p - 1e-14 * np.abs(log_p), least - 1e-12 * size)
        found = np.where(np.isnan(found), -np.inf, found)
        top = int(np.argmax(found))
        best = max(best, float(found[top]))
        places = np.linspace(places[max(top - 1, 0)], places[min(top + 1, len(places) - 1)], _POINTS)
    return best


def _most_revealing(parts: Parts, plan: TiltPlan, log_delta: float) -> list[int]:
    """The parts whose single release costs most, roughly."""
    if len(parts) <= _MOST_SINGLE:
        return list(range(len(parts)))
    low, high = np.zeros(len(parts)), np.full(len(parts), 2000.0)
    with np.errstate(divide="ignore"):
        for _ in range(30):
            middle = 0.5 * (low + high)
            is_above = plan.log_single_deltas(middle) > log_delta
            low, high = np.where(is_above, middle, low), np.where(is_above, high, middle)
    return [int(index) for index in np.argsort(-low, kind="stable")[:_MOST_SINGLE]]


def log_delta_below(parts: Parts, plan: TiltPlan, epsilon: float) -> float:
    """A certified lower bound of log delta at epsilon, from the best single release or the best event."""
    order = list(range(len(parts)))
    if len(parts) > _MOST_SINGLE:
        with np.errstate(divide="ignore"):
            rough = plan.log_single_deltas(np.full(len(parts), epsilon))
        order = [int(index) for index in np.argsort(-rough, kind="stable")[:_MOST_SINGLE]]
    best = max(ClosedForm(parts[index][0]).log_delta(epsilon).lower for index in order)

    def value(event: "_SomeLossExceeds") -> Array:
        ratio = epsilon + event.log_q - event.log_p
        with np.errstate(divide="ignore", invalid="ignore"):
            found = event.log_p + np.log(-np.expm1(np.minimum(ratio, 0.0)))
        return np.where(ratio < 0.0, found, -np.inf)

    if (log_complement := _log_complement(parts, epsilon)) < 0.0:
        best = max(best, math.log1p(-math.exp(log_complement)) - 1e-12)
    return max(best, _largest(parts, plan, value, epsilon), _log_delta_of_all_noise(parts, epsilon))


def is_nearly_one(parts: Parts, epsilon: float) -> bool:
    """Whether delta at epsilon is certainly above 1 - 1e-12."""
    return _log_complement(parts, epsilon) < -12.0 * math.log(10.0)


def _log_complement(parts: Parts, epsilon: float) -> float:
    """log of an upper bound of 1 - delta at epsilon.

    1 - delta is the integral of min(P, e^epsilon Q), which is at most e^(epsilon/2) times the integral of
    sqrt(PQ). That integral is a product over the releases. To bound it, only the sign of each loss is used,
    and only the most frequent parts: what is not used can only make delta larger.
    """
    log_bound = 0.5 * epsilon
    for pair, times in sorted(parts, key=lambda part: -part[1])[:_MOST_SINGLE]:
        place = thresholds(pair, np.zeros(1))[0]
        if not np.isfinite(place[0]):
            continue
        log_p, log_q, slip = (float(one[0]) for one in log_masses(pair, place))
        p, q = math.exp(min(log_p - slip, -1e-16)), math.exp(min(log_q + slip, -1e-16))
        apart = math.sqrt(p) - math.sqrt(q), math.sqrt(1.0 - q) - math.sqrt(1.0 - p)
        half = 0.5 * sum(max(one - 16.0 * UNIT_ROUNDOFF, 0.0) ** 2 for one in apart)
        log_bound += times * math.log1p(-half) * (1.0 - 1e-12)
    return log_bound + 1e-12


@dataclass(frozen=True)
class _SomeLossExceeds:
    """The events E that some loss exceeds c, one for each c.

    Attributes:
        log_p: lower bounds of log P(E).
        log_q: upper bounds of log Q(E).
    """

    log_p: Array
    log_q: Array

    @staticmethod
    def of(parts: Parts, losses: Array) -> "_SomeLossExceeds":
        none, log_q = np.zeros_like(losses), np.full_like(losses, _LOG_ZERO)
        log_sum = np.full_like(losses, _LOG_ZERO)
        for pair, times in parts:
            place = thresholds(pair, losses)[0]
            inside = np.isfinite(place)
            one_p, one_q, slip = log_masses(pair, np.where(inside, place, 0.0))
            one_p, one_q = (
                np.where(inside, one_p - slip, _LOG_ZERO),
                np.where(inside, one_q + slip, _LOG_ZERO),
            )
            log_sum = np.logaddexp(log_sum, math.log(times) + one_p)
            log_q = np.logaddexp(log_q, math.log(times) + one_q)
            none += times * np.log1p(-np.exp(np.minimum(one_p, -1e-9)))
        with np.errstate(divide="ignore"):
            many = np.log(-np.expm1(none)) - 1e-14
        # the probability that any of several rare events happens is at least their sum less its square
        few = log_sum - np.exp(np.minimum(log_sum, 0.0)) - 1e-14 * (1.0 + np.abs(log_sum))
        slip = 1e-14 * (1.0 + np.abs(log_q))
        return _SomeLossExceeds(np.where(log_sum < -30.0, few, many), log_q + slip)


def _largest(parts: Parts, plan: TiltPlan, value: Callable[[_SomeLossExceeds], Array], about: float) -> float:
    """The largest value over many c: first over the whole range, then closer and closer to the best one."""
    if len(parts) > _MOST_PARTS:
        return -math.inf
    order = np.argsort(plan.loss)
    with np.errstate(under="ignore"):
        exceeded = np.cumsum(np.exp((plan.log_mass + plan.log_times)[order])[::-1])[::-1]  # how often, about
    common = plan.loss[order][
        np.searchsorted(-exceeded, -np.geomspace(1e-12, 30.0, 40)).clip(0, len(order) - 1)
    ]
    losses = np.concatenate([np.geomspace(1e-9, 4.0, 60) * max(about, 1e-9), [about], common[common > 0.0]])
    losses = np.unique(losses)
    best = -math.inf
    for _ in range(4):
        found = np.nan_to_num(value(_SomeLossExceeds.of(parts, losses)), nan=-np.inf)
        top = int(np.argmax(found))
        best = max(best, float(found[top]))
        low, high = losses[max(top - 1, 0)], losses[min(top + 1, len(losses) - 1)]
        losses = np.linspace(low, high, 40)
    return best


def log_total_variation_above(parts: Parts) -> float:
    """log of an upper bound of delta(0), the total variation: 1 - the product of (1 - each release's)."""
    total = log_rest = 0.0
    for pair, times in parts:
        stick = hockey_stick(pair, np.zeros(1))
        one = float(stick.value[0] + stick.error[0])
        total += times * one
        log_rest += times * math.log1p(-one) if one < 1.0 else -math.inf
    return math.log(min(total, -math.expm1(log_rest)) * (1.0 + (64 + len(parts)) * UNIT_ROUNDOFF) + 1e-320)


def top_atom(parts: Parts, log_delta: float) -> Bounds | None:
    """Certified epsilon for Laplace noise, if delta is small enough; None otherwise.

    The loss of Laplace noise takes its largest value with positive probability. Let p be the probability that
    all losses are largest, and s their sum then. Then delta(eps) >= p (1 - e^(eps - s)), and delta(s) = 0. So
    for a delta below p, epsilon lies in [s + log(1 - delta/p), s]. This interval is about delta/p wide.
    """
    if any(pair.beta != 1.0 or math.isfinite(pair.cut) for pair, _ in parts):
        return None
    log_mass = 0.0
    for pair, times in parts:
        up, _, still = survivals(pair, pair.up)
        log_mass += times * math.log((1.0 - pair.rate) * still + pair.rate * up)
    share = log_delta - log_mass * (1.0 + 1e-12) + 1e-12
    if share >= 0.0:
        return None
    total = math.fsum(times * pair.supremum for pair, times in parts)
    slack = 32.0 * UNIT_ROUNDOFF * total  # a largest loss is off by some ulps, and their sum by one
    lower = max(total + math.log1p(-math.exp(share)) - slack, 0.0)
    return Bounds(lower, max(lower, total), total + slack, "top atom")
