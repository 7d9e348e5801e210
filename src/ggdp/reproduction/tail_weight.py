# SPDX-License-Identifier: Apache-2.0
"""Figure 4: how often equally private noise is far out, against its exponent."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.reporting.outlier_study import OutlierTarget, outlier_study
from ggdp.reproduction.cell import Cell, Surroundings
from ggdp.reproduction.experiment import Agreement, Experiment, Finding, Numbers, Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SLACK = 1e-3  # of the logarithm of a weight: the best exponent is found to 0.004


def weights(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Tail weights of one run at every exponent and threshold."""
    run, grid = config["run"], config["betas"]
    target = OutlierTarget(config["epsilon"], config["delta"], run["rate"], run["steps"])
    study = outlier_study(target, config["thresholds"], (grid["from"], grid["to"]), grid["points"])
    return {"name": run["name"], **study.to_dict()}


def _cells(settings: Settings) -> list[Cell]:
    shared = {name: settings[name] for name in ("epsilon", "delta", "thresholds", "betas")}
    return [Cell(f"{__name__}:weights", {**shared, "run": run}) for run in settings["runs"]]


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
    least = "; ".join(
        f"{name}: beta = {curve['best']['beta']:.2f} ({curve['best']['tail_weight']:.1e})"
        for name, curve in curves
    )
    unique = all(
        curve["best"]["log_tail_weight"] <= min(row["log_tail_weight"] for row in curve["weights"]) + _SLACK
        for _, curve in curves
    )
    return {
        "best exponent": Finding(f"Least weight at: {least}.", Agreement.of(unique)),
        "jaggedness": Finding(
            f"Computed exactly, without smoothing, a curve turns at most {turns} "
            f"time{'' if turns == 1 else 's'}: no jaggedness is left.",
            Agreement.of(turns <= 1),
        ),
    }


def _pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    from ggdp.reporting.outlier_figure import outlier_panels

    return {"fig4": outlier_panels([(run["name"], run) for run in numbers["runs"]])}


EXPERIMENT = Experiment(
    name="fig4",
    cells=_cells,
    numbers=_numbers,
    headline=_headline,
    findings=_findings,
    pictures=_pictures,
)
