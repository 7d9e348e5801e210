# SPDX-License-Identifier: Apache-2.0
"""PATE from end to end on scikit-learn's digits: 50 teachers, three noises of equal privacy, a student each.

    python papers/generalized_gaussian/pate_digits.py --out DIR

1000 records are private and split among the teachers, 200 are the public queries, the rest tests the student.
Each noise labels the queries several times, since 200 labels leave a student's accuracy to chance.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from check import compare, write_record

from ggdp.selection import Student, TeacherEnsemble, calibrate_ggnmax, hardmax_utility, run_pate

CONFIG: dict[str, Any] = {
    "num_teachers": 50,
    "num_private": 1000,
    "num_queries": 200,
    "epsilon": 10.0,
    "delta": 1e-5,
    "betas": [1.0, 1.5, 2.0],
    "seed": 7,
    "num_runs": 10,
}


def split(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row numbers of the private records, the queries and the test."""
    order = np.random.default_rng(seed).permutation(1797)
    first = CONFIG["num_private"]
    return order[:first], order[first : first + CONFIG["num_queries"]], order[first + CONFIG["num_queries"] :]


def main() -> None:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the record")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    digits = load_digits()
    X, y = digits.data / 16.0, digits.target
    private, queries, test = split(CONFIG["seed"])
    classifier = LogisticRegression(max_iter=200, C=10.0)
    teachers = TeacherEnsemble.fit(
        classifier,
        X[private],
        y[private],
        num_teachers=CONFIG["num_teachers"],
        num_classes=10,
        rng=np.random.default_rng(CONFIG["seed"]),
        n_jobs=2,
        on_progress=lambda ready, total: print(f"\r{ready} of {total} teachers", end="", flush=True),
    )
    print()
    results: dict[str, float] = {}
    for beta in CONFIG["betas"]:
        aggregator = calibrate_ggnmax(
            beta=beta, epsilon=CONFIG["epsilon"], delta=CONFIG["delta"], times=len(queries)
        )
        rng = np.random.default_rng([CONFIG["seed"], round(100 * beta)])
        run = run_pate(teachers, aggregator, classifier, X[queries], delta=CONFIG["delta"], rng=rng)
        # The same votes again with fresh noise, step by step.
        again = [aggregator.label(run.votes, rng=rng) for _ in range(CONFIG["num_runs"] - 1)]
        labellings = [run.labelling, *again]
        students = [run.student, *(Student.fit(classifier, X[queries], labelling) for labelling in again)]
        name = f"beta = {beta:g}"
        results[f"{name}, epsilon"] = run.epsilon.upper
        results[f"{name}, std of the noise"] = aggregator.noise.std
        results[f"{name}, chance of the plurality"] = float(
            np.mean(hardmax_utility(run.votes.counts, aggregator.noise))
        )
        results[f"{name}, label accuracy"] = float(
            np.mean([labelling.accuracy(y[queries]) for labelling in labellings])
        )
        results[f"{name}, student accuracy"] = float(
            np.mean([student.accuracy(X[test], y[test]) for student in students])
        )
    write_record(arguments.out / "pate_digits.json", CONFIG, results, time.perf_counter() - start)
    compare(results, "pate_digits.json")


if __name__ == "__main__":
    main()
