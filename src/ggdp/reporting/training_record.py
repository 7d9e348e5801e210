# SPDX-License-Identifier: Apache-2.0
"""A training run as plain data: what was asked, what it cost, what it reached, epoch by epoch."""

import math
import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ggdp import version
from ggdp.mechanisms import Adjacency

if TYPE_CHECKING:
    from ggdp.training.report import FitReport
    from ggdp.training.tasks import Task

KIND = "training run"
SEED_CAVEAT = "noise from a seed can be removed by whoever knows it: this model is not private"
CHOICE_CAVEAT = (
    "choosing settings, or the best epoch, by the test score is not part of epsilon; the score itself is "
    "computed on data that training does not see"
)


def training_record(
    task: "Task", report: "FitReport", asked: Mapping[str, Any], *, seeded: bool, synthetic: bool
) -> dict[str, Any]:
    """The record of a finished run, for JSON: a summary, then `plan` and `rows` as the run reported them.

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
        "adjacency": str(Adjacency.ADD_REMOVE),
        "delta": plan.delta,
        "target_epsilon": plan.max_epsilon,
        "epsilon": {"lower": report.last.epsilon_lower, "upper": report.last.epsilon},
        "beta": plan.noise.beta,
        "scale": plan.noise.scale,
        "noise_multiplier": plan.noise_multiplier,
        "clip_norm": plan.clip_norm,
        "norm": _plain(plan.p),
        "rate": plan.rate,
        "steps": report.last.steps,
        "accuracy": report.last.score,
        "best": {"epoch": report.best.epoch, "accuracy": report.best.score},
        "seconds": report.last.seconds,
        **_plain(report.to_dict()),
        "caveats": [*task.caveats, CHOICE_CAVEAT, *([SEED_CAVEAT] if seeded else [])],
        "versions": _versions(),
    }


def _plain(value: Any) -> Any:
    """The value with infinity in words, because JSON has no infinity; only a norm can be infinite here."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return "inf" if value == math.inf else value


def _versions() -> dict[str, str]:
    import numpy
    import torch

    return {
        "ggdp": version(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "torch": str(torch.__version__),
    }
