# SPDX-License-Identifier: Apache-2.0
"""Mean square error of spherical noise against the Gaussian, by dimension and number of releases.

Run from the repository, for the table of docs/spherical-noise.md:

    python benchmarks/spherical_noise.py --processes 2

Every cell is a calibration to (epsilon, delta), certified on the private side, of the scale of spherical
noise or of the Gaussian. Printed is E|noise|^2 for sensitivity 1 in the l_2 norm, the sum over all
coordinates, and its ratio to the Gaussian's.
"""

import argparse
import itertools
from concurrent.futures import ProcessPoolExecutor

import ggdp

RELEASES = (1, 2, 5, 10)
DIMENSIONS = (2, 5, 10, 17, 20, 50, 100, 1000)
BETAS = (1.0, 1.5)


def mean_square(setting):
    """E|noise|^2 of the least noise."""
    beta, dimension, steps, epsilon, delta = setting
    target = {"epsilon": epsilon, "delta": delta, "steps": steps}
    if beta == 2.0:
        return dimension * ggdp.calibrate_scale(beta=beta, **target).noise.variance
    vector = {"norm": 2, "dimension": dimension, "spherical": True}
    return ggdp.calibrate_scale(beta=beta, **target, **vector).noise.mean_square


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, nargs="+", default=list(RELEASES))
    parser.add_argument("--dimensions", type=int, nargs="+", default=list(DIMENSIONS))
    parser.add_argument("--betas", type=float, nargs="+", default=list(BETAS))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    print("| T | d | Gaussian |" + "".join(f" beta = {beta:g} | ratio |" for beta in options.betas))
    print("|---|---|---|" + "---|---|" * len(options.betas))
    rows = list(itertools.product(options.releases, options.dimensions))
    target = options.epsilon, options.delta
    settings = [(beta, d, steps, *target) for steps, d in rows for beta in (2.0, *options.betas)]
    with ProcessPoolExecutor(options.processes) as pool:
        errors = pool.map(mean_square, settings)
        for steps, dimension in rows:
            gaussian = next(errors)
            others = [next(errors) for _ in options.betas]
            cells = "".join(f" {error:.5g} | {error / gaussian:.4f} |" for error in others)
            print(f"| {steps} | {dimension} | {gaussian:.5g} |{cells}", flush=True)


if __name__ == "__main__":
    main()
