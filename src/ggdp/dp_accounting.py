# SPDX-License-Identifier: Apache-2.0
"""For users of Google's `dp_accounting`: an accountant of that library with certified answers.

>>> import dp_accounting
>>> accountant = GGAccountant()
>>> step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
>>> round(accountant.compose(step, 10_000).get_epsilon(1e-6), 6)
6.907384
"""

import math
import sys
from typing import Any

from dp_accounting import NeighboringRelation, PrivacyAccountant

from ggdp import arguments
from ggdp.accounting import Bounds, delta
from ggdp.accounting.engines.curve import MOST_EPSILON
from ggdp.accounting.formats.dp_events import (
    NOT_PRIVATE,
    SPECIAL,
    Relation,
    Steps,
    steps_of,
    with_one_gaussian,
)
from ggdp.accounting.profile import account
from ggdp.accounting.steps import steps_of as resolved_steps
from ggdp.errors import RefusedEventError
from ggdp.mechanisms import AdditiveNoise, Adjacency, Batched, Composed, PoissonSampled
from ggdp.mechanisms.composed import Step
from ggdp.privacy_loss.classical import PrivacyGuarantee
from ggdp.privacy_loss.dominating import MOST_TIMES, NOISE_MULTIPLIER

__all__ = ["GGAccountant"]

_RELATIONS: dict[NeighboringRelation, tuple[Adjacency, Relation]] = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: (Adjacency.ADD_REMOVE, Adjacency.ADD_REMOVE),
    NeighboringRelation.REPLACE_ONE: (Adjacency.REPLACE, Adjacency.REPLACE),
    NeighboringRelation.REPLACE_SPECIAL: (Adjacency.ADD_REMOVE, SPECIAL),
}


class GGAccountant(PrivacyAccountant):  # type: ignore[misc]
    """A `dp_accounting.PrivacyAccountant` whose epsilons and deltas are certified upper bounds.

    It takes the place of `PLDAccountant` and `RdpAccountant`, in `calibrate_dp_mechanism` too.
    `ggdp.accounting.formats.dp_events` lists the events it knows; `supports` is False for all others, and
    `compose` says why.

    Args:
        neighboring_relation: which datasets are neighbours.

    Guarantees:
        1. What was composed is (get_epsilon(delta), delta)-private for every delta in [0, 1], and
           (epsilon, get_delta(epsilon))-private for every epsilon >= 0, rounding included.
        2. Nothing composed costs nothing. An event that keeps nothing private costs an infinite epsilon, and
           so does Gaussian noise of a multiplier below 0.02. An epsilon above 2000 is answered where it has
           a closed form or the losses a largest value, and else it is infinite.
    """

    def __init__(
        self, neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
    ) -> None:
        super().__init__(neighboring_relation)
        arguments.one_of("neighboring_relation", neighboring_relation, tuple(_RELATIONS))
        self._adjacency, self._relation = _RELATIONS[neighboring_relation]
        self._counts: dict[Step, int] = {}
        self._is_private = True

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        """Record the event, or only say what stands against it; None if nothing does."""
        try:
            steps = self._checked(steps_of(event, self._relation), event)
        except RefusedEventError as refusal:
            return self.CompositionErrorDetails(refusal.event, str(refusal))
        counts = dict(self._counts)
        for step, times in steps:
            if step is not NOT_PRIVATE:
                counts[step] = counts.get(step, 0) + times * max(count, 1)  # `supports` asks with 0
        releases = sum(times for _, times in with_one_gaussian(list(counts.items())))
        if releases > MOST_TIMES:
            return self.CompositionErrorDetails(
                event, f"count must be at most {MOST_TIMES:,} for all releases together, got {releases:,}"
            )
        if do_compose:
            self._counts = counts
            self._is_private &= all(step is not NOT_PRIVATE for step, _ in steps)
        return None

    def _checked(self, steps: Steps, event: Any) -> Steps:
        """The steps, each within what the accountant covers; with too little noise for it they cost more."""
        checked: Steps = []
        for given, times in steps:
            step = self._with_enough_noise(given)
            if step is not NOT_PRIVATE:
                try:
                    resolved_steps(step, self._adjacency)  # refuses what the accountant does not cover
                except ValueError as error:
                    raise RefusedEventError(event, str(error)) from error
            checked.append((step, times))
        return checked

    def _with_enough_noise(self, step: Step) -> Step:
        released = step.mechanism if isinstance(step, (PoissonSampled, Batched)) else step
        if not isinstance(released, AdditiveNoise):
            return step
        ratio = released.sensitivity / released.noise.scale
        if isinstance(step, Batched):  # a record that joins a full batch moves it twice as far
            return step if 2.0 * ratio * NOISE_MULTIPLIER.least * math.sqrt(2.0) <= 1.0 else NOT_PRIVATE
        if ratio * NOISE_MULTIPLIER.least * math.sqrt(2.0) <= 1.0:
            return step
        doubled = self._adjacency is Adjacency.REPLACE and released.shift is None
        loss = ratio * (2.0 if doubled else 1.0) * (1.0 + 1e-15)
        if released.noise.beta != 1.0 or loss > MOST_EPSILON:
            return NOT_PRIVATE
        guarantee = PrivacyGuarantee(loss)  # Laplace noise of whatever scale has a largest loss
        return PoissonSampled(guarantee, step.rate) if isinstance(step, PoissonSampled) else guarantee

    def epsilon_bounds(self, target_delta: float) -> Bounds:
        """Certified bounds of epsilon at a delta in [0, 1]; `get_epsilon` is the upper one."""
        target_delta = arguments.real("target_delta", target_delta, least=0.0, most=1.0)
        if not self._is_private:
            return Bounds(0.0, math.inf, math.inf, "too little noise, or none")
        if not self._counts:
            return Bounds(0.0, 0.0, 0.0, "nothing released")
        return account(self._mechanism(), adjacency=self._adjacency).epsilon_or_infinity(delta=target_delta)

    def get_epsilon(self, target_delta: float) -> float:
        """The smallest epsilon that is certified at a delta in [0, 1]; infinity where there is none."""
        return self.epsilon_bounds(target_delta).upper

    def get_delta(self, target_epsilon: float) -> float:
        """The smallest delta that is certified at an epsilon in [0, inf]."""
        target_epsilon = arguments.extended_real("target_epsilon", target_epsilon, least=0.0)
        if not self._is_private:
            return 1.0
        if not self._counts:
            return 0.0
        at = min(target_epsilon, sys.float_info.max)
        return delta(self._mechanism(), epsilon=at, adjacency=self._adjacency).upper

    def _mechanism(self) -> Composed:
        return Composed(with_one_gaussian(list(self._counts.items())))
