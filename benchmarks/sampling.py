# SPDX-License-Identifier: Apache-2.0
"""CPU draws, single thread, side by side in one run: ours, NumPy's, SciPy's and PyTorch's.

    python benchmarks/sampling.py [--out sampling.json]

Times are nanoseconds per draw, the best of several interleaved rounds of 2^20 draws, so that a busy machine
slows all rows alike. The exit status is 1 if a goal is missed.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy
import torch
from scipy import stats

import ggdp.torch as ggdp_torch
from ggdp import GeneralizedGaussian
from ggdp.distributions.secure import secure_generator

BETAS = [1.0, 1.25, 1.5, 2.0, 3.0, 8.0]
NUM_DRAWS = 1 << 20
# name: (time of ours, time of the other, largest allowed ratio)
GOALS = {
    "numpy / standard_normal": ("numpy", "standard_normal", 2.5),
    "numpy / gennorm.rvs": ("numpy", "gennorm.rvs", 1 / 2),
    "torch / randn": ("torch", "torch.randn", 4.0),
    "torch / Gamma": ("torch", "torch Gamma", 1 / 4),
}


def contestants(beta: float) -> dict[str, Callable[[], object]]:
    noise = GeneralizedGaussian(beta, 1.3)
    rng, secure = np.random.default_rng(1), secure_generator()
    generator = torch.Generator().manual_seed(1)
    gamma = torch.distributions.Gamma(torch.tensor(1.0 / beta), torch.tensor(1.0))
    shape = (NUM_DRAWS,)
    return {
        "standard_normal": lambda: rng.standard_normal(NUM_DRAWS),
        "numpy": lambda: noise.sample(shape, rng=rng),
        "numpy float32": lambda: noise.sample(shape, rng=rng, dtype=np.float32),
        "numpy secure": lambda: noise.sample(shape, rng=secure),
        "gennorm.rvs": lambda: stats.gennorm.rvs(beta, scale=1.3, size=NUM_DRAWS, random_state=rng),
        "torch.randn": lambda: torch.randn(shape, generator=generator),
        "torch": lambda: ggdp_torch.sample(noise, shape, generator=generator),
        "torch secure": lambda: ggdp_torch.sample(noise, shape, generator=secure),
        "torch Gamma": lambda: gamma.sample(shape),
    }


def nanoseconds_per_draw(run: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - start) / NUM_DRAWS


def best_times(beta: float, num_rounds: int) -> dict[str, float]:
    runs = contestants(beta)
    for run in runs.values():
        run()
    rounds = [{name: nanoseconds_per_draw(run) for name, run in runs.items()} for _ in range(num_rounds)]
    return {name: min(times[name] for times in rounds) for name in runs}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = {beta: best_times(beta, options.rounds) for beta in BETAS}
    names = list(rows[BETAS[0]])
    print("ns per draw".ljust(24) + "".join(f"{f'beta={beta:g}':>11}" for beta in BETAS))
    for name in names:
        print(name.ljust(24) + "".join(f"{rows[beta][name]:11.1f}" for beta in BETAS))
    ratios = {
        goal: [rows[beta][ours] / rows[beta][other] for beta in BETAS]
        for goal, (ours, other, _) in GOALS.items()
    }
    for goal, (_, _, most) in GOALS.items():
        cells = "".join(f"{ratio:11.2f}" for ratio in ratios[goal])
        print(f"{goal:24}{cells}   at most {most:g}: {'met' if max(ratios[goal]) <= most else 'MISSED'}")
    if options.out:
        versions = {"numpy": np.__version__, "scipy": scipy.__version__, "torch": torch.__version__}
        record = {"machine": platform.processor() or platform.machine(), "versions": versions}
        options.out.write_text(json.dumps({**record, "ns_per_draw": rows, "ratios": ratios}, indent=1) + "\n")
    return int(any(max(ratios[goal]) > most for goal, (_, _, most) in GOALS.items()))


if __name__ == "__main__":
    sys.exit(main())
