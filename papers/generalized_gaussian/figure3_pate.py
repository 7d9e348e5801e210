# SPDX-License-Identifier: Apache-2.0
"""Figure 3: label accuracy of GGNMax against beta at equal privacy, on the published votes of 250 teachers.

    python papers/generalized_gaussian/figure3_pate.py --data DIR --out DIR

Every noise is calibrated exactly, and accuracy is the exact expectation over the noise. The paper's mean of
25 trials is computed too, for one setting, and must agree with it. Two pictures: one vote by itself, as in
the paper, and 1000 votes that share a budget among neighbours that change a vote, as PATE is used.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from vote_files import compare, published_votes, write_record

from ggdp import Adjacency, GeneralizedGaussian, noisy_argmax
from ggdp.reporting import canvas, pate_figure
from ggdp.reporting.atomic_file import write_atomically
from ggdp.selection import win_probabilities
from ggdp.selection.best_exponent import calibrated_noise

CONFIG: dict[str, Any] = {
    "betas": [round(float(beta), 6) for beta in np.linspace(1.0, 4.0, 20)],
    "delta": 1e-5,
    "settings": [
        {"epsilon": 0.25, "votes": 1, "adjacency": "add-remove"},
        {"epsilon": 0.5, "votes": 1, "adjacency": "add-remove"},
        {"epsilon": 1.0, "votes": 1, "adjacency": "add-remove"},
        {"epsilon": 2.0, "votes": 1000, "adjacency": "replace"},
    ],
    "pictures": {"figure3_pate.png": [0, 1, 2], "figure3_pate_1000_votes.png": [3]},
    "queries": {"mnist": 9000, "svhn": 10_000},
    "trials": {"setting": 1, "count": 25, "seed": 3},
    "workers": 2,
}


def accuracies(task: tuple[Path, float, int]) -> dict[str, Any]:
    """Accuracy on both datasets with the noise of one exponent and one setting."""
    folder, beta, place = task
    setting = CONFIG["settings"][place]
    adjacency = Adjacency(setting["adjacency"])
    noise = calibrated_noise(beta, setting["epsilon"], CONFIG["delta"], setting["votes"], adjacency)
    found: dict[str, Any] = {"beta": beta, "setting": place, "scale": noise.scale}
    for name, num_queries in CONFIG["queries"].items():
        votes, truth = published_votes(folder, name, num_queries)
        probs = win_probabilities(votes.counts, noise)
        found[name] = float(np.mean(probs[np.arange(len(truth)), truth]))
        if place == CONFIG["trials"]["setting"]:
            found[f"{name} trials"] = trials(votes.counts, truth, noise)
    return found


def trials(counts: np.ndarray, truth: np.ndarray, noise: GeneralizedGaussian) -> float:
    rng = np.random.default_rng([CONFIG["trials"]["seed"], round(1e6 * noise.beta)])
    count = CONFIG["trials"]["count"]
    return float(np.mean([np.mean(noisy_argmax(counts, noise, rng=rng) == truth) for _ in range(count)]))


def label(setting: dict[str, Any]) -> str:
    votes = "one vote" if setting["votes"] == 1 else f"{setting['votes']} votes"
    return f"epsilon = {setting['epsilon']:g}, {votes}"


def panel(
    name: str, rows: list[dict[str, Any]], places: list[int]
) -> tuple[str, list[float], dict[str, list[float]]]:
    curves = {
        label(CONFIG["settings"][place]): [row[name] for row in rows if row["setting"] == place]
        for place in places
    }
    return f"{name.upper()}, delta = {CONFIG['delta']:g}", CONFIG["betas"], curves


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The numbers that `expected/` holds: ends and middle of each curve, and trials against expectation."""
    found = {}
    for name in CONFIG["queries"]:
        for place, setting in enumerate(CONFIG["settings"]):
            curve = [row[name] for row in rows if row["setting"] == place]
            for position in (0, 6, 9, 19):
                beta = CONFIG["betas"][position]
                found[f"{name}, {label(setting)}, beta = {beta:.3g}"] = curve[position]
        apart = [abs(row[name] - row[f"{name} trials"]) for row in rows if f"{name} trials" in row]
        found[f"{name}, trials against expectation, most"] = max(apart)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the published vote files")
    parser.add_argument("--out", type=Path, required=True, help="folder for the record and the picture")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    tasks = [
        (arguments.data, beta, place) for place in range(len(CONFIG["settings"])) for beta in CONFIG["betas"]
    ]
    with ProcessPoolExecutor(CONFIG["workers"]) as workers:
        rows = list(workers.map(accuracies, reversed(tasks)))[::-1]
    write_record(arguments.out / "figure3_pate.json", CONFIG, rows, time.perf_counter() - start)
    for file, places in CONFIG["pictures"].items():
        picture = pate_figure.accuracy_figure([panel(name, rows, places) for name in CONFIG["queries"]])
        write_atomically(arguments.out / file, canvas.png(picture))
    compare(summary(rows), "figure3_pate.json")


if __name__ == "__main__":
    main()
