# SPDX-License-Identifier: Apache-2.0
"""What a training run reports: a row per epoch."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ggdp.training.plan import Plan

StoppedBy = Literal["plan", "budget", "patience"]


@dataclass(frozen=True)
class EpochRow:
    """Where the run stood at the end of an epoch.

    Attributes:
        epoch: counted from 1.
        steps: logical steps that the model holds.
        epsilon_lower: certified epsilon so far, at the plan's delta: the truth is no less;
        epsilon: and no more. This is the number to publish. Steps that an interruption has lost are in it.
        score: what `evaluate` returned, or NaN.
        seconds: since the run began, pauses left out.
    """

    epoch: int
    steps: int
    epsilon_lower: float
    epsilon: float
    score: float
    seconds: float


@dataclass(frozen=True)
class FitReport:
    """A finished run.

    Attributes:
        plan: of the run.
        rows: one per epoch.
        stopped_by: the end of the plan, the budget, or patience with scores that no longer rise.
        method: which accountant's method gave epsilon.
        steps_lost: steps that are charged and not in the model, because an interruption came between.
    """

    plan: Plan
    rows: tuple[EpochRow, ...]
    stopped_by: StoppedBy
    method: str
    steps_lost: int = 0

    @property
    def last(self) -> EpochRow:
        """The end of the run."""
        return self.rows[-1]

    @property
    def best(self) -> EpochRow:
        """The row with the highest score; choosing it looks at the evaluation data alone."""
        return best_of(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a record."""
        return {
            "plan": self.plan.to_dict(),
            "rows": [asdict(row) for row in self.rows],
            "stopped_by": self.stopped_by,
            "method": self.method,
            "steps_lost": self.steps_lost,
        }


def best_of(rows: tuple[EpochRow, ...]) -> EpochRow:
    """The first row with the highest score; the last row where there are no scores."""
    scored = [row for row in rows if not math.isnan(row.score)]
    return max(scored, key=lambda row: row.score) if scored else rows[-1]
