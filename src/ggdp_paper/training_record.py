# SPDX-License-Identifier: Apache-2.0
"""A training run as plain data: what was asked, what it cost, what it reached, epoch by epoch."""

import math
import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ggdp import version
from ggdp.accounting import Bounds
from ggdp.mechanisms import Adjacency
from ggdp.reporting.privacy_records import SEED_CAVEAT, bounds_record

if TYPE_CHECKING:
    from ggdp.training.report import EpochRow, FitReport
    from ggdp.training.tasks import Task

CHOICE_CAVEAT = (
    "choosing settings, or the best epoch, by the test score is not part of epsilon; the score itself is "
    "computed on data that training does not see"
)


def training_record(
    task: "Task",
    report: "FitReport",
    spent: Bounds,
    asked: Mapping[str, Any],
    *,
    seeded: bool,
    synthetic: bool,
) -> dict[str, Any]:
    """The result of a finished run, for JSON: a summary, then `plan` and `rows` as the run reported them.

    Args:
        task: what was trained.
        report: what `fit` returned.
        spent: epsilon at the end of the run.
        asked: the command's options that a reader needs to repeat the run.
        seeded: whether noise came from a seed, in which case nothing here is private.
        synthetic: whether the data were made up.
    """
    plan = report.plan
    return {
        "task": task.name,
        "synthetic": synthetic,
        "seeded": seeded,
        "asked": dict(asked),
        "adjacency": str(Adjacency.ADD_REMOVE),
        "delta": plan.delta,
        "target_epsilon": plan.max_epsilon,
        "epsilon": bounds_record(spent),
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
        "rows": [_row(row) for row in report.rows],
        "caveats": [*task.caveats, CHOICE_CAVEAT, *([SEED_CAVEAT] if seeded else [])],
        "versions": _versions(),
    }


def _row(row: "EpochRow") -> dict[str, Any]:
    """An epoch, with its epsilon as bounds; a row has no estimate between them."""
    plain = {name: value for name, value in asdict(row).items() if name != "epsilon_lower"}
    upper = row.epsilon if math.isfinite(row.epsilon) else None
    return plain | {
        "epsilon": {"lower": row.epsilon_lower, "estimate": None, "upper": upper},
        "score": None if math.isnan(row.score) else row.score,
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
