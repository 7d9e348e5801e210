# SPDX-License-Identifier: Apache-2.0
"""What further questions to one privacy profile cost, against the first one.

Goals: a second question costs at most a fifth of the first, a curve of 50 points at most three times one
point.

    python benchmarks/questions.py
"""

import time

import numpy as np

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    Gaussian,
    GaussianMixtureNoise,
    GeneralizedGaussian,
    Laplace,
    OutcomeProbabilities,
    PoissonSampled,
    account,
)


def sampled(noise, rate, times, **others):
    return Composed(PoissonSampled(AdditiveNoise(noise, **others), rate), times)


def multiplier(beta, sigma):
    return GeneralizedGaussian.from_noise_multiplier(beta, sigma, 1.0)


CASES = {
    "DP-SGD, Gaussian": sampled(Gaussian(1.0), 0.01, 10_000),
    "DP-SGD, beta 1.5": sampled(multiplier(1.5, 1.0), 0.01, 1000),
    "DP-SGD, Laplace": sampled(Laplace(2.0), 0.01, 5000),
    "DP-SGD, replace": sampled(Gaussian(1.0), 0.01, 10_000),
    "DP-SGD, vector in l_2": sampled(multiplier(1.5, 1.0), 0.01, 1000, norm=2.0, dimension=10_000),
    "100 releases": Composed(AdditiveNoise(GeneralizedGaussian(1.5, 20.0)), 100),
    "two kinds": Composed([(sampled(Gaussian(1.0), 0.01, 1), 1000), (AdditiveNoise(Laplace(20.0)), 10)]),
    "one release": AdditiveNoise(Gaussian(1.0)),
    "a rare event decides": sampled(multiplier(2.0, 0.6), 1e-4, 1000),
    "3 releases, beta 4": Composed(AdditiveNoise(multiplier(4.0, 2.0)), 3),
    "10 Laplace releases": Composed(AdditiveNoise(Laplace(10.0)), 10),
    "randomized response": Composed(OutcomeProbabilities((0.55, 0.45), (0.45, 0.55)), 100),
    "mixture of Gaussians": Composed(GaussianMixtureNoise((0.9, 0.1), (0.0, 0.0), (4.0, 8.0), 1.0), 20),
}


def seconds(work):
    start = time.process_time()
    answer = work()
    return time.process_time() - start, answer


def main():
    titles = f"{'first':>9} {'second':>8} {'delta':>8} {'50 deltas':>10} {'50 epsilons':>12}"
    print(f"{'mechanism':24} {titles}  method")
    for name, mechanism in CASES.items():
        adjacency = Adjacency.REPLACE if name.endswith("replace") else None
        account(mechanism, adjacency=adjacency).epsilon(delta=1e-6)  # fill caches of integration nodes
        profile = account(mechanism, adjacency=adjacency)
        first, found = seconds(lambda: profile.epsilon(delta=1e-6))  # noqa: B023
        second, _ = seconds(lambda: profile.epsilon(delta=1e-5))  # noqa: B023
        other, _ = seconds(lambda: profile.delta(epsilon=1.02 * found.estimate))  # noqa: B023
        curves = []
        for asked in (
            {"deltas": np.geomspace(1e-10, 1e-3, 50)},
            {"epsilons": np.linspace(0.5, 1.5, 50) * found.estimate},
        ):
            curves.append(seconds(lambda: account(mechanism, adjacency=adjacency).curve(**asked))[0])  # noqa: B023
        ratios = [second / first, other / first, *(curve / first for curve in curves)]
        row = f"{ratios[0]:8.2f} {ratios[1]:8.2f} {ratios[2]:10.1f} {ratios[3]:12.1f}"
        print(f"{name:24} {1e3 * first:6.1f} ms {row}  {found.method}")


if __name__ == "__main__":
    main()
