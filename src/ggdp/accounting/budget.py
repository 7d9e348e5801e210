# SPDX-License-Identifier: Apache-2.0
"""How much privacy may be spent."""

from dataclasses import dataclass

from ggdp import arguments

MOST_EPSILON = 2000.0
LEAST_DELTA = 1e-100
MOST_DELTA = 0.5


@dataclass(frozen=True)
class Budget:
    """Everything released together is to be (epsilon, delta)-private."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        epsilon = arguments.real("epsilon", self.epsilon, least=0.0, most=MOST_EPSILON)
        delta = arguments.real("delta", self.delta, least=0.0, most=MOST_DELTA)
        if delta != 0.0:
            delta = arguments.real("delta", delta, least=LEAST_DELTA, hint="or 0 for pure privacy")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)

    def __str__(self) -> str:
        return f"epsilon={self.epsilon:g}, delta={self.delta:g}"

    @staticmethod
    def of(epsilon: float | None, delta: float | None) -> "Budget | None":
        """The budget of two arguments that are given together or not at all.

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
