# SPDX-License-Identifier: Apache-2.0
"""Table 1: CIFAR-10 test accuracy at epsilon = 1, 2, 3; run where there is a GPU, else read from a record.

The runs are cells that ask for a GPU: features are computed there and kept for the next.
`RENYI` trains the same network with noise calibrated by Renyi divergences. Such noise spends a smaller
epsilon, which the accountant knows; its runs are those of that epsilon.
Settings that train on views of an image were chosen by the accuracy on training images held out for that; the
others by test accuracy, as in the paper. No epsilon covers either. What was tried is part of the sweep, in
runs that the table does not use. While a clip is below every gradient's norm only its product with the
learning rate matters, so that one of the two is enough to try.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.reporting import canvas
from ggdp_paper.experiment import Agreement, Experiment, Finding, Numbers, Settings
from ggdp_paper.figures.accuracy import (
    accuracy_figure,
    error_bars,
    gaussian_and_others,
    is_as_good,
    leads,
    over_all,
    row_of,
    told,
)
from ggdp_paper.record import measured
from ggdp_paper.sweep import Cell, Surroundings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SCORES = ("accuracy", "best_accuracy", "mirrored_accuracy")
_KEPT = (*_SCORES, "epsilon", "lower_epsilon", "norm", "method", "noise_multiplier", "steps")
_TRIAL = 0  # the repetition of what was tried; those of the table count from 1


def trained(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Train once on CIFAR-10 with noise calibrated to the budget, the standardisation of features charged."""
    import torch

    from ggdp_paper.task_run import training_cell
    from ggdp_paper.tasks import held_out

    chosen = dict(config["settings"])
    weights = tuple(float(weight) for weight in chosen.pop("order_weights"))
    task = _features(
        surroundings.data,
        config["device"],
        config["standardisation_noise"],
        weights,
        chosen.pop("views", 1),
        config["repeat"],
    )
    if config.get("held_out"):
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
    from ggdp_paper.tasks import load_task

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
        repeats = {name: each.get("repeats", asked["repeats"]) for name, each in asked["settings"].items()}
        for repeat, name, epsilon in itertools.product(
            range(1, max(repeats.values()) + 1), asked["settings"], settings["epsilons"]
        ):
            setting = asked["settings"][name]
            if repeat <= repeats[name]:
                yield name, _cell(asked, setting, epsilon, repeat)


def _trial_cells(settings: Settings) -> Iterator[tuple[tuple[str, str], Cell]]:
    """Each setting once as it is in the table, and once with each change."""
    asked = settings["training"]
    if asked is not None:
        for name, changes in asked["tried"].items():
            for told, change in {"": {}, **changes}.items():
                chosen = {**asked["settings"][name], **change}
                held_out = asked.get("held_out", 0)
                yield (name, told), _cell(asked, chosen, asked["tried at epsilon"], _TRIAL, held_out)


def _cell(
    asked: Mapping[str, Any], setting: Mapping[str, Any], epsilon: float, repeat: int, held_out: int = 0
) -> Cell:
    """One run; settings with views are tried on images held out of the training set."""
    chosen = {**asked["shared"], "epochs": asked["epochs"][f"{epsilon:g}"], **setting}
    chosen.pop("repeats", None)
    shared = {name: asked[name] for name in ("device", "standardisation_noise")}
    config = {**shared, "epsilon": epsilon, "repeat": repeat, "settings": chosen}
    if "views" in chosen:
        config["held_out"] = held_out
    seeded_as = "ggdp.reproduction.cifar_training:trained"
    return Cell(f"{__name__}:trained", config, needs_gpu=True, seeded_as=seeded_as)


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
            "views": settings["training"]["settings"][name].get("views", 1),
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


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    rows, trials = rows_of(settings, results), trials_of(settings, results)
    return {"rows": rows, "tried": trials, "notes": _notes(settings, rows, trials)}


def _notes(settings: Settings, rows: list[dict[str, Any]], trials: list[dict[str, Any]]) -> list[str]:
    """How the settings were chosen: every change that was tried, against the run without it."""
    asked = settings["training"]
    lines: dict[str, list[str]] = {}
    for name in asked["tried"]:
        own, *changed = [row for row in trials if row["setting"] == name]
        apart = ", ".join(
            f"{row['change']} {100.0 * (row['accuracy'] - own['accuracy']):+.1f}" for row in changed
        )
        by = "test accuracy"
        if "views" in asked["settings"][name]:
            by = f"the accuracy on {asked['held_out']} images held out of the training set"
        lines.setdefault(by, []).append(f"{name}: {apart}")
    return [
        "The release that standardises the features is charged.",
        *(
            f"Chosen by {by} at epsilon = {asked['tried at epsilon']:g}, which no epsilon covers, in runs "
            f"that the table does not use. What was tried, in percentage points against the choice, one run "
            f"each: {'; '.join(told)}."
            for by, told in lines.items()
        ),
        "Epsilons are certified upper bounds, tight for beta = 2 alone, which favours it; the truth is no "
        f"less than {_least(rows)}.",
    ]


def _least(rows: list[dict[str, Any]]) -> str:
    """By how much a certified epsilon may be too large, at most."""
    shares: dict[str, list[float]] = {}
    for row in rows:
        shares.setdefault(row["setting"], []).append(row["lower_epsilon"] / row["certified_epsilon"])
    return ", ".join(f"{100.0 * min(found):.0f}% of it ({name})" for name, found in shares.items())


def _of(numbers: Numbers, epsilon: float, *, views: int | None = None) -> list[dict[str, Any]]:
    """The rows of a budget; of those with so many views of an image, or all."""
    rows = [row for row in numbers["rows"] if row["epsilon"] == epsilon]
    return [row for row in rows if views is None or row.get("views", 1) == views]


def _headline(numbers: Numbers) -> dict[str, float]:
    return {f"{row['setting']}, epsilon = {row['epsilon']:g}": row["accuracy"] for row in numbers["rows"]}


def _findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    """Of beta = 2 the row with the most views counts."""
    gaussian = []
    for place, epsilon in enumerate(settings["epsilons"]):
        rows = [row for row in _of(numbers, epsilon) if row["beta"] == 2.0]
        if rows:
            gaussian.append((max(rows, key=lambda row: row.get("views", 1)), place))
    return {
        "accuracy": _accuracy(settings["paper"], gaussian),
        "accountant": _accountant(settings["paper"], gaussian),
        "gaussian": _as_good_as_all(numbers, settings["epsilons"]),
    }


def _accuracy(paper: Mapping[str, Any], gaussian: Sequence[tuple[dict[str, Any], int]]) -> Finding:
    """At least what the paper has, or below by no more than two standard errors."""
    verdicts, lines = [], []
    for row, place in gaussian:
        std = paper["beta-DP-SGD std"][place]
        theirs = {"accuracy": paper["beta-DP-SGD"][place], "std": std, "runs": paper["runs"]}
        verdicts.append(None if row["std"] is None else not leads(theirs, row))
        lines.append(f"{told(row)} (epsilon = {row['epsilon']:g}, {row['runs']} runs{_other_scores(row)})")
    return Finding(
        f"beta = 2: {', '.join(lines)}; the normalisation of the features is charged, which the paper leaves "
        "out. To agree is to be no more than two standard errors below.",
        Agreement.of_all(verdicts),
    )


def _accountant(paper: Mapping[str, Any], gaussian: Sequence[tuple[dict[str, Any], int]]) -> Finding:
    above = [row["accuracy"] > paper["DP-SGD, RDP"][place] for row, place in gaussian]
    return Finding(
        f"Exact accounting, beta = 2, is above the RDP row in {sum(above)} of {len(above)} budgets.",
        Agreement.of_all(above),
    )


def _other_scores(row: dict[str, Any]) -> str:
    """Of the best epoch, as the paper counts; and with both views of an image, which costs no privacy."""
    names = {"best epoch": "best_accuracy", "an image and its mirror image averaged": "mirrored_accuracy"}
    return "".join(f", {what}: {100 * row[name]:.2f}" for what, name in names.items() if row.get(name))


def _as_good_as_all(numbers: Numbers, epsilons: Sequence[float]) -> Finding:
    """Compared with the most views of an image that several exponents have; a single run decides nothing."""
    verdicts, lines = [], []
    for epsilon in epsilons:
        rows = [row for row in _of(numbers, epsilon) if row["std"] is not None]
        by_views = [
            [row for row in rows if row.get("views", 1) == views]
            for views in sorted({row.get("views", 1) for row in rows}, reverse=True)
        ]
        found = next((each for one in by_views if (each := gaussian_and_others(one)) is not None), None)
        if found is None:
            continue
        gaussian, others = found
        verdicts.append(over_all(is_as_good(gaussian, other) for other in others))
        best = max(others, key=lambda row: float(row["accuracy"]))
        lines.append(
            f"{told(best)} (beta = {best['beta']:g}, clipped in l_{best['norm']:g}) against {told(gaussian)} "
            f"at epsilon = {epsilon:g}"
        )
    return Finding(
        f"The best beta < 2 against beta = 2: {'; '.join(lines)}."
        if lines
        else "No other exponent has been run more than once.",
        Agreement.of_all(verdicts),
    )


def _pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    def curves(in_l2: bool, views: int = 1) -> list[dict[str, Any]]:
        drawn = []
        for place, epsilon in enumerate(settings["epsilons"]):
            found = _of(numbers, epsilon, views=views)
            rows = sorted(
                (row for row in found if row["beta"] == 2.0 or (row["norm"] == 2.0) is in_l2),
                key=lambda row: float(row["beta"]),
            )
            drawn.append(
                {
                    "label": f"epsilon = {epsilon:g}",
                    "betas": [row["beta"] for row in rows],
                    "values": [row["accuracy"] for row in rows],
                    "errors": error_bars(rows),
                    "reference": (2.0, settings["paper"]["beta-DP-SGD"][place]),
                }
            )
        return drawn

    panels = [
        (title, drawn)
        for title, drawn in (
            ("clipped in l_beta", curves(in_l2=False)),
            ("clipped in l_2", curves(in_l2=True)),
        )
        if any(beta != 2.0 for curve in drawn for beta in curve["betas"])
    ] or [("clipped in l_2", curves(in_l2=True))]
    if any(row.get("views", 1) > 1 for row in numbers["rows"]):
        panels.append(("mirror images in training, l_2", curves(in_l2=True, views=2)))
    title = "CIFAR-10, scattering features and a small CNN; crosses: the paper"
    return {"table1": accuracy_figure(panels, "test accuracy (%), +- 1 std", title=title)}


EXPERIMENT = Experiment(
    name="table1",
    cells=training_cells,
    numbers=_numbers,
    headline=_headline,
    findings=_findings,
    pictures=_pictures,
    folders=("cifar-10-batches-py", "cifar-10-batches-bin"),
    needs_record=True,
)


def _exact_rows(settings: Settings) -> dict[float, dict[str, Any]]:
    """The table's own rows of beta = 2, by their budget; none where no record is kept."""
    kept = measured(settings["exact"])
    rows = [] if kept is None else kept["numbers"]["rows"]
    return {row["epsilon"]: row for row in rows if row["setting"] == "beta2"}


def _renyi_findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    """Each budget against the table's own run with exactly calibrated noise, all else equal."""
    exact = _exact_rows(settings)
    verdicts, lines = [], []
    for row, asked in zip(numbers["rows"], settings["calibrated"], strict=True):
        other = exact.get(asked["epsilon"])
        if other is not None:
            verdicts.append(leads(other, row))
            lines.append(
                f"{told(row)} against {told(other)} at epsilon = {asked['epsilon']:g} ({asked['by']}, which "
                f"spends {asked['spends']:.3f})"
            )
    found = f"Noise by Renyi divergences against exactly calibrated noise: {'; '.join(lines)}."
    return {"accountant": Finding(found, Agreement.of_all(verdicts))}


def _renyi_pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    """Accuracy against the budget that the noise was calibrated to, by each accountant."""
    figure, (axes,) = canvas.panels(1)
    curves = {"exact accounting": list(_exact_rows(settings).items())}
    for row, asked in zip(numbers["rows"], settings["calibrated"], strict=True):
        curves.setdefault(asked["by"], []).append((asked["epsilon"], row))
    for number, (kind, points) in enumerate(curves.items()):
        rows = [row for _, row in points]
        axes.errorbar(
            [epsilon for epsilon, _ in points],
            [100.0 * row["accuracy"] for row in rows],
            yerr=[100.0 * bar for bar in error_bars(rows)],
            capsize=2,
            label=f"noise by {kind}",
            **canvas.style_number(number),
        )
    axes.plot(
        settings["paper"]["epsilons"],
        [100.0 * value for value in settings["paper"]["DP-SGD, RDP"]],
        "x",
        color="black",
        markersize=9,
        label="the paper, RDP",
    )
    axes.set_xticks(settings["paper"]["epsilons"])
    axes.set_xlabel("epsilon that the noise was calibrated to (nats)")
    axes.set_ylabel("test accuracy (%), +- 1 std")
    axes.set_title("CIFAR-10, DP-SGD (beta = 2), all else equal", fontsize="medium", loc="left")
    axes.legend(frameon=False, fontsize="small")
    return {"table1_rdp": figure}


RENYI = dataclasses.replace(EXPERIMENT, name="table1_rdp", findings=_renyi_findings, pictures=_renyi_pictures)
