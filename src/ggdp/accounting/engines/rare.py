# SPDX-License-Identifier: Apache-2.0
"""One large loss: when a single rare release decides delta, it is split off and counted in closed form.

With a small sampling rate a loss is usually tiny and, rarely, enormous: its moment generating function
explodes before it can bring delta down, and neither contour nor lattice keeps relative accuracy. Cut every
noise at c and let E be the event that some release exceeds its cut, S the total loss. Then, exactly,

    delta(eps) = [P(E) - e^eps Q(E)]  +  E_Q[(e^eps - e^S)_+ ; E]  +  delta of the laws restricted to noise
    below the cut.

The first bracket is a product of closed forms. If each cut carries a loss of at least eps + r, the middle
term is at most e^eps Q(E) Q(the other losses sum to less than -r). That probability is bounded by Chernoff
for the reversed pair, whose loss is minus this one's under Q, restricted in its turn to losses up to some c,
plus the chance that a loss exceeds c; r is chosen to make it negligible. The third term has bounded losses,
and the engines are at home again.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ggdp.accounting.bounds import ErrorLedger
from ggdp.accounting.engines.curve import MOST_EPSILON, Curve, LogDelta
from ggdp.accounting.engines.tilt import Parts, TiltPlan, saddle_for_epsilon
from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF
from ggdp.privacy_loss.hockey_stick import log_masses, survivals, thresholds
from ggdp.privacy_loss.quadrature import certified_nodes_of_all

_NEGLIGIBLE = -18.0  # log of the middle term aimed at, relative to delta
_LEVELS = (*range(-8, -76, -6), -90, -110, -135, -165, -200, -245, -300, -370, -450, -550)
_TINY = 1e-100  # probability below which that of any of several events is their sum
_DEEPEST = 780.0  # log(1 / probability) beyond which nothing matters to a double
_SURELY = 1e-10  # more than the relative error of the loss at a cut
_MANY = 12  # different parts beyond which the search for a cut is coarser


@dataclass(frozen=True)
class Rare:
    """The event E: log Pr[no release beyond its cut] under Q, and the same under P less that, with rounding.

    Attributes:
        log_none_q: sum of times * log(1 - q) with q the Q-mass beyond the cut.
        log_none_gap: sum of times * log((1 - p)/(1 - q)).
        log_expected: log of the sum of times * q, which q itself may be too small to show.
        size: bound on the absolute rounding error of the two.
        log_other: log of a bound on Q(the other losses sum to less than eps - cut) at eps = most_epsilon.
        log_clipped: as log_expected, of the releases cut where a double knows of no more noise. A loss beyond
            may be less than eps + r, and is bounded by itself.
        most_epsilon: largest epsilon for which the bound holds.
    """

    log_none_q: float
    log_none_gap: float
    log_expected: float
    size: float
    log_other: float
    log_clipped: float
    most_epsilon: float

    def delta(self, epsilon: float) -> tuple[float, float, float, float]:
        """[P(E) - e^eps Q(E)], its rounding error, a bound on the middle term, and e^eps Q(E)."""
        if epsilon > self.most_epsilon:
            raise CannotCertifyError("epsilon lies beyond what the cut was made for")
        gap = -math.exp(self.log_none_q) * math.expm1(self.log_none_gap)
        expected = math.exp(epsilon + self.log_expected)  # e^eps times the sum of the Q-masses
        tiny = self.log_none_q > -_TINY  # then Q(E) is that sum, and e^eps may not be multiplied by it
        scaled = expected if tiny else -math.exp(epsilon) * math.expm1(self.log_none_q)
        value = gap + math.expm1(-epsilon) * scaled
        exponents = 8.0 + 2.0 * (epsilon + abs(self.log_expected))
        rounding = self.size + exponents * UNIT_ROUNDOFF * (abs(gap) + scaled)
        middle = expected * math.exp(min(self.log_other, 0.0)) + math.exp(epsilon + self.log_clipped)
        middle *= 1.0 + 1e-9
        return value, rounding, middle, scaled


@dataclass(frozen=True)
class RareSplit:
    """A curve of restricted laws with the rare event put back."""

    inner: Curve
    rare: Rare

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon."""
        inner = self.inner.log_delta(epsilon)
        value, rounding, middle, scaled = self.rare.delta(epsilon)
        low, here, high = (math.exp(min(v, 0.0)) for v in (inner.lower, inner.estimate, inner.upper))
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
    """Parts restricted to noise below their cuts, their plan, and the event beyond."""

    parts: Parts
    plan: TiltPlan
    rare: Rare


@dataclass(frozen=True)
class _Reach:
    """How far beyond epsilon to cut, and what shows that it is enough.

    Attributes:
        distance: r.
        tilt: of the Chernoff bound; infinite where even the smallest losses cannot undo r.
        ceiling: loss of the reversed pairs up to which the bound is taken.
    """

    distance: float
    tilt: float
    ceiling: float


@dataclass(frozen=True)
class _Planner:
    """A composition, its reversal, and rough nodes of both."""

    parts: Parts
    plan: TiltPlan
    reverse: Parts
    back: TiltPlan

    @staticmethod
    def of(parts: Parts, plan: TiltPlan) -> "_Planner":
        reverse = tuple((pair.reverse, times) for pair, times in parts)
        return _Planner(parts, plan, reverse, TiltPlan.of(reverse))

    def reach(self, epsilon: float, log_delta: float) -> _Reach:
        """The smallest r found for which the other losses, under Q, sum to less than -r with negligible
        probability.
        """
        floor = -sum(times * pair.infimum for pair, times in self.parts) * (1.0 + 1e-9) + 1e-15 * epsilon
        exceed = self.plan.loss > epsilon
        each = (self.plan.log_mass + self.plan.log_times - self.plan.loss)[exceed]
        log_q = float(np.logaddexp.reduce(each, initial=-_DEEPEST - epsilon))
        allowed = log_delta + _NEGLIGIBLE - epsilon - log_q
        best = _Reach(floor, math.inf, math.inf)
        fine = 12 if len(self.parts) <= _MANY else 6
        for ceiling, log_left in self._ceilings:
            if log_left > allowed - 1.0:
                continue
            kept = self.back.below(ceiling)
            spread = math.sqrt(kept.cumulants(1e-3 / (1.0 + epsilon)).curvature)
            for tilt in np.geomspace(0.3, 100.0, fine) / max(spread, 1e-300):
                distance = (float(kept.times @ kept.log_phis(float(tilt))) - allowed + 0.5) / float(tilt)
                if 0.0 <= distance < best.distance:
                    best = _Reach(distance, float(tilt), ceiling)
        return best

    @cached_property
    def _ceilings(self) -> list[tuple[float, float]]:
        """Losses up to which the reversed pairs may be restricted, with log of the chance that any exceeds
        them.
        """
        if all(math.isfinite(pair.supremum) for pair, _ in self.reverse):
            return [(math.inf, -math.inf)]
        order = np.argsort(self.back.loss)
        loss, log_mass = self.back.loss[order], (self.back.log_mass + self.back.log_times)[order]
        log_left = np.logaddexp.accumulate(log_mass[::-1])[::-1]
        levels = _LEVELS if len(self.parts) <= _MANY else _LEVELS[::3]
        places = np.searchsorted(-log_left, -np.array(levels, dtype=np.float64))
        return [(float(loss[place]), float(log_left[place])) for place in places if place < len(loss)]


def cut(parts: Parts, plan: TiltPlan, epsilon: float, log_delta: float) -> Cut:
    """Cut all releases for questions about epsilons up to the one given.

    Raises:
        CannotCertifyError: nothing to cut, or the Chernoff bound of the middle term is out of reach.
    """
    CLOCK.check()
    planner = _Planner.of(parts, plan)
    reach = planner.reach(epsilon, log_delta)
    least = epsilon * (1.0 + _SURELY) + reach.distance  # a double knows the loss at a cut to fewer digits
    pieces = []
    for pair, times in parts:
        place = float(thresholds(pair, np.array([least]))[0][0])
        pieces.append((replace(pair, cut=place) if math.isfinite(place) else pair, times))
    restricted = tuple(pieces)
    if restricted == parts:
        raise CannotCertifyError("no loss is large enough to be cut")
    return Cut(restricted, TiltPlan.of(restricted), _rare(planner, restricted, reach, epsilon))


def planned_epsilon(parts: Parts, plan: TiltPlan, log_delta: float) -> float:
    """A rough epsilon at a delta, the rare event included; by halving in log epsilon."""
    planner = _Planner.of(parts, plan)
    low, high = math.log(1e-14), math.log(1.2 * MOST_EPSILON)
    for _ in range(28):
        if len(parts) > _MANY and high - low < 1e-3:
            break
        CLOCK.check()
        middle = 0.5 * (low + high)
        epsilon = math.exp(middle)
        ceiling = epsilon + planner.reach(epsilon, log_delta).distance
        low, high = (middle, high) if _rough_log_delta(plan, epsilon, ceiling) > log_delta else (low, middle)
    if high < math.log(1e-13):
        raise CannotCertifyError("no positive epsilon is needed")
    if low > math.log(1.1 * MOST_EPSILON):
        raise CannotCertifyError("no loss is rare at this epsilon")
    return math.exp(high)


def _rough_log_delta(plan: TiltPlan, epsilon: float, ceiling: float) -> float:
    beyond = plan.loss > ceiling
    log_big = np.where(beyond, plan.log_mass + plan.log_times, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        big = float(np.exp(log_big[beyond] + np.log(-np.expm1(epsilon - plan.loss[beyond]))).sum())
    kept = plan.below(ceiling)
    inner = saddle_for_epsilon(kept, epsilon).log_delta
    return float(np.logaddexp(math.log(big) if big > 0.0 else -math.inf, min(inner, 0.0)))


def _rare(planner: _Planner, restricted: Parts, reach: _Reach, epsilon: float) -> Rare:
    log_none_q, log_none_gap, size, nearest = 0.0, 0.0, 1e-320, math.inf
    log_expected = log_clipped = -math.inf
    for pair, times in restricted:
        if not math.isfinite(pair.cut):
            continue
        up, down, still = survivals(pair, pair.cut)
        q = (1.0 - pair.rate) * still + pair.rate * down
        log_q = float(log_masses(pair, np.array([pair.cut]))[1][0])
        log_expected = float(np.logaddexp(log_expected, math.log(times) + log_q))
        if pair.supremum >= epsilon + (1.0 - 1e-9) * reach.distance:
            nearest = min(nearest, pair.supremum)
        else:
            log_clipped = float(np.logaddexp(log_clipped, math.log(times) + log_q))
        gap = pair.rate * (up - down)
        if not gap < 1.0 - q:
            raise CannotCertifyError("no loss is below the cut")
        log_none_q += times * math.log1p(-q)
        log_none_gap += times * math.log1p(-gap / (1.0 - q))
        ulps = (
            500.0 + (pair.beta + 3.0) * (pair.cut - pair.down) ** pair.beta
        )  # as in privacy_loss.hockey_stick
        size += times * ulps * UNIT_ROUNDOFF * (pair.rate * (up + down) + math.exp(epsilon + log_q))
    log_other = _log_other(planner, reach, nearest - epsilon) if math.isfinite(nearest) else -math.inf
    return Rare(log_none_q, log_none_gap, log_expected, size, log_other, log_clipped, epsilon)


def _log_other(planner: _Planner, reach: _Reach, distance: float) -> float:
    """Certified log of a bound on Q(the losses sum to less than -distance)."""
    if math.isinf(reach.tilt):
        if distance + sum(times * pair.infimum for pair, times in planner.parts) < 0.0:
            raise CannotCertifyError("the cut is too low")
        return -math.inf
    log_chernoff, beyond, left_out = -reach.tilt * distance, 0.0, 0.0
    kept = []
    for pair, times in planner.reverse:
        if math.isfinite(reach.ceiling):
            place = float(thresholds(pair, np.array([reach.ceiling]))[0][0])
            pair = replace(pair, cut=place)
            up, _, still = survivals(pair, place)
            beyond += times * ((1.0 - pair.rate) * still + pair.rate * up) * (1.0 + 1e-9)
        kept.append(pair)
    log_phis = planner.back.below(reach.ceiling).log_phis(reach.tilt)[:, None]
    nodes = certified_nodes_of_all(kept, (reach.tilt,), 0.0, log_phis)
    for (_, times), part in zip(planner.reverse, nodes, strict=True):
        log_one = part.log_phi[0] + part.quadrature[0] + part.roundoff[0]
        log_chernoff += times * log_one
        left_out = min(left_out, log_one)
    # the bound is for all releases but one, and a restricted law's factor may lie just below one; 1e-320 is
    # more than what underflows
    return math.log(math.exp(min(log_chernoff - left_out, 0.0)) + beyond + 1e-320)
