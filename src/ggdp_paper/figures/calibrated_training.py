# SPDX-License-Identifier: Apache-2.0
"""A cell that trains once with noise calibrated to its budget: the whole run costs just that epsilon."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ggdp.reproduction.cell import Cell, Surroundings

_KEPT = ("accuracy", "best_accuracy", "epsilon", "method", "noise_multiplier", "norm", "steps")


def calibrated(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Train `config["task"]` once with `config["settings"]`; the numbers at its end and of its best epoch."""
    from ggdp.training.experiments import training_cell

    task = _task(config["task"], surroundings.data)
    (seed,) = (int(word) >> 1 for word in surroundings.seed.generate_state(1, np.uint64))
    found = training_cell(task, seed=seed, **config["settings"])
    return {name: found[name] for name in _KEPT}


def calibrated_cell(task: str, settings: Mapping[str, Any], repeat: int | str) -> Cell:
    """The cell of a run; `repeat` tells repetitions apart, and gives each its own randomness.

    Args:
        task: a task that `load_task` knows.
        settings: what `ggdp.training.experiments.training_cell` takes, but the seed.
        repeat: any name.
    """
    return Cell(f"{__name__}:calibrated", {"task": task, "settings": dict(settings), "repeat": repeat})


@functools.cache
def _task(name: str, data: Path | None) -> Any:
    """The data, read once in each worker."""
    from ggdp.training.tasks import load_task

    return load_task(name, data=None if name == "digits" else data)
