# SPDX-License-Identifier: Apache-2.0
"""Cells that train: the sweep that Figure 4 and Figures 9 to 16 share, and single runs for one budget.

A cell of the sweep trains once and notes the accuracy after every epoch.

As in the paper, a run has a fixed noise multiplier, and a budget is a point on its way: the accuracy at a
budget is the best of the epochs whose epsilon is within it. Epsilon depends on exponent and noise multiplier
alone, so it has cells of its own. Gradients are clipped in the l_2 norm for every exponent, as the published
code does, so that one grid of clips suits all exponents; epsilon is certified for just that. Settings are
compared by their test accuracy, again as in the paper: no epsilon covers the choice.
"""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ggdp_paper.experiment import Settings
from ggdp_paper.figures.accuracy import row_of
from ggdp_paper.sweep import Cell, Surroundings

GRID = {"learning_rate": "learning_rates", "clip_norm": "clip_norms", "noise_multiplier": "noise_multipliers"}
"""The hyperparameters of a run, and the settings that list their values."""

_KEPT = ("accuracy", "best_accuracy", "epsilon", "method", "noise_multiplier", "norm", "steps")
_STANDARDISED = ("cifar10", "svhn")
_SCORED_ON_A_GPU = 4096  # test examples in memory at a time
_PLANNED = ("beta", "norm", "delta", "batch_size", "epochs", "noise_multiplier")


def spent(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Certified epsilon after every epoch, of an exponent and a noise multiplier."""
    plan = _prepared({**config, "clip_norm": 1.0}, surroundings).private.plan
    ends = [epoch * plan.steps_per_epoch for epoch in range(1, config["epochs"] + 1)]
    bounds = [plan.epsilon(steps) for steps in ends]
    certified = {"epsilons": [bound.upper for bound in bounds], "lower": [bound.lower for bound in bounds]}
    return {**certified, "steps": ends, "method": bounds[-1].method}


def trained(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Train once; the test accuracy after every epoch, until it has not risen for `patience` epochs.

    The paper stops when it has fallen for 10 epochs in a row, which is no sooner.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # cells run side by side
    try:
        return {"accuracies": _accuracies(_prepared(config, surroundings), config)}
    finally:
        torch.set_num_threads(threads)


def _prepared(config: Mapping[str, Any], surroundings: Surroundings) -> Any:
    import torch

    from ggdp_paper.task_run import RunSettings, prepare

    names = (*_PLANNED, "clip_norm", "learning_rate", "momentum")
    first, second = (int(word) >> 1 for word in surroundings.seed.generate_state(2, np.uint64))
    return prepare(
        _task(config, surroundings.data),
        RunSettings(**{name: config[name] for name in names if name in config}),
        generator=torch.Generator().manual_seed(first),
        weights=torch.Generator().manual_seed(second),
    )


def _accuracies(run: Any, config: Mapping[str, Any]) -> list[float]:
    """The loop of `fit` without its rows: epsilon is left to its own cells."""
    from ggdp.training.fit import is_tired, take_steps

    private = run.private
    found: list[float] = []
    while len(found) < config["epochs"]:
        take_steps(private, private.plan.steps_per_epoch)
        found.append(run.score(private.model))
        if is_tired(found, patience=config["patience"]):
            break
    return found


def _task(config: Mapping[str, Any], data: Path | None) -> Any:
    """The data; each repetition standardises the features of images by a release of its own."""
    name = config["task"]
    release = config.get("repeat", 0) if name in _STANDARDISED else 0
    return _loaded(name, None if name == "digits" else data, config.get("device", "cpu"), release)


@functools.lru_cache(maxsize=1)
def _loaded(name: str, data: Path | None, device: str, release: int) -> Any:
    """Read once in each worker; a GPU scores more examples at a time than a task's default."""
    from ggdp_paper.tasks import load_task

    task = load_task(name, data=data, device=device, rng=np.random.default_rng(release))
    if device == "cpu":
        return task
    batch = max(_SCORED_ON_A_GPU, task.defaults.score_batch_size)
    return dataclasses.replace(task, defaults=dataclasses.replace(task.defaults, score_batch_size=batch))


def sweep_cells(settings: Settings) -> list[Cell]:
    """Epsilons first, then every exponent with every setting; repetitions outermost."""
    return [*_spent_cells(settings), *_trained_cells(settings)]


def _spent_cells(settings: Settings) -> list[Cell]:
    names = ("task", "device", "norm", "delta", "batch_size", "epochs", "data")
    shared = {name: settings[name] for name in names if name in settings}
    return [
        _cell("spent", {**shared, **_norm(settings, beta), "beta": beta, "noise_multiplier": multiplier})
        for beta in settings["betas"]
        for multiplier in settings["noise_multipliers"]
    ]


def _trained_cells(settings: Settings) -> list[Cell]:
    names = ("task", "device", "norm", "delta", "batch_size", "epochs", "momentum", "patience", "data")
    shared = {name: settings[name] for name in names if name in settings}
    values = itertools.product(*(settings[name] for name in GRID.values()))
    grid = [dict(zip(GRID, chosen, strict=True)) for chosen in values]
    return [
        _cell("trained", {**shared, **_norm(settings, beta), "beta": beta, **chosen, "repeat": repeat})
        for repeat in range(settings["repeats"])
        for beta in settings["betas"]
        for chosen in grid
    ]


def _norm(settings: Settings, beta: float) -> dict[str, float | str]:
    """The norm that gradients are clipped in; that which matches Laplace and Gaussian noise is their own."""
    is_named = settings["norm"] == "matched" and not 1.0 < beta < 2.0
    return {"norm": beta if is_named else settings["norm"]}


def _cell(function: str, config: Mapping[str, Any]) -> Cell:
    needs_gpu = config.get("device", "cpu") != "cpu"
    seeded_as = f"ggdp.reproduction.training_sweep:{function}"
    return Cell(f"{__name__}:{function}", config, needs_gpu, seeded_as)


def runs_of(settings: Settings, results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each setting of each exponent with its epsilons and repetitions, from the results of the cells."""
    trainings = _trained_cells(settings)
    spending = _spending(settings, results)
    runs: dict[tuple[float, ...], dict[str, Any]] = {}
    for cell, result in zip(trainings, results[-len(trainings) :], strict=True):
        chosen = {name: cell.config[name] for name in ("beta", *GRID)}
        epsilons = spending[chosen["beta"], chosen["noise_multiplier"]]["epsilons"]
        run = runs.setdefault(tuple(chosen.values()), {**chosen, "epsilons": epsilons, "repeats": []})
        run["repeats"].append(result["accuracies"])
    return list(runs.values())


def _spending(
    settings: Settings, results: Sequence[Mapping[str, Any]]
) -> dict[tuple[float, float], Mapping[str, Any]]:
    """What `spent` gave, by exponent and noise multiplier."""
    return {
        (cell.config["beta"], cell.config["noise_multiplier"]): result
        for cell, result in zip(_spent_cells(settings), results, strict=False)
    }


def certified_at_the_end(settings: Settings, results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Between which bounds epsilon lies after the last epoch: how much the accountant itself costs."""
    return [
        {
            "beta": beta,
            "noise_multiplier": multiplier,
            "lower": found["lower"][-1],
            "upper": found["epsilons"][-1],
            "method": found["method"],
        }
        for (beta, multiplier), found in _spending(settings, results).items()
    ]


def at_budget(run: Mapping[str, Any], epsilon: float) -> list[float]:
    """Of each repetition, the best accuracy before the budget was exceeded; none if it is too small.

    >>> at_budget({"epsilons": [1.0, 2.0], "repeats": [[0.7, 0.8], [0.6, 0.9]]}, 1.5)
    [0.7, 0.6]
    """
    num_inside = sum(spent <= epsilon for spent in run["epsilons"])
    return [max(accuracies[:num_inside]) for accuracies in run["repeats"]] if num_inside else []


def best_rows(
    runs: Sequence[Mapping[str, Any]], betas: Sequence[float], epsilon: float
) -> list[dict[str, Any]]:
    """For each exponent with a run inside the budget: the setting with the best mean, its mean and spread."""
    rows = []
    for beta in betas:
        scored = [
            (float(np.mean(values)), values, run)
            for run in runs
            if run["beta"] == beta and (values := at_budget(run, epsilon))
        ]
        if not scored:
            continue
        _, values, run = max(scored, key=lambda entry: entry[0])
        setting = {name: run[name] for name in GRID}
        rows.append({"beta": beta, "epsilon": epsilon, **row_of(values), **setting})
    return rows


def calibrated(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Train once with noise calibrated to the budget; the numbers at the end and of the best epoch."""
    from ggdp_paper.task_run import training_cell

    task = _task(config, surroundings.data)
    (seed,) = (int(word) >> 1 for word in surroundings.seed.generate_state(1, np.uint64))
    found = training_cell(task, seed=seed, **config["settings"])
    return {name: found[name] for name in _KEPT}


def calibrated_cell(task: str, settings: Mapping[str, Any], repeat: int | str) -> Cell:
    """The cell of a run; `repeat` tells repetitions apart, and gives each its own randomness.

    Args:
        task: a task that `load_task` knows.
        settings: what `ggdp_paper.task_run.training_cell` takes, but the seed.
        repeat: any name.
    """
    config = {"task": task, "settings": dict(settings), "repeat": repeat}
    return Cell(
        f"{__name__}:calibrated", config, seeded_as="ggdp.reproduction.calibrated_training:calibrated"
    )
