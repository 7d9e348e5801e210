# SPDX-License-Identifier: Apache-2.0
"""The full grid of vector releases: certified epsilon against explicit splits, and in training.

python benchmarks/vector_grid.py [--quick] [--training]
python benchmarks/vector_grid.py --few-coordinates TIMES

For beta x norm x dimension it prints the certified epsilon, the largest epsilon of explicit shifts (equal,
geometric, one large plus many small, random) and their ratio, which may never be below 1; then, at settings
of private training, the certified epsilon over one coordinate's exact one. Exits with status 1 if any split
exceeds its bound. The second command prints a table of docs/vector-releases.md: few coordinates in norm 2,
released so many times, with the score envelope and without it.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np

from ggdp import AdditiveNoise, Composed, GeneralizedGaussian, PoissonSampled, epsilon
from ggdp.mechanisms.additive_noise import Shift

BETAS = (1.0, 1.1, 1.25, 1.5, 1.75, 1.9, 2.0, 2.5, 3.0, 4.0)
DIMENSIONS = (1, 2, 3, 5, 10, 100, 10**6)
TRAINING = (
    (1.0, 0.01, 1000, 1e-6),
    (1.0, 0.01, 10_000, 1e-6),
    (2.0, 0.01, 5000, 1e-6),
    (2.5, 0.05, 2000, 1e-5),
    (3.0, 0.02, 10_000, 1e-6),
    (1.0, 0.001, 10_000, 1e-6),
    (0.7, 0.01, 2000, 1e-5),
    (0.5, 0.01, 1000, 1e-5),
)
FEW = (2, 3, 10)
DELTA = 1e-6
JUST_INSIDE = 1.0 - 1e-12


def splits(p: float, dimension: int, rng: np.random.Generator) -> Iterator[tuple[str, Shift]]:
    if math.isinf(p):
        yield "all", ((1.0, dimension),)
        return
    for count in sorted({1, 2, 3, 10, dimension}):
        if count <= dimension:
            yield f"equal {count}", ((JUST_INSIDE * count ** (-1.0 / p), count),)
    if dimension >= 3:
        for large in (0.5, 0.9):
            small = ((1.0 - large) / (dimension - 1)) ** (1.0 / p)
            yield (
                f"{large:g} + small",
                ((JUST_INSIDE * large ** (1.0 / p), 1), (JUST_INSIDE * small, dimension - 1)),
            )
    if dimension >= 2:
        count = min(dimension, 4)
        for name, shares in (
            ("geometric", 0.5 ** np.arange(1, count + 1)),
            ("random", rng.dirichlet(np.ones(count))),
        ):
            yield name, tuple((JUST_INSIDE * float(share) ** (1.0 / p), 1) for share in shares)


def few_coordinates(times: int) -> int:
    """Print, as a Markdown table, how far the bound lies above the largest explicit shift, and in brackets
    how far without the score envelope; 1 if below."""
    failures, rng = 0, np.random.default_rng(5)
    deltas = (1e-2, 1e-4, 1e-6)
    columns = [(d, delta) for delta in deltas for d in FEW]
    print(f"times = {times}\n")
    print("| beta | noise multiplier | " + " | ".join(f"d = {d}, delta = {e:g}" for d, e in columns) + " |")
    print("|---|---|" + "---|" * len(columns))
    for beta in (4.0 / 3.0, 5.0 / 3.0, 2.25, 2.5, 3.0, 4.0):
        for multiplier in (1.5, 10.0):
            noise, cells = GeneralizedGaussian(beta, math.sqrt(2.0) * multiplier), []
            for d, delta in columns:
                step = Composed(AdditiveNoise(noise, norm=2.0, dimension=d), times)
                found = epsilon(step, delta=delta)
                with patch("ggdp.accounting.vectors.envelope.enveloped", lambda steps: None):
                    without = epsilon(step, delta=delta)
                worst = max(
                    epsilon(Composed(AdditiveNoise(noise, shift=shift), times), delta=delta).lower
                    for _, shift in splits(2.0, d, rng)
                )
                failures += worst > found.upper
                wide, before = (100.0 * (one.upper / worst - 1.0) for one in (found, without))
                cells.append(f"{wide:.1f}% ({before:.0f}%)")
            print(f"| {beta:.3g} | {multiplier:g} | " + " | ".join(cells) + " |", flush=True)
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="every third row")
    parser.add_argument("--training", action="store_true", help="only the settings of private training")
    parser.add_argument("--few-coordinates", type=int, metavar="TIMES", help="only norm 2, few coordinates")
    given = parser.parse_args()
    if given.few_coordinates:
        return few_coordinates(given.few_coordinates)
    quick = given.quick
    rng = np.random.default_rng(5)
    rows = [(b, p, d) for b in BETAS for p in sorted({1.0, b, 2.0, math.inf}) for d in DIMENSIONS]
    rows = [] if given.training else rows
    failures, slowest = 0, 0.0
    print("beta  norm  dimension | certified  worst split  ratio | seconds | route")
    for beta, p, dimension in rows[:: 3 if quick else 1]:
        noise = GeneralizedGaussian(beta, math.sqrt(2.0) * 1.5)
        start = time.perf_counter()
        try:
            found = epsilon(AdditiveNoise(noise, norm=p, dimension=dimension), delta=DELTA)
        except ValueError as refusal:
            print(f"{beta:4g} {p:5g} {dimension:10d} | {str(refusal)[:80]}")
            continue
        seconds = time.perf_counter() - start
        slowest = max(slowest, seconds)
        found_splits = [
            (epsilon(AdditiveNoise(noise, shift=s), delta=DELTA).lower, n)
            for n, s in splits(p, dimension, rng)
        ]
        worst, name = max(found_splits)
        failures += worst > found.upper
        mark = "  EXCEEDED" if worst > found.upper else ""
        print(
            f"{beta:4g} {p:5g} {dimension:10d} | {found.upper:9.5f} {worst:9.5f} ({name}) "
            f"{found.upper / worst:7.4f} | {seconds:5.2f} | {found.method}{mark}",
            flush=True,
        )
    print(f"slowest certified answer {slowest:.2f} s; splits above their bound: {failures}")
    print("\nbeta  noise multiplier, rate, steps, delta | certified / one coordinate | seconds")
    for beta in (b for b in BETAS if b <= 2.0):
        for multiplier, rate, steps, delta in TRAINING:
            noise = GeneralizedGaussian(beta, math.sqrt(2.0) * multiplier)
            run = [
                Composed(PoissonSampled(AdditiveNoise(noise, dimension=d), rate), times=steps)
                for d in (1, 10**6)
            ]
            one = epsilon(run[0], delta=delta).upper
            start = time.perf_counter()
            many = epsilon(run[1], delta=delta).upper
            seconds = time.perf_counter() - start
            print(
                f"{beta:4g}  {multiplier, rate, steps, delta} | {many / one:.4f} | {seconds:.2f}", flush=True
            )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
