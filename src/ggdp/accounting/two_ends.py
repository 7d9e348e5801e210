# SPDX-License-Identifier: Apache-2.0
"""Costs whose upper and lower bound come from different steps, or that allow for an unlikely event.

The unlikely event. Suppose that a mechanism does what its steps say, except with a probability of at most c
on either of two neighbouring datasets. Let P, Q be the laws of the steps and P', Q' those of the mechanism.
For any set S of outcomes, P'(S) <= P(S) + c <= e^eps Q(S) + delta + c <= e^eps Q'(S) + delta + (1 + e^eps) c.
So the mechanism's delta at eps is at most that of the steps plus (1 + e^eps) c. By the same argument with the
roles exchanged, it is at least that of the steps minus (1 + e^eps) c. Since delta does not rise with epsilon,
the sum at any smaller epsilon is an upper bound too. The number c is called the *charge*.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ggdp.accounting.bounds import Bounds
from ggdp.accounting.engines.curve import MOST_EPSILON, too_large
from ggdp.accounting.steps import Steps
from ggdp.accounting.vectors.routes import Cost, cost_of
from ggdp.errors import CannotCertifyError, EpsilonTooLargeError, NoDominatingPairError
from ggdp.search import arithmetic, halve

_NARROW = 1e-5  # relative width of bounds that are narrow enough
_TURNS = 60
_HALVINGS = 20  # steps of the search for the epsilon at which charge and delta are equal


def whole_cost(steps: Steps) -> Cost:
    """The cost of some steps, with their `below`, `charge` and `also`."""
    cost = cost_of(replace(steps, below=(), charge=0.0, also=None))
    if steps.below:
        cost = BetweenCost(cost, _costs_below(steps))
    if steps.charge > 0.0:
        cost = ChargedCost(cost, steps.charge)
    if steps.also is None:
        return cost
    return DoublyBoundCost(ChargedCost(whole_cost(replace(steps.also, charge=0.0)), steps.also.charge), cost)


def _costs_below(steps: Steps) -> list[Cost]:
    """The costs of those steps below that can be computed; some need a worst shift that is not known."""
    found = []
    for below in steps.below:
        with contextlib.suppress(NoDominatingPairError):
            found.append(cost_of(below))
    return found


@dataclass(frozen=True)
class BetweenCost:
    """A cost that is bounded from above by one cost, and from below by several others."""

    above: Cost
    below: Sequence[Cost]

    def epsilon(self, log_delta: float) -> Bounds:
        """Certified epsilon at log delta."""
        lower = 0.0
        for cost in self.below:
            try:
                lower = max(lower, cost.epsilon(log_delta).lower)
            except CannotCertifyError:
                continue
            except EpsilonTooLargeError as error:
                raise too_large(max(lower, error.at_least)) from None
        try:
            above = self.above.epsilon(log_delta)
        except EpsilonTooLargeError:
            raise too_large(lower) from None  # what is above says nothing about the least epsilon
        return _joined(above, lower)

    def delta(self, epsilon: float) -> Bounds:
        """Certified delta at epsilon."""
        lower = max((cost.delta(epsilon).lower for cost in self.below), default=0.0)
        return _joined(self.above.delta(epsilon), lower)

    def largest_loss(self) -> tuple[float, float]:
        """Bounds on the largest loss."""
        upper = self.above.largest_loss()[1]
        return min(max((cost.largest_loss()[0] for cost in self.below), default=0.0), upper), upper


def _joined(above: Bounds, lower: float) -> Bounds:
    upper = max(above.upper, lower)  # rounding may bring the lower bound above the upper one
    return Bounds(lower, upper, upper, above.method, above.ledger)


@dataclass(frozen=True)
class DoublyBoundCost:
    """The cost of a mechanism that is bounded in two ways; if `first` is narrow, `second` is not asked."""

    first: "ChargedCost"
    second: Cost

    def epsilon(self, log_delta: float) -> Bounds:
        """Certified epsilon at log delta."""
        try:
            found = self.first.epsilon(log_delta)
        except (EpsilonTooLargeError, CannotCertifyError):
            return self.second.epsilon(log_delta)
        if found.width <= _NARROW * found.upper:
            return found
        try:
            return Bounds.intersection(found, self.second.epsilon(log_delta))
        except (EpsilonTooLargeError, CannotCertifyError):
            return found

    def delta(self, epsilon: float) -> Bounds:
        """Certified delta at epsilon."""
        found = self.first.delta_here(epsilon)
        if found.width <= _NARROW * found.upper:
            return found
        return Bounds.intersection(found, self.second.delta(epsilon))

    def largest_loss(self) -> tuple[float, float]:
        """Bounds on the largest loss."""
        lower, upper = zip(self.first.largest_loss(), self.second.largest_loss(), strict=True)
        return max(lower), min(upper)


@dataclass(frozen=True)
class ChargedCost:
    """The cost of a mechanism that differs from its steps with a probability of at most `charge`."""

    steps: Cost
    charge: float

    def _charged(self, epsilon: float) -> float:
        if epsilon > 700.0:
            return math.inf if self.charge > 0.0 else 0.0
        return self.charge * (1.0 + math.exp(epsilon)) * (1.0 + 1e-12)

    def epsilon(self, log_delta: float) -> Bounds:
        """Certified epsilon at log delta.

        Raises:
            EpsilonTooLargeError: the charge exceeds delta at every epsilon.
        """
        target, guess = math.exp(log_delta), 0.0
        for turn in range(_TURNS):
            # less than the target, in spite of rounding
            left = (target - self._charged(guess)) * (1.0 - 1e-14)
            if left <= 0.0:
                break
            found = self.steps.epsilon(math.log(left))
            # the charge at this epsilon is at most what was kept for it
            if self._charged(found.upper) <= target - left:
                spent = math.log(target + self._charged(found.upper))
                lower = self.steps.epsilon(spent).lower if spent < 0.0 else 0.0
                lower = min(lower, found.upper)
                return Bounds.clipped(lower, found.estimate, found.upper, found.method, found.ledger)
            guess = found.upper + (1e-12 + 1e-9 * found.upper) * 4.0**turn
        raise EpsilonTooLargeError(
            f"largest_batch must be so large that batches exceed it less often, got a probability of up to "
            f"{self.charge:.3g} in all steps, which costs 1 + e^epsilon times as much delta, against "
            f"delta = {target:.3g}; a batch a few standard deviations above the mean is rarely exceeded"
        )

    def delta(self, epsilon: float) -> Bounds:
        """Certified delta at epsilon."""
        found = self.delta_here(epsilon)
        if self._charged(epsilon) > 0.5 * found.upper:
            where, least = self._balance
            if where <= epsilon and least < found.upper:
                return Bounds.clipped(found.lower, found.estimate, least, found.method, found.ledger)
        return found

    def delta_here(self, epsilon: float) -> Bounds:
        """Certified delta at epsilon by the steps' delta at this very epsilon, which takes less time."""
        found, charged = self.steps.delta(epsilon), self._charged(epsilon)
        lower, upper = max(found.lower - charged, 0.0), min(found.upper + charged, 1.0)
        return Bounds.clipped(lower, found.estimate, upper, found.method, found.ledger)

    @cached_property
    def _balance(self) -> tuple[float, float]:
        """About the first epsilon at which the charge exceeds delta, and the upper bound of their sum there.

        No epsilon has a sum below half of this bound: before it delta is too large, after it the charge.
        """

        def below(epsilon: float) -> bool:
            return self.steps.delta(epsilon).upper >= self._charged(epsilon)

        _, where = halve(below, 0.0, MOST_EPSILON, middle=arithmetic, halvings=_HALVINGS)
        return where, self.steps.delta(where).upper + self._charged(where)

    def largest_loss(self) -> tuple[float, float]:
        """Bounds on the largest loss; there is no upper bound."""
        return 0.0, math.inf
