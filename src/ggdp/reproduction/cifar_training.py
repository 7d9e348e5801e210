# SPDX-License-Identifier: Apache-2.0
"""The runs of Table 1, as cells that ask for a GPU: features are computed there and kept for the next."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ggdp.reproduction.cell import Cell, Surroundings
from ggdp.reproduction.experiment import Settings


def trained(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Train once on CIFAR-10 with noise calibrated to the budget, the standardisation of features charged."""
    from ggdp.training.experiments import training_cell

    task = _features(
        surroundings.data,
        config["device"],
        config["standardisation_noise"],
        (config["order_weights"][0], config["order_weights"][1], config["order_weights"][2]),
        config["repeat"],
    )
    (seed,) = (int(word) >> 1 for word in surroundings.seed.generate_state(1, np.uint64))
    settings = {**config["settings"], "averages": tuple(config["settings"]["averages"])}
    found = training_cell(task, epsilon=config["epsilon"], seed=seed, **settings)
    return {name: found[name] for name in ("accuracy", "best_accuracy", "epsilon", "norm", "method")}


@functools.lru_cache(maxsize=1)
def _features(
    data: Path | None, device: str, noise: float, order_weights: tuple[float, float, float], repeat: int
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
    )


def training_cells(settings: Settings) -> list[Cell]:
    """Every setting at every budget, repetitions outermost, since they share features; none if not asked."""
    return [cell for _, cell in _named_cells(settings)]


def _named_cells(settings: Settings) -> list[tuple[str, Cell]]:
    asked = settings["training"]
    if asked is None:
        return []
    task = {name: asked[name] for name in ("device", "standardisation_noise", "order_weights")}
    found = []
    for repeat, name, epsilon in itertools.product(
        range(1, asked["repeats"] + 1), asked["settings"], settings["epsilons"]
    ):
        chosen = {**asked["shared"], "epochs": asked["epochs"][f"{epsilon:g}"], **asked["settings"][name]}
        config = {**task, "epsilon": epsilon, "repeat": repeat, "settings": chosen}
        found.append((name, Cell(f"{__name__}:trained", config, needs_gpu=True)))
    return found


def rows_of(settings: Settings, results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean and deviation of each setting and budget, as the kept record has them."""
    groups: dict[tuple[str, float], list[Mapping[str, Any]]] = {}
    cells = _named_cells(settings)
    betas = {name: chosen["beta"] for name, chosen in settings["training"]["settings"].items()}
    for (name, cell), result in zip(cells, results, strict=True):
        groups.setdefault((name, cell.config["epsilon"]), []).append(result)
    return [
        {
            "setting": name,
            "beta": betas[name],
            "norm": found[0]["norm"],
            "epsilon": epsilon,
            "runs": len(found),
            "accuracy": float(np.mean([result["accuracy"] for result in found])),
            "accuracy_std": float(np.std([result["accuracy"] for result in found], ddof=1))
            if len(found) > 1
            else 0.0,
            "certified_epsilon": max(result["epsilon"] for result in found),
        }
        for (name, epsilon), found in groups.items()
    ]
