# SPDX-License-Identifier: Apache-2.0
"""A privacy target, whether a mechanism meets it, and the least private of many mechanisms that does.

The mechanisms stand on an axis along which privacy falls: larger rates, more steps, less noise. `solve` plans
where to begin by the saddle-point method, which is cheap and proves nothing. Then it asks the accountant, and
its answer and the next mechanism on the axis were both asked.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.accounting import delta as delta_of
from ggdp.accounting import epsilon as epsilon_of
from ggdp.accounting.engines import contour, lattice
from ggdp.accounting.engines.atoms import Enclosed, grid_above, origin_of, plan_of, span_of
from ggdp.accounting.engines.cells import CellComposition
from ggdp.accounting.engines.curve import MOST_EPSILON, Curve, crossing
from ggdp.accounting.engines.pairs import Engine, PairComposition
from ggdp.accounting.engines.tilt import (
    Parts,
    Saddle,
    TiltPlan,
    planned_epsilon,
    saddle_for_epsilon,
    saddle_for_log_delta,
)
from ggdp.accounting.profile import checked_delta
from ggdp.accounting.steps import CellStep, Steps, steps_of
from ggdp.accounting.vectors.explicit_shifts import one_coordinate
from ggdp.errors import CannotCertifyError, EpsilonTooLargeError
from ggdp.mechanisms import Adjacency, Batched, Composed, Mechanism, PoissonSampled, SphericalNoise
from ggdp.search import Axis, LogAxis, border

_JUST_ABOVE = 5e-324
_PLAN_RESOLUTION = 1e-3
_ROUGH = 1e-3  # width of bounds whose estimate is good to about 1e-5
_FEW = 300  # releases, of which a lattice is cheap
_FINER = (1.0, 0.25, 0.05)  # shares of it that lattices are asked for in turn: far cheaper than all engines
_COARSEST, _SHARE = 0.02, 0.01  # spacing of a sketch's lattice, over 1 + theta and over a loss's deviation
_MOST_POINTS = 2**18
_SENSELESS = 100.0  # of log delta, which is at most 0
_FAR = 2.0**45  # spacings from zero, beyond which the places of a lattice are not whole numbers
_CLEARLY_LESS = 0.5  # planned at this share of another direction, one is not looked at; plans err by 25%

At = Callable[[float], Mechanism]


@dataclass(frozen=True)
class Verdict:
    """Certified bounds of log(cost / budget), where both are epsilons or both are deltas.

    Attributes:
        at_least: above 0, the target is certainly missed.
        at_most: at or below 0, the target is certainly met.
        epsilon: epsilon at the target's delta, where that is what was asked.
    """

    at_least: float
    at_most: float
    epsilon: Bounds | None = None


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
        """Refuse, before any search, a mechanism that the accountant does not cover."""
        steps_of(mechanism, self.adjacency)

    def met_by(self, mechanism: Mechanism) -> Bounds | None:
        """Epsilon of a mechanism that certifiably meets the target; None if it does not."""
        try:
            found = epsilon_of(mechanism, delta=self.delta, adjacency=self.adjacency)
        except (EpsilonTooLargeError, CannotCertifyError):
            return None
        return found if found.upper <= self.epsilon else None

    def judge(self, mechanism: Mechanism) -> Verdict:
        """Compare with the budget: by delta where that is the cheap or the only question, else by epsilon.

        One release has its delta in closed form; an epsilon of 0 has no logarithm. The two comparisons are
        equivalent: delta(epsilon) <= delta exactly if epsilon(delta) <= epsilon.
        """
        if self.by_delta(mechanism):
            return self._judge_delta(mechanism)
        try:
            cost = epsilon_of(mechanism, delta=self.delta, adjacency=self.adjacency)
        except (EpsilonTooLargeError, CannotCertifyError):  # delta at the target's epsilon may be known
            return self._judge_delta(mechanism)
        return Verdict(_log_ratio(cost.lower, self.epsilon), _log_ratio(cost.upper, self.epsilon), cost)

    def by_delta(self, mechanism: Mechanism) -> bool:
        """Whether `judge` compares delta at the target's epsilon."""
        return self.epsilon == 0.0 or (self.delta > 0.0 and _has_closed_form(mechanism))

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
        """About log(epsilon / target), or of delta where epsilon is 0, by the saddle-point method; good for a
        start, never a bound.
        """
        steps = steps_of(_as_poisson(mechanism), self.adjacency)
        if cells := _cells_alone(steps):
            return self._sketched_excess(cells, steps.directions)
        plan = one_coordinate(steps)  # of a vector no worst shift may be known
        log_delta = math.log(self.delta)
        if self.epsilon == 0.0:
            saddles = [saddle_for_epsilon(TiltPlan.of(parts), 0.0) for parts in plan.pairs()]
            return max(saddle.log_delta for saddle in saddles) - log_delta
        epsilons = [planned_epsilon(parts, log_delta) for parts in plan.pairs()]
        return _log_ratio(max(epsilons), self.epsilon)

    def estimated_excess(self, mechanism: Mechanism) -> float:
        """log(epsilon / target), or of delta where epsilon is 0, to about 1e-5, never a bound; for delta > 0.

        It takes the estimates of engines that are told to be content with wide bounds, which makes a question
        about few releases some ten times cheaper. Where no pair is known to dominate a release, the certified
        upper bound is what matters, and is asked for.
        """
        steps = steps_of(mechanism, self.adjacency)
        if cells := _cells_alone(steps):
            return self._sketched_excess(cells, steps.directions)
        if steps.custom or steps.below or steps.charge or not steps.have_worst_shifts:
            whole = mechanism if isinstance(mechanism, Composed) else Composed(mechanism)
            return self.judge(whole).at_most
        log_delta = math.log(self.delta)
        if self.epsilon == 0.0:
            return max(_estimated_log_delta(parts) for parts in steps.pairs()) - log_delta
        planned = sorted(
            ((planned_epsilon(parts, log_delta), parts) for parts in steps.pairs()),
            key=lambda one: one[0],
            reverse=True,
        )
        worst = 0.0
        for plan, parts in planned:
            if plan > _CLEARLY_LESS * worst:
                worst = max(worst, _estimated_epsilon(parts, log_delta))
        return _log_ratio(worst, self.epsilon)

    def _sketched_excess(self, cells: list[CellStep], directions: tuple[Adjacency, ...]) -> float:
        """log(epsilon / target) of custom releases alone, from sketches of their losses."""
        log_delta, worst = math.log(self.delta), -math.inf
        for direction in directions:
            try:
                parts = [step.enclosed(direction, sketched=True) for step in cells]
                if self.epsilon == 0.0:
                    worst = max(worst, _sketched_log_delta(parts) - log_delta)
                else:
                    worst = max(worst, _log_ratio(_sketched_epsilon(parts, log_delta), self.epsilon))
            except (EpsilonTooLargeError, CannotCertifyError):
                return math.inf
            if all(step.rate == 1.0 for step in cells):
                break  # both directions cost the same where no record is sampled, or nearly so
        return worst

    def _judge_delta(self, mechanism: Mechanism) -> Verdict:
        try:
            cost = delta_of(mechanism, epsilon=self.epsilon, adjacency=self.adjacency)
        except CannotCertifyError:  # nothing is known, so that nothing is certified
            return Verdict(-math.inf, math.inf)
        return Verdict(_log_ratio(cost.lower, self.delta), _log_ratio(cost.upper, self.delta))

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:g} at delta = {self.delta:g}"


@dataclass(frozen=True)
class Solution:
    """The least private place of an axis that meets a target, and what its neighbour says.

    Attributes:
        value: at that place; None if not even the most private end meets the target.
        achieved: epsilon there; at the most private end if `value` is None, and None where it is beyond
            reach.
        sharp: the next place certifiably misses the target.
        is_last: there is no next place.
    """

    value: float | None
    achieved: Bounds | None
    sharp: bool
    is_last: bool


@dataclass(frozen=True)
class Start:
    """About where the border of privacy lies on an axis. It proves nothing.

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
        place was asked and its upper bound does not.
    """
    verdicts: dict[int, Verdict] = {}

    def excess(place: int) -> float:
        verdicts[place] = target.judge(at(axis.value(place)))
        return verdicts[place].at_most

    start = start or _start(axis, at, target)
    place = None if start is None else axis.place(start.log_value)
    found = border(axis, excess, start=place, slope=1.0 if start is None else start.slope)
    sharp = found.lost is not None and verdicts[found.lost].at_least > 0.0
    if found.private is None:
        return Solution(None, verdicts[axis.least].epsilon, sharp, False)
    value = axis.value(found.private)
    achieved = target.achieved(at(value), verdicts[found.private])
    return Solution(value, achieved, sharp, found.lost is None)


def _start(axis: Axis, at: At, target: Target) -> Start | None:
    """Where to start; None where questions are cheap and no plan is needed."""
    low, high = axis.value(axis.least), axis.value(axis.most)
    if target.delta == 0.0 or (_has_closed_form(at(low)) and _has_closed_form(at(high))):
        return None
    return planned_start(axis, at, target)


def planned_start(axis: Axis, at: At, target: Target) -> Start:
    """Where the border lies by the saddle-point method, which is cheap and good to some percent."""
    coarse = LogAxis(axis.value(axis.least), axis.value(axis.most), _PLAN_RESOLUTION)
    found = border(
        coarse,
        lambda place: target.planned_excess(at(coarse.value(place))),
        learn_from=3.0 * _PLAN_RESOLUTION,
    )
    return Start(found.log_value, found.slope)


def _has_closed_form(mechanism: Mechanism) -> bool:
    """Whether delta is a closed form: of one release, alone or sampled."""
    release = mechanism.mechanism if isinstance(mechanism, PoissonSampled) else mechanism
    return not isinstance(release, (Composed, SphericalNoise))


def _estimated_log_delta(parts: Parts) -> float:
    """Log delta at epsilon = 0, the total variation, as `_estimated_epsilon`."""
    if sum(times for _, times in parts) > 1:
        plan = TiltPlan.of(parts)
        saddle = saddle_for_epsilon(plan, 0.0)
        for engine in _cheap_engines(parts, _ROUGH):
            try:
                found = engine(parts, plan, saddle).log_delta(0.0)
            except ArithmeticError:
                continue
            if found.upper - found.lower <= _ROUGH:
                return found.estimate
    return math.log(max(PairComposition(parts).delta(0.0).estimate, _JUST_ABOVE))


def _cheap_engines(parts: Parts, wide: float) -> list[Engine]:
    """The contour and a few lattices, the finest last; some width in log delta is enough."""
    engines: list[Engine] = [partial(lattice.build, tolerance=share * wide) for share in _FINER]
    releases = sum(times for _, times in parts)
    may_oscillate = any(pair.rate < 1.0 for pair, _ in parts) and releases <= _FEW  # fails slowly
    return [*engines, contour.draw] if may_oscillate else [contour.draw, *engines]


def _estimated_epsilon(parts: Parts, log_delta: float) -> float:
    """Epsilon at log delta to about 1e-5, uncertified: the contour, else a coarse grid, else all engines."""
    if sum(times for _, times in parts) > 1:
        plan = TiltPlan.of(parts)
        saddle = saddle_for_log_delta(plan, log_delta)
        wide = _ROUGH * max(saddle.theta * saddle.epsilon, 1e-2)
        reach = 2.0 * saddle.deviation
        for engine in _cheap_engines(parts, wide):
            try:
                found = crossing(engine(parts, plan, saddle), log_delta, saddle.epsilon, reach)
            except ArithmeticError:
                continue
            if found.width <= _ROUGH * found.upper:
                return max(found.estimate, 0.0)
    return PairComposition(parts).epsilon(log_delta).estimate


def _as_poisson(mechanism: Mechanism) -> Mechanism:
    """The same with Poisson samples in place of other batches; it costs about as much."""
    composed = mechanism if isinstance(mechanism, Composed) else Composed(mechanism)
    parts: list[tuple[Any, int]] = []
    for step, times in composed.parts:
        if isinstance(step, Batched):
            rate, releases = step.nominal
            step, times = PoissonSampled(step.mechanism, rate), times * releases
        parts.append((step, times))
    return Composed(parts)


def _cells_alone(steps: Steps) -> list[CellStep]:
    """The steps if all of them are known by cells, else none."""
    found = [step for step in steps.custom if isinstance(step, CellStep)]
    return [] if steps.noisy or steps.charge > 0.0 or len(found) < len(steps.custom) else found


def _sketched_log_delta(parts: list[Enclosed]) -> float:
    """Log delta of custom releases at epsilon = 0, as `_sketched_epsilon`."""
    if sum(part.times for part in parts) > 1:
        plan = plan_of(parts, ())
        if (curve := _sketched_curve(parts, plan, saddle_for_epsilon(plan, 0.0))) is not None:
            return curve.log_delta(0.0).estimate
    return math.log(max(CellComposition(parts, ()).delta(0.0).estimate, _JUST_ABOVE))


def _sketched_epsilon(parts: list[Enclosed], log_delta: float) -> float:
    """Epsilon of custom releases to about 1e-4, uncertified: one lattice of the upper atoms."""
    if sum(part.times for part in parts) == 1:
        return CellComposition(parts, ()).epsilon(log_delta).estimate
    plan = plan_of(parts, ())
    saddle = saddle_for_log_delta(plan, log_delta)
    curve = _sketched_curve(parts, plan, saddle)
    if curve is None:
        return saddle.epsilon
    return max(crossing(curve, log_delta, saddle.epsilon, 2.0 * saddle.deviation).estimate, 0.0)


def _sketched_curve(parts: list[Enclosed], plan: TiltPlan, saddle: Saddle) -> Curve | None:
    """One lattice; None for losses so large that they are far from any target, where the saddle will do."""
    if not saddle.deviation > 0.0:
        raise CannotCertifyError("the losses are too small or too large for a sketch")
    if saddle.log_delta > _SENSELESS:
        return None
    window = lattice.window_of(plan, saddle)
    each = saddle.deviation / math.sqrt(sum(part.times for part in parts))
    spacing = max(min(_COARSEST / (saddle.theta + 1.0), _SHARE * each), 1.5 * window / _MOST_POINTS)
    spans = [span_of(part, saddle) for part in parts]
    farthest = max(part.times * max(map(abs, span)) for part, span in zip(parts, spans, strict=True))
    if any(high - low > _MOST_POINTS * spacing for low, high in spans) or farthest > _FAR * spacing:
        return None
    laws = [
        (grid_above(part.above, spacing, *span, origin_of(part)), part.times)
        for part, span in zip(parts, spans, strict=True)
    ]
    size = 1 << max(6, math.ceil(math.log2(1.5 * window / spacing)))
    return lattice.compose(laws, saddle, size, spacing)


def _log_ratio(cost: float, budget: float) -> float:
    """log(cost / budget), whose sign is that of cost - budget whatever the rounding."""
    if cost <= 0.0:
        return -math.inf
    ratio = math.log(cost) - math.log(budget) if math.isfinite(cost) else math.inf
    return min(ratio, 0.0) if cost <= budget else max(ratio, _JUST_ABOVE)
