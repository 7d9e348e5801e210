# SPDX-License-Identifier: Apache-2.0
"""The ledger of a training loop: what has been released, what it cost, what still fits."""

import math
import threading
from collections.abc import Callable
from typing import Any, Self

from scipy.special import ndtri

from ggdp import arguments
from ggdp.accounting.bounds import Bounds
from ggdp.accounting.engines.curve import MOST_EPSILON
from ggdp.accounting.engines.tilt import planned_epsilon
from ggdp.accounting.ledger import state as ledger_format
from ggdp.accounting.ledger.state import Budget, Counts, total_of
from ggdp.accounting.profile import PrivacyProfile, account, checked_delta
from ggdp.accounting.steps import steps_of
from ggdp.accounting.vectors.explicit_shifts import one_coordinate
from ggdp.errors import BudgetExceededError
from ggdp.mechanisms import Adjacency, Composed, Mechanism
from ggdp.mechanisms.composed import Step
from ggdp.privacy_loss.dominating import MOST_TIMES
from ggdp.search import largest_that_fits

__all__ = ["Accountant", "Budget", "BudgetExceededError"]

_PLANNING_ERROR = 0.03  # error of the logarithm of a planned epsilon,
_CORRECTED_ERROR = 0.002  # and after the plan was corrected by a certified one
_FIRST_BLOCK = 32  # further steps that the first certificate of a budget tries to cover


class Accountant:
    """A ledger: it records the releases made on the same data and computes their epsilon and delta together.

    `step` records a release that was made. If the ledger has a budget, call `spend` before each release
    instead: it records the release only if everything recorded and this release together are certified to
    stay within the budget, and raises `BudgetExceededError` otherwise. To keep the ledger in a file, write
    `state_dict()` as JSON and read it back with `from_state_dict`.

    Args:
        epsilon: The budget's epsilon, in [0, 2000]; leave out both for a ledger without a budget.
        delta: The budget's delta: in [1e-100, 1), or 0 for pure privacy.
        adjacency: Which datasets are neighbours.

    Guarantees:
        1. `epsilon` and `delta` bound the cost of the composition of everything recorded, as
           `ggdp.accounting.epsilon` and `delta` do.
        2. A step never lowers the upper bound reported for the same question by the same ledger.
        3. When `spend` raises, nothing is recorded. When every release went through `spend`, their
           composition is within the budget, whatever the number of threads.
        4. Memory grows with the number of distinct mechanisms, not of steps.

    What adaptivity is covered: the numbers are about the composition of the sequence of mechanisms recorded.
    The proof is for mechanisms whose parameters (noise, sensitivity, rate) are fixed in advance, or chosen
    without looking at earlier outputs; the *queries*, what is asked of the data, may depend on all earlier
    outputs. Stopping early may depend on them too, as long as the claim is the budget and not the smaller
    epsilon of the shorter run: a prefix is post-processing of the whole sequence that fitted. When the
    *parameters* themselves depend on earlier outputs (noise adapted to results already released), a budget
    tested against the privacy loss of the realised sequence is not proved to be a privacy filter: results for
    that setting, Rogers, Roth, Ullman and Vadhan (2016), "Privacy odometers and filters", and Whitehouse,
    Ramdas, Rogers and Wu (2023), "Fully adaptive composition in differential privacy", are for filters that
    add up privacy parameters or Renyi divergences, and this one is not among them (nothing but Gaussian noise
    without sampling is the exception, where the test amounts to adding up 1/std^2: Smith and Thakurta 2022).
    Likewise `epsilon` read off at a moment that outputs chose is no odometer.

    >>> from ggdp import AdditiveNoise, Gaussian, PoissonSampled
    >>> step = PoissonSampled(AdditiveNoise(Gaussian(std=1.0)), rate=0.01)
    >>> ledger = Accountant(epsilon=2.0, delta=1e-6)
    >>> ledger.spend(step, times=500)
    >>> round(ledger.epsilon(delta=1e-6).upper, 6)
    1.580332
    >>> ledger.remaining(step)
    374
    >>> ledger.can_afford(step, times=375)
    False
    """

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
    ) -> None:
        self._budget = Budget.of(epsilon, delta)
        self._adjacency = Adjacency(adjacency)
        self._lock = threading.RLock()
        self._counts: Counts = {}
        self._cleared: Counts = {}  # counts certified to fit the budget; smaller counts fit too
        self._ahead = _FIRST_BLOCK  # how many further steps the next certificate tries to cover
        self._shifts: dict[Step, float] = {}  # what single releases cost, roughly, for plans
        # by how much the plan was too small when it was last compared with a certified epsilon
        self._off: float | None = None
        # profile of everything recorded, once a question was asked
        self._profile: PrivacyProfile | None = None
        self._answers: dict[tuple[str, float], Bounds] = {}  # answers about everything recorded
        self._floors: dict[tuple[str, float], float] = {}  # upper bounds reported so far

    @property
    def budget(self) -> Budget | None:
        """The budget (epsilon, delta) of the ledger, or None."""
        return self._budget

    @property
    def adjacency(self) -> Adjacency:
        """Which datasets are neighbours."""
        return self._adjacency

    @property
    def mechanism(self) -> Composed | None:
        """Everything recorded, as one mechanism; None while nothing is."""
        with self._lock:
            return Composed(self._counts.items()) if self._counts else None

    def __len__(self) -> int:
        """The number of releases recorded."""
        with self._lock:
            return total_of(self._counts)

    def __repr__(self) -> str:
        with self._lock:
            kinds, releases = len(self._counts), total_of(self._counts)
        budget = f"epsilon={self._budget.epsilon!r}, delta={self._budget.delta!r}, " if self._budget else ""
        recorded = f"{releases} releases of {kinds} mechanisms"
        return f"<Accountant({budget}adjacency={self._adjacency.value!r}): {recorded}>"

    def step(self, mechanism: Mechanism, times: int = 1) -> None:
        """Record that `mechanism` was released `times` times, whatever the budget says.

        Raises:
            ValueError: The accountant does not cover the mechanism; nothing is recorded.
        """
        with self._lock:
            self._record(self._with(mechanism, times))

    def epsilon(self, *, delta: float) -> Bounds:
        """The epsilon of everything recorded, at `delta`; exactly 0 while nothing is.

        Args:
            delta: in [1e-100, 1), or 0 for pure privacy, which mechanisms of bounded loss have.
        """
        delta = checked_delta(delta)
        with self._lock:
            return self._answer("epsilon", delta)

    def delta(self, *, epsilon: float) -> Bounds:
        """The delta of everything recorded, at `epsilon`; exactly 0 while nothing is."""
        epsilon = arguments.real("epsilon", epsilon, least=0.0, most=MOST_EPSILON)
        with self._lock:
            return self._answer("delta", epsilon)

    def can_afford(self, mechanism: Mechanism, times: int = 1) -> bool:
        """Whether `spend` with the same arguments would record."""
        with self._lock:
            return self._fits_budget(self._with(mechanism, times), mechanism)

    def spend(self, mechanism: Mechanism, times: int = 1) -> None:
        """Record `times` releases of `mechanism` if the budget allows all of them; call before releasing.

        Raises:
            BudgetExceededError: They do not fit, or that they do cannot be certified; nothing is recorded.
            ValueError: There is no budget, or the accountant does not cover the mechanism.
        """
        with self._lock:
            after = self._with(mechanism, times)
            if not self._fits_budget(after, mechanism):
                raise BudgetExceededError(mechanism, times, self._required_budget())
            self._record(after)

    def remaining(
        self, mechanism: Mechanism, *, epsilon: float | None = None, delta: float | None = None
    ) -> int:
        """How many more times `mechanism` certainly fits the budget, up to 10^7 releases in all.

        It is the largest such number if a few computations of epsilon are enough to find it. Otherwise it may
        be smaller, as for very many releases or if a rare event decides epsilon. It is never too large.

        Args:
            mechanism: What would be released.
            epsilon: The target; the ledger's own budget where both are left out.
            delta: Likewise.
        """
        with self._lock:
            target = Budget.of(epsilon, delta) or self._required_budget()
            one = total_of(self._with(mechanism, 1)) - total_of(self._counts)
            most = (MOST_TIMES - total_of(self._counts)) // one
            return largest_that_fits(
                lambda k: self._log_excess(self._with(mechanism, k), target),
                most,
                self._plan(lambda k: self._with(mechanism, k), target),
            )

    def merge(self, other: "Accountant") -> "Accountant":
        """A new ledger with the releases of both, which were made on the same data.

        A budget is kept if both have the same or only one has any; the releases together may exceed it.

        Raises:
            ValueError: The ledgers disagree on adjacency or budget.
        """
        arguments.instance("other", other, Accountant)
        if other._adjacency is not self._adjacency:
            raise ValueError(
                f"other must have adjacency {self._adjacency.value!r}, got {other._adjacency.value!r}"
            )
        if self._budget and other._budget and self._budget != other._budget:
            raise ValueError(f"other must have the budget {self._budget}, got {other._budget}")
        merged = Accountant(adjacency=self._adjacency)
        merged._budget = self._budget or other._budget
        for ledger in (
            self,
            other,
        ):  # one lock at a time: two merges in opposite order cannot wait for each other
            with ledger._lock:
                recorded = dict(ledger._counts)
            for step, count in recorded.items():
                merged.step(step, count)
        return merged

    def state_dict(self) -> dict[str, Any]:
        """Everything as plain data that `json.dumps` takes, in version 2 of the format."""
        with self._lock:
            return ledger_format.describe(self._counts, self._budget, self._adjacency)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace what is recorded by what `state_dict` described; nothing changes if that is refused.

        Raises:
            ValueError: The data is not a ledger's, or is of a ledger with another budget or adjacency; build
                a ledger with the state's own by `from_state_dict`.
        """
        counts, budget, adjacency = ledger_format.read(state)
        if (budget, adjacency) != (self._budget, self._adjacency):
            raise ValueError(
                f"state must be of a ledger with {self._budget} and adjacency {self._adjacency.value!r}, "
                f"got {budget} and {adjacency.value!r}; "
                "Accountant.from_state_dict(state) takes both from the state"
            )
        if counts:
            steps_of(Composed(counts.items()), adjacency)  # refuses what the accountant does not cover
        with self._lock:
            self._counts, self._cleared, self._ahead, self._off = counts, {}, _FIRST_BLOCK, None
            self._answers, self._floors, self._profile = {}, {}, None

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The ledger that `state_dict` described, its budget and adjacency included."""
        _, budget, adjacency = ledger_format.read(state)
        ledger = cls(
            epsilon=budget.epsilon if budget else None,
            delta=budget.delta if budget else None,
            adjacency=adjacency,
        )
        ledger.load_state_dict(state)
        return ledger

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_state_dict, (self.state_dict(),)  # a lock does not travel

    def _with(self, mechanism: Mechanism, times: int) -> Counts:
        """The ledger after `times` further releases."""
        added = Composed(mechanism, times=arguments.whole("times", times))
        after = dict(self._counts)
        for step, count in added.parts:
            if step not in after:
                steps_of(step, self._adjacency)  # refuses what the accountant does not cover
            after[step] = after.get(step, 0) + count
        return after

    def _record(self, after: Counts) -> None:
        self._counts, self._answers, self._profile = after, {}, None

    def _answer(self, kind: str, at: float) -> Bounds:
        """The answer about everything recorded; its upper bound is at least every earlier one."""
        question = (kind, at)
        if question not in self._answers:
            found = self._clipped(kind, at, self._ask(kind, at))
            floor = max(found.upper, self._floors.get(question, 0.0))
            self._floors[question] = floor
            self._answers[question] = Bounds(found.lower, found.estimate, floor, found.method, found.ledger)
        return self._answers[question]

    def _ask(self, kind: str, at: float) -> Bounds:
        if not self._counts:
            return Bounds(0.0, 0.0, 0.0, "nothing released")
        if self._profile is None:
            self._profile = account(Composed(self._counts.items()), adjacency=self._adjacency)
        return self._profile.epsilon(delta=at) if kind == "epsilon" else self._profile.delta(epsilon=at)

    def _clipped(self, kind: str, at: float, found: Bounds) -> Bounds:
        """The answer with the budget as an upper bound too, if the ledger is certified to be within it."""
        budget = self._budget
        if budget is None or not _below(self._counts, self._cleared):
            return found
        given, bound = (budget.delta, budget.epsilon) if kind == "epsilon" else (budget.epsilon, budget.delta)
        if at < given or found.upper <= bound:
            return found
        return Bounds(min(found.lower, bound), min(found.estimate, bound), bound, found.method, found.ledger)

    def _required_budget(self) -> Budget:
        if self._budget is None:
            raise ValueError(
                "epsilon and delta must be given, got neither; or give the ledger a budget: "
                "Accountant(epsilon=..., delta=...)"
            )
        return self._budget

    def _fits_budget(self, after: Counts, mechanism: Mechanism) -> bool:
        """Whether `after` is certified to be within the budget.

        A certificate covers every smaller ledger, so a loop of equal steps is certified in blocks that double
        while they fit: a run of n steps costs about log n accounts and not n. What is certified ahead for one
        mechanism is kept, while it fits, beside what is for another, so that their steps may take turns.
        """
        budget = self._required_budget()
        if _below(after, self._cleared):
            return True
        block = Composed(mechanism).parts
        kept = {step: max(times, self._cleared.get(step, 0)) for step, times in after.items()}

        def with_further(count: int) -> Counts:
            further = {step: times * count for step, times in block}
            return {step: times + further.get(step, 0) for step, times in kept.items()}

        planned = self._plan(with_further, budget)
        off, error = (0.0, _PLANNING_ERROR) if self._off is None else (self._off, _CORRECTED_ERROR)
        if planned is not None:  # no certificate is tried for a block that is planned not to fit
            if planned(1) + off > -error:
                kept.update(after)
            while self._ahead > 1 and planned(self._ahead) + off > -error:
                self._ahead //= 2
        ahead = with_further(self._ahead)
        if planned is None or planned(self._ahead) + off <= -error:
            if total_of(ahead) <= MOST_TIMES:
                excess = self._log_excess(ahead, budget)
                if planned is not None and math.isfinite(excess):
                    self._off = excess - planned(self._ahead)
                if excess <= 0.0:
                    self._cleared, self._ahead = ahead, 2 * self._ahead
                    return True
            self._ahead = max(self._ahead // 4, 1)
        if self._log_excess(after, budget) > 0.0:
            return False
        self._cleared = after
        return True

    def _plan(self, counts_of: Callable[[int], Counts], budget: Budget) -> Callable[[int], float] | None:
        """A rough `_log_excess`, which costs very little; None if there is no plan for it."""
        if min(budget.delta, budget.epsilon) == 0.0:
            return None
        log_delta, first = math.log(budget.delta), counts_of(1)
        if steps_of(Composed(first.items()), self._adjacency).custom:
            shifts = {step: self._gaussian_shift(step) for step in first}

            def like_gaussian_noise(count: int) -> float:
                shift = math.hypot(*(shifts[s] * math.sqrt(times) for s, times in counts_of(count).items()))
                epsilon = shift * (0.5 * shift + math.sqrt(-2.0 * log_delta))
                return math.log(epsilon / budget.epsilon) if epsilon > 0.0 else -math.inf

            return like_gaussian_noise

        def planned(count: int) -> float:
            steps = steps_of(Composed(counts_of(count).items()), self._adjacency)
            # a vector may have no known worst shift; a shift in one coordinate costs some percent less
            epsilon = max(planned_epsilon(parts, log_delta) for parts in one_coordinate(steps).pairs())
            return math.log(epsilon / budget.epsilon) if epsilon > 0.0 else -math.inf

        return planned

    def _gaussian_shift(self, step: Step) -> float:
        """The shift, in standard deviations, of a Gaussian release that is as easily detected as a step."""
        if step not in self._shifts:
            advantage = account(step, adjacency=self._adjacency).delta(epsilon=0.0).estimate
            self._shifts[step] = 2.0 * float(ndtri(0.5 + 0.5 * min(advantage, 1.0 - 1e-12)))
        return self._shifts[step]

    def _log_excess(self, counts: Counts, budget: Budget) -> float:
        """log of the certified upper epsilon over the budget's; positive if it is larger or unknown."""
        if not counts:
            return -math.inf
        upper = self._epsilon_above(counts, budget.delta)
        if upper <= budget.epsilon:  # compared without a ratio, which would be rounded
            return min(math.log(upper / budget.epsilon), 0.0) if upper > 0.0 else -math.inf
        return max(math.log(upper / budget.epsilon), 5e-324) if budget.epsilon > 0.0 else math.inf

    def _epsilon_above(self, counts: Counts, delta: float) -> float:
        """A certified upper bound of epsilon; infinite where there is none."""
        return account(Composed(counts.items()), adjacency=self._adjacency).epsilon_above(delta=delta)


def _below(counts: Counts, others: Counts) -> bool:
    """Whether every count is at most the one in the other ledger."""
    return all(count <= others.get(step, 0) for step, count in counts.items())
