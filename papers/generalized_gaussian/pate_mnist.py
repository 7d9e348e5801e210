# SPDX-License-Identifier: Apache-2.0
"""PATE at the paper's size: 250 teachers on MNIST, from images to students, three noises of equal privacy.

    python papers/generalized_gaussian/pate_mnist.py --data DIR --out DIR

The 60,000 training images are private and split among the teachers, 240 for each. The first 9,000 test images
are public and unlabelled, as in the published votes; the last 1,000 test the students. Every classifier is a
support vector machine on images averaged over 2 x 2 pixels; Papernot et al. train convolutional networks.
Votes are kept in --out: a second run starts from them. `DIR` holds MNIST/raw with the four published files.
"""

import argparse
import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
from check import compare, write_record

from ggdp.selection import Student, TeacherEnsemble, Votes, calibrate_ggnmax, hardmax_utility

CONFIG: dict[str, Any] = {
    "num_teachers": 250,
    "num_public": 9000,
    "num_queries": 300,
    "epsilon": 5.0,
    "delta": 1e-5,
    "betas": [1.0, 1.5, 2.0, 3.0],
    "seed": 7,
    "num_runs": 10,
}
_HEADER = {"images": 16, "labels": 8}


def read(folder: Path, name: str) -> np.ndarray:
    """The bytes of a file of MNIST without its header; compressed or not."""
    kind = "images" if "images" in name else "labels"
    path = folder / "MNIST" / "raw" / name
    packed = path.with_name(f"{name}.gz")
    if not (path.is_file() or packed.is_file()):
        raise SystemExit(f"--data must hold MNIST/raw/{name}, got {str(folder)!r} without it")
    content = path.read_bytes() if path.is_file() else gzip.decompress(packed.read_bytes())
    return np.frombuffer(content[_HEADER[kind] :], dtype=np.uint8)


def averaged(pixels: np.ndarray) -> np.ndarray:
    """Images [N, 28 x 28] as means over 2 x 2 pixels, [N, 196] in [0, 1]."""
    return pixels.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) / 255.0


def votes_of(folder: Path, kept: Path, public: np.ndarray, classifier: Any) -> np.ndarray:
    """Counts [queries, 10] of all public images; read where an earlier run has left them."""
    if kept.is_file():
        return np.load(kept)["votes"]
    private = averaged(read(folder, "train-images-idx3-ubyte"))
    labels = read(folder, "train-labels-idx1-ubyte").astype(np.int64)
    teachers = TeacherEnsemble.fit(
        classifier,
        private,
        labels,
        num_teachers=CONFIG["num_teachers"],
        num_classes=10,
        rng=np.random.default_rng(CONFIG["seed"]),
        n_jobs=2,
        on_progress=lambda ready, total: print(f"\r{ready} of {total} teachers", end="", flush=True),
    )
    print()
    counts = teachers.vote(public).counts
    np.savez_compressed(kept, votes=counts)
    return counts


def main() -> None:
    from sklearn.svm import SVC

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder of the published data, with MNIST/raw"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the record and the votes")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    classifier = SVC(C=10.0, gamma="scale")
    images = averaged(read(arguments.data, "t10k-images-idx3-ubyte"))
    labels = read(arguments.data, "t10k-labels-idx1-ubyte").astype(np.int64)
    public, test = np.split(np.arange(len(images)), [CONFIG["num_public"]])
    counts = votes_of(arguments.data, arguments.out / "pate_mnist_votes.npz", images[public], classifier)
    right = counts.argmax(axis=1) == labels[public]
    gaps = np.sort(counts, axis=1)
    results: dict[str, float] = {
        "teachers' mean accuracy": float(counts[public, labels[public]].sum() / counts.sum()),
        "plurality accuracy": float(right.mean()),
        "median gap": float(np.median(gaps[:, -1] - gaps[:, -2])),
    }
    rng = np.random.default_rng([CONFIG["seed"], 1])
    queries = rng.choice(public, CONFIG["num_queries"], replace=False)
    votes = Votes(counts[queries])
    for beta in CONFIG["betas"]:
        aggregator = calibrate_ggnmax(
            beta=beta, epsilon=CONFIG["epsilon"], delta=CONFIG["delta"], times=len(queries)
        )
        labellings = [aggregator.label(votes, rng=rng) for _ in range(CONFIG["num_runs"])]
        students = [Student.fit(classifier, images[queries], labelling) for labelling in labellings]
        name = f"beta = {beta:g}"
        results[f"{name}, std of the noise"] = aggregator.noise.std
        results[f"{name}, chance of the plurality"] = float(
            np.mean(hardmax_utility(votes.counts, aggregator.noise))
        )
        results[f"{name}, label accuracy"] = float(
            np.mean([labelling.accuracy(labels[queries]) for labelling in labellings])
        )
        results[f"{name}, student accuracy"] = float(
            np.mean([student.accuracy(images[test], labels[test]) for student in students])
        )
    write_record(arguments.out / "pate_mnist.json", CONFIG, results, time.perf_counter() - start)
    compare(results, "pate_mnist.json")


if __name__ == "__main__":
    main()
