# SPDX-License-Identifier: Apache-2.0
"""Adult with many seeds: does beta = 2 outperform the exponents below it, decided to 0.1 points?

    python papers/generalized_gaussian/adult_seeds.py --data DATA --seeds 40 --jobs 8 --out adult_seeds

Figure 4 takes the best setting of a sweep for each exponent and budget, from three runs each. Here that
setting, as the record of Figure 4 has it, is run again with seeds that took no part in the choice. Finished
runs are kept in the folder, and a command that was stopped goes on where it was. `adult_seeds.json` has
means, deviations and the lead of beta = 2 with a 95% interval (Student's t; for each lead by itself, and for
all of them together by Bonferroni), and what that decides: whether beta = 2 leads at all, and whether a lead
of 0.1 points or more in either direction is excluded.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from scipy import stats

from ggdp.training.plan import plan_training
from ggdp_paper.figures.accuracy import error_of_difference, row_of
from ggdp_paper.figures.training_sweep import GRID, _trained_cells
from ggdp_paper.record import versions
from ggdp_paper.sweep import Cell, sweep
from ggdp_paper.workers import Workers

RECORD = Path(__file__).parent / "records/fig4.json"
BETAS = (1.0, 1.33, 1.66, 2.0)
NUM_EXAMPLES, NUM_PARAMETERS = 32_561, 4_034
MATTERS = 0.001  # a tenth of a point


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder that holds adult/")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("adult_seeds"))
    arguments = parser.parse_args()
    record = json.loads(RECORD.read_text())
    chosen = [
        row for budget in record["numbers"]["budgets"] for row in budget["rows"] if row["beta"] in BETAS
    ]
    workers = Workers("loky" if arguments.jobs > 1 else "sequential", arguments.jobs)
    settings = {tuple(row[name] for name in ("beta", *GRID)) for row in chosen}
    cells = {key: _cells(record["config"], key, arguments.seeds) for key in sorted(settings)}
    flat = [cells[key][seed] for seed in range(arguments.seeds) for key in cells]
    found = sweep(flat, arguments.out / "cells", workers=workers, data=arguments.data)
    accuracies = {key: [] for key in cells}
    for place, one in enumerate(found.records):
        if one is not None:
            accuracies[list(cells)[place % len(cells)]].append(one["result"]["accuracies"])
    rows = [_row(row, accuracies[tuple(row[name] for name in ("beta", *GRID))], record) for row in chosen]
    told = {
        "what": "Adult: the settings of Figure 4, run again with seeds that took no part in the choice",
        "seeds": arguments.seeds,
        "versions": versions(on_gpu=False),
        "rows": with_leads(rows),
    }
    for row in told["rows"]:
        if "decided" in row:
            print(
                f"epsilon {row['epsilon']:g}, beta {row['beta']:g}: {100 * row['accuracy']:.3f} "
                f"({100 * row['std']:.3f}, {row['runs']} runs), beta = 2 leads by "
                f"{100 * row['lead of beta = 2']:+.3f}, 95% interval "
                f"[{', '.join(f'{100 * end:+.3f}' for end in row['interval'])}]: {row['decided']}"
            )
    (arguments.out / "adult_seeds.json").write_text(json.dumps(told, indent=1) + "\n")


def with_leads(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Beside each exponent below 2, by how much beta = 2 is ahead at that budget, and what that decides."""
    gaussians = {row["epsilon"]: row for row in rows if row["beta"] == 2.0}
    pairs = [(row, gaussians[row["epsilon"]]) for row in rows if row["beta"] != 2.0]
    # Two budgets in which the same epochs were the best ones are one comparison.
    count = len({(row["beta"], row["accuracy"], gaussian["accuracy"]) for row, gaussian in pairs})
    found = {id(row): _lead(gaussian, row, count) for row, gaussian in pairs}
    return [{**row, **found.get(id(row), {})} for row in rows]


def _lead(gaussian: dict[str, Any], row: dict[str, Any], count: int) -> dict[str, Any]:
    """Its interval by itself; what it decides is by the interval for all `count` of them together."""
    lead, error = gaussian["accuracy"] - row["accuracy"], error_of_difference(gaussian, row)
    freedom = 2 * (min(gaussian["runs"], row["runs"]) - 1)
    alone, together = (float(error * stats.t.ppf(1.0 - 0.025 / number, freedom)) for number in (1, count))
    low, high = lead - together, lead + together
    decided = "neither is better"
    if low > 0.0 or high < 0.0:
        decided = f"beta = 2 is {'better' if low > 0.0 else 'worse'}"
    if max(-low, high) < MATTERS:
        decided += ", and by less than 0.1 points"
    return {
        "lead of beta = 2": lead,
        "its standard error": error,
        "interval": [lead - alone, lead + alone],
        f"interval, {count} leads together": [low, high],
        "decided": decided,
    }


def _cells(config: dict, key: tuple, seeds: int) -> list[Cell]:
    """The runs of one setting whose repetitions come after those of the record."""
    beta, *values = key
    grid = {GRID[name]: [value] for name, value in zip(GRID, values, strict=True)}
    repeats = config["repeats"]
    cells = _trained_cells({**config, **grid, "betas": [beta], "repeats": repeats + seeds})
    return cells[repeats:]


def _row(row: dict, accuracies: list[list[float]], record: dict) -> dict:
    """The best epoch within the budget, of every run."""
    inside = _epochs_inside(row, record["config"])
    setting = {name: row[name] for name in ("beta", "epsilon", *GRID)}
    return {**setting, "epochs": inside, **row_of([max(each[:inside]) for each in accuracies])}


def _epochs_inside(row: dict, config: dict) -> int:
    """How many epochs of the plan are certified within the budget; epsilon grows with every one."""
    plan = plan_training(
        beta=row["beta"],
        noise_multiplier=row["noise_multiplier"],
        clip_norm=1.0,
        num_examples=NUM_EXAMPLES,
        dimension=NUM_PARAMETERS,
        **{name: config[name] for name in ("norm", "delta", "batch_size", "epochs")},
    )
    fits, too_many = 0, config["epochs"] + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if plan.epsilon(middle * plan.steps_per_epoch).upper <= row["epsilon"]:
            fits = middle
        else:
            too_many = middle
    return fits


if __name__ == "__main__":
    main()
