# SPDX-License-Identifier: Apache-2.0
"""A training run as plain data: what was asked, what it cost, what it reached, epoch by epoch."""

import math
import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ggdp import version

if TYPE_CHECKING:
    from ggdp.training.report import EpochRow, FitReport
    from ggdp.training.tasks import Task

KIND = "training run"
CHOICE_CAVEAT = (
    "choosing settings, or the best epoch, by the test score is not part of epsilon; the score itself is "
    "computed on data that training does not see"
)


def training_record(
    task: "Task", report: "FitReport", asked: Mapping[str, Any], *, seeded: bool, synthetic: bool
) -> dict[str, Any]:
    """The record of a finished run, for JSON.

    Args:
        task: what was trained.
        report: what `fit` returned.
        asked: the command's options that a reader needs to repeat the run.
        seeded: whether noise came from a seed, in which case nothing here is private.
        synthetic: whether the data were made up.
    """
    plan = report.plan
    return {
        "kind": KIND,
        "task": task.name,
        "synthetic": synthetic,
        "seeded": seeded,
        "asked": dict(asked),
        "beta": plan.noise.beta,
        "scale": plan.noise.scale,
        "noise_multiplier": plan.noise_multiplier,
        "clip_norm": plan.clip_norm,
        "norm": plan.p if math.isfinite(plan.p) else "inf",
        "rate": plan.rate,
        "steps": report.last.steps,
        "planned_steps": plan.steps,
        "num_examples": plan.num_examples,
        "num_parameters": plan.dimension,
        "charged_preprocessing": [mechanism.to_dict() for mechanism in task.charged],
        "adjacency": "add-remove",
        "delta": plan.delta,
        "target_epsilon": plan.max_epsilon,
        "epsilon": {"lower": report.last.epsilon_lower, "upper": report.last.epsilon},
        "method": report.method,
        "accuracy": report.last.score,
        "best": {"epoch": report.best.epoch, "accuracy": report.best.score},
        "stopped_by": report.stopped_by,
        "seconds": report.last.seconds,
        "epochs": [_row(row) for row in report.rows],
        "caveats": [*task.caveats, CHOICE_CAVEAT, *([SEED_CAVEAT] if seeded else [])],
        "versions": _versions(),
    }


SEED_CAVEAT = "noise from a seed can be removed by whoever knows it: this model is not private"


def _row(row: "EpochRow") -> dict[str, Any]:
    return {
        "epoch": row.epoch,
        "steps": row.steps,
        "epsilon": {"lower": row.epsilon_lower, "upper": row.epsilon},
        "accuracy": row.score,
        "seconds": row.seconds,
    }


def _versions() -> dict[str, str]:
    import numpy
    import torch

    return {
        "ggdp": version(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "torch": str(torch.__version__),
    }
