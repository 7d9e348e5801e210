# SPDX-License-Identifier: Apache-2.0
"""One large loss: when a single rare release decides delta, it is split off and counted in closed form.

With a small sampling rate a loss is usually tiny and, rarely, enormous: its moment generating function explodes before it can
bring delta down, and neither contour nor lattice keeps relative accuracy. Cut every noise at c and let E be the event
that some release exceeds its cut, S the total loss. Then, exactly,

    delta(eps) = [P(E) - e^eps Q(E)]  +  E_Q[(e^eps - e^S)_+ ; E]  +  delta of the laws restricted to noise below the cut.

The first bracket is a product of closed forms. If each cut carries a loss of at least eps + r, the middle term is at most
e^eps Q(E) Q(the other losses sum to less than -r), by Chernoff for the reversed pair, whose loss is minus this one's under Q; r is
chosen to make that negligible. The third term has bounded losses, and the engines are at home again.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from ggdp.accounting.bounds import ErrorLedger
from ggdp.accounting.curve import Curve, LogDelta
from ggdp.accounting.tilt import Parts, TiltPlan, saddle_for_epsilon
from ggdp.privacy_loss.hockey_stick import survivals, thresholds
from ggdp.privacy_loss.quadrature import CannotCertifyError, certified_nodes

_NEGLIGIBLE = -32.0  # log of the middle term aimed at, relative to delta
_UNIT_ROUNDOFF = 2.0**-53
_ULPS = 2000.0  # of a survival function at the cut, exponent included


@dataclass(frozen=True)
class Rare:
    """The event E: log Pr[no release beyond its cut] under Q, and the same under P less that, with rounding.

    Attributes:
        log_none_q: sum of times * log(1 - q) with q the Q-mass beyond the cut.
        log_none_gap: sum of times * log((1 - p)/(1 - q)).
        size: bound on the absolute rounding error of the two.
        log_other: log of a bound on Q(the other losses sum to less than eps - cut) at eps = most_epsilon.
        most_epsilon: largest epsilon for which the bound holds.
    """

    log_none_q: float
    log_none_gap: float
    size: float
    log_other: float
    most_epsilon: float

    def delta(self, epsilon: float) -> tuple[float, float, float, float]:
        """[P(E) - e^eps Q(E)], its rounding error, a bound on the middle term, and e^eps Q(E)."""
        if epsilon > self.most_epsilon:
            raise CannotCertifyError("epsilon lies beyond what the cut was made for")
        mass_q = -math.expm1(self.log_none_q)
        gap = -math.exp(self.log_none_q) * math.expm1(self.log_none_gap)
        value = gap - math.expm1(epsilon) * mass_q
        scaled = math.exp(epsilon) * mass_q
        rounding = self.size + 8.0 * _UNIT_ROUNDOFF * (abs(gap) + scaled)
        return value, rounding, scaled * math.exp(min(self.log_other, 0.0)), scaled


@dataclass(frozen=True)
class RareSplit:
    """A curve of restricted laws with the rare event put back."""

    inner: Curve
    rare: Rare

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon."""
        inner = self.inner.log_delta(epsilon)
        value, rounding, middle, scaled = self.rare.delta(epsilon)
        low, here, high = (math.exp(v) for v in (inner.lower, inner.estimate, inner.upper))
        total = here + value
        if not total > 0.0:
            raise CannotCertifyError("the rare event is lost in rounding")
        bottom = low + value - rounding
        share = here / total
        ledger = ErrorLedger(
            truncation=share * inner.ledger.truncation + middle / total,
            aliasing=share * inner.ledger.aliasing,
            quadrature=share * inner.ledger.quadrature,
            roundoff=share * inner.ledger.roundoff + rounding / total,
            discretization=share * inner.ledger.discretization,
        )
        return LogDelta(
            lower=math.log(bottom) if bottom > 0.0 else -math.inf,
            estimate=math.log(total),
            upper=math.log(high + value + rounding + middle),
            slope=(inner.slope * here - scaled) / total,
            ledger=ledger,
        )


@dataclass(frozen=True)
class Cut:
    """Where to cut, planned: parts restricted to noise below their cuts, and the tilt that bounds the middle term."""

    parts: Parts
    plan: TiltPlan
    rare: Rare


def cut(parts: Parts, plan: TiltPlan, epsilon: float, log_delta: float) -> Cut:
    """Cut all releases for questions about epsilons up to the one given.

    Raises:
        CannotCertifyError: nothing to cut, or the Chernoff bound of the middle term is out of reach.
    """
    reverse = tuple((pair.reverse, times) for pair, times in parts)
    back = TiltPlan.of(reverse)
    reach, tilt = _reach(parts, plan, back, epsilon, log_delta)
    pieces, cuts = [], []
    for pair, times in parts:
        place = float(thresholds(pair, np.array([epsilon + reach]))[0][0])
        cuts.append(place)
        pieces.append((replace(pair, cut=place) if math.isfinite(place) else pair, times))
    if not any(math.isfinite(place) for place in cuts):
        raise CannotCertifyError("no loss is large enough to be cut")
    restricted = tuple(pieces)
    return Cut(restricted, TiltPlan.of(restricted), _rare(parts, restricted, reverse, back, tilt, epsilon))


def planned_epsilon(parts: Parts, plan: TiltPlan, log_delta: float) -> float:
    """A rough epsilon at a delta, the rare event included; by halving in log epsilon."""
    back = TiltPlan.of(tuple((pair.reverse, times) for pair, times in parts))
    low, high = math.log(1e-14), math.log(4000.0)
    for _ in range(28):
        middle = 0.5 * (low + high)
        epsilon = math.exp(middle)
        reach, _ = _reach(parts, plan, back, epsilon, log_delta)
        rough = _rough_log_delta(plan, epsilon, epsilon + reach)
        low, high = (middle, high) if rough > log_delta else (low, middle)
    return math.exp(high)


def _rough_log_delta(plan: TiltPlan, epsilon: float, ceiling: float) -> float:
    beyond = plan.loss > ceiling
    log_big = np.where(beyond, plan.log_mass + plan.log_times, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        big = float(np.exp(log_big[beyond] + np.log(-np.expm1(epsilon - plan.loss[beyond]))).sum())
    kept = plan.below(ceiling)
    inner = saddle_for_epsilon(kept, epsilon).log_delta
    return float(np.logaddexp(math.log(big) if big > 0.0 else -math.inf, min(inner, 0.0)))


def _reach(parts: Parts, plan: TiltPlan, back: TiltPlan, epsilon: float, log_delta: float) -> tuple[float, float]:
    """The smallest r found for which the other losses, under Q, sum to less than -r with negligible probability."""
    exceed = plan.loss > epsilon
    log_q = float(np.log(np.exp((plan.log_mass + plan.log_times - plan.loss)[exceed]).sum() + 1e-300))
    wanted = epsilon + log_q - log_delta - _NEGLIGIBLE
    spread = math.sqrt(back.cumulants(1e-3 / (1.0 + epsilon)).curvature)
    best, best_tilt = math.inf, 1.0
    for tilt in np.geomspace(0.3, 100.0, 14) / max(spread, 1e-300):
        reach = (float(back.times @ back.log_phis(float(tilt))) + wanted) / float(tilt)
        if reach < best:
            best, best_tilt = reach, float(tilt)
    floor = -sum(times * pair.infimum for pair, times in parts)
    return (floor, math.inf) if floor <= best else (max(best, 0.0), best_tilt)


def _rare(
    parts: Parts, restricted: Parts, reverse: Parts, back: TiltPlan, tilt: float, epsilon: float
) -> Rare:
    log_none_q, log_none_gap, size, nearest = 0.0, 0.0, 0.0, math.inf
    for pair, times in restricted:
        if not math.isfinite(pair.cut):
            continue
        up, down, still = survivals(pair, pair.cut)
        q = (1.0 - pair.rate) * still + pair.rate * down
        gap = pair.rate * (up - down)
        log_none_q += times * math.log1p(-q)
        log_none_gap += times * math.log1p(-gap / (1.0 - q))
        size += times * _ULPS * _UNIT_ROUNDOFF * (pair.rate * (up + down) + abs(math.expm1(epsilon)) * q)
        nearest = min(nearest, pair.supremum)
    if math.isinf(tilt):
        log_other = -math.inf  # even the smallest possible losses cannot undo one beyond the cut
        if nearest + sum(times * pair.infimum for pair, times in parts) < epsilon:
            raise CannotCertifyError("the cut is too low")
    else:
        log_other = -tilt * (nearest - epsilon)
        for (pair, times), log_phi in zip(reverse, back.log_phis(tilt), strict=True):
            nodes = certified_nodes(pair, (tilt,), 0.0, (float(log_phi),))
            log_other += times * (nodes.log_phi[0] + nodes.quadrature[0] + nodes.roundoff[0])
    return Rare(log_none_q, log_none_gap, size, log_other, epsilon)
