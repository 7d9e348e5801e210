# SPDX-License-Identifier: Apache-2.0
"""Figure 5: how often equally private noise is far out, against its exponent."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.calibration import NoiseSearch, WeighedNoise
from ggdp.calibration.calibrate import NoiseProblem
from ggdp.calibration.target import Target
from ggdp.reporting.records import bounds_record
from ggdp_paper.experiment import Agreement, Experiment, Finding, Numbers, Settings
from ggdp_paper.sweep import Cell, Surroundings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SLACK = 1e-3  # of the logarithm of a weight: two that differ by less are as good as each other


def weights(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Tail weights of one run at every exponent and threshold."""
    run, grid, target = config["run"], config["betas"], Target(config["epsilon"], config["delta"])
    problem = NoiseProblem(target, run["rate"], run["steps"])
    search = NoiseSearch(problem)
    results = []
    for threshold in config["thresholds"]:
        search = search.with_loss("outside", threshold=threshold)
        betas = np.round(np.linspace(grid["from"], grid["to"], grid["points"]), 12)
        results.append(
            {
                "threshold": threshold,
                "best": _row(search.best((grid["from"], grid["to"]))),
                "weights": [_row(search.weighed(float(beta))) for beta in betas],
            }
        )
    return {
        "name": run["name"],
        "target_epsilon": target.epsilon,
        "delta": target.delta,
        "rate": problem.rate,
        "steps": problem.steps,
        "sensitivity": problem.sensitivity,
        "adjacency": str(target.adjacency),
        "results": results,
    }


def _row(one: WeighedNoise) -> dict[str, Any]:
    return {
        "beta": one.beta,
        "scale": one.scale,
        "std": one.noise.std,
        "epsilon": bounds_record(one.calibrated.achieved),
        "tail_weight": one.loss,
        "log_tail_weight": one.log_loss,
    }


def _cells(settings: Settings) -> list[Cell]:
    shared = {name: settings[name] for name in ("epsilon", "delta", "thresholds", "betas")}
    seeded_as = "ggdp.reproduction.tail_weight:weights"
    return [
        Cell(f"{__name__}:weights", {**shared, "run": run}, seeded_as=seeded_as) for run in settings["runs"]
    ]


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    return {"runs": results}


def _curves(numbers: Numbers) -> list[tuple[str, dict[str, Any]]]:
    """Every curve of the figure with its name."""
    return [
        (f"{run['name']}, tau = {curve['threshold']:g}", curve)
        for run in numbers["runs"]
        for curve in run["results"]
    ]


def _headline(numbers: Numbers) -> dict[str, float]:
    found = {}
    for name, curve in _curves(numbers):
        found[f"{name}, best beta"] = curve["best"]["beta"]
        found[f"{name}, log weight there"] = curve["best"]["log_tail_weight"]
        found[f"{name}, log weight of the Gaussian"] = float(
            np.interp(
                2.0,
                [row["beta"] for row in curve["weights"]],
                [row["log_tail_weight"] for row in curve["weights"]],
            )
        )
    return found


def num_turns(values: list[float]) -> int:
    """How often a curve turns from falling to rising or back.

    >>> num_turns([3.0, 1.0, 2.0, 4.0]), num_turns([1.0, 2.0, 1.5, 3.0, 2.0])
    (1, 3)
    """
    signs = np.sign(np.diff(values))
    signs = signs[signs != 0.0]
    return int(np.count_nonzero(signs[1:] != signs[:-1]))


def _findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    curves = _curves(numbers)
    turns = max(num_turns([row["log_tail_weight"] for row in curve["weights"]]) for _, curve in curves)
    return {
        "laplace": _laplace_alone(numbers),
        "others": _beyond_laplace_and_gaussian(curves),
        "jaggedness": Finding(
            f"Computed exactly, without smoothing, a curve turns at most {turns} "
            f"time{'' if turns == 1 else 's'}{': no jaggedness is left' if turns <= 1 else ''}.",
            Agreement.of(turns <= 1),
        ),
    }


def _laplace_alone(numbers: Numbers) -> Finding:
    """Whether, for a single release, no exponent has less weight in the tail than 1."""
    single = [run for run in numbers["runs"] if run["rate"] == 1.0 and run["steps"] == 1]
    told, verdicts = [], []
    for name, curve in _curves({"runs": single}):
        laplace, _, other = _least(curve)
        verdicts.append(_is_less(laplace, other))
        told.append(f"{name}: beta = {curve['best']['beta']:.2f} ({curve['best']['tail_weight']:.1e})")
    if not told:
        return Finding("No single release was tried.", Agreement.UNDECIDED)
    return Finding(f"Least weight at: {'; '.join(told)}.", Agreement.of_all(verdicts))


def _beyond_laplace_and_gaussian(curves: list[tuple[str, dict[str, Any]]]) -> Finding:
    """Whether a regime is there, one is enough, in which another exponent beats both of the usual ones."""
    told, verdicts = [], []
    for name, curve in curves:
        laplace, gaussian, other = _least(curve)
        verdicts.append(_is_less(other, min(laplace, gaussian)))
        if verdicts[-1]:
            told.append(
                f"{name}: {curve['best']['tail_weight']:.1e} at beta = {curve['best']['beta']:.2f}, against "
                f"{np.exp(laplace):.1e} (Laplace) and {np.exp(gaussian):.1e} (Gaussian)"
            )
    found = f"Another exponent has less weight than both in {len(told)} of {len(curves)} curves"
    agreement = Agreement.AGREES if told else Agreement.of_all(verdicts)
    return Finding(f"{found}{': ' if told else ''}{'; '.join(told)}.", agreement)


def _least(curve: Mapping[str, Any]) -> tuple[float, float, float]:
    """Logarithms of the weights of Laplace and Gaussian noise, NaN if untried; of the others, the least."""
    weights = {round(row["beta"], 9): row["log_tail_weight"] for row in curve["weights"]}
    laplace, gaussian = weights.pop(1.0, np.nan), weights.pop(2.0, np.nan)
    return laplace, gaussian, min(weights.values())


def _is_less(log_weight: float, other: float) -> bool | None:
    """None where they are as good as each other, or one was not tried."""
    return None if not abs(log_weight - other) > _SLACK else log_weight < other


def _pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    from ggdp.reporting.figures import choice_figure

    drawn = []
    for run in numbers["runs"]:
        results = [
            {
                "steps": run["steps"],
                "threshold": curve["threshold"],
                "best": _drawn(curve["best"]),
                "tried": [_drawn(row) for row in curve["weights"]],
            }
            for curve in run["results"]
        ]
        drawn.append((run["name"], {"loss": "outside", "results": results}))
    return {"fig5": choice_figure(drawn)}


def _drawn(row: Mapping[str, Any]) -> dict[str, float]:
    return {"beta": row["beta"], "log_loss": row["log_tail_weight"]}


EXPERIMENT = Experiment(
    name="fig5",
    cells=_cells,
    numbers=_numbers,
    headline=_headline,
    findings=_findings,
    pictures=_pictures,
)
