# SPDX-License-Identifier: Apache-2.0
"""Confident-GNMax on the published votes: answered queries and data-dependent epsilon.

    python papers/generalized_gaussian/pate_confident.py --data DIR --out DIR

Papernot et al. 2018 report 286 answered and epsilon 1.97 for MNIST, and epsilon 4.96 for SVHN. Here answered
queries and cost are expectations over the threshold's noise, without trials, once by the published analysis
and once by the exact one; the data-independent epsilon for as many answers stands beside.
"""

import argparse
import time
from pathlib import Path
from typing import Any

from check import compare, write_record

from ggdp import Gaussian, epsilon
from ggdp.selection import Analysis, ConfidentGGNMax, data_dependent_epsilon
from ggdp_paper.figures.pate_accuracy import published_votes

CONFIG: dict[str, dict[str, Any]] = {
    "mnist": {"queries": 640, "threshold": 200, "check_std": 150, "std": 40, "delta": 1e-5},
    "svhn": {"queries": 8500, "threshold": 300, "check_std": 200, "std": 40, "delta": 1e-6},
    "adult": {"queries": 1500, "threshold": 300, "check_std": 200, "std": 40, "delta": 1e-5},
}


def analysed(name: str, folder: Path) -> dict[str, float]:
    setting = CONFIG[name]
    votes, truth = published_votes(folder, name, setting["queries"])
    aggregator = ConfidentGGNMax(
        Gaussian(setting["std"]), setting["threshold"], Gaussian(setting["check_std"])
    )
    found = {
        analysis: data_dependent_epsilon(
            votes.counts,
            aggregator.noise,
            delta=setting["delta"],
            threshold=aggregator.threshold,
            threshold_noise=aggregator.threshold_noise,
            analysis=analysis,
        )
        for analysis in Analysis
    }
    answered = found[Analysis.EXACT].answered
    plain = epsilon(aggregator.mechanism(votes.num_queries, round(answered)), delta=setting["delta"])
    passed = aggregator.pass_probability(votes)
    return {
        f"{name} answered": answered,
        f"{name} epsilon, published analysis": found[Analysis.PUBLISHED].value,
        f"{name} epsilon, exact analysis": found[Analysis.EXACT].value,
        f"{name} epsilon, data-independent": plain.upper,
        f"{name} plurality accuracy of the answered": float(
            passed @ (votes.plurality() == truth) / passed.sum()
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the published data, with pate/")
    parser.add_argument("--out", type=Path, required=True, help="folder for the record")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    results = {key: value for name in CONFIG for key, value in analysed(name, arguments.data).items()}
    write_record(arguments.out / "pate_confident.json", CONFIG, results, time.perf_counter() - start)
    compare(results, "pate_confident.json")


if __name__ == "__main__":
    main()
