# SPDX-License-Identifier: Apache-2.0
"""Appendix "Simulations": hardmax utility against the runner-up gap, and its area against beta.

    python papers/generalized_gaussian/figure_hardmax.py --out DIR

2 and 25 classes, 1000 votes, 500 histograms, gaps up to 10%, at equal privacy of one noisy vote and of 200
that share the budget. Utilities are exact, where the paper takes the mean of 50 trials.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from vote_files import compare, write_record

from ggdp.reporting import canvas, pate_figure
from ggdp.reporting.atomic_file import write_atomically
from ggdp.selection import simulate_argmax

CONFIG: dict[str, Any] = {
    "classes": [2, 25],
    "queries": {"1": [0.5, 1.0, 2.0], "200": [2.0, 4.0, 8.0]},
    "delta": 1e-5,
    "betas": {"1": [1.0, 4.0, 13], "200": [1.25, 4.0, 12]},
    "gaps": [0.0002, 0.1, 500],
    "seed": 25,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the record and the pictures")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    records, summary = {}, {}
    for classes in CONFIG["classes"]:
        for queries, epsilons in CONFIG["queries"].items():
            found = simulate_argmax(
                num_classes=classes,
                epsilons=epsilons,
                delta=CONFIG["delta"],
                betas=[float(beta) for beta in np.linspace(*CONFIG["betas"][queries])],
                gaps=[float(gap) for gap in np.linspace(*CONFIG["gaps"])],
                queries=int(queries),
                rng=np.random.default_rng(CONFIG["seed"]),
            )
            name = f"{classes} classes, {queries} votes"
            records[name] = found.to_dict()
            file = f"figure_hardmax_{classes}_classes_{queries}_votes.png"
            write_atomically(arguments.out / file, canvas.png(pate_figure.simulation_figure(found)))
            for epsilon, best, areas in zip(epsilons, found.best_betas, found.areas, strict=True):
                summary[f"{name}, epsilon = {epsilon:g}, best beta"] = best
                summary[f"{name}, epsilon = {epsilon:g}, largest area"] = float(areas.max())
    write_record(arguments.out / "figure_hardmax.json", CONFIG, records, time.perf_counter() - start)
    compare(summary, "figure_hardmax.json")


if __name__ == "__main__":
    main()
