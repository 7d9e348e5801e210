# SPDX-License-Identifier: Apache-2.0
"""The wide answer that always exists: Chernoff above, one event below.

Used only where no engine certifies its own error well enough. Above, delta(eps) <= e^{K(theta) - theta eps}
sup_x (1 - e^-x) e^{-theta x} for any theta > 0, with K certified by quadrature. Below, a composition is at
least as revealing as any one of its releases, and delta(eps) >= P(E) - e^eps Q(E) for the event E that some
loss exceeds a number c. Where one large loss decides and all others hardly vary, the best c leaves next to
nothing out. Where losses are bounded, E is also that all noise exceeds a point: then the sum of losses is at
least that of the losses there, l, and delta(eps) >= P(E) (1 - e^(eps - l)).
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

_FACTORS = (1.0, 0.85, 0.7, 0.55, 0.4, 0.25, 0.1, 0.03, 0.01, 0.001)  # of the saddle's tilt
_MOST_SINGLE = 3  # releases that are asked for their own cost
_MOST_PARTS = 50  # more are not worth the time
_POINTS = 40  # at which they are tried together
_NONE = -1e9  # log of a mass that is none


def log_chernoff_constant(theta: float) -> float:
    """log of sup over x > 0 of (1 - e^-x) e^{-theta x}, which is theta^theta / (1 + theta)^(1 + theta)."""
    if theta <= 0.0:
        return 0.0
    # not theta log(theta) - (1 + theta) log(1 + theta), of which large theta leave no digits
    one = math.log1p(1.0 / theta) if theta > 1.0 else math.log1p(theta) - math.log(theta)
    return -math.log1p(theta) - theta * one


def log_delta_above(parts: Parts, plan: TiltPlan, theta: float, epsilon: float) -> float:
    """A certified upper bound of log delta at epsilon, from the best tilt around the one given."""

    def bound(tilt: float, cumulant: float) -> float:
        rounding = 8.0 * UNIT_ROUNDOFF * (abs(cumulant) + tilt * epsilon + 1.0)
        return cumulant - tilt * epsilon + log_chernoff_constant(tilt) + rounding

    return min(_best_tilt(parts, plan, theta, bound), 0.0)


def epsilon_above(
    parts: Parts, plan: TiltPlan, theta: float, log_delta: float, wanted: float = math.inf
) -> float:
    """A certified upper bound of the epsilon at a delta, from the best tilt around the one given; infinite
    where the plan says that it would exceed what is wanted."""

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
    """The bound of the tilt with the best plan, of those that can be certified; infinite where none can.

    A cumulant costs a quadrature of every part, its plan next to nothing.
    """
    tilts = [factor * theta for factor in _FACTORS]
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
    """No less than K(theta)."""
    pairs, yardsticks = [pair for pair, _ in parts], plan.log_phis(theta)[:, None]
    # the errors of all releases add up to some 1e-6 at most, far less than Chernoff's inequality gives away
    accuracy = max(-18.0 - math.log(float(plan.times.sum())), NEGLIGIBLE)
    with CLOCK.stopped():
        nodes = certified_nodes_of_all(pairs, (theta,), 0.0, yardsticks, negligible=accuracy)
    return sum(
        times * (part.log_phi[0] + part.quadrature[0] + part.roundoff[0])
        for (_, times), part in zip(parts, nodes, strict=True)
    )


def epsilon_below(parts: Parts, plan: TiltPlan, log_delta: float) -> float:
    """A certified lower bound of the epsilon at a delta: the best single release, or the best event.

    delta >= P(E) - e^eps Q(E) for every event E, so epsilon >= log((P(E) - delta) / Q(E)). E is that some
    loss exceeds c, or that all noise exceeds a point, and c and the point are tried.
    """
    best = 0.0
    for index in _most_revealing(parts, plan, log_delta):
        curve = ClosedForm(parts[index][0])
        point = curve.start(log_delta) * (1.0 - 1e-9)
        if point > best and curve.log_delta(point).lower >= log_delta:
            best = point

    def value(event: "_Beyond") -> Array:
        share = np.minimum(log_delta - event.log_p, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = event.log_p - event.log_q + np.log1p(-np.exp(share))
        return np.where(share < 0.0, found, -np.inf)

    return max(best, _largest(parts, plan, value, best), _all_epsilon(parts, log_delta))


def _all_epsilon(parts: Parts, log_delta: float) -> float:
    """The largest epsilon that one of these events shows: least loss on it + log(1 - delta / P)."""

    def value(log_p: Array, least: Array) -> Array:
        share = log_delta - log_p
        return np.where(share < 0.0, least + np.log1p(-np.exp(np.minimum(share, 0.0))), -np.inf)

    return _largest_beyond(parts, value) * (1.0 - 1e-14)


def _all_log_delta(parts: Parts, epsilon: float) -> float:
    """The largest log of P (1 - e^(epsilon - least loss on it)) that one of these events shows."""

    def value(log_p: Array, least: Array) -> Array:
        found = log_p + np.log(-np.expm1(np.minimum(epsilon - least, 0.0)))
        return np.where(least > epsilon, found, -np.inf)

    return _largest_beyond(parts, value) - 1e-12


def _largest_beyond(parts: Parts, value: Callable[[Array, Array], Array]) -> float:
    """The largest value of the events that all noise exceeds a point: all points first, then closer around
    the best. It is told no more than log P of the event, and than the sum of losses on it.
    """
    if len(parts) > _MOST_PARTS:
        return -math.inf
    # from where one of the releases hardly ever lies below, to where hardly ever all lie beyond
    releases = float(sum(times for _, times in parts))
    far = np.array([700.0 ** (1.0 / pair.beta) for pair, _ in parts])
    near = np.array([(700.0 / releases) ** (1.0 / pair.beta) for pair, _ in parts])
    places, best = (
        np.concatenate([np.linspace(-1.0, 0.0, _POINTS), np.linspace(0.0, 1.0, _POINTS)[1:]]),
        -math.inf,
    )
    for _ in range(3):
        log_p, least = np.zeros_like(places), np.zeros_like(places)
        for (pair, times), furthest, nearest in zip(parts, far, near, strict=True):
            # up to 0 all noise from `far` to `near` below the shift, then to `near` beyond it
            noise = pair.up + np.where(
                places < 0.0,
                -nearest + places * (furthest - nearest),
                (2.0 * places - 1.0) * nearest,
            )
            one_p, _, slip = log_masses(pair, noise)
            log_p += times * (one_p - slip)
            least += times * pair.loss(noise)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = value(log_p - 1e-14 * np.abs(log_p), least - 1e-12 * np.abs(least))
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
    """A certified lower bound of log delta at epsilon: the best single release, or the best event."""
    order = list(range(len(parts)))
    if len(parts) > _MOST_SINGLE:
        with np.errstate(divide="ignore"):
            rough = plan.log_single_deltas(np.full(len(parts), epsilon))
        order = [int(index) for index in np.argsort(-rough, kind="stable")[:_MOST_SINGLE]]
    best = max(ClosedForm(parts[index][0]).log_delta(epsilon).lower for index in order)

    def value(event: "_Beyond") -> Array:
        ratio = epsilon + event.log_q - event.log_p
        with np.errstate(divide="ignore", invalid="ignore"):
            found = event.log_p + np.log(-np.expm1(np.minimum(ratio, 0.0)))
        return np.where(ratio < 0.0, found, -np.inf)

    if (log_complement := _log_complement(parts, epsilon)) < 0.0:
        best = max(best, math.log1p(-math.exp(log_complement)) - 1e-12)  # it is never 1
    return max(best, _largest(parts, plan, value, epsilon), _all_log_delta(parts, epsilon))


def is_nearly_one(parts: Parts, epsilon: float) -> bool:
    """Whether delta at epsilon is certainly above 1 - 1e-12."""
    return _log_complement(parts, epsilon) < -12.0 * math.log(10.0)


def _log_complement(parts: Parts, epsilon: float) -> float:
    """log of an upper bound of 1 - delta at epsilon, which is the integral of min(P, e^epsilon Q).

    That is at most the integral of sqrt(P e^epsilon Q), and the integral of sqrt(PQ) is a product over the
    releases. Only whether each loss is positive is looked at, and only in a few parts: this hides more.
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
class _Beyond:
    """The events that some loss exceeds c: no more than log P(E), and no less than log Q(E)."""

    log_p: Array
    log_q: Array

    @staticmethod
    def of(parts: Parts, losses: Array) -> "_Beyond":
        none, log_q = np.zeros_like(losses), np.full_like(losses, _NONE)
        log_sum = np.full_like(losses, _NONE)
        for pair, times in parts:
            place = thresholds(pair, losses)[0]
            inside = np.isfinite(place)
            one_p, one_q, slip = log_masses(pair, np.where(inside, place, 0.0))
            one_p, one_q = np.where(inside, one_p - slip, _NONE), np.where(inside, one_q + slip, _NONE)
            log_sum = np.logaddexp(log_sum, math.log(times) + one_p)
            log_q = np.logaddexp(log_q, math.log(times) + one_q)
            none += times * np.log1p(-np.exp(np.minimum(one_p, -1e-9)))
        with np.errstate(divide="ignore"):
            many = np.log(-np.expm1(none)) - 1e-14
        # of rare events the union is their sum, but for its square
        few = log_sum - np.exp(np.minimum(log_sum, 0.0)) - 1e-14 * (1.0 + np.abs(log_sum))
        slip = 1e-14 * (1.0 + np.abs(log_q))
        return _Beyond(np.where(log_sum < -30.0, few, many), log_q + slip)


def _largest(parts: Parts, plan: TiltPlan, value: Callable[[_Beyond], Array], about: float) -> float:
    """The largest value over the c tried: all sizes first, then closer and closer around the best."""
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
        found = np.nan_to_num(value(_Beyond.of(parts, losses)), nan=-np.inf)
        top = int(np.argmax(found))
        best = max(best, float(found[top]))
        low, high = losses[max(top - 1, 0)], losses[min(top + 1, len(losses) - 1)]
        losses = np.linspace(low, high, 40)
    return best


def log_total_variation_above(parts: Parts) -> float:
    """log of a bound on the composition's total variation: 1 - the product of (1 - each release's)."""
    total = log_rest = 0.0
    for pair, times in parts:
        stick = hockey_stick(pair, np.zeros(1))
        one = float(stick.value[0] + stick.error[0])
        total += times * one
        log_rest += times * math.log1p(-one) if one < 1.0 else -math.inf
    return math.log(min(total, -math.expm1(log_rest)) * (1.0 + (64 + len(parts)) * UNIT_ROUNDOFF) + 1e-320)


def top_atom(parts: Parts, log_delta: float) -> Bounds | None:
    """Certified epsilon where every release is Laplace and delta is below the mass of the top atoms.

    A Laplace loss equals its supremum with positive probability. With p the probability that all releases do,
    and s the sum of the suprema, delta(eps) >= p (1 - e^(eps - s)) and delta(s) = 0. So for a delta far below
    p, epsilon lies in [s + log(1 - delta/p), s], no wider than about delta/p.
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
