# SPDX-License-Identifier: Apache-2.0
"""A privacy target, whether a mechanism meets it, and the least private of many mechanisms that does.

The mechanisms are ordered along an axis from more to less private: larger rates, more steps, or less noise.
`solve` plans where to begin by the saddle-point method, which is fast and proves nothing. Then it asks the
accountant, both about the mechanism that it returns and about the next one on the axis.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.accounting import delta as delta_of
from ggdp.accounting import epsilon as epsilon_of
from ggdp.accounting.engines.atoms import Enclosed
from ggdp.accounting.engines.curve import MOST_EPSILON
from ggdp.accounting.engines.pairs import PairComposition
from ggdp.accounting.engines.tilt import planned_epsilon
from ggdp.accounting.profile import checked_delta
from ggdp.accounting.steps import CellStep, EnclosedStep, Steps, steps_of
from ggdp.accounting.vectors.explicit_shifts import one_coordinate
from ggdp.calibration.rough import (
    like_one_gaussian,
    rough_delta,
    rough_epsilon,
    sketched_delta,
    sketched_epsilon,
)
from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError, EpsilonTooLargeError
from ggdp.mechanisms import Adjacency, Batched, Composed, Mechanism, PoissonSampled, SphericalNoise
from ggdp.search import Axis, LogAxis, border

_JUST_ABOVE = 5e-324
_PLAN_RESOLUTION = 1e-3
_CLEARLY_LESS = 0.5  # a direction planned to cost less than this share of another is skipped
_LARGE_DELTA = 0.1  # target deltas from here on are compared by delta: epsilon is 0 with little more noise
_NEAR = 2e-3  # excess below which one last step by the slope is enough
_MOST_STEPS = 12  # steps of a search for an excess of 0
_SAFE = 1e-5  # distance of the first place asked from the planned border, on the private side, in log value
_SECONDS = 3.0  # seconds of a thread's time that a search may take for narrow bounds,
_SECONDS_MORE = 1.0  # and after that for wide ones
_FAR_OFF = 1.02  # ratio of two values between which the border must lie before time may be up
_WIDE = 1e-3  # relative width of bounds that were computed in little time
_LONGEST, _BLIND = 0.5, 0.25  # longest step, and first step without a slope, in log value

At = Callable[[float], Mechanism]


@dataclass(frozen=True)
class Verdict:
    """Certified bounds of log(cost / budget). Both are epsilons, or both are the odds delta / (1 - delta).

    Attributes:
        at_least: above 0, the target is certainly missed.
        at_most: at or below 0, the target is certainly met.
        epsilon: epsilon at the target's delta, if that was computed.
    """

    at_least: float
    at_most: float
    epsilon: Bounds | None = None

    @property
    def is_decided(self) -> bool:
        """Whether the target is certainly met, or certainly missed."""
        return self.at_most <= 0.0 or self.at_least > 0.0


_UNKNOWN = Verdict(-math.inf, math.inf)


@dataclass(frozen=True)
class Target:
    """(epsilon, delta)-privacy for one kind of neighbours; delta may be 0 where losses are bounded."""

    epsilon: float
    delta: float
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        epsilon = arguments.real("epsilon", self.epsilon, least=0.0, most=MOST_EPSILON)
        delta = checked_delta(self.delta)
        if epsilon == delta == 0.0:
            raise ValueError("epsilon must be positive when delta is 0, got 0: no noise is enough for both")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))

    def check(self, mechanism: Mechanism) -> None:
        """Raise an error, before any search, for a mechanism that the accountant does not cover."""
        steps_of(mechanism, self.adjacency)

    def met_by(self, mechanism: Mechanism) -> Bounds | None:
        """Epsilon of a mechanism that certifiably meets the target; None if it does not."""
        try:
            found = epsilon_of(mechanism, delta=self.delta, adjacency=self.adjacency)
        except (EpsilonTooLargeError, CannotCertifyError):
            return None
        return found if found.upper <= self.epsilon else None

    def judge(self, mechanism: Mechanism) -> Verdict:
        """Compare a mechanism with the budget, by delta or by epsilon.

        By delta for one release, which has its delta in closed form, for a target epsilon of 0, which has no
        logarithm, and for a large target delta, at which epsilon is often 0. Both comparisons are equivalent:
        delta(epsilon) <= delta exactly if epsilon(delta) <= epsilon.
        """
        if self.by_delta(mechanism):
            return self._judge_delta(mechanism)
        try:
            cost = epsilon_of(mechanism, delta=self.delta, adjacency=self.adjacency)
        except (EpsilonTooLargeError, CannotCertifyError):  # delta may still be computed
            return self._judge_delta(mechanism)
        return Verdict(_log_ratio(cost.lower, self.epsilon), _log_ratio(cost.upper, self.epsilon), cost)

    def by_delta(self, mechanism: Mechanism) -> bool:
        """Whether `judge` compares delta at the target's epsilon."""
        return self._is_about_delta or (self.delta > 0.0 and _has_closed_form(mechanism))

    @property
    def _is_about_delta(self) -> bool:
        return self.epsilon == 0.0 or self.delta > _LARGE_DELTA

    def achieved(self, mechanism: Mechanism, verdict: Verdict) -> Bounds:
        """Epsilon at the target's delta, of a mechanism judged private.

        Where it was judged by delta, epsilon <= the target's is certified already and the upper end may use
        it.
        """
        if verdict.epsilon is not None:
            return verdict.epsilon
        try:
            found = epsilon_of(mechanism, delta=self.delta, adjacency=self.adjacency)
        except (EpsilonTooLargeError, CannotCertifyError):
            return Bounds(0.0, self.epsilon, self.epsilon, "delta at epsilon")
        upper = min(found.upper, self.epsilon)
        return Bounds(min(found.lower, upper), min(found.estimate, upper), upper, found.method, found.ledger)

    def planned_excess(self, mechanism: Mechanism) -> float:
        """A rough log(cost / budget) by the saddle-point method, to start from; never a bound."""
        steps = steps_of(_as_poisson(mechanism), self.adjacency)
        if cells := _cells_alone(steps):
            return self._sketched_excess(cells, steps.directions)
        plan = one_coordinate(steps)  # a vector may have no known worst shift
        log_delta = math.log(self.delta)
        if self._is_about_delta:
            excess = max(like_one_gaussian(parts, self.epsilon) for parts in plan.pairs())
            return _log_odds_ratio(excess, self.delta)
        epsilons = [planned_epsilon(parts, log_delta) for parts in plan.pairs()]
        return _log_ratio(max(epsilons), self.epsilon)

    def estimated_excess(self, mechanism: Mechanism, *, only_cheap: bool = False) -> float:
        """An estimate of log(cost / budget), good to about 1e-5 and never a bound; for delta > 0.

        It takes the estimates of engines that run with a larger tolerance. Where no pair is known to dominate
        a release, it takes the certified upper bound.

        Raises:
            CannotCertifyError: an estimate would cost as much as `judge`, and `only_cheap` was asked for.
        """
        steps = steps_of(mechanism, self.adjacency)
        if cells := _cells_alone(steps):
            return self._sketched_excess(cells, steps.directions)
        if _have_pairs(steps):
            return self._log_ratio(self._rough_cost(steps, only_cheap).estimate)
        if only_cheap:
            raise CannotCertifyError("no estimate is cheap")
        whole = mechanism if isinstance(mechanism, Composed) else Composed(mechanism)
        return self.judge(whole).at_most

    def judge_roughly(self, mechanism: Mechanism) -> Verdict:
        """The verdict of `judge` with wider bounds, which is faster; undecided if it would not be faster."""
        steps = steps_of(mechanism, self.adjacency)
        if not _have_pairs(steps):
            return _UNKNOWN
        try:
            found = self._rough_cost(steps, only_cheap=True)
        except (EpsilonTooLargeError, CannotCertifyError):
            return _UNKNOWN
        return Verdict(self._log_ratio(found.lower), self._log_ratio(found.upper))

    def _rough_cost(self, steps: Steps, only_cheap: bool) -> Bounds:
        """Delta at the target's epsilon, or epsilon at its delta, of the worst direction."""
        log_delta, worst = math.log(self.delta), Bounds(0.0, 0.0, 0.0, "rough")
        sized = [(planned_epsilon(parts, log_delta), parts) for parts in steps.pairs()]
        for plan, parts in sorted(sized, key=lambda one: -one[0]):
            if not self._is_about_delta and plan <= _CLEARLY_LESS * worst.estimate:
                if only_cheap and not PairComposition(parts).costs_no_more(log_delta, worst.upper):
                    worst = replace(worst, upper=math.inf)
                continue
            found: Bounds | None = None
            if sum(times for _, times in parts) > 1:
                about_delta = self._is_about_delta
                found = rough_delta(parts, self.epsilon) if about_delta else rough_epsilon(parts, log_delta)
            if found is None:
                if only_cheap:
                    raise CannotCertifyError("no engine is cheap")
                whole = PairComposition(parts)
                found = whole.delta(self.epsilon) if self._is_about_delta else whole.epsilon(log_delta)
            worst = Bounds.worst(worst, found)
        return worst

    def _log_ratio(self, cost: float) -> float:
        is_delta = self._is_about_delta
        return _log_odds_ratio(cost, self.delta) if is_delta else _log_ratio(cost, self.epsilon)

    def _sketched_excess(self, cells: list[EnclosedStep], directions: tuple[Adjacency, ...]) -> float:
        """A rough log(epsilon / target) of custom releases, from sketches of their losses."""
        log_delta, worst = math.log(self.delta), -math.inf
        for direction in directions:
            try:
                parts = [_sketch(step, direction) for step in cells]
                if self._is_about_delta:
                    worst = max(worst, _log_odds_ratio(sketched_delta(parts, self.epsilon), self.delta))
                else:
                    worst = max(worst, _log_ratio(sketched_epsilon(parts, log_delta), self.epsilon))
            except (EpsilonTooLargeError, CannotCertifyError):
                return math.inf
            if all(isinstance(step, CellStep) and step.rate == 1.0 for step in cells):
                break  # both directions cost the same where no record is sampled, or nearly so
        return worst

    def _judge_delta(self, mechanism: Mechanism) -> Verdict:
        try:
            cost = delta_of(mechanism, epsilon=self.epsilon, adjacency=self.adjacency)
        except CannotCertifyError:  # nothing is known
            return _UNKNOWN
        return Verdict(_log_odds_ratio(cost.lower, self.delta), _log_odds_ratio(cost.upper, self.delta))

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:g} at delta = {self.delta:g}"


@dataclass(frozen=True)
class Solution:
    """The least private place of an axis that meets a target.

    Attributes:
        value: at that place; None if not even the most private end meets the target.
        achieved: epsilon there, or at the most private end if `value` is None; None if it cannot be computed.
        sharp: whether the next place certifiably misses the target.
        is_last: whether there is no next place.
    """

    value: float | None
    achieved: Bounds | None
    sharp: bool
    is_last: bool


@dataclass(frozen=True)
class Start:
    """A rough place of the border between mechanisms that meet a target and those that miss it.

    Attributes:
        log_value: logarithm of the value there.
        slope: of log(cost / budget) against the logarithm of the value.
    """

    log_value: float
    slope: float


def solve(axis: Axis, at: At, target: Target, start: Start | None = None) -> Solution:
    """The largest value on an axis of falling privacy whose mechanism certifiably meets the target.

    Args:
        axis: where to search.
        at: the mechanism that belongs to a value.
        target: what it must meet.
        start: about where the answer lies; planned if left out.

    Guarantees:
        The mechanism at `value` was asked and its certified upper bound meets the target; the one at the next
        place was asked and its upper bound does not, or the time that a search may take was spent.
    """
    verdicts: dict[int, Verdict] = {}
    until, is_patient = time.thread_time() + _SECONDS, False

    def excess(place: int) -> float:
        if place not in verdicts or not verdicts[place].is_decided:
            longest = math.inf if is_patient and _is_far(axis, verdicts) else until
            verdicts[place] = _judged_by(longest, target, at(axis.value(place)))
        return verdicts[place].at_most

    start = start or _start(axis, at, target)
    if start is not None:
        with CLOCK.running(_SECONDS_MORE):
            start = (
                estimated_start(axis, at, partial(target.estimated_excess, only_cheap=True), start) or start
            )
    place = None if start is None else axis.place(start.log_value - _SAFE)
    slope = 1.0 if start is None else start.slope
    found = border(axis, excess, start=place, slope=slope)
    if found.private is None or _is_far(axis, verdicts):  # none is private enough, or the time was too short
        is_patient = True
        begun, slope = _learnt(axis, verdicts, place, slope)
        found = border(axis, excess, start=begun, slope=slope)
    sharp = found.lost is not None and verdicts[found.lost].at_least > 0.0
    if found.private is None:
        return Solution(None, verdicts[axis.least].epsilon, sharp, False)
    value = axis.value(found.private)
    achieved = target.achieved(at(value), verdicts[found.private])
    return Solution(value, achieved, sharp, found.lost is None)


def _learnt(
    axis: Axis, verdicts: dict[int, Verdict], place: int | None, slope: float
) -> tuple[int | None, float]:
    """Where to go on after a search that had too little time, and the slope there."""
    seen = sorted((abs(one.at_most), at) for at, one in verdicts.items() if math.isfinite(one.at_most))
    if not seen:
        return place, slope
    here = seen[0][1]
    excess, log_value = verdicts[here].at_most, math.log(axis.value(here))
    if len(seen) > 1:
        other = seen[1][1]
        steep = (verdicts[other].at_most - excess) / (math.log(axis.value(other)) - log_value)
        slope = steep if steep > 0.0 else slope
    root = min(max(axis.place(log_value - excess / slope), axis.least), axis.most)
    return root, slope


def _is_far(axis: Axis, verdicts: dict[int, Verdict]) -> bool:
    """Whether the border may be far from the least private place known to meet the target, if any is."""
    private = max((place for place, one in verdicts.items() if one.at_most <= 0.0), default=None)
    if private is None:
        return True
    not_private = [place for place, one in verdicts.items() if place > private and one is not _UNKNOWN]
    farthest = min(not_private, default=axis.most)
    return axis.value(farthest) > _FAR_OFF * axis.value(private)


def _judged_by(until: float, target: Target, mechanism: Mechanism) -> Verdict:
    """A verdict with narrow bounds up to some time of this thread, then with wide ones, and then none."""
    left = until - time.thread_time()
    if left < -_SECONDS_MORE:
        return _UNKNOWN
    verdict = _UNKNOWN
    if left > 0.0:
        with CLOCK.running(left):
            verdict = target.judge(mechanism)
        if verdict.at_most - verdict.at_least < _WIDE or until == math.inf:
            return verdict
    with CLOCK.running(_SECONDS_MORE):
        rough = target.judge_roughly(mechanism)
    return rough if rough.at_most < verdict.at_most else verdict


def _start(axis: Axis, at: At, target: Target) -> Start | None:
    """Where to start; None if questions are fast and no plan is needed."""
    low, high = axis.value(axis.least), axis.value(axis.most)
    if target.delta == 0.0 or (_has_closed_form(at(low)) and _has_closed_form(at(high))):
        return None
    return planned_start(axis, at, target)


def planned_start(axis: Axis, at: At, target: Target) -> Start:
    """A rough border by the saddle-point method, which is fast and wrong by some percent."""
    coarse = LogAxis(axis.value(axis.least), axis.value(axis.most), _PLAN_RESOLUTION)
    found = border(
        coarse,
        lambda place: target.planned_excess(at(coarse.value(place))),
        learn_from=3.0 * _PLAN_RESOLUTION,
    )
    return Start(found.log_value, found.slope)


def estimated_start(
    axis: Axis, at: At, excess_of: Callable[[Mechanism], float], start: Start
) -> Start | None:
    """The border by a few estimates near a planned place; None if they do not find it."""
    ends = (math.log(axis.value(axis.least)), math.log(axis.value(axis.most)))
    here, slope = min(max(start.log_value, ends[0]), ends[1]), start.slope
    low, high, blind = -math.inf, math.inf, _BLIND  # the border lies between low and high
    last: tuple[float, float] | None = None
    for _ in range(_MOST_STEPS):
        try:
            excess = excess_of(at(math.exp(here)))
        except (EpsilonTooLargeError, CannotCertifyError):
            return None
        low, high = (low, here) if excess > 0.0 else (here, high)
        if math.isinf(excess):
            step, blind = -math.copysign(blind, excess), 2.0 * blind
        else:
            if last is not None and excess == last[1]:  # the same whole number of steps as before
                return Start(here, slope)
            if last is not None and (excess - last[1]) * (here - last[0]) > 0.0:
                slope = (excess - last[1]) / (here - last[0])
            last, step = (here, excess), -min(max(excess / slope, -_LONGEST), _LONGEST)
        following = here + step
        if abs(excess) < _NEAR:
            return Start(following, slope) if ends[0] <= following <= ends[1] else None
        if not low < following < high:
            following = 0.5 * (low + high)
        following = min(max(following, ends[0]), ends[1])
        if following == here:
            return None
        here = following
    return None


def _have_pairs(steps: Steps) -> bool:
    return not (steps.custom or steps.below or steps.charge) and steps.have_worst_shifts


def _has_closed_form(mechanism: Mechanism) -> bool:
    """Whether delta has a closed form, as for one release, sampled or not."""
    release = mechanism.mechanism if isinstance(mechanism, PoissonSampled) else mechanism
    return not isinstance(release, (Composed, SphericalNoise))


def _as_poisson(mechanism: Mechanism) -> Mechanism:
    """The mechanism with Poisson samples in place of other batches, which costs about as much."""
    composed = mechanism if isinstance(mechanism, Composed) else Composed(mechanism)
    parts: list[tuple[Any, int]] = []
    for step, times in composed.parts:
        if isinstance(step, Batched):
            rate, releases = step.nominal
            step, times = PoissonSampled(step.mechanism, rate), times * releases
        parts.append((step, times))
    return Composed(parts)


def _cells_alone(steps: Steps) -> list[EnclosedStep]:
    """The custom steps, if there are no others; else an empty list."""
    return [] if steps.noisy or steps.charge > 0.0 else list(steps.custom)


def _sketch(step: EnclosedStep, direction: Adjacency) -> Enclosed:
    if isinstance(step, CellStep):
        return step.enclosed(direction, sketched=True)
    return step.enclosed(direction)


def _log_ratio(cost: float, budget: float) -> float:
    """log(cost / budget), with the sign of cost - budget in spite of rounding."""
    if cost <= 0.0:
        return -math.inf
    ratio = math.log(cost) - math.log(budget) if math.isfinite(cost) else math.inf
    return min(ratio, 0.0) if cost <= budget else max(ratio, _JUST_ABOVE)


def _log_odds_ratio(cost: float, budget: float) -> float:
    """log of the odds of one delta over those of another; unlike log delta it varies for deltas near 1."""
    if not 0.0 < cost < 1.0:
        return -math.inf if cost <= 0.0 else math.inf
    ratio = math.log(cost) - math.log(budget) - math.log1p(-cost) + math.log1p(-budget)
    return min(ratio, 0.0) if cost <= budget else max(ratio, _JUST_ABOVE)
