# SPDX-License-Identifier: Apache-2.0
"""Answers about privacy as plain data, with everything they depend on beside them.

Every record of the command line has one shape, {"kind", "version", ..., "results": [...]}, which
`record.schema.json` describes: `kind` is the command, `results` a list, and `epsilon`, wherever it stands,
the three numbers of certified bounds; an epsilon that was asked for is `target_epsilon`.
"""

import math
from dataclasses import dataclass
from typing import Any

from ggdp import version
from ggdp.accounting import Bounds
from ggdp.calibration import Calibrated
from ggdp.calibration.calibrated import run_of
from ggdp.mechanisms import AdditiveNoise, Adjacency, Mechanism

SEED_CAVEAT = "noise from a seed can be removed by whoever knows or guesses it: this output is not private"


@dataclass(frozen=True)
class Run:
    """A number of noisy steps, each on a Poisson sample, and the neighbours it is judged by."""

    step: AdditiveNoise
    rate: float
    steps: int
    adjacency: Adjacency

    @property
    def mechanism(self) -> Mechanism:
        """The run as an accountant reads it."""
        return run_of(self.step, self.rate, self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Every number that the answer depends on."""
        noise = self.step.noise
        return {
            "beta": noise.beta,
            "scale": noise.scale,
            "noise_multiplier": noise.scale / (math.sqrt(2.0) * self.step.sensitivity),
            "std": noise.std,
            "sensitivity": self.step.sensitivity,
            "rate": self.rate,
            "steps": self.steps,
            "adjacency": str(self.adjacency),
            **self._vector(),
        }

    def _vector(self) -> dict[str, Any]:
        """Norm and dimension of a vector; infinity, which JSON has not, as text."""
        if self.step.dimension == 1:
            return {}
        named = {"norm": self.step.norm, "dimension": self.step.dimension}
        return {name: "inf" if value == math.inf else value for name, value in named.items()}


def record_of(kind: str, results: list[dict[str, Any]], **shared: Any) -> dict[str, Any]:
    """The record of a command: its results, and what all of them share."""
    return {"kind": kind, "version": version(), **shared, "results": results}


def bounds_record(bounds: Bounds) -> dict[str, float | None]:
    """The three numbers; an upper bound that is infinite is null, because JSON has no infinity."""
    numbers = {"lower": bounds.lower, "estimate": bounds.estimate, "upper": bounds.upper}
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


def epsilon_record(run: Run, delta: float, answer: Bounds) -> dict[str, Any]:
    """Epsilon of a run at a delta."""
    return {"epsilon": bounds_record(answer), "delta": delta, "method": answer.method, **run.to_dict()}


def delta_record(run: Run, epsilon: float, answer: Bounds) -> dict[str, Any]:
    """delta of a run at an epsilon."""
    return {
        "delta": bounds_record(answer),
        "target_epsilon": epsilon,
        "method": answer.method,
        **run.to_dict(),
    }


def curve_record(run: Run, deltas: list[float], answers: list[Bounds]) -> dict[str, Any]:
    """Epsilon of a run at each delta."""
    points = [
        {"epsilon": bounds_record(answer), "delta": delta, "method": answer.method}
        for delta, answer in zip(deltas, answers, strict=True)
    ]
    return {"curve": points, **run.to_dict()}


def calibration_record(found: Calibrated, epsilon: float, adjacency: Adjacency) -> dict[str, Any]:
    """What a calibration found, what it was asked for, and what it achieves."""
    run = Run(found.step, found.rate, found.steps, adjacency)
    return {
        **epsilon_record(run, found.delta, found.achieved),
        "target_epsilon": epsilon,
        "sharp": found.sharp,
    }
