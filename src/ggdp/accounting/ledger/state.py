# SPDX-License-Identifier: Apache-2.0
"""The budget of a ledger, and a ledger as plain data for checkpoints that outlive a version of this package.

One object: `version` (of this format), `kind`, `adjacency`, `budget` (null or an object), and `steps`, each a
mechanism in the format of `ggdp.mechanisms.serialization` and how many `times` it was released. What this
version does not know is refused, never guessed.
"""

from dataclasses import dataclass
from typing import Any

from ggdp import arguments
from ggdp.accounting.engines.curve import MOST_EPSILON
from ggdp.accounting.profile import checked_delta
from ggdp.mechanisms import (
    AdditiveNoise,
    Adjacency,
    Batched,
    CustomMechanism,
    PoissonSampled,
    from_dict,
    to_dict,
)

VERSION = 2
KIND = "accountant"

Step = AdditiveNoise | PoissonSampled | Batched | CustomMechanism
Counts = dict[Step, int]

_FIELDS = {"version", "kind", "adjacency", "budget", "steps"}


@dataclass(frozen=True)
class Budget:
    """Everything released together is to be (epsilon, delta)-private."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        epsilon = arguments.real("epsilon", self.epsilon, least=0.0, most=MOST_EPSILON)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", checked_delta(self.delta))

    def __str__(self) -> str:
        return f"epsilon={self.epsilon:g}, delta={self.delta:g}"

    @staticmethod
    def of(epsilon: float | None, delta: float | None) -> "Budget | None":
        """The budget from two arguments, which must be given together or not at all.

        >>> Budget.of(2.0, None)
        Traceback (most recent call last):
        ...
        ValueError: epsilon and delta must be given together, got epsilon=2.0, delta=None
        """
        if epsilon is None and delta is None:
            return None
        if epsilon is None or delta is None:
            raise ValueError(f"epsilon and delta must be given together, got {epsilon=}, {delta=}")
        return Budget(epsilon, delta)


def total_of(counts: Counts) -> int:
    """The number of releases."""
    return sum(counts.values())


def describe(counts: Counts, budget: Budget | None, adjacency: Adjacency) -> dict[str, Any]:
    """A ledger as data that `json.dumps` takes; steps keep their order."""
    return {
        "version": VERSION,
        "kind": KIND,
        "adjacency": adjacency.value,
        "budget": {"epsilon": budget.epsilon, "delta": budget.delta} if budget else None,
        "steps": [{"mechanism": to_dict(step), "times": times} for step, times in counts.items()],
    }


def read(state: dict[str, Any]) -> tuple[Counts, Budget | None, Adjacency]:
    """What `describe` described.

    Raises:
        ValueError: The version or kind is unknown, or a field is missing, unknown or out of range.
    """
    _exactly("state", state, _FIELDS)
    if state["kind"] != KIND:
        raise ValueError(f"kind must be {KIND!r}, got {arguments.shown(state['kind'])}")
    if state["version"] != VERSION or isinstance(state["version"], bool):
        raise ValueError(
            f"version must be {VERSION}, got {arguments.shown(state['version'])}; a newer ggdp may know it"
        )
    arguments.one_of("adjacency", state["adjacency"], [kind.value for kind in Adjacency])
    arguments.instance("steps", state["steps"], list)
    counts: Counts = {}
    for entry in state["steps"]:
        _exactly("step", entry, {"mechanism", "times"})
        step = from_dict(entry["mechanism"])
        if not isinstance(step, (AdditiveNoise, PoissonSampled, Batched, CustomMechanism)):
            raise ValueError(f"mechanism of a step must be one release, got {type(step).__name__}")
        if step in counts:
            raise ValueError(f"steps must name every mechanism once, got {step} twice")
        counts[step] = arguments.whole("times", entry["times"])
    return counts, _budget(state["budget"]), Adjacency(state["adjacency"])


def _budget(data: dict[str, Any] | None) -> Budget | None:
    if data is None:
        return None
    _exactly("budget", data, {"epsilon", "delta"})
    return Budget(data["epsilon"], data["delta"])


def _exactly(name: str, data: dict[str, Any], fields: set[str]) -> None:
    arguments.instance(name, data, dict)
    if set(data) != fields:
        raise ValueError(f"{name} must have the fields {sorted(fields)}, got {sorted(map(str, data))}")
