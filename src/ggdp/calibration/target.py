# SPDX-License-Identifier: Apache-2.0
"""What a calibration asks for, and whether a mechanism meets it."""

import math
from dataclasses import dataclass

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.accounting import delta as delta_of
from ggdp.accounting import epsilon as epsilon_of
from ggdp.accounting.engines.curve import MOST_EPSILON
from ggdp.accounting.engines.tilt import TiltPlan, saddle_for_log_delta
from ggdp.accounting.steps import steps_of
from ggdp.accounting.vectors.explicit_shifts import one_coordinate
from ggdp.errors import CannotCertifyError
from ggdp.mechanisms import Adjacency, Composed, Mechanism
from ggdp.privacy_loss.dominating import Parts

_JUST_ABOVE = 5e-324
_PURE = "for pure privacy, beta = 1 with scale = sensitivity * steps / epsilon needs no accountant"


@dataclass(frozen=True)
class Verdict:
    """The certified log of cost over budget: it lies in [at_least, at_most].

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
    """(epsilon, delta)-privacy for one kind of neighbours."""

    epsilon: float
    delta: float
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        epsilon = arguments.real("epsilon", self.epsilon, least=0.0, most=MOST_EPSILON)
        delta = arguments.real(
            "delta", self.delta, least=1e-100, most=0.5, hint=_PURE if self.delta == 0 else ""
        )
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))

    def check(self, mechanism: Mechanism) -> None:
        """Refuse, before any search, a mechanism that the accountant does not cover."""
        steps_of(mechanism, self.adjacency)

    def judge(self, mechanism: Mechanism) -> Verdict:
        """Compare with the budget: by delta where that is the cheap or the only question, else by epsilon.

        One release has its delta in closed form; an epsilon of 0 has no logarithm. The two comparisons are
        equivalent: delta(epsilon) <= delta exactly if epsilon(delta) <= epsilon.
        """
        if self.by_delta(mechanism):
            return self._judge_delta(mechanism)
        try:
            cost = epsilon_of(mechanism, delta=self.delta, adjacency=self.adjacency)
        except ValueError:  # an epsilon too large to be computed; delta at the target's epsilon always can be
            return self._judge_delta(mechanism)
        return Verdict(_log_ratio(cost.lower, self.epsilon), _log_ratio(cost.upper, self.epsilon), cost)

    def by_delta(self, mechanism: Mechanism) -> bool:
        """Whether `judge` compares delta at the target's epsilon."""
        return self.epsilon == 0.0 or not isinstance(mechanism, Composed)

    def achieved(self, mechanism: Mechanism, verdict: Verdict) -> Bounds:
        """Epsilon at the target's delta, of a mechanism judged private.

        Where it was judged by delta, epsilon <= the target's is certified already and the upper end may use
        it.
        """
        if verdict.epsilon is not None:
            return verdict.epsilon
        try:
            found = epsilon_of(mechanism, delta=self.delta, adjacency=self.adjacency)
        except CannotCertifyError:
            return Bounds(0.0, self.epsilon, self.epsilon, "delta at epsilon")
        upper = min(found.upper, self.epsilon)
        return Bounds(min(found.lower, upper), min(found.estimate, upper), upper, found.method, found.ledger)

    def planned_excess(self, mechanism: Mechanism) -> float:
        """About log(epsilon / target), by the saddle-point method; good for a start, never a bound."""
        plan = one_coordinate(steps_of(mechanism, self.adjacency))  # of a vector no worst shift may be known
        epsilons = [self._planned_epsilon(parts) for parts in plan.pairs()]
        return _log_ratio(max(epsilons), self.epsilon)

    def _planned_epsilon(self, parts: Parts) -> float:
        log_delta = math.log(self.delta)
        saddle = saddle_for_log_delta(TiltPlan.of(parts), log_delta)
        # The saddle lies near the delta asked for, not on it; d log(delta) / d eps is about -theta.
        return saddle.epsilon + (saddle.log_delta - log_delta) / saddle.theta

    def _judge_delta(self, mechanism: Mechanism) -> Verdict:
        try:
            cost = delta_of(mechanism, epsilon=self.epsilon, adjacency=self.adjacency)
        except CannotCertifyError:  # raised when delta is smaller than any double
            return Verdict(-math.inf, -math.inf)
        return Verdict(_log_ratio(cost.lower, self.delta), _log_ratio(cost.upper, self.delta))

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:g} at delta = {self.delta:g}"


def _log_ratio(cost: float, budget: float) -> float:
    """log(cost / budget), whose sign is that of cost - budget whatever the rounding."""
    if cost <= 0.0:
        return -math.inf
    ratio = math.log(cost) - math.log(budget) if math.isfinite(cost) else math.inf
    return min(ratio, 0.0) if cost <= budget else max(ratio, _JUST_ABOVE)
