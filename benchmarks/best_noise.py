# SPDX-License-Identifier: Apache-2.0
"""`best_noise` against a grid of 200 exponents, in random settings: whether it misses, and how long it takes.

python benchmarks/best_noise.py [--settings 20] [--seed 0] [--exponents 200] [--share 1e-3] [--certified]

For each exponent of the grid the noise is taken whose loss is smaller than the answer's by the share (of a
probability, too), and the accountant is asked whether it would be private. None may be. The question is put
to the engines' estimates, which are good to about 1e-5; with --certified, to their bounds, which takes some
ten times longer. The exit status is 1 if any exponent is better by more than the share.
"""

import argparse
import math
import sys
import time
from typing import Any

import numpy as np
from scipy import stats

from ggdp import Adjacency, GeneralizedGaussian, best_noise, calibrate_scale
from ggdp.calibration.calibrate import NoiseProblem
from ggdp.calibration.target import Target
from ggdp.errors import CannotCertifyError

LOSSES = ("std", "mean-absolute", "outside", "interval")


def setting(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run of one number with its target, and what hurts."""
    run: dict[str, Any] = {
        "steps": round(float(np.exp(rng.uniform(0.0, math.log(10_000.0))))),
        "rate": 1.0 if rng.random() < 0.5 else float(10.0 ** rng.uniform(-3.0, 0.0)),
        "epsilon": float(10.0 ** rng.uniform(-1.0, 1.0)),
        "delta": float(10.0 ** rng.uniform(-9.0, -3.0)),
        "sensitivity": float(10.0 ** rng.uniform(-2.0, 2.0)),
        "adjacency": Adjacency(str(rng.choice([str(one) for one in Adjacency]))),
    }
    hurts: dict[str, Any] = {"loss": str(rng.choice(LOSSES))}
    deviations, level = float(rng.uniform(0.5, 6.0)), float(rng.choice([0.5, 0.95, 0.999]))
    if hurts["loss"] == "outside":
        hurts["threshold"] = deviations * calibrate_scale(beta=2, **run).noise.std
    if hurts["loss"] == "interval":
        hurts["level"] = level
    return run, hurts


def scale_with(beta: float, log_loss: float, hurts: dict[str, Any]) -> float:
    """The scale at which noise of an exponent has a loss, by SciPy where it has the digits."""
    law = stats.gennorm(beta)
    if hurts["loss"] == "outside":
        far = GeneralizedGaussian(beta, 1.0).isf(log_prob=log_loss - math.log(2.0))
        return float(hurts["threshold"] / far)
    unit = {
        "std": law.std,
        "mean-absolute": lambda: math.gamma(2.0 / beta) / math.gamma(1.0 / beta),
        "interval": lambda: 2.0 * law.ppf(0.5 + 0.5 * hurts["level"]),
    }[hurts["loss"]]()
    return float(math.exp(log_loss) / unit)


def is_private(problem: NoiseProblem, beta: float, scale: float, certified: bool) -> bool:
    """Whether the run would meet the target with this noise."""
    mechanism = problem.mechanism(beta, math.sqrt(2.0) * problem.sensitivity / scale)
    try:
        if certified:
            return problem.target.judge(mechanism).at_least <= 0.0
        return problem.target.estimated_excess(mechanism) <= 0.0
    except (ValueError, CannotCertifyError):  # beyond what is covered
        return False


def main() -> None:
    """Print a line for each setting, then how often and how late."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--exponents", type=int, default=200)
    parser.add_argument("--share", type=float, default=1e-3)
    parser.add_argument("--certified", action="store_true")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    missed, seconds = 0, []
    best_noise(steps=2, epsilon=1.0, delta=1e-6)  # imports
    for number in range(options.settings):
        try:
            run, hurts = setting(rng)
            begun = time.process_time()
            best = best_noise(**run, **hurts)
        except ValueError as refused:
            print(f"{number}: refused: {refused}", flush=True)
            continue
        seconds.append(time.process_time() - begun)
        target = Target(run["epsilon"], run["delta"], run["adjacency"])
        problem = NoiseProblem(target, run["rate"], run["steps"], run["sensitivity"])
        wanted = best.log_loss + math.log1p(-options.share)
        better = [
            float(beta)
            for beta in np.geomspace(1.0, 8.0, options.exponents)
            if is_private(problem, float(beta), scale_with(float(beta), wanted, hurts), options.certified)
        ]
        missed += bool(better)
        told = " ".join(
            f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in (run | hurts).items()
        )
        verdict = f"MISSED, better: {better[0]:.3f} to {better[-1]:.3f}" if better else "none better"
        print(f"{number}: {verdict}, {seconds[-1]:.2f} s, beta {best.beta:.3f}: {told}", flush=True)
    print(
        f"{len(seconds)} settings, {missed} missed by more than {options.share:g}; "
        f"{np.median(seconds):.2f} s in the middle, {max(seconds):.2f} s at most"
    )
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
