# SPDX-License-Identifier: Apache-2.0
"""Exact draws on one core beside OpenDP's samplers, in one run; and 10^8 draws held against their law.

    python benchmarks/exact_release.py [--out exact_release.json] [--draws 100000000]

Times are nanoseconds of CPU per draw from the ChaCha20 keystream, the best of several interleaved rounds.
`discrete` are whole numbers of exactly the discrete law, `rounded` what `release` draws: the rounded sum of a
value and continuous noise. OpenDP has Laplace and Gaussian noise only; its rows add such noise to zeros.

The law: of `--draws` draws the number beyond each of the places where 10^-1 to 10^-7 of the law lies, on both
sides, must lie in the exact binomial interval that a right sampler leaves once in 10^4 runs of all of them.
The exit status is 1 if a goal or the law is missed.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np
import opendp.prelude as dp
from scipy import stats

from ggdp import DiscreteGeneralizedGaussian, GeneralizedGaussian, secure_generator
from ggdp.mechanisms.release import on_grid

LAWS = [(1.0, 3.0), (1.0, 2.0**20), (1.5, 3.0), (1.5, 2.0**20), (2.0, 3.0), (2.0, 2.0**20), (64.0, 2.0**20)]
CHECKED = [(1.0, 40.0), (1.5, 700.0), (2.0, 5.0)]
OURS, THEIRS = 1 << 20, 1 << 14
ROUNDS = 5
LEAST_PER_SECOND = 5e6
LEAST_RATIO = 50.0
LEVEL = 1e-4


def opendp_sampler(beta: float, scale: float) -> Callable[[], object] | None:
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    if beta == 1.0:
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=scale)
    elif beta == 2.0:
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale / 2.0**0.5)
    else:
        return None
    zeros = [0] * THEIRS
    return lambda: measurement(zeros)


def nanoseconds(run: Callable[[], object], draws: int) -> float:
    start = time.process_time_ns()
    run()
    return (time.process_time_ns() - start) / draws


def speed(beta: float, scale: float) -> dict[str, float | None]:
    rng, zeros = secure_generator(), np.zeros(OURS)
    discrete, continuous = DiscreteGeneralizedGaussian(beta, scale), GeneralizedGaussian(beta, scale)
    theirs = opendp_sampler(beta, scale)
    times: dict[str, list[float]] = {"discrete": [], "rounded": [], "opendp": []}
    for _ in range(ROUNDS):
        times["discrete"].append(nanoseconds(lambda: discrete.sample(OURS, rng=rng), OURS))
        times["rounded"].append(nanoseconds(lambda: on_grid(continuous, zeros, rng), OURS))
        if theirs is not None:
            times["opendp"].append(nanoseconds(theirs, THEIRS))
    best = {name: min(found) if found else None for name, found in times.items()}
    ratio = best["opendp"] / best["discrete"] if best["opendp"] and best["discrete"] else None
    return {"beta": beta, "scale": scale, **best, "opendp / discrete": ratio}


def tails(beta: float, scale: float, draws: int) -> dict[str, object]:
    """Counts beyond places where 10^-1 to 10^-7 of the law lies, and whether any is out of its interval."""
    noise, rng = DiscreteGeneralizedGaussian(beta, scale), secure_generator()
    reach = np.arange(0.0, scale * 40.0)
    places = [int(reach[np.searchsorted(-noise.sf(reach), -(10.0**-power))]) for power in range(1, 8)]
    counts = np.zeros((2, len(places)), dtype=np.int64)
    left = draws
    while left:
        drawn = noise.sample(min(left, 1 << 22), rng=rng)
        left -= len(drawn)
        for index, place in enumerate(places):
            counts[0, index] += int(np.count_nonzero(drawn > place))
            counts[1, index] += int(np.count_nonzero(drawn < -place))
    each = LEVEL / (2 * counts.size * len(CHECKED))
    law = stats.binom(draws, noise.sf(np.array(places, dtype=float)))
    low, high = law.ppf(each), law.isf(each)
    inside = bool(np.all((counts >= low) & (counts <= high)))
    return {"beta": beta, "scale": scale, "places": places, "counts": counts.tolist(),
            "expected": law.mean().tolist(), "inside": inside}  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out", type=Path)
    options.add_argument("--draws", type=int, default=10**8)
    chosen = options.parse_args()
    rows = [speed(beta, scale) for beta, scale in LAWS]
    print("  beta      scale   discrete    rounded     opendp   ratio   (ns of CPU per draw)")
    for row in rows:
        theirs = f"{row['opendp']:10.0f} {row['opendp / discrete']:7.0f}" if row["opendp"] else " " * 18
        print(f"{row['beta']:6g} {row['scale']:10g} {row['discrete']:10.1f} {row['rounded']:10.1f} {theirs}")
    laws = [tails(beta, scale, chosen.draws) for beta, scale in CHECKED]
    for law in laws:
        expected = [round(one, 1) for one in law["expected"]]
        verdict = "ok" if law["inside"] else "WRONG"
        print(f"beta {law['beta']:g}, scale {law['scale']:g}, beyond {law['places']}:")
        print(f"    {law['counts']}, expected {expected}: {verdict}")
    versions = {name: metadata.version(name) for name in ("numpy", "opendp", "cryptography")}
    machine = {"python": platform.python_version(), **versions}
    if chosen.out:
        chosen.out.write_text(json.dumps({"machine": machine, "speed": rows, "laws": laws}, indent=1))
    fast = all(1e9 / row["discrete"] >= LEAST_PER_SECOND for row in rows)
    ahead = all(row["opendp / discrete"] >= LEAST_RATIO for row in rows if row["opendp / discrete"])
    return 0 if fast and ahead and all(law["inside"] for law in laws) else 1


if __name__ == "__main__":
    sys.exit(main())
