# SPDX-License-Identifier: Apache-2.0
"""Two choices of the paper's training, tried on Adult: when to stop, and batches against epochs.

Runs to the end tell what each stopping rule would have kept. Runs with noise calibrated to one budget tell
whether larger batches for more epochs help, each at the best of some learning rates.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.reporting import canvas
from ggdp_paper.experiment import Agreement, Experiment, Finding, Numbers, Settings
from ggdp_paper.figures.accuracy import leads, row_of, told
from ggdp_paper.figures.training_accuracy import training_files
from ggdp_paper.sweep import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SWEEP = "ggdp_paper.figures.training_sweep"


def _stopping_cells(settings: Settings) -> list[Cell]:
    """Runs that nothing stops."""
    asked = settings["stopping"]
    shared = {**settings["run"], **asked["run"], "data": settings["data"], "patience": asked["run"]["epochs"]}
    return [
        Cell(f"{_SWEEP}:trained", {**shared, "beta": beta, "repeat": repeat})
        for beta in asked["betas"]
        for repeat in range(settings["repeats"])
    ]


def _batch_runs(settings: Settings) -> list[dict[str, Any]]:
    asked = settings["batches"]
    return [
        {"beta": beta, "batch_size": batch, "epochs": epochs, "learning_rate": rate, "repeat": repeat}
        for beta in asked["betas"]
        for batch in asked["batch_sizes"]
        for epochs in asked["epochs"]
        for rate in asked["learning_rates"]
        for repeat in range(settings["repeats"])
    ]


def _cells(settings: Settings) -> list[Cell]:
    run, asked = settings["run"], settings["batches"]
    shared = {name: run[name] for name in ("norm", "delta", "momentum")}
    shared |= {name: asked[name] for name in ("epsilon", "clip_norm")}
    batches = []
    for one in _batch_runs(settings):
        chosen = {**shared, **{name: value for name, value in one.items() if name != "repeat"}}
        config = {"task": run["task"], "settings": chosen, "repeat": one["repeat"], "data": settings["data"]}
        batches.append(Cell(f"{_SWEEP}:calibrated", config))
    return [*_stopping_cells(settings), *batches]


def stopped(accuracies: list[float], count: int) -> dict[str, int]:
    """After how many epochs each rule stops: `count` without a better score, and `count` drops in a row.

    >>> stopped([0.5, 0.7, 0.6, 0.65, 0.6, 0.5, 0.8], 2)
    {'patience': 4, 'declines': 6}
    """
    from ggdp.training.fit import is_tired

    rules: tuple[dict[str, int], ...] = ({"patience": count}, {"declines": count})
    found = {}
    for rule in rules:
        ends = (n for n in range(1, len(accuracies) + 1) if is_tired(accuracies[:n], **rule))
        found[next(iter(rule))] = next(ends, len(accuracies))
    return found


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    first = len(_stopping_cells(settings))
    runs = []
    for cell, result in zip(_stopping_cells(settings), results[:first], strict=True):
        accuracies = result["accuracies"]
        ends = stopped(accuracies, settings["stopping"]["count"])
        best = {rule: max(accuracies[:end]) for rule, end in ends.items()}
        whole = {"epochs": ends, "best": best, "best of all": max(accuracies)}
        runs.append({"beta": cell.config["beta"], "repeat": cell.config["repeat"], **whole})
    groups: dict[tuple[float, ...], list[float]] = {}
    for one, result in zip(_batch_runs(settings), results[first:], strict=True):
        key = (one["beta"], one["batch_size"], one["epochs"], one["learning_rate"])
        groups.setdefault(key, []).append(result["accuracy"])
    best_rows: dict[tuple[float, ...], dict[str, Any]] = {}
    for (beta, batch, epochs, rate), scores in groups.items():
        row = {"beta": beta, "batch_size": batch, "epochs": epochs, "learning_rate": rate, **row_of(scores)}
        kept = best_rows.get((beta, batch, epochs))
        if kept is None or row["accuracy"] > kept["accuracy"]:
            best_rows[beta, batch, epochs] = row
    return {"stopping": runs, "batches": list(best_rows.values())}


def _headline(numbers: Numbers) -> dict[str, float]:
    return {
        f"beta = {row['beta']:g}, batches of {row['batch_size']}, {row['epochs']} epochs": row["accuracy"]
        for row in numbers["batches"]
    }


def _findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    return {"stopping": _stopping(settings, numbers["stopping"]), "batches": _batches(numbers["batches"])}


def _stopping(settings: Settings, runs: list[dict[str, Any]]) -> Finding:
    lost = [run["best"]["declines"] - run["best"]["patience"] for run in runs]
    late = [run["epochs"]["declines"] - run["epochs"]["patience"] for run in runs]
    never = sum(run["epochs"]["declines"] == settings["stopping"]["run"]["epochs"] for run in runs)
    return Finding(
        f"Of {len(runs)} runs the paper's rule lets {never} go on to the end. Ours stops {np.mean(late):.0f} "
        f"epochs sooner on average and gives up {100 * np.mean(lost):.3f} percentage points of the best "
        f"epoch, {100 * max(lost):.3f} at the most.",
        Agreement.of(max(lost) <= 1e-3),
    )


def _batches(rows: list[dict[str, Any]]) -> Finding:
    """Whether no larger batch leads the smallest, run for the fewest epochs, by two standard errors."""
    lines, verdicts = [], []
    for beta in dict.fromkeys(row["beta"] for row in rows):
        own = [row for row in rows if row["beta"] == beta]
        base = min(own, key=lambda row: (row["batch_size"], row["epochs"]))
        others = [row for row in own if row["batch_size"] > base["batch_size"]]
        best = max(others, key=lambda row: float(row["accuracy"]))
        verdicts.append(None if base["std"] is None else leads(best, base) is not True)
        lines.append(
            f"beta = {beta:g}: {told(base)} with batches of {base['batch_size']}, {base['epochs']} epochs, "
            f"at best {told(best)} with batches of {best['batch_size']} for {best['epochs']}"
        )
    return Finding(f"At equal privacy, {'; '.join(lines)}.", Agreement.of_all(verdicts))


def _pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    figure, (axes,) = canvas.panels(1)
    kinds = dict.fromkeys((row["beta"], row["epochs"]) for row in numbers["batches"])
    for number, (beta, epochs) in enumerate(kinds):
        rows = [row for row in numbers["batches"] if (row["beta"], row["epochs"]) == (beta, epochs)]
        axes.errorbar(
            [row["batch_size"] for row in rows],
            [100.0 * row["accuracy"] for row in rows],
            yerr=[100.0 * (row["std"] or 0.0) for row in rows],
            capsize=2,
            label=f"beta = {beta:g}, {epochs} epochs",
            **canvas.style_number(number),
        )
    axes.set_xscale("log")
    axes.set_xticks(sorted({row["batch_size"] for row in numbers["batches"]}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("expected batch size (examples)")
    axes.set_ylabel("test accuracy (%), +- 1 std")
    axes.set_title(f"Adult, epsilon = {settings['batches']['epsilon']:g}", fontsize="medium", loc="left")
    axes.legend(frameon=False, fontsize="small")
    return {"training_choices": figure}


EXPERIMENT = Experiment(
    name="training_choices",
    cells=_cells,
    numbers=_numbers,
    headline=_headline,
    findings=_findings,
    pictures=_pictures,
    files=training_files,
    packages=("torch", "sklearn"),
)
