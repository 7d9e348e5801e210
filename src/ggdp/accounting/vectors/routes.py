# SPDX-License-Identifier: Apache-2.0
"""Vector releases without a known worst shift: a certified upper bound, explicit splits below it, and
estimates.

| route | answer |
|---|---|
| every step has a known worst shift | none of this file: the engines compose it, `Bounds` |
| "score order" | `Bounds`: one number dominates, norms up to the matched one |
| "certified renyi" | `Bounds`: Renyi over all splits above, the best explicit split below |
| "certified renyi and gaussian" | `Bounds`: Renyi for all but a step's last repetitions, Gaussian for those |
| "certified hybrid" | `Bounds`: one coordinate as long as the l_1 norm can be, d^(1-1/p) times the l_p norm |
| "certified score order" | `Bounds`: one coordinate as long as the matched norm can be |
| "certified gaussian" | `Bounds`: Gaussian noise with the same density at its centre, in the l_2 norm |
| method="scanned", method="one-coordinate" | `Estimate` |

docs/what-is-proved.md names the proof of each and the test that tries it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ggdp import arguments
from ggdp.accounting.bounds import Bounds, Estimate
from ggdp.accounting.engines import cells as general
from ggdp.accounting.engines import contour
from ggdp.accounting.engines.curve import crossing
from ggdp.accounting.engines.tilt import TiltPlan, saddle_for_epsilon, saddle_for_log_delta
from ggdp.accounting.steps import Direction
from ggdp.accounting.vectors import score_order as score_route
from ggdp.accounting.vectors.explicit_shifts import flat, leaves, mapped, quick_splits, sampled_splits, split
from ggdp.accounting.vectors.renyi import worst_step
from ggdp.accounting.vectors.renyi_conversion import RenyiSteps
from ggdp.errors import CannotCertifyError
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, Mechanism
from ggdp.privacy_loss.dominating import Parts, checked_steps, directions, worst_shift

METHODS = ("scanned", "one-coordinate")
Ask = Callable[[Mechanism, float], Bounds]
"""A question, epsilon at a delta or delta at an epsilon, asked of a mechanism whose steps have known worst
shifts, with so much of delta spent elsewhere."""

_WIDE = 0.05  # relative width of an engine's answer from which on Renyi divergences may do better
_MOST_STRETCH = 1.12  # beyond, the hybrid bound is worse than the Renyi one
_SPLITS = (1, 2, 3, 5, 10, 30, 100, 1000, 10_000, 100_000, 1_000_000)
_FEWEST_REPEATED = 10  # steps of which the last ones may be taken apart
_MOST_LOSS = 500.0
_LEAST_LOG_DELTA = -600.0
_UNSEEN = 1e-9  # share of delta


def check(mechanism: Mechanism, adjacency: Adjacency) -> None:
    """Refuse a mechanism that no route covers.

    Raises:
        ValueError: it is out of range.
    """
    checked_steps(mechanism, adjacency)


def has_worst_shifts(mechanism: Mechanism, adjacency: Adjacency) -> bool:
    """Whether the engines can answer: every step has a known worst shift."""
    return all(worst_shift(step, rate, adjacency) is not None for step, rate in leaves(mechanism))


def named(found: Bounds, mechanism: Mechanism, adjacency: Adjacency, bound: "Bound") -> Bounds:
    """An engine's answer for vectors: why it is one goes into `method`; Renyi divergences cut it if wide."""
    worst = [worst_shift(step, rate, adjacency) for step, rate in leaves(mechanism) if step.dimension != 1]
    reasons = sorted({shift.reason for shift in worst if shift is not None})
    if not reasons:
        return found
    steps = checked_steps(mechanism, adjacency)
    if math.isinf(found.upper) or found.width > _WIDE * found.upper:
        upper = bound.above(_renyi_steps(steps, adjacency))
        if upper < found.upper:
            upper, method = max(upper, found.lower), "certified renyi"
            found = Bounds(found.lower, min(max(found.estimate, found.lower), upper), upper, method)
    return replace(found, method=", ".join([*reasons, found.method]))


def _renyi_steps(steps: list[tuple[AdditiveNoise, float, int]], adjacency: Adjacency) -> RenyiSteps:
    return RenyiSteps(tuple((*worst_step(step, rate, adjacency), times) for step, rate, times in steps))


def _gaussian_last(mechanism: Mechanism, adjacency: Adjacency) -> tuple[RenyiSteps, list[Parts]] | None:
    """Where one kind of step has no worst shift: all but its last repetitions, and those with the Gaussian
    noise that dominates them. Other steps count as earlier ones, wherever they are."""
    parts = mechanism.parts if isinstance(mechanism, Composed) else ((mechanism, 1),)
    steps = checked_steps(mechanism, adjacency)
    without = [i for i, (noise, rate, _) in enumerate(steps) if worst_shift(noise, rate, adjacency) is None]
    noise, rate, times = steps[without[0]]
    last = math.ceil((0.05 if noise.noise.beta < 1.5 else 0.2) * times)
    number = score_route.gaussian(Composed(parts[without[0]][0], times=last), adjacency)
    if len(without) != 1 or times < _FEWEST_REPEATED or number is None:
        return None
    others = [step for i, step in enumerate(steps) if i != without[0]]
    gains = _renyi_steps([(noise, rate, times - last), *others], adjacency)
    return gains, directions(number.mechanism, adjacency)


def one_coordinate(mechanism: Mechanism) -> Mechanism:
    """The mechanism with all of a vector's shift in its largest coordinate: a lower bound of its cost, and a
    plan."""
    return mapped(mechanism, flat)


def _explicit(mechanism: Mechanism, adjacency: Adjacency) -> Mechanism:
    """One shift that is allowed: the worst where it is known, all in the largest coordinate where it is
    not."""

    def choose(step: AdditiveNoise, rate: float) -> AdditiveNoise:
        return step if worst_shift(step, rate, adjacency) is not None else flat(step, rate)

    return mapped(mechanism, choose)


def answer(
    mechanism: Mechanism, adjacency: Adjacency, method: str | None, ask: Ask, bound: "Bound"
) -> Bounds | Estimate | None:
    """The answer where the engines alone have none; None where they do.

    Args:
        mechanism: what is released.
        adjacency: which datasets are neighbours.
        method: "scanned", "one-coordinate", or None for the best route.
        ask: the question, to the engines.
        bound: the same question, to Renyi divergences and to quick lower bounds.
    """
    if method is not None:
        arguments.one_of("method", method, METHODS, hint="or leave it out for the best certified route")
        return (
            _one_coordinate_estimate(mechanism, ask)
            if method == "one-coordinate"
            else _scanned(mechanism, adjacency, ask)
        )
    noisy = leaves(mechanism)
    if not noisy or all(step.dimension == 1 for step, _ in noisy):
        return None
    steps = checked_steps(mechanism, adjacency)
    if has_worst_shifts(mechanism, adjacency):
        return None
    one = ask(_explicit(mechanism, adjacency), 0.0)
    number = score_route.one_number(mechanism, adjacency)
    if number is not None and not bound.affords(number.delta):
        number = None
    if number is not None and number.exact:
        found = _asked(ask, bound, number)
        if found is not None:
            upper = max(found.upper, one.lower)
            estimate = min(max(found.estimate, one.lower), upper)
            return Bounds(one.lower, estimate, upper, f"{score_route.NAME}, {found.method}")
    upper, how = bound.above(_renyi_steps(steps, adjacency)), "certified renyi"
    name = score_route.NAME if number is not None else score_route.GAUSSIAN
    candidate = number if number is not None else score_route.gaussian(mechanism, adjacency)
    better = _asked(ask, bound, candidate) if candidate is not None else None
    if better is not None and better.upper < upper:
        upper, how = better.upper, f"certified {name}"
    apart = _gaussian_last(mechanism, adjacency) if how == "certified renyi" else None
    if apart is not None:
        smoothed = max(bound.above_before(apart[0], parts) for parts in apart[1])
        upper, how = (smoothed, "certified renyi and gaussian") if smoothed < upper else (upper, how)
    stretched = _stretched(mechanism)
    if stretched is not None:
        other = ask(stretched, 0.0).upper
        upper, how = (other, "certified hybrid") if other < upper else (upper, how)
    upper = min(upper, bound.pure(_largest_l1_loss(steps, adjacency)))
    lower, estimate = one.lower, one.estimate
    for parts in quick_splits(mechanism, adjacency):
        lower = max(lower, bound.below(parts, lower))
    for direction in sampled_splits(mechanism, adjacency):
        lower = max(lower, bound.below_described(direction))
    estimate, upper = max(estimate, lower), max(upper, lower)  # they may meet, to within rounding
    return Bounds(lower, min(max(estimate, lower), upper), upper, how)


def _asked(ask: Ask, bound: "Bound", number: score_route.OneNumber) -> Bounds | None:
    """The answer of a number; None where it would be too much to be computed, or is more than it covers."""
    try:
        found = ask(number.mechanism, number.delta)
    except (CannotCertifyError, ValueError):  # the vector itself was checked: only the answer is too large
        return None
    return found if bound.reached(found) <= number.largest_epsilon else None


@dataclass(frozen=True)
class EpsilonAt:
    """Epsilon at a delta."""

    log_delta: float

    def reached(self, found: Bounds) -> float:
        """The epsilon that an answer is about."""
        return found.upper

    def affords(self, spent: float) -> bool:
        """Whether so much of delta can be spent elsewhere without being seen."""
        return spent <= _UNSEEN * math.exp(self.log_delta)

    def above(self, gains: RenyiSteps) -> float:
        """From Renyi divergences."""
        return gains.epsilon(self.log_delta)

    def above_before(self, gains: RenyiSteps, last: Parts) -> float:
        """From Renyi divergences of all steps but the last."""
        return gains.epsilon_before(last, self.log_delta)

    def pure(self, largest_loss: float) -> float:
        """From the largest loss there is."""
        return largest_loss

    def below(self, parts: Parts, known: float) -> float:
        """Of an explicit shift, certified; `known` where it is no larger, or takes long."""
        plan = TiltPlan.of(parts)
        saddle = saddle_for_log_delta(plan, self.log_delta)
        planned = saddle.epsilon + (saddle.log_delta - self.log_delta) / saddle.theta
        if not known < planned < _MOST_LOSS:
            return known
        try:
            curve = contour.draw(parts, plan, saddle)
            return crossing(curve, self.log_delta, saddle.epsilon, 2.0 * saddle.deviation).lower
        except CannotCertifyError:
            return known

    def below_described(self, direction: Direction) -> float:
        """Of an explicit shift given by cells, certified."""
        return general.epsilon_of(direction, self.log_delta).lower


@dataclass(frozen=True)
class DeltaAt:
    """delta at an epsilon."""

    epsilon: float

    def reached(self, found: Bounds) -> float:
        """The epsilon that an answer is about."""
        return self.epsilon

    def affords(self, spent: float) -> bool:
        """Whether so much can be added to delta; the answer is wide where that is seen."""
        return spent < _UNSEEN

    def above(self, gains: RenyiSteps) -> float:
        """From Renyi divergences."""
        return max(math.exp(gains.log_delta(self.epsilon)), 5e-324)

    def above_before(self, gains: RenyiSteps, last: Parts) -> float:
        """From Renyi divergences of all steps but the last."""
        return max(math.exp(gains.log_delta_before(last, self.epsilon)), 5e-324)

    def pure(self, largest_loss: float) -> float:
        """From the largest loss there is."""
        return 0.0 if self.epsilon >= largest_loss else 1.0

    def below(self, parts: Parts, known: float) -> float:
        """Of an explicit shift, certified; `known` where it is no larger, or takes long."""
        plan = TiltPlan.of(parts)
        saddle = saddle_for_epsilon(plan, self.epsilon)
        if not (
            saddle.deviation > 0.0 and saddle.log_delta > max(_LEAST_LOG_DELTA, math.log(known + 5e-324))
        ):
            return known
        try:
            return math.exp(contour.draw(parts, plan, saddle).log_delta(self.epsilon).lower)
        except CannotCertifyError:
            return known

    def below_described(self, direction: Direction) -> float:
        """Of an explicit shift given by cells, certified."""
        return general.delta_of(direction, self.epsilon).lower


Bound = EpsilonAt | DeltaAt


def _stretched(mechanism: Mechanism) -> Mechanism | None:
    """One coordinate that holds the l_1 norm of any shift, where that is not much longer; it dominates by the
    hybrid argument."""
    longest = 1.0

    def stretch(step: AdditiveNoise, rate: float) -> AdditiveNoise:
        nonlocal longest
        if step.dimension == 1 or step.noise.beta == 2.0:
            return step
        if step.shift is not None:
            largest = max(abs(value) for value, _ in step.shift)
            factor = math.fsum(abs(value) * count for value, count in step.shift) / largest
            longest = max(longest, factor)
            return AdditiveNoise(step.noise, step.sensitivity, step.norm, shift=((largest * factor, 1),))
        factor = float(step.dimension) ** (1.0 - 1.0 / step.p)
        longest = max(longest, factor)
        if factor > _MOST_STRETCH:
            return step
        return replace(step, sensitivity=step.sensitivity * factor * (1.0 + 1e-15), dimension=1)

    stretched = mapped(mechanism, stretch)
    return stretched if longest <= _MOST_STRETCH else None


def largest_loss(mechanism: Mechanism, adjacency: Adjacency) -> float:
    """An upper bound of the loss, which is the mechanism's epsilon at delta = 0; infinite for noise other
    than Laplace's."""
    if not has_worst_shifts(mechanism, adjacency):
        return _largest_l1_loss(checked_steps(mechanism, adjacency), adjacency)
    worst = directions(mechanism, adjacency)
    return max(math.fsum(times * pair.supremum for pair, times in parts) for parts in worst)


def _largest_l1_loss(steps: list[tuple[AdditiveNoise, float, int]], adjacency: Adjacency) -> float:
    """The largest loss of Laplace releases: the l_1 norm of the shift, sampled; infinite for other noise."""
    total = 0.0
    for step, rate, times in steps:
        if step.noise.beta != 1.0:
            return math.inf
        total += times * _largest_laplace_loss(_l1_norm(step), rate, adjacency, step.shift is not None)
    return total * (1.0 + 1e-12)


def _largest_laplace_loss(length: float, rate: float, adjacency: Adjacency, known: bool) -> float:
    """Of one release whose density ratios to that without the record are within e^+-length; a known shift is
    the distance of the two centres themselves."""
    if rate == 1.0 or length > _MOST_LOSS:
        return length if known or adjacency is not Adjacency.REPLACE else 2.0 * length
    removed, added = math.log1p(rate * math.expm1(length)), -math.log1p(rate * math.expm1(-length))
    return removed + added if adjacency is Adjacency.REPLACE else removed


def _l1_norm(step: AdditiveNoise) -> float:
    unit = step.sensitivity / step.noise.scale
    if step.shift is not None:
        return unit * float(math.fsum(abs(value) * count for value, count in step.shift))
    return float(unit * float(step.dimension) ** (1.0 - 1.0 / step.p))


def _one_coordinate_estimate(mechanism: Mechanism, ask: Ask) -> Estimate:
    caveat = "a shift spread over several coordinates can cost more; leave method out for a bound"
    return Estimate(ask(one_coordinate(mechanism), 0.0).estimate, "one-coordinate", caveat)


def _scanned(mechanism: Mechanism, adjacency: Adjacency, ask: Ask) -> Estimate:
    """The largest over equal splits, the same number of coordinates in every step."""
    steps = leaves(mechanism)
    if any(rate < 1.0 and worst_shift(step, rate, adjacency) is None for step, rate in steps):
        raise ValueError(
            "method must be left out, or be one-coordinate, for a Poisson-sampled vector, got scanned: once "
            "sampled, a split is no composition of its coordinates; leave method out for a certified bound"
        )
    most = max(step.dimension for step, _ in steps)
    counts = [count for count in _SPLITS if count < most] + ([int(most)] if most <= _SPLITS[-1] else [])
    best, at = 0.0, 1
    for count in counts:
        value = ask(split(mechanism, adjacency, count), 0.0).estimate
        best, at = (value, count) if value > best else (best, at)
    caveat = f"only equal splits were tried, the worst over {at} coordinates; leave method out for a bound"
    return Estimate(best, "scanned", caveat)
