# SPDX-License-Identifier: Apache-2.0
"""Mean square error of spherical noise against the Gaussian, by dimension and number of releases.

Run from the repository:

    python benchmarks/spherical_noise.py --releases 1 10

Every line is a pair of calibrations to (epsilon, delta), certified on the private side: of the scale of
spherical noise for a few exponents, and of the Gaussian. Printed is E|noise|^2 for sensitivity 1 in the l_2
norm, the sum over all coordinates, and its ratio to the Gaussian's.
"""

import argparse

import ggdp
from ggdp import Composed, SphericalGeneralizedGaussian, SphericalNoise

DIMENSIONS = (2, 5, 10, 17, 20, 50, 100, 1000)
BETAS = (1.0, 1.5)


def gaussian_mean_square(dimension, times, epsilon, delta):
    found = ggdp.calibrate_scale(beta=2.0, epsilon=epsilon, delta=delta, steps=times)
    return dimension * found.noise.variance


def spherical_mean_square(beta, dimension, times, epsilon, delta, gaussian):
    """Between what matches a twentieth and twice the Gaussian's error."""

    def family(scale):
        step = SphericalNoise(SphericalGeneralizedGaussian(beta, scale, dimension))
        return Composed(step, times=times)

    unit = SphericalGeneralizedGaussian(beta, 1.0, dimension).mean_square
    low, high = ((share * gaussian / unit) ** 0.5 for share in (0.05, 2.0))
    most = times / epsilon if beta == 1.0 else high  # purely private there
    found = ggdp.calibrate_family(
        family,
        epsilon=epsilon,
        delta=delta,
        between=(min(low, 0.5 * most), min(high, most) * 1.0001),
        relative=2e-3,
    )
    return SphericalGeneralizedGaussian(beta, found.value, dimension).mean_square


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--dimensions", type=int, nargs="+", default=list(DIMENSIONS))
    parser.add_argument("--betas", type=float, nargs="+", default=list(BETAS))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    options = parser.parse_args()
    print("| T | d | Gaussian |" + "".join(f" beta = {beta:g} | ratio |" for beta in options.betas))
    print("|---|---|---|" + "---|---|" * len(options.betas))
    for times in options.releases:
        for dimension in options.dimensions:
            gaussian = gaussian_mean_square(dimension, times, options.epsilon, options.delta)
            line = f"| {times} | {dimension} | {gaussian:.5g} |"
            for beta in options.betas:
                found = spherical_mean_square(
                    beta, dimension, times, options.epsilon, options.delta, gaussian
                )
                line += f" {found:.5g} | {found / gaussian:.3f} |"
            print(line, flush=True)


if __name__ == "__main__":
    main()
