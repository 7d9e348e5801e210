# SPDX-License-Identifier: Apache-2.0
"""Figure 5: hardmax utility of simulated votes against the runner-up gap, and its area against beta.

Utilities are exact, where the paper takes the mean of 50 trials. The histograms of 25 classes are random:
they come from the seeds in the settings, and the spread over the seeds is the error bar.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ggdp.reproduction.cell import Cell, Surroundings
from ggdp.reproduction.experiment import Agreement, Experiment, Finding, Numbers, Settings
from ggdp.selection import simulate_argmax

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NUM_BLOCKS = 25  # of neighbouring gaps, in the record and in the picture
_NEAR = 0.5  # in beta: "much closer to 2"


def utilities(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Areas and utilities of all exponents, for so many classes, one budget and one set of histograms."""
    found = simulate_argmax(
        num_classes=config["classes"],
        epsilons=[config["epsilon"]],
        delta=config["delta"],
        betas=_grid(config["betas"]),
        gaps=_grid(config["gaps"]),
        queries=config["votes"],
        rng=np.random.default_rng(config["histogram_seed"]),
    )
    return {
        "betas": list(found.betas),
        "scales": [noise.scale for noise in found.noises[0]],
        "areas": found.areas[0].tolist(),
        "gaps": _block_means(found.gaps).tolist(),
        "utilities": _block_means(found.utilities[0]).tolist(),
    }


def _block_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over neighbouring gaps: each gap has a histogram of its own, which is its own chance."""
    size = max(1, values.shape[-1] // _NUM_BLOCKS)
    kept = values[..., : values.shape[-1] // size * size]
    return np.asarray(kept.reshape(*kept.shape[:-1], -1, size).mean(axis=-1))


def _grid(grid: Mapping[str, Any]) -> list[float]:
    return [float(value) for value in np.linspace(grid["from"], grid["to"], grid["points"])]


def _curves(settings: Settings) -> list[tuple[dict[str, Any], list[int]]]:
    """Every curve of areas, with the seeds of its histograms; two classes leave nothing to chance."""
    return [
        (
            {"classes": classes, "votes": budget["votes"], "epsilon": epsilon, "betas": budget["betas"]},
            settings["histogram_seeds"][: 1 if classes == 2 else None],
        )
        for classes in settings["classes"]
        for budget in settings["budgets"]
        for epsilon in budget["epsilons"]
    ]


def _cells(settings: Settings) -> list[Cell]:
    shared = {name: settings[name] for name in ("delta", "gaps")}
    return [
        Cell(f"{__name__}:utilities", {**shared, **curve, "histogram_seed": seed})
        for curve, seeds in _curves(settings)
        for seed in seeds
    ]


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    rest = iter(results)
    curves = []
    for curve, seeds in _curves(settings):
        runs = [next(rest) for _ in seeds]
        areas = np.array([run["areas"] for run in runs])
        errors = np.std(areas, axis=0, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else 0.0 * areas[0]
        mean = areas.mean(axis=0)
        curves.append(
            {
                "name": f"{curve['classes']} classes, {curve['votes']} votes",
                **{key: curve[key] for key in ("classes", "votes", "epsilon")},
                **{key: runs[0][key] for key in ("betas", "scales", "gaps")},
                "utilities": np.mean([run["utilities"] for run in runs], axis=0).round(5).tolist(),
                "areas": mean.tolist(),
                "areas of the first histograms": runs[0]["areas"],
                "standard errors": errors.tolist(),
                "best beta": runs[0]["betas"][int(np.argmax(mean))],
            }
        )
    return {"curves": curves}


def _headline(numbers: Numbers) -> dict[str, float]:
    found = {}
    for curve in numbers["curves"]:
        first = np.array(curve["areas of the first histograms"])
        name = f"{curve['name']}, epsilon = {curve['epsilon']:g}"
        found[f"{name}, best beta"] = curve["betas"][int(np.argmax(first))]
        found[f"{name}, largest area"] = float(first.max())
    return found


def _findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    curves = numbers["curves"]

    def best(classes: int) -> tuple[str, list[float]]:
        chosen = [curve for curve in curves if curve["classes"] == classes]
        told = ", ".join(
            f"{curve['best beta']:g} ({_votes(curve)}, epsilon = {curve['epsilon']:g})" for curve in chosen
        )
        return told, [curve["best beta"] for curve in chosen]

    two, best_of_two = best(settings["classes"][0])
    many, best_of_many = best(settings["classes"][-1])
    beaten = [curve for curve in curves if _area(curve, 2.0) <= curve["areas"][0]]
    effects = {
        classes: max(
            float(np.ptp([_area(curve, beta) for beta in (curve["betas"][0], 2.0)]))
            for curve in curves
            if curve["classes"] == classes
        )
        for classes in settings["classes"]
    }
    return {
        "two classes": Finding(
            f"The best of the exponents tried: {two}.", Agreement.of_all(1.5 <= b < 2.0 for b in best_of_two)
        ),
        "many classes": Finding(
            f"The best of the exponents tried: {many}.",
            Agreement.of_all(abs(b - 2.0) <= _NEAR for b in best_of_many),
        ),
        "laplace": Finding(
            "The Gaussian has a larger area than the smallest exponent tried in "
            f"{len(curves) - len(beaten)} of {len(curves)} settings"
            + (
                f"; it loses with {', '.join(sorted({_votes(curve) for curve in beaten}))}."
                if beaten
                else "."
            ),
            Agreement.of_all(curve not in beaten for curve in curves),
        ),
        "more classes": Finding(
            "Between the smallest exponent and the Gaussian the area changes by up to "
            + " and ".join(f"{effect:.3f} ({classes} classes)" for classes, effect in effects.items())
            + ".",
            Agreement.of(effects[settings["classes"][-1]] > effects[settings["classes"][0]]),
        ),
    }


def _votes(curve: Mapping[str, Any]) -> str:
    return "one vote" if curve["votes"] == 1 else f"{curve['votes']} votes in a budget"


def _area(curve: Mapping[str, Any], beta: float) -> float:
    return float(np.interp(beta, curve["betas"], curve["areas"]))


def _pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    from ggdp.reporting.hardmax_figure import hardmax_figure

    return {
        f"fig5_{classes}_classes_{budget['votes']}_votes": hardmax_figure(
            [
                curve
                for curve in numbers["curves"]
                if (curve["classes"], curve["votes"]) == (classes, budget["votes"])
            ],
            delta=settings["delta"],
        )
        for classes in settings["classes"]
        for budget in settings["budgets"]
    }


EXPERIMENT = Experiment(
    name="fig5",
    cells=_cells,
    numbers=_numbers,
    headline=_headline,
    findings=_findings,
    pictures=_pictures,
)
