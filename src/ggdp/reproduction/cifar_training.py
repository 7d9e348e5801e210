# SPDX-License-Identifier: Apache-2.0
"""The runs of Table 1, as cells that ask for a GPU: features are computed there and kept for the next.

The settings were chosen by the accuracy on training images that were held out for it, not by test accuracy;
no epsilon covers that. What was tried is part of the sweep, in runs that the table does not use. While a clip
is below every gradient's norm only its product with the learning rate matters, so that one of the two is
enough to try.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ggdp.reproduction.accuracy_comparison import row_of
from ggdp.reproduction.cell import Cell, Surroundings
from ggdp.reproduction.experiment import Settings

_SCORES = ("accuracy", "best_accuracy", "mirrored_accuracy")
_KEPT = (*_SCORES, "epsilon", "lower_epsilon", "norm", "method", "noise_multiplier", "steps")
_TRIAL = 0  # the repetition of what was tried; those of the table count from 1


def trained(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Train once on CIFAR-10 with noise calibrated to the budget, the standardisation of features charged."""
    import torch

    from ggdp.training.experiments import training_cell
    from ggdp.training.tasks import held_out

    chosen = dict(config["settings"])
    weights = tuple(float(weight) for weight in chosen.pop("order_weights"))
    task = _features(
        surroundings.data,
        config["device"],
        config["standardisation_noise"],
        weights,
        chosen.pop("views"),
        config["repeat"],
    )
    if config["held_out"]:
        task = held_out(task, config["held_out"])
    (seed,) = (int(word) >> 1 for word in surroundings.seed.generate_state(1, np.uint64))
    averages = tuple(chosen.pop("averages"))
    # Clipping leaves a margin for the rounding of TensorFloat-32.
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        found = training_cell(task, epsilon=config["epsilon"], seed=seed, averages=averages, **chosen)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return {name: found[name] for name in _KEPT}


@functools.lru_cache(maxsize=1)
def _features(
    data: Path | None,
    device: str,
    noise: float,
    order_weights: tuple[float, float, float],
    views: int,
    repeat: int,
) -> Any:
    """The task; each repetition standardises its features by a release of its own."""
    from ggdp.training.tasks import load_task

    return load_task(
        "cifar10",
        data=data,
        device=device,
        rng=np.random.default_rng(repeat),
        standardisation_noise=noise,
        order_weights=order_weights,
        views=views,
    )


def training_cells(settings: Settings) -> list[Cell]:
    """Every setting at every budget, repetitions outermost, since they share features; none if not asked."""
    return [cell for _, cell in (*_table_cells(settings), *_trial_cells(settings))]


def _table_cells(settings: Settings) -> Iterator[tuple[str, Cell]]:
    asked = settings["training"]
    if asked is not None:
        for repeat, name, epsilon in itertools.product(
            range(1, asked["repeats"] + 1), asked["settings"], settings["epsilons"]
        ):
            setting = asked["settings"][name]
            if repeat <= setting.get("repeats", asked["repeats"]):
                yield name, _cell(asked, setting, epsilon, repeat)


def _trial_cells(settings: Settings) -> Iterator[tuple[tuple[str, str], Cell]]:
    """Each setting once as it is in the table, and once with each change."""
    asked = settings["training"]
    if asked is not None:
        for name, changes in asked["tried"].items():
            for told, change in {"": {}, **changes}.items():
                chosen = {**asked["settings"][name], **change}
                yield (name, told), _cell(asked, chosen, asked["tried at epsilon"], _TRIAL, asked["held_out"])


def _cell(
    asked: Mapping[str, Any], setting: Mapping[str, Any], epsilon: float, repeat: int, held_out: int = 0
) -> Cell:
    chosen = {**asked["shared"], "epochs": asked["epochs"][f"{epsilon:g}"], **setting}
    chosen.pop("repeats", None)
    shared = {name: asked[name] for name in ("device", "standardisation_noise")}
    config = {**shared, "epsilon": epsilon, "repeat": repeat, "held_out": held_out, "settings": chosen}
    return Cell(f"{__name__}:trained", config, needs_gpu=True)


def rows_of(settings: Settings, results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean and deviation of each setting and budget."""
    groups: dict[tuple[str, float], list[Mapping[str, Any]]] = {}
    for (name, cell), result in zip(_table_cells(settings), results, strict=False):
        groups.setdefault((name, cell.config["epsilon"]), []).append(result)
    return [
        {
            "setting": name,
            "beta": settings["training"]["settings"][name]["beta"],
            "norm": found[0]["norm"],
            "epsilon": epsilon,
            **row_of([result["accuracy"] for result in found]),
            "best_accuracy": _mean([result["best_accuracy"] for result in found]),
            "mirrored_accuracy": _mean([result.get("mirrored_accuracy") for result in found]),
            "noise_multiplier": found[0]["noise_multiplier"],
            "certified_epsilon": max(result["epsilon"] for result in found),
            "lower_epsilon": min(result["lower_epsilon"] for result in found),
            "method": found[0]["method"],
        }
        for (name, epsilon), found in groups.items()
    ]


def _mean(scores: Sequence[float | None]) -> float | None:
    """None if some run has no such score."""
    known = [score for score in scores if score is not None]
    return float(np.mean(known)) if len(known) == len(scores) else None


def trials_of(settings: Settings, results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What was tried, and the accuracy of its one run; a row without a change is the table's own setting."""
    first = sum(1 for _ in _table_cells(settings))
    return [
        {"setting": name, "change": change, "accuracy": result["accuracy"]}
        for ((name, change), _), result in zip(_trial_cells(settings), results[first:], strict=True)
    ]
