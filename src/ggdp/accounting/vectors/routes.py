# SPDX-License-Identifier: Apache-2.0
"""What vector releases cost: several ways to a bound, called routes. The one with the smallest bound answers.

| route | answer |
|---|---|
| every step has a known worst shift | the engines compose it, `Bounds` |
| "score order" | `Bounds`: one number dominates, norms up to the matched one |
| "certified renyi" | `Bounds`: Renyi over all splits above, the best explicit split below |
| "certified renyi and gaussian" | `Bounds`: Renyi for all but a step's last repetitions, Gaussian for those |
| "certified hybrid" | `Bounds`: one coordinate as long as the l_1 norm can be, d^(1-1/p) times the l_p norm |
| "certified score order" | `Bounds`: one coordinate as long as the matched norm can be |
| "certified gaussian" | `Bounds`: Gaussian noise with the same density at its centre, in the l_2 norm |
| "certified score envelope" | `Bounds`: one number whose score is above that of every shift |
| method="scanned", method="one-coordinate" | `Estimate` |

docs/what-is-proved.md names the proof of each and the test that tries it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from ggdp.accounting.bounds import Bounds, Estimate
from ggdp.accounting.engines.atoms import Enclosed
from ggdp.accounting.engines.cells import CellComposition
from ggdp.accounting.engines.curve import MOST_EPSILON, seconds_for, too_large
from ggdp.accounting.engines.pairs import CLOSED_FORM, PairComposition
from ggdp.accounting.steps import Steps, no_single_shift
from ggdp.accounting.vectors import envelope, score_order
from ggdp.accounting.vectors.explicit_shifts import (
    SplitCost,
    one_coordinate,
    quick_splits,
    sampled_split,
    split,
    worst_or_one_coordinate,
)
from ggdp.accounting.vectors.renyi import worst_step
from ggdp.accounting.vectors.renyi_conversion import RenyiSteps
from ggdp.accounting.vectors.sum_norm import largest_l1_loss, reaches_largest_loss, stretched
from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError, EpsilonTooLargeError
from ggdp.privacy_loss.dominating import Parts

_NARROW = 1e-3  # relative width of an envelope's answer that is narrow enough; its error is far smaller
_WIDE = 0.05  # relative width of an answer above which Renyi divergences are tried too
_SPLITS = (1, 2, 3, 5, 10, 30, 100, 1000, 10_000, 100_000, 1_000_000)
_FEWEST_REPEATED = 10  # steps from which on the last ones are treated separately
_UNSEEN = 1e-9  # largest share of delta that a domination may add
_SECONDS = 3.9  # of a thread's time that the engines may take for one question in all directions
_FOR_OTHERS = 0.9  # of these, kept for the second direction


class Cost(Protocol):
    """What a composition costs: epsilon, delta and the largest loss, for all directions of its adjacency."""

    def epsilon(self, log_delta: float) -> Bounds:
        """Certified epsilon at log delta."""
        ...

    def delta(self, epsilon: float) -> Bounds:
        """Certified delta at epsilon."""
        ...

    def largest_loss(self) -> tuple[float, float]:
        """Bounds on the largest loss, which is epsilon at delta = 0."""
        ...


Ask = Callable[[Cost], Bounds]
"""One question, epsilon at a delta or delta at an epsilon, to be put to several costs."""


def cost_of(steps: Steps) -> Cost:
    """The cost of some steps.

    Raises:
        NoDominatingPairError: custom releases are composed with a vector that no number dominates.
    """
    if steps.custom and not steps.have_worst_shifts:
        return _beside_custom(steps)
    if steps.custom:
        return _cells_cost(steps)
    if not steps.have_worst_shifts:
        return VectorCost(steps)
    worst = WorstDirection([PairComposition(parts) for parts in steps.pairs()], len(steps.noisy))
    vectors = [step.worst_shift for step in steps.noisy if step.noise.dimension != 1]
    reasons = sorted({shift.reason for shift in vectors if shift is not None})
    return WorstShiftCost(steps, worst, reasons) if reasons else worst


def _cells_cost(steps: Steps, *width: float) -> "WorstDirection":
    seen: list[tuple[list[Enclosed], Parts]] = []
    for direction in steps.directions:
        custom = [step.enclosed(direction) for step in steps.custom]
        known = steps.pairs_in(direction)
        # noise on a grid is symmetric: both directions are equal, and one is enough
        if not any(known == other and all(map(Enclosed.agrees, custom, ours)) for ours, other in seen):
            seen.append((custom, known))
    return WorstDirection([CellComposition(*one, *width) for one in seen])


@dataclass(frozen=True)
class WorstDirection:
    """The worse of several directions, at every question.

    Attributes:
        directions: what the composition costs in each.
        parts: how many different releases there are; it decides how long a question may take.
    """

    directions: Sequence[PairComposition | CellComposition]
    parts: int = 1

    def epsilon(self, log_delta: float) -> Bounds:
        """Certified epsilon at log delta; `EpsilonTooLargeError` where it exceeds what is computed."""
        first, *others = self.directions
        seconds = seconds_for(self.parts, _SECONDS)
        with CLOCK.running(seconds):
            with CLOCK.running(seconds - (_FOR_OTHERS if others else 0.0)):
                worst = first.epsilon(log_delta)
            for one in others:
                if not one.costs_no_more(log_delta, worst.lower):  # otherwise the first direction costs more
                    worst = Bounds.worst(worst, one.epsilon(log_delta, worst.lower))
        return _not_too_large(worst)

    def delta(self, epsilon: float) -> Bounds:
        """Certified delta at epsilon."""
        first, *others = self.directions if epsilon > 0.0 else self.directions[::-1]
        with CLOCK.running(seconds_for(self.parts, _SECONDS)):
            worst = first.delta(epsilon)
            for one in others:
                # delta(0) is the same in both directions
                if epsilon > 0.0 or worst.width > 1e-6 * worst.upper:
                    worst = Bounds.worst(worst, one.delta(epsilon, worst.lower))
        return worst

    def largest_loss(self) -> tuple[float, float]:
        """Bounds on the largest loss."""
        lower, upper = zip(*(one.largest_loss() for one in self.directions), strict=True)
        return max(lower), max(upper)


def _not_too_large(found: Bounds) -> Bounds:
    """Raise an error for an epsilon above `MOST_EPSILON`, unless it has a closed form."""
    if not found.method.endswith(CLOSED_FORM) and (found.lower > MOST_EPSILON or not found.upper < 1e6):
        raise too_large(found.lower)
    return found


@dataclass(frozen=True)
class WorstShiftCost:
    """Vectors whose worst shifts are known. Engines answer; Renyi divergences are tried if that is wide.

    Attributes:
        steps: all steps.
        worst: the cost of their worst shifts.
        reasons: why these are worst; they go into the answer's `method`.
    """

    steps: Steps
    worst: WorstDirection
    reasons: Sequence[str]

    def epsilon(self, log_delta: float) -> Bounds:
        """Certified epsilon at log delta."""
        return self._named(lambda cost: cost.epsilon(log_delta))

    def delta(self, epsilon: float) -> Bounds:
        """Certified delta at epsilon."""
        return self._named(lambda cost: cost.delta(epsilon))

    def largest_loss(self) -> tuple[float, float]:
        """Bounds on the largest loss."""
        return self.worst.largest_loss()

    def _named(self, ask: Ask) -> Bounds:
        found = ask(self.worst)
        if math.isinf(found.upper) or found.width > _WIDE * found.upper:
            other = ask(_RenyiCost(_renyi_steps(self.steps)))
            if other.upper < found.upper:
                upper = max(other.upper, found.lower)
                found = Bounds(found.lower, min(found.estimate, upper), upper, other.method)
        return replace(found, method=", ".join([*self.reasons, found.method]))


class VectorCost:
    """Vectors of which some have no known worst shift: the best of several bounds above, explicit shifts
    below.

    Args:
        steps: all steps.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    @cached_property
    def _explicit(self) -> Cost:
        """The cost of one shift that is allowed, which is a lower bound."""
        return cost_of(worst_or_one_coordinate(self._steps))

    @cached_property
    def _number(self) -> "_NumberCost | None":
        found = score_order.one_number(self._steps)
        return _NumberCost(score_order.NAME, found) if found is not None else None

    @cached_property
    def _gaussian(self) -> "_NumberCost | None":
        found = score_order.gaussian(self._steps)
        return _NumberCost(score_order.GAUSSIAN, found) if found is not None else None

    @cached_property
    def _renyi(self) -> "_RenyiCost":
        return _RenyiCost(_renyi_steps(self._steps))

    @cached_property
    def _renyi_and_gaussian(self) -> "_RenyiBeforeCost | None":
        return _gaussian_last(self._steps)

    @cached_property
    def _stretched(self) -> Cost | None:
        steps = stretched(self._steps)
        return cost_of(steps) if steps is not None else None

    @cached_property
    def _envelope(self) -> Cost | None:
        steps = envelope.enveloped(self._steps) if envelope.is_of_use(self._steps) else None
        return _cells_cost(steps, _NARROW) if steps is not None else None

    @cached_property
    def _splits(self) -> list[SplitCost]:
        return quick_splits(self._steps)

    @cached_property
    def _sampled_split(self) -> CellComposition | None:
        return sampled_split(self._steps)

    @cached_property
    def _largest_loss(self) -> float:
        return largest_l1_loss(self._steps)

    def largest_loss(self) -> tuple[float, float]:
        """Bounds on the largest loss."""
        if reaches_largest_loss(self._steps):
            return self._largest_loss * (1.0 - 4e-12), self._largest_loss
        lower = self._explicit.largest_loss()[0]
        return min(lower, self._largest_loss), self._largest_loss

    def epsilon(self, log_delta: float) -> Bounds:
        """Certified epsilon at log delta.

        Raises:
            EpsilonTooLargeError: it exceeds what is computed.
        """
        found = self._combined(
            lambda cost: cost.epsilon(log_delta), lambda split, known: split.epsilon(log_delta, known)
        )
        return _not_too_large(_at_most(found, self._largest_loss))

    def delta(self, epsilon: float) -> Bounds:
        """Certified delta at epsilon."""
        found = self._combined(
            lambda cost: cost.delta(epsilon), lambda split, known: split.delta(epsilon, known)
        )
        return _at_most(found, 0.0) if epsilon >= self._largest_loss else found

    def _combined(self, ask: Ask, ask_split: Callable[[SplitCost, float], float]) -> Bounds:
        one = ask(self._explicit)
        number = _asked(ask, lambda: self._number)
        if number is not None and self._number is not None and self._number.exact:
            upper = max(number.upper, one.lower)
            method = f"{score_order.NAME}, {number.method}"
            return Bounds.clipped(one.lower, number.estimate, upper, method)
        renyi = ask(self._renyi)
        upper, how = renyi.upper, renyi.method
        if number is None:
            number = _asked(ask, lambda: self._gaussian)
            name = score_order.GAUSSIAN
        else:
            name = score_order.NAME
        if number is not None and number.upper < upper:
            upper, how = number.upper, f"certified {name}"
        if how == renyi.method and self._renyi_and_gaussian is not None:
            other = ask(self._renyi_and_gaussian)
            upper, how = (other.upper, other.method) if other.upper < upper else (upper, how)
        if self._stretched is not None:
            other = ask(self._stretched)
            upper, how = (other.upper, "certified hybrid") if other.upper < upper else (upper, how)
        shaped = _asked(ask, lambda: self._envelope)
        if shaped is not None and shaped.upper < upper:
            upper, how = shaped.upper, f"certified {envelope.NAME}"
        lower = one.lower
        for explicit in self._splits:
            lower = max(lower, ask_split(explicit, lower))
        if self._sampled_split is not None:
            lower = max(lower, ask(self._sampled_split).lower)
        upper = max(upper, lower)  # rounding may bring the lower bound above the upper one
        return Bounds.clipped(lower, one.estimate, upper, how)


@dataclass(frozen=True)
class _BesideCustomCost:
    """Custom releases composed with vectors, of which some have no known worst shift.

    Attributes:
        above: the cost with a number in place of each of those.
        below: the cost of one shift that is allowed.
    """

    above: Cost
    below: Cost

    def epsilon(self, log_delta: float) -> Bounds:
        return self._between(self.above.epsilon(log_delta), self.below.epsilon(log_delta))

    def delta(self, epsilon: float) -> Bounds:
        return self._between(self.above.delta(epsilon), self.below.delta(epsilon))

    def largest_loss(self) -> tuple[float, float]:
        return self.below.largest_loss()[0], self.above.largest_loss()[1]

    @staticmethod
    def _between(above: Bounds, below: Bounds) -> Bounds:
        upper = max(above.upper, below.lower)  # rounding may bring the lower bound above the upper one
        return Bounds(below.lower, min(below.estimate, upper), upper, f"certified {envelope.NAME}")


def _beside_custom(steps: Steps) -> Cost:
    try:
        numbers = envelope.enveloped(steps)
        if numbers is not None:
            return _BesideCustomCost(cost_of(numbers), cost_of(worst_or_one_coordinate(steps)))
    except CannotCertifyError:
        pass
    raise no_single_shift(next(step for step in steps.noisy if step.worst_shift is None))


def _at_most(found: Bounds, most: float) -> Bounds:
    """The answer, with `most` as an upper bound."""
    if found.upper <= most:
        return found
    upper = max(most, found.lower)
    return Bounds(found.lower, min(found.estimate, upper), upper, found.method)


def _asked(ask: Ask, cost: Callable[[], Cost | None]) -> Bounds | None:
    """The answer of a cost; None if there is no such cost, or if it cannot answer."""
    try:
        found = cost()
        return None if found is None else ask(found)
    except (CannotCertifyError, EpsilonTooLargeError):
        return None


# --- costs that bound a vector's from above


class _NumberCost:
    """The cost of numbers that dominate the vectors up to a small delta, which is added."""

    def __init__(self, name: str, number: score_order.OneNumber) -> None:
        self.name, self.exact, self._number = name, number.exact, number

    @cached_property
    def _cost(self) -> Cost:
        return cost_of(self._number.steps)

    def epsilon(self, log_delta: float) -> Bounds:
        spent = self._number.delta
        if spent > _UNSEEN * math.exp(log_delta):
            raise CannotCertifyError("delta is too small for what the domination adds to it")
        found = self._cost.epsilon(log_delta + math.log1p(-spent * math.exp(-log_delta)))
        if found.upper > self._number.largest_epsilon:
            raise CannotCertifyError("epsilon is larger than what the domination covers")
        return found

    def delta(self, epsilon: float) -> Bounds:
        spent = self._number.delta
        if spent >= _UNSEEN or epsilon > self._number.largest_epsilon:
            raise CannotCertifyError("the domination does not cover this epsilon")
        found = self._cost.delta(epsilon)
        upper = min(found.upper + spent, 1.0)
        return Bounds(found.lower, min(found.estimate, upper), upper, found.method)

    def largest_loss(self) -> tuple[float, float]:
        return 0.0, math.inf


def _renyi_steps(steps: Steps) -> RenyiSteps:
    direction = steps.directions[0]  # adding a record costs no more than removing it
    return RenyiSteps(tuple((*worst_step(step, direction), step.times) for step in steps.noisy))


@dataclass(frozen=True)
class _RenyiCost:
    """The bound of Renyi divergences over all splits."""

    gains: RenyiSteps

    def epsilon(self, log_delta: float) -> Bounds:
        upper = self.gains.epsilon(log_delta)
        return Bounds(0.0, upper, upper, "certified renyi")

    def delta(self, epsilon: float) -> Bounds:
        upper = max(math.exp(self.gains.log_delta(epsilon)), 5e-324)
        return Bounds(0.0, upper, upper, "certified renyi")

    def largest_loss(self) -> tuple[float, float]:
        return 0.0, math.inf


@dataclass(frozen=True)
class _RenyiBeforeCost:
    """Renyi divergences of all but a step's last repetitions, and Gaussian noise that dominates those."""

    gains: RenyiSteps
    last: Sequence[Parts]

    def epsilon(self, log_delta: float) -> Bounds:
        upper = max(self.gains.epsilon_before(parts, log_delta) for parts in self.last)
        return Bounds(0.0, upper, upper, "certified renyi and gaussian")

    def delta(self, epsilon: float) -> Bounds:
        upper = max(math.exp(self.gains.log_delta_before(parts, epsilon)) for parts in self.last)
        upper = max(upper, 5e-324)
        return Bounds(0.0, upper, upper, "certified renyi and gaussian")

    def largest_loss(self) -> tuple[float, float]:
        return 0.0, math.inf


def _gaussian_last(steps: Steps) -> _RenyiBeforeCost | None:
    """Where one kind of step has no worst shift: all but its last repetitions, and those with the Gaussian
    noise that dominates them. Other steps count as earlier ones, wherever they are."""
    without = [step for step in steps.noisy if step.worst_shift is None]
    step = without[0]
    last = math.ceil((0.05 if step.noise.noise.beta < 1.5 else 0.2) * step.times)
    number = score_order.gaussian(replace(steps, noisy=(replace(step, times=last),)))
    if len(without) != 1 or step.times < _FEWEST_REPEATED or number is None:
        return None
    others = tuple(other for other in steps.noisy if other is not step)
    earlier = replace(steps, noisy=(replace(step, times=step.times - last), *others))
    return _RenyiBeforeCost(_renyi_steps(earlier), number.steps.pairs())


# --- estimates


def one_coordinate_estimate(steps: Steps, ask: Ask) -> Estimate:
    """The cost of a shift in one coordinate alone."""
    caveat = "a shift spread over several coordinates can cost more; leave method out for a bound"
    return Estimate(ask(cost_of(one_coordinate(steps))).estimate, "one-coordinate", caveat)


def scanned_estimate(steps: Steps, ask: Ask) -> Estimate:
    """The largest cost over equal splits, the same number of coordinates in every step."""
    if any(step.rate < 1.0 and step.worst_shift is None for step in steps.noisy):
        raise ValueError(
            "method must be left out, or be one-coordinate, for a Poisson-sampled vector, got scanned: once "
            "sampled, a split is no composition of its coordinates; leave method out for a certified bound"
        )
    most = max(step.noise.dimension for step in steps.noisy)
    counts = [count for count in _SPLITS if count < most] + ([int(most)] if most <= _SPLITS[-1] else [])
    best, at = 0.0, 1
    for count in counts:
        value = ask(cost_of(split(steps, count))).estimate
        best, at = (value, count) if value > best else (best, at)
    caveat = f"only equal splits were tried, the worst over {at} coordinates; leave method out for a bound"
    return Estimate(best, "scanned", caveat)
