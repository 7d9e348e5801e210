# SPDX-License-Identifier: Apache-2.0
"""Table 1: test accuracy on CIFAR-10 at epsilon = 1, 2, 3 and delta = 1e-6, scattering features and a CNN.

    python papers/generalized_gaussian/table1_cifar10.py --data DIR --out DIR [--cells 'beta2-*']
    python papers/generalized_gaussian/table1_cifar10.py --out DIR

The first runs cells, on cifar-10-batches-py or cifar-10-batches-bin in --data. Written for one GPU;
features are computed there. Each cell is a file that appears whole when its run ends, so the command can be
stopped and given again: it goes on with what is missing. The second makes the record and the picture of the
cells that are there.

The release that standardises the features is charged: epsilon is that of everything together. Clip and
learning rate of each exponent were chosen by the cells named tune-*, which no epsilon covers, as in the
paper.
"""

import argparse
import fnmatch
import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from vote_files import write_record

from ggdp.reporting import canvas
from ggdp.reporting.atomic_file import write_atomically
from ggdp.training.experiments import training_cell
from ggdp.training.tasks import Task, load_task

PAPER = {1.0: 0.637, 2.0: 0.677, 3.0: 0.694}
"""Table 1 of the paper, beta-DP-SGD, which is at beta = 2."""

CONFIG: dict[str, Any] = {
    "epsilons": [1.0, 2.0, 3.0],
    "seeds": [1, 2, 3],
    "tuning_seed": 100,
    # The first average is the one that is reported; the others are noted beside it. 0 is the last weights.
    "shared": {"delta": 1e-6, "batch_size": 8192, "momentum": 0.9, "averages": [0.97, 0.9, 0.99, 0.0]},
    "standardisation_noise": 32.0,
    "epochs": {1.0: 30, 2.0: 45, 3.0: 60},
    # One example's gradient has an l_2 norm of about 12 at first, so every clip below binds, and only
    # learning_rate * clip_norm matters. In l_p that norm is 16, 3, 0.37 and 0.21 times as long at p = 1.33,
    # 1.66, 2.5 and 3: clips in proportion keep the clipped gradients alike.
    "settings": {
        "beta2": {"beta": 2.0, "clip_norm": 2.0, "learning_rate": 0.2},
        "beta1.66": {"beta": 1.66, "clip_norm": 6.0, "learning_rate": 0.1},
        "beta1.33": {"beta": 1.33, "clip_norm": 32.0, "learning_rate": 0.05},
        "beta3-norm2": {"beta": 3.0, "norm": 2.0, "clip_norm": 2.0, "learning_rate": 0.2},
        "beta1.66-norm2": {"beta": 1.66, "norm": 2.0, "clip_norm": 2.0, "learning_rate": 0.2},
        "beta1.33-norm2": {"beta": 1.33, "norm": 2.0, "clip_norm": 2.0, "learning_rate": 0.2},
        "beta2.5-norm2": {"beta": 2.5, "norm": 2.0, "clip_norm": 2.0, "learning_rate": 0.2},
    },
    "tuning": {
        "beta2": {"learning_rate": [4.0, 8.0], "relative_epochs": [0.6, 1.0, 1.6]},
        "beta1.33": {"learning_rate": [0.25, 1.0]},
        "beta1.66": {"learning_rate": [1.0, 2.0]},
        "beta2.5-norm2": {"learning_rate": [4.0, 8.0]},
    },
    "probe_epochs": {1.0: 35, 3.0: 60},
    "probes": {
        "base": {"learning_rate": 4.0},
        "scale0.5": {"learning_rate": 4.0, "feature_scale": 0.5},
        "scale2": {"learning_rate": 4.0, "feature_scale": 2.0},
        "batch16384-rate4": {"batch_size": 16384, "learning_rate": 4.0},
        "batch16384-rate8": {"batch_size": 16384, "learning_rate": 8.0},
        "clip1": {"clip_norm": 1.0, "learning_rate": 0.4},
        "clip3": {"clip_norm": 3.0, "learning_rate": 0.15},
        # Features of order 0, 1 and 2 by a factor each. Tramer and Boneh's noisy variances shrink most of
        # order 2, unintended.
        "orders-1-1-0.5": {"learning_rate": 4.0, "feature_scale": [1.0, 1.0, 0.5]},
        "orders-1-1-0.25": {"learning_rate": 4.0, "feature_scale": [1.0, 1.0, 0.25]},
        "orders-2-1-0.5": {"learning_rate": 4.0, "feature_scale": [2.0, 1.0, 0.5]},
    },
}

Scale = float | list[float]
"""A factor for all features, or one for each order of scattering."""


@dataclass(frozen=True)
class Cell:
    """One run: its name, which is its file's name, and its settings."""

    name: str
    epsilon: float
    seed: int
    settings: dict[str, Any]


def cells() -> list[Cell]:
    """The cells of the table, the most important ones first."""
    found = []
    for setting, seed, epsilon in itertools.product(CONFIG["settings"], CONFIG["seeds"], CONFIG["epsilons"]):
        settings = {
            **CONFIG["shared"],
            "epochs": CONFIG["epochs"][epsilon],
            **CONFIG["settings"][setting],
        }
        found.append(Cell(f"{setting}-eps{epsilon:g}-seed{seed}", epsilon, seed, settings))
    return found


def tuning_cells() -> list[Cell]:
    """The cells that settings are chosen by: one seed that the table does not use."""
    found = []
    seed = CONFIG["tuning_seed"]
    for setting, grid in CONFIG["tuning"].items():
        for epsilon, values in itertools.product(CONFIG["epsilons"], itertools.product(*grid.values())):
            chosen = dict(zip(grid, values, strict=True))
            tried = "-".join(f"{name}{value:g}" for name, value in chosen.items())
            settings = {
                **CONFIG["shared"],
                "epochs": round(CONFIG["epochs"][epsilon] * chosen.pop("relative_epochs", 1.0)),
                **CONFIG["settings"][setting],
                **chosen,
            }
            found.append(Cell(f"tune-{setting}-eps{epsilon:g}-{tried}", epsilon, seed, settings))
    return found


def probe_cells() -> list[Cell]:
    """The cells that look one change at a time for what the paper does not vary; same seed as tuning."""
    found = []
    for epsilon, (name, changes) in itertools.product((1.0, 3.0), CONFIG["probes"].items()):
        settings = {
            **CONFIG["shared"],
            "epochs": CONFIG["probe_epochs"][epsilon],
            **CONFIG["settings"]["beta2"],
            **changes,
        }
        found.append(Cell(f"probe-{name}-eps{epsilon:g}", epsilon, CONFIG["tuning_seed"], settings))
    return found


def file_of(cell: Cell, out: Path) -> Path:
    return out / "cells" / f"{cell.name}.json"


def run(wanted: list[Cell], data: Path, out: Path, device: str, seconds: float, physical: int | None) -> None:
    """Run what is missing, seed by seed, and start no cell that would probably end after the time is up."""
    start = time.perf_counter()
    missing = [cell for cell in wanted if not file_of(cell, out).exists()]
    longest = 0.0
    task: Task | None = None
    task_seed: int | None = None
    scale: Scale = 1.0
    for place, cell in enumerate(missing):
        if task is None or task_seed != cell.seed:
            task, task_seed, scale = loaded(data, device, cell.seed), cell.seed, 1.0
        spent = time.perf_counter() - start
        if spent + 1.2 * longest > seconds:
            print(f"time is up: {len(missing) - place} cells are missing")
            return
        settings = {**cell.settings, "averages": tuple(cell.settings["averages"])}
        task = scaled(task, scale, wanted_scale := settings.pop("feature_scale", 1.0))
        scale = wanted_scale
        begun = time.perf_counter()
        result = training_cell(
            task, epsilon=cell.epsilon, seed=cell.seed, physical_batch_size=physical, **settings
        )
        longest = max(longest, time.perf_counter() - begun)
        asked = {"name": cell.name, "seed": cell.seed, "target_epsilon": cell.epsilon, **cell.settings}
        write_atomically(file_of(cell, out), json.dumps({**asked, **result}) + "\n")
        others = result["epochs"][-1].get("other_averages", [])
        print(
            f"{cell.name}: accuracy {result['accuracy']:.4f}, best {result['best_accuracy']:.4f}, "
            f"with mirror {result['mirrored_accuracy']:.4f}, "
            f"other averages {others}, epsilon {result['epsilon']:.4f}, "
            f"noise multiplier {result['noise_multiplier']:.3f}, "
            f"{result['seconds']:.1f} s of {time.perf_counter() - begun:.1f} s",
            flush=True,
        )


def loaded(data: Path, device: str, seed: int) -> Task:
    begun = time.perf_counter()
    task = load_task(
        "cifar10",
        data=data,
        device=device,
        rng=np.random.default_rng(seed),
        standardisation_noise=CONFIG["standardisation_noise"],
    )
    print(f"features with seed {seed}: {time.perf_counter() - begun:.1f} s", flush=True)
    return task


def scaled(task: Task, now: Scale, wanted: Scale) -> Task:
    """The task with its features multiplied in place by a public constant for each order of scattering."""
    if wanted != now:
        factors = torch.tensor(by_order(wanted)) / torch.tensor(by_order(now))
        orders = torch.tensor([0] + 16 * [1] + 64 * [2]).repeat(3)
        for part in (task.train, task.test, task.mirrored):
            features = part.tensors[0]
            features.mul_(factors[orders].to(features.device).view(-1, 1, 1))
    return task


def by_order(scale: Scale) -> list[float]:
    return scale if isinstance(scale, list) else [scale] * 3


def summary(out: Path) -> list[dict[str, Any]]:
    """A row for each setting and epsilon that has cells: mean and deviation over seeds."""
    rows = []
    for setting, epsilon in itertools.product(CONFIG["settings"], CONFIG["epsilons"]):
        found = [
            json.loads(file_of(cell, out).read_text())
            for cell in cells()
            if cell.name.startswith(f"{setting}-eps{epsilon:g}-") and file_of(cell, out).exists()
        ]
        if found:
            last = [record["accuracy"] for record in found]
            best = [record["best_accuracy"] for record in found]
            rows.append(
                {
                    "setting": setting,
                    **CONFIG["settings"][setting],
                    "epsilon": epsilon,
                    "runs": len(found),
                    "accuracy": mean(last),
                    "accuracy_std": stdev(last) if len(last) > 1 else None,
                    "best_accuracy": mean(best),
                    "certified_epsilon": max(record["epsilon"] for record in found),
                    "seconds": sum(record["seconds"] for record in found),
                    "paper": PAPER[epsilon] if setting == "beta2" else None,
                }
            )
    return rows


def figure(rows: list[dict[str, Any]]) -> Any:
    """Accuracy against the exponent, clipped in l_beta and in l_2, one line for each epsilon."""
    picture, panels = canvas.panels(2)
    for axes, norm, title in zip(panels, (None, 2.0), ("clipped in l_beta", "clipped in l_2"), strict=True):
        for place, epsilon in enumerate(CONFIG["epsilons"]):
            line = sorted(
                (row["beta"], 100.0 * row["accuracy"], 100.0 * (row["accuracy_std"] or 0.0))
                for row in rows
                if row["epsilon"] == epsilon and row.get("norm") == (norm if row["beta"] != 2.0 else None)
            )
            betas, values, spreads = zip(*line, strict=True) if line else ((), (), ())
            axes.errorbar(
                betas,
                values,
                yerr=spreads,
                color=canvas.COLOURS[place],
                linestyle=canvas.LINES[place],
                marker="o",
                capsize=3,
                label=f"epsilon = {epsilon:g}",
            )
            label = "paper, Table 1 (beta = 2)" if place == 0 else None
            paper = 100.0 * PAPER[epsilon]
            axes.axhline(paper, color=canvas.COLOURS[place], alpha=0.5, linewidth=0.8, label=label)
        axes.set_xlabel("beta (exponent of the noise)")
        axes.set_ylabel("test accuracy (%), mean and deviation of the runs")
        axes.set_title(f"CIFAR-10, {title}", fontsize="medium", loc="left")
        axes.legend(frameon=False)
    return picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of cifar-10-batches-py or cifar-10-batches-bin")
    parser.add_argument("--out", type=Path, required=True, help="folder for cells, record and picture")
    parser.add_argument("--cells", default="beta*", help="run the cells whose names match, such as 'beta2-*'")
    parser.add_argument("--minutes", type=float, default=9.0, help="start no cell that would end later")
    parser.add_argument("--device", default="cuda", help="where to compute")
    parser.add_argument("--physical-batch", type=int, help="most examples in memory at a time")
    parser.add_argument("--list", action="store_true", help="print the names of the cells and end")
    arguments = parser.parse_args()
    wanted = [
        cell
        for cell in cells() + tuning_cells() + probe_cells()
        if fnmatch.fnmatch(cell.name, arguments.cells)
    ]
    if arguments.list:
        print("\n".join(cell.name for cell in wanted))
        return
    (arguments.out / "cells").mkdir(parents=True, exist_ok=True)
    if arguments.data is not None:
        # Poisson batches differ in size, and choosing kernels anew for each size takes longer than any saves.
        torch.backends.cudnn.benchmark = False
        torch.backends.cuda.matmul.allow_tf32 = True  # clipping leaves a margin for it
        run(
            wanted,
            arguments.data,
            arguments.out,
            arguments.device,
            60.0 * arguments.minutes,
            arguments.physical_batch,
        )
    rows = summary(arguments.out)
    for row in rows:
        paper = f", paper {row['paper']:.3f}" if row["paper"] else ""
        print(
            f"{row['setting']:>15} epsilon {row['epsilon']:g}: {row['accuracy']:.4f} over {row['runs']} runs"
            f" (best epoch {row['best_accuracy']:.4f}){paper}"
        )
    if arguments.data is None and rows:
        seconds = sum(row["seconds"] for row in rows)
        write_record(arguments.out / "table1_cifar10.json", CONFIG, rows, seconds)
        write_atomically(arguments.out / "table1_cifar10.png", canvas.png(figure(rows)))


if __name__ == "__main__":
    main()
