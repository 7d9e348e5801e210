# SPDX-License-Identifier: Apache-2.0
"""Figures 9 to 16: accuracy against beta with one hyperparameter held fixed, from the cells of Figure 4."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp_paper.experiment import Agreement, Experiment, Finding, Numbers, Settings
from ggdp_paper.figures.accuracy import accuracy_figure, curve_of, gaussian_and_others, is_as_good, over_all
from ggdp_paper.figures.training_accuracy import judged, training_files
from ggdp_paper.figures.training_sweep import (
    GRID,
    best_rows,
    runs_of,
    sweep_cells,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STRONG = 0.02  # of accuracy
_WORDS = {"learning_rate": "learning rate", "clip_norm": "clip", "noise_multiplier": "noise multiplier"}


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    runs = runs_of(settings, results)
    panels = []
    for name, values in GRID.items():
        for value in settings[values]:
            fixed = [run for run in runs if run[name] == value]
            budgets = [
                {"epsilon": epsilon, "rows": best_rows(fixed, settings["betas"], epsilon)}
                for epsilon in settings["epsilons"]
            ]
            panels.append({"hyperparameter": name, "value": value, "budgets": budgets})
    return {"panels": panels}


def _headline(numbers: Numbers) -> dict[str, float]:
    found: dict[str, float] = {}
    for panel in numbers["panels"]:
        for budget in panel["budgets"]:
            name = f"{_WORDS[panel['hyperparameter']]} {panel['value']:g}, epsilon = {budget['epsilon']:g}"
            found |= {f"{name}, beta = 2": row["accuracy"] for row in budget["rows"] if row["beta"] == 2.0}
    return found


def _effect(numbers: Numbers, name: str) -> float | None:
    """By how much fixing the hyperparameter at its worst value costs beta = 2, over the budgets at most."""
    at: dict[float, list[float]] = {}
    for panel in numbers["panels"]:
        if panel["hyperparameter"] == name:
            for budget in panel["budgets"]:
                found = [row["accuracy"] for row in budget["rows"] if row["beta"] == 2.0]
                at.setdefault(budget["epsilon"], []).extend(found)
    spreads = [float(np.ptp(values)) for values in at.values() if len(values) > 1]
    return max(spreads, default=None)


def _findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    effects = {name: _effect(numbers, name) for name in GRID}
    findings = {
        "learning rate": _small("learning_rate", effects),
        "clip": _clip(effects),
        "noise multiplier": _small("noise_multiplier", effects),
        "gaussian": _mostly_as_good(numbers),
    }
    return judged(settings, findings)


def _mostly_as_good(numbers: Numbers) -> Finding:
    compared = [
        found
        for panel in numbers["panels"]
        for budget in panel["budgets"]
        if (found := gaussian_and_others(budget["rows"])) is not None
    ]
    verdicts = [over_all(is_as_good(gaussian, other) for other in others) for gaussian, others in compared]
    good, worse = verdicts.count(True), verdicts.count(False)
    return Finding(
        f"Of {len(verdicts)} panels and budgets, beta = 2 is surely as good as every exponent in [1, 2), "
        f"within 0.3 percentage points, in {good}, and trails one by more than two standard errors in "
        f"{worse}; the others cannot tell.",
        Agreement.AGREES
        if 2 * good > len(verdicts)
        else Agreement.DIFFERS
        if 2 * worse > len(verdicts)
        else Agreement.UNDECIDED,
    )


def _small(name: str, effects: dict[str, float | None]) -> Finding:
    effect = effects[name]
    if effect is None:
        return Finding(f"Only one {_WORDS[name]} was tried.", Agreement.UNDECIDED)
    return Finding(
        f"At beta = 2 the values of the {_WORDS[name]} are at most {100 * effect:.2f} percentage points "
        "apart.",
        Agreement.of(effect <= _STRONG),
    )


def _clip(effects: dict[str, float | None]) -> Finding:
    clip, rate = effects["clip_norm"], effects["learning_rate"]
    if clip is None or rate is None:
        return Finding("Only one clip or one learning rate was tried.", Agreement.UNDECIDED)
    return Finding(
        f"At beta = 2 the clips are at most {100 * clip:.2f} percentage points apart, the learning rates "
        f"{100 * rate:.2f}.",
        Agreement.of_all((clip > rate, clip <= _STRONG)),
    )


def _pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    pictures = {}
    for name in GRID:
        panels = [panel for panel in numbers["panels"] if panel["hyperparameter"] == name]
        drawn = [
            (
                f"{_WORDS[name]} {panel['value']:g}",
                [
                    curve_of(budget["rows"], f"epsilon = {budget['epsilon']:g}")
                    for budget in panel["budgets"]
                    if budget["rows"]
                ],
            )
            for panel in panels
        ]
        rows = -(-len(drawn) // 2)
        pictures[f"fig9_{name}"] = accuracy_figure(drawn, "test accuracy (%)", rows=rows, same_scale=True)
    return pictures


EXPERIMENT = Experiment(
    name="fig9",
    cells=sweep_cells,
    numbers=_numbers,
    headline=_headline,
    findings=_findings,
    pictures=_pictures,
    files=training_files,
    packages=("torch", "sklearn"),
    kept_with="training",
)
