# SPDX-License-Identifier: Apache-2.0
"""Figure 4, Adult: accuracy of beta-DP-SGD as Algorithm 3 has it, with noise calibrated to each budget.

    python papers/generalized_gaussian/figure4_adult.py --data DIR --out DIR [--jobs 2]

DIR holds adult.data and adult.test. Gradients are clipped in the l_beta norm, as the algorithm and its
accounting say (left), and in l_2 whatever the exponent, as its code does (right); epsilon is certified
for both. Every exponent, norm and budget has its own clip and learning rate, the best of one run each, as the
paper chooses them: no epsilon covers that choice. Three further runs with other seeds then make the figure.
Runs are kept as they end; the command goes on where it was stopped.
"""

import argparse
import itertools
from pathlib import Path
from typing import Any

import numpy as np
from check import compare, write_record

from ggdp.atomic_file import write_atomically
from ggdp.reporting import canvas
from ggdp_paper.figures.accuracy import accuracy_figure
from ggdp_paper.figures.training_sweep import calibrated_cell
from ggdp_paper.sweep import Cell, sweep
from ggdp_paper.workers import Workers

CONFIG: dict[str, Any] = {
    "betas": [1.0, 1.33, 1.66, 2.0],
    "norms": ["beta", 2.0],
    "epsilons": [1.0, 2.0, 3.0],
    "repeats": 3,
    "shared": {"delta": 1e-6, "batch_size": 512, "epochs": 10, "momentum": 0.0},
    # The paper has learning rates 0.5 and 1 and clips up to 0.5. Where a clip is below most gradients' norms
    # little but the product of the two matters; in l_1 norms are larger, and so is what is best.
    "learning_rates": [0.25, 1.0, 4.0, 16.0, 64.0],
    "clip_norms": [0.1, 0.5, 2.0, 8.0],
}

Setting = tuple[float, float | str, float]
"""Exponent, norm ("beta" or a number) and budget."""


def settings_of(setting: Setting, learning_rate: float, clip_norm: float) -> dict[str, Any]:
    beta, norm, epsilon = setting
    chosen = {"beta": beta, "epsilon": epsilon, "learning_rate": learning_rate, "clip_norm": clip_norm}
    return {**CONFIG["shared"], **chosen, "norm": beta if norm == "beta" else norm}


def all_settings() -> list[Setting]:
    """Exponents, norms and budgets; at beta = 2 the norms are one."""
    return [
        (beta, norm, epsilon)
        for beta, norm, epsilon in itertools.product(CONFIG["betas"], CONFIG["norms"], CONFIG["epsilons"])
        if not (beta == 2.0 and norm == 2.0)
    ]


def chosen_settings(
    folder: Path, data: Path, workers: Workers
) -> tuple[dict[Setting, dict[str, Any]], float]:
    """For each setting, the clip and the learning rate of its best run; and the seconds of all runs."""
    grid = list(itertools.product(CONFIG["learning_rates"], CONFIG["clip_norms"]))
    tried = [(setting, settings_of(setting, *pair)) for setting in all_settings() for pair in grid]
    cells = [calibrated_cell("adult", settings, "choice") for _, settings in tried]
    results = swept(cells, folder, data, workers, "choosing")
    best: dict[Setting, tuple[float, dict[str, Any]]] = {}
    for (setting, settings), result in zip(tried, results, strict=True):
        if setting not in best or result["best_accuracy"] > best[setting][0]:
            best[setting] = (result["best_accuracy"], settings)
    chosen = {setting: settings for setting, (_, settings) in best.items()}
    return chosen, sum(result["seconds"] for result in results)


def rows_of(
    chosen: dict[Setting, dict[str, Any]], folder: Path, data: Path, workers: Workers
) -> list[dict[str, Any]]:
    """Mean and deviation over the repetitions of each setting."""
    runs = [(setting, repeat) for setting in chosen for repeat in range(CONFIG["repeats"])]
    cells = [calibrated_cell("adult", chosen[setting], repeat) for setting, repeat in runs]
    results = swept(cells, folder, data, workers, "repeating")
    rows = []
    for setting, settings in chosen.items():
        found = [result for (of, _), result in zip(runs, results, strict=True) if of == setting]
        row: dict[str, Any] = {"beta": setting[0], "clipped in": setting[1], "epsilon": setting[2]}
        row |= {name: settings[name] for name in ("learning_rate", "clip_norm")}
        for name in ("accuracy", "best_accuracy"):
            values = [result[name] for result in found]
            row |= {name: float(np.mean(values)), f"{name} std": float(np.std(values, ddof=1))}
        row["certified epsilon"] = max(result["epsilon"] for result in found)
        row["noise multiplier"] = found[0]["noise_multiplier"]
        row["seconds"] = sum(result["seconds"] for result in found)
        rows.append(row)
    return rows


def swept(cells: list[Cell], folder: Path, data: Path, workers: Workers, what: str) -> list[dict[str, Any]]:
    """Results of the cells, each with its seconds."""

    def tell(finished: int, total: int) -> None:
        print(f"\r{what}: {finished} of {total} runs", end="\n" if finished == total else "", flush=True)

    found = sweep(cells, folder, workers=workers, data=data, on_progress=tell).records
    return [{**record["result"], "seconds": record["seconds"]} for record in found if record is not None]


def panel(rows: list[dict[str, Any]], norm: float | str) -> tuple[str, list[dict[str, Any]]]:
    curves = []
    for epsilon in CONFIG["epsilons"]:
        line = [
            row
            for row in rows
            if row["epsilon"] == epsilon and (row["clipped in"] == norm or row["beta"] == 2.0)
        ]
        curves.append(
            {
                "label": f"epsilon = {epsilon:g}",
                "betas": [row["beta"] for row in line],
                "values": [row["best_accuracy"] for row in line],
                "errors": [row["best_accuracy std"] for row in line],
            }
        )
    return f"Adult, clipped in {norm_name(norm)}", curves


def headline(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The numbers that `expected/` holds."""
    found = {}
    for row in rows:
        where = f"clipped in {norm_name(row['clipped in'])}, epsilon = {row['epsilon']:g}"
        found[f"{where}, beta = {row['beta']:g}"] = row["best_accuracy"]
    return found


def norm_name(norm: float | str) -> str:
    return f"l_{norm}" if isinstance(norm, str) else f"l_{norm:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of adult.data and adult.test")
    parser.add_argument("--out", type=Path, required=True, help="folder for runs, record and picture")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    folder, workers = arguments.out / "cells", Workers(jobs=arguments.jobs)
    chosen, seconds = chosen_settings(folder, arguments.data, workers)
    rows = rows_of(chosen, folder, arguments.data, workers)
    seconds += sum(row["seconds"] for row in rows)
    write_record(arguments.out / "figure4_adult.json", CONFIG, rows, seconds)
    label = f"test accuracy (%), best epoch, +- 1 std of {CONFIG['repeats']}"
    picture = accuracy_figure([panel(rows, norm) for norm in CONFIG["norms"]], label)
    write_atomically(arguments.out / "figure4_adult.png", canvas.png(picture))
    compare(headline(rows), "figure4_adult.json")


if __name__ == "__main__":
    main()
