# SPDX-License-Identifier: Apache-2.0
"""Figure 4: test accuracy of beta-DP-SGD against beta for several budgets, all hyperparameters tuned.

`EXPERIMENT` is the figure on Adult. `REVIEWS` is the same sweep on IMDB with an LSTM, `CIFAR10` and `SVHN` on
images. They run where there is a GPU, and are read from a kept record elsewhere, where there is one.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp_paper.experiment import Agreement, Experiment, Finding, Numbers, Settings
from ggdp_paper.figures.accuracy import (
    USUAL_STD,
    Row,
    accuracy_figure,
    curve_of,
    error_of_difference,
    gaussian_and_others,
    leads,
    over_all,
    told,
)
from ggdp_paper.figures.training_sweep import (
    at_budget,
    best_rows,
    certified_at_the_end,
    runs_of,
    sweep_cells,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TASKS = ("adult", "imdb", "cifar10", "svhn")
_WEAK = 0.02  # of accuracy: "a weak relationship"
_TIGHT_FOR_THE_GAUSSIAN = ", tight for beta = 2 alone, which favours it"
_SINGLE = " (one run each, which has no error)"
Compared = tuple[float, Row, list[Row]]
"""A budget, the row of beta = 2, and those of the exponents below."""


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    runs = runs_of(settings, results)
    budgets = [
        {"epsilon": epsilon, "rows": best_rows(runs, settings["betas"], epsilon)}
        for epsilon in settings["epsilons"]
    ]
    stds = [
        float(np.std(values, ddof=1))
        for run in runs
        if len(values := at_budget(run, max(settings["epsilons"]))) > 1
    ]
    first = {
        f"{beta:g}": min(run["epsilons"][0] for run in runs if run["beta"] == beta)
        for beta in settings["betas"]
    }
    return {
        "budgets": budgets,
        "median std": float(np.median(stds)) if stds else None,
        "least epsilon of the first epoch": first,
        "epsilon at the end of a run": (certified := certified_at_the_end(settings, results)),
        "notes": _notes(budgets, certified, settings),
    }


def _notes(budgets: list[dict[str, Any]], certified: list[dict[str, Any]], settings: Settings) -> list[str]:
    """How tight the epsilons are; and beta > 2, which the paper leaves open for want of an accountant."""
    beyond_paper = []
    for budget in budgets:
        rows = {row["beta"]: row for row in budget["rows"]}
        beyond = [row for beta, row in rows.items() if beta > 2.0]
        if beyond and 2.0 in rows:
            best = max(beyond, key=lambda row: float(row["accuracy"]))
            apart = 100.0 * (best["accuracy"] - rows[2.0]["accuracy"])
            beyond_paper.append(f"{apart:+.2f} at epsilon = {budget['epsilon']:g} (beta = {best['beta']:g})")
    notes = [
        f"Task: {settings['task']}; gradients clipped in {_norm_told(settings)}. Epsilons are certified "
        f"upper bounds{_TIGHT_FOR_THE_GAUSSIAN if settings['norm'] == 2.0 else ''}: over a whole run epsilon "
        f"lies between {_ranges(certified)}."
    ]
    if beyond_paper:
        notes.append(
            "Beyond the paper, beta > 2 under certified accounting: the best of them against beta = 2, in "
            f"percentage points: {'; '.join(beyond_paper)}."
        )
    return notes


def _norm_told(settings: Settings) -> str:
    return "the matched norm" if settings["norm"] == "matched" else f"l_{settings['norm']:g}"


def _ranges(certified: list[dict[str, Any]]) -> str:
    largest = max(entry["noise_multiplier"] for entry in certified)
    return ", ".join(
        f"{entry['lower']:.3g} and {entry['upper']:.3g} (beta = {entry['beta']:g})"
        for entry in certified
        if entry["noise_multiplier"] == largest
    )


def _headline(numbers: Numbers) -> dict[str, float]:
    return {
        f"epsilon = {budget['epsilon']:g}, beta = {row['beta']:g}": row["accuracy"]
        for budget in numbers["budgets"]
        for row in budget["rows"]
    }


def judged(settings: Settings, findings: dict[str, Finding]) -> dict[str, Finding]:
    """The findings; of a task that is not the paper's, without a verdict."""
    if settings["task"] in _TASKS:
        return findings
    told = f"On {settings['task']}, which the paper has not: "
    return {key: Finding(told + found.found, Agreement.UNDECIDED) for key, found in findings.items()}


def _findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    return judged(settings, _verdicts(settings, numbers))


def _verdicts(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    budgets = [
        (budget["epsilon"], *found)
        for budget in numbers["budgets"]
        if (found := gaussian_and_others(budget["rows"])) is not None
    ]
    first = list(numbers["least epsilon of the first epoch"].items())
    return {
        "gaussian": _outperforms(budgets),
        "weak": _weak(budgets),
        "deviation": _deviation(numbers["median std"], settings),
        "missing": Finding(
            "The first epoch alone is certified, at the largest noise multiplier, at epsilon = "
            + ", ".join(f"{value:.2f} (beta = {beta})" for beta, value in first)
            + ".",
            Agreement.of(bool(np.all(np.diff([value for _, value in first]) > 0.0))),
        ),
    }


def _outperforms(budgets: list[Compared]) -> Finding:
    """Whether beta = 2 leads every exponent in [1, 2) by more than two standard errors."""
    verdicts = [over_all(leads(gaussian, other) for other in others) for _, gaussian, others in budgets]
    lines = []
    for epsilon, gaussian, others in budgets:
        best = max(others, key=lambda row: float(row["accuracy"]))
        lines.append(
            f"epsilon = {epsilon:g}: {told(gaussian)} against {told(best)} (beta = {best['beta']:g})"
        )
    return Finding(
        f"beta = 2 against the best exponent below, at {'; '.join(lines)}. It leads all of them by more than "
        f"two standard errors in {verdicts.count(True)} of {len(verdicts)} budgets, trails one in "
        f"{verdicts.count(False)}; the rest is a tie{_SINGLE if _single(budgets) else ''}."
        if lines
        else "No budget holds beta = 2 and another exponent.",
        Agreement.of_all(verdicts),
    )


def _weak(budgets: list[Compared]) -> Finding:
    """Weak: a few points at most; noticeable: best and worst are more than two standard errors apart."""
    ends = [
        (max(rows, key=_accuracy), min(rows, key=_accuracy))
        for _, gaussian, others in budgets
        for rows in [[gaussian, *others]]
    ]
    if not ends:
        return Finding("No budget holds two exponents.", Agreement.UNDECIDED)
    spreads = [_accuracy(best) - _accuracy(worst) for best, worst in ends]
    noticed = [leads(best, worst) for best, worst in ends]
    return Finding(
        f"Over beta in [1, 2] accuracy moves by {100 * min(spreads):.2f} to {100 * max(spreads):.2f} "
        f"percentage points, by more than two standard errors in {noticed.count(True)} of {len(noticed)} "
        f"budgets{_SINGLE if _single(budgets) else ''}.",
        Agreement.UNDECIDED
        if _single(budgets)
        else Agreement.of_all((max(spreads) <= _WEAK, True in noticed)),
    )


def _accuracy(row: Row) -> float:
    return float(row["accuracy"])


def _single(budgets: list[Compared]) -> bool:
    return any(row["runs"] == 1 for _, gaussian, others in budgets for row in (gaussian, *others))


def _deviation(median: float | None, settings: Settings) -> Finding:
    if median is None:
        return Finding("One run each: no deviation.", Agreement.UNDECIDED)
    return Finding(
        f"The median standard deviation over {settings['repeats']} runs is {100 * median:.2f} percentage "
        "points.",
        Agreement.of(median <= USUAL_STD),
    )


def accuracy_by_beta(settings: Settings, numbers: Numbers) -> "Figure":
    """Accuracy against the exponent, a line for each budget."""
    curves = [
        curve_of(budget["rows"], f"epsilon = {budget['epsilon']:g}")
        for budget in numbers["budgets"]
        if budget["rows"]
    ]
    title = f"{settings['task']}, delta = {settings['delta']:g}, clipped in {_norm_told(settings)}"
    repeats = f"+- 1 std of {settings['repeats']}" if settings["repeats"] > 1 else "one run each"
    return accuracy_figure([(title, curves)], f"test accuracy (%), {repeats}")


def _by_multiplier(name: str, numbers: Numbers) -> dict[str, "Figure"]:
    """As in Figures 14 to 16: a panel for each noise multiplier; no picture of a single one."""
    panels = [
        (
            f"noise multiplier {entry['noise_multiplier']:g}",
            [
                curve_of(budget["rows"], f"epsilon = {budget['epsilon']:g}")
                for budget in entry["budgets"]
                if budget["rows"]
            ],
        )
        for entry in numbers["by noise multiplier"]
    ]
    if len(panels) < 2:
        return {}
    return {name: accuracy_figure(panels, "test accuracy (%)", same_scale=True)}


def training_files(settings: Settings) -> tuple[str, ...]:
    """The data that the task reads."""
    return tuple(settings["files"])


EXPERIMENT = Experiment(
    name="fig4",
    cells=sweep_cells,
    numbers=_numbers,
    headline=_headline,
    findings=_findings,
    pictures=lambda settings, numbers: {"fig4": accuracy_by_beta(settings, numbers)},
    files=training_files,
    packages=("torch", "sklearn"),
    kept_with="training",
)


def _panel_numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    """Those of the figure, and the best rows of each noise multiplier by itself."""
    runs = runs_of(settings, results)
    apart = [
        {
            "noise_multiplier": multiplier,
            "budgets": [
                {"epsilon": epsilon, "rows": best_rows(own, settings["betas"], epsilon)}
                for own in [[run for run in runs if run["noise_multiplier"] == multiplier]]
                for epsilon in settings["epsilons"]
            ],
        }
        for multiplier in settings["noise_multipliers"]
    ]
    return {**_numbers(settings, results), "by noise multiplier": apart}


def _panel_findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    found = _verdicts(settings, numbers)
    apart = numbers["by noise multiplier"]
    return judged(
        settings, {**found, "flatter": _flatter(apart), "noise multiplier": _multiplier_effect(apart)}
    )


def _multiplier_effect(apart: Sequence[Mapping[str, Any]]) -> Finding:
    """How far the noise multipliers are apart at beta = 2, in the budgets that hold several of them."""
    spreads = {}
    for budgets in zip(*(entry["budgets"] for entry in apart), strict=True):
        found = [_accuracy(row) for budget in budgets for row in budget["rows"] if row["beta"] == 2.0]
        if len(found) > 1:
            spreads[budgets[0]["epsilon"]] = max(found) - min(found)
    if not spreads:
        return Finding("No budget holds two noise multipliers.", Agreement.UNDECIDED)
    listed = ", ".join(f"{100 * spread:.2f} (epsilon = {epsilon:g})" for epsilon, spread in spreads.items())
    return Finding(
        f"At beta = 2 the noise multipliers are apart, in percentage points, by {listed}.",
        Agreement.of_all(spread <= _WEAK for spread in spreads.values()),
    )


def _flatter(apart: Sequence[Mapping[str, Any]]) -> Finding:
    """Whether accuracy moves less over beta in [1, 2] at the largest multiplier than at the smallest one."""
    low, high = (pick(apart, key=lambda entry: float(entry["noise_multiplier"])) for pick in (min, max))
    verdicts: list[bool | None] = []
    lines = []
    for first, last in zip(low["budgets"], high["budgets"], strict=True):
        shared = {row["beta"] for row in first["rows"]} & {row["beta"] for row in last["rows"]}
        kept = [
            [row for row in one["rows"] if row["beta"] in shared and row["beta"] <= 2.0]
            for one in (first, last)
        ]
        if low is high or len(kept[0]) < 2:
            continue
        ends = [(max(rows, key=_accuracy), min(rows, key=_accuracy)) for rows in kept]
        spreads = [_accuracy(best) - _accuracy(worst) for best, worst in ends]
        errors = [error for pair in ends if (error := error_of_difference(*pair)) is not None]
        error = math.hypot(*errors) if len(errors) == len(ends) else None
        less = spreads[0] - spreads[1]
        verdicts.append(None if error is None or abs(less) <= 2.0 * error else less > 0.0)
        lines.append(
            f"{100 * spreads[0]:.2f} and {100 * spreads[1]:.2f} at epsilon = {first['epsilon']:g}"
            + ("" if error is None else f" (their difference has an error of {100 * error:.2f})")
        )
    if not lines:
        return Finding("No budget holds two exponents at two noise multipliers.", Agreement.UNDECIDED)
    return Finding(
        f"Over beta in [1, 2], from the worst exponent to the best, in percentage points with sigma = "
        f"{low['noise_multiplier']:g} and {high['noise_multiplier']:g}: {'; '.join(lines)}.",
        Agreement.of_all(verdicts),
    )


def _panel(
    name: str, folders: tuple[str, ...] = (), files: tuple[str, ...] = (), kept_with: str = ""
) -> Experiment:
    """Another panel of the figure, which needs a GPU."""
    return dataclasses.replace(
        EXPERIMENT,
        name=name,
        numbers=_panel_numbers,
        findings=_panel_findings,
        pictures=lambda settings, numbers: {
            name: accuracy_by_beta(settings, numbers),
            **_by_multiplier(f"{name}_noise_multiplier", numbers),
        },
        files=lambda settings: files,
        packages=(),
        kept_with=kept_with,
        folders=folders,
        needs_record=bool(folders),
    )


REVIEWS = _panel("fig4_imdb", folders=("aclImdb",))
REVIEWS_MULTIPLIERS = _panel("fig4_imdb_multipliers", folders=("aclImdb",), kept_with="fig4_imdb")
_CIFAR10_FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin")
CIFAR10 = _panel("fig4_cifar10", folders=_CIFAR10_FOLDERS)
CIFAR10_MATCHED = _panel("fig4_cifar10_matched", folders=_CIFAR10_FOLDERS, kept_with="fig4_cifar10")
SVHN = _panel("fig4_svhn", files=("train_32x32.mat", "test_32x32.mat"))
