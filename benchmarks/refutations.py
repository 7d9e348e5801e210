# SPDX-License-Identifier: Apache-2.0
"""Published privacy claims against attacks that anyone can rerun: docs/refutations.md.

python benchmarks/refutations.py rank-one    # a rank-1 Gaussian whose error does not grow with the dimension
python benchmarks/refutations.py laplace     # Laplace noise accounted by one coordinate, clipped in l_2
python benchmarks/refutations.py plrv        # Laplace noise of random scale, coordinate by coordinate
"""

import argparse
import math
from dataclasses import replace

import numpy as np
from scipy import special, stats
from scipy.optimize import minimize_scalar

import ggdp
from ggdp.privacy_loss.density import Mixture

DIMENSIONS = (3, 10, 100, 1000, 10**4, 10**6)


def claimed_variance(epsilon, delta, dimension, sensitivity=1.0):
    """The variance that is said to give (epsilon, delta)-privacy in M = dimension > 2 dimensions:
    2 sensitivity^2 / (epsilon psi), psi = (delta Gamma((M-1)/2) / (sqrt(pi) Gamma(M/2)))^(2/(M-2)).
    """
    m = dimension
    log_inner = (
        math.log(delta) + special.gammaln((m - 1) / 2) - special.gammaln(m / 2) - 0.5 * math.log(math.pi)
    )
    return 2.0 * sensitivity**2 / (epsilon * math.exp(2.0 / (m - 2) * log_inner))


def advantage(radius, std, dimension, sensitivity=1.0):
    """Probabilities that the answer lies within a radius below the sensitivity of f(D): with D, and with a
    neighbour whose answer is the sensitivity away. The noise is a normal number times a uniform direction.
    """
    with_data = special.erf(radius / (std * math.sqrt(2.0)))
    # a line through f(D') in a uniform direction meets the ball: two caps of the sphere
    without = special.betainc(0.5 * (dimension - 1), 0.5, (radius / sensitivity) ** 2)
    return float(with_data), float(without)


def least_delta(epsilon, std, dimension):
    """A lower bound of delta: the best radius of that attack."""

    def missed(radius):
        with_data, without = advantage(radius, std, dimension)
        return math.exp(epsilon) * without - with_data

    grid = np.linspace(1e-3, 1.0 - 1e-9, 4001)
    best = grid[int(np.argmin([missed(radius) for radius in grid]))]
    found = minimize_scalar(
        missed,
        bounds=(max(best - 1e-3, 1e-6), min(best + 1e-3, 1.0)),
        method="bounded",
        options={"xatol": 1e-12},
    )
    return max(-float(found.fun), -missed(best), 0.0)


def rank_one(epsilon, delta):
    print(f"claimed: epsilon = {epsilon:g}, delta = {delta:g}, sensitivity 1 in l_2")
    print("| dimension | claimed E|noise|^2 | delta is at least | the Gaussian needs E|noise|^2 |")
    print("|---|---|---|---|")
    gaussian = ggdp.calibrate_scale(beta=2, epsilon=epsilon, delta=delta).noise.variance
    for dimension in DIMENSIONS:
        variance = claimed_variance(epsilon, delta, dimension)
        found = least_delta(epsilon, math.sqrt(variance), dimension)
        print(f"| {dimension} | {variance:.4g} | {found:.3g} | {gaussian * dimension:.4g} |", flush=True)


def spread(noise, dimension):
    """Delta at epsilon 1 of a shift of length 1 spread over equal coordinates, certified from below."""
    moved = replace(
        noise, densities=tuple(one.shifted(1.0 / math.sqrt(dimension)) for one in noise.densities)
    )
    step = ggdp.DensityPair(moved, noise)
    return ggdp.delta(ggdp.Composed(step, times=dimension), epsilon=1.0).lower


def mixture_of_laplace(weights, scales):
    """A Laplace law whose scale is drawn anew for every coordinate."""
    laws = tuple(ggdp.Density(ggdp.Laplace(scale=scale).logpdf, breaks=(0.0,)) for scale in scales)
    return Mixture(weights, laws)


def laplace():
    print("accounted by one coordinate: epsilon = 1 at delta = 0; clipped to length 1 in l_2")
    print("| dimension | Laplace, scale 1: delta at epsilon 1 | scale 1 or 4, evenly: delta at epsilon 1 |")
    print("|---|---|---|")
    for dimension in (2, 4, 16, 100, 10**4):
        plain = ggdp.AdditiveNoise(ggdp.Laplace(scale=1.0), shift=[(1.0 / math.sqrt(dimension), dimension)])
        first = ggdp.delta(plain, epsilon=1.0).lower
        second = spread(mixture_of_laplace((0.5, 0.5), (1.0, 4.0)), dimension)
        print(f"| {dimension} | at least {first:.3g} | at least {second:.3g} |", flush=True)


def plrv_claim(run, dimension, orders=80):
    """The epsilon of the published formula: the least over the orders.

    `run` has the steps, the rate q of sampling, the clipping norm C, delta, and k and theta of the Gamma law
    of u; the noise is Laplace of scale 1/u, with another u for every coordinate and step. Coordinate i is
    taken to move by C (sqrt(i) - sqrt(i - 1)). For one coordinate and order n = 2, 3, ... the formula has

        log of the sum over j of binom(n, j) (1-q)^(n-j) q^j E[(P/Q)^j],

    and adds these logarithms over the coordinates.
    """
    moves = run["clip"] * (np.sqrt(np.arange(1, dimension + 1)) - np.sqrt(np.arange(dimension)))
    rate, k, theta, delta = run["rate"], run["k"], run["theta"], run["delta"]
    best = math.inf
    for order in range(2, orders + 2):
        j = np.arange(order + 1.0)[:, None]
        if theta * order * moves[0] >= 1.0:
            break
        weight = np.log(np.maximum(stats.binom.pmf(j, order, rate), 1e-300))
        # E[(P/Q)^j] for a Laplace law of scale 1/u moved by m, then the mean over u
        up, down = (-k * np.log1p(side * theta * moves) for side in (-(j - 1.0), j))
        moment = (j * np.exp(up) + (j - 1.0) * np.exp(down)) / (2.0 * j - 1.0)
        total = special.logsumexp(weight + np.log(moment), axis=0).sum()
        least = order - 1.0
        rest = math.log(least / order) - (math.log(delta) + math.log(order)) / least
        best = min(best, run["steps"] * total / least + rest)
    return best


def signs(run, dimension):
    """An attack: how many coordinates lie beyond half of a shift spread evenly over all of them.

    That is a Binomial number. A coordinate lies beyond with probability E[e^(-u m / 2)] / 2 if the record
    does not take part, and with one minus that if it does. Counting is post-processing.
    """
    move = run["clip"] / math.sqrt(dimension)
    beyond = 0.5 * math.exp(-run["k"] * math.log1p(0.5 * move * run["theta"]))
    law = stats.binom.pmf(np.arange(dimension + 1), dimension, beyond)
    law = np.where(law > 1e-250, law, 0.0)
    law /= law.sum()
    return law[::-1], law


def plrv():
    print("delta = 1e-5; k = 33000 but for the last row")
    print("| steps | rate | C / scale | dimension | one coordinate says | all say | epsilon is at least |")
    print("|---|---|---|---|---|---|---|")
    for steps, rate, ratio, dimension, k in (
        (1, 1.0, 1.0, 100, 33000.0),
        (1, 0.01, 5.0, 1000, 33000.0),
        (10, 0.1, 3.0, 1000, 33000.0),
        (10, 0.01, 5.0, 1000, 33000.0),
        (100, 0.01, 4.0, 10**4, 33000.0),
        (1250, 0.04, 33000 * 0.1 * 6.4e-5, 10**4, 33000.0),  # settings for CIFAR-10 at epsilon = 3
        (1250, 0.04, 100.002534 * 0.1 * 0.0234418978, 10**4, 100.002534),  # and for MNIST
    ):
        run = {"steps": steps, "rate": rate, "clip": 1.0, "delta": 1e-5, "k": k, "theta": ratio / k}
        step = ggdp.OutcomeProbabilities(*(tuple(law) for law in signs(run, dimension)))
        mechanism = ggdp.Composed(ggdp.PoissonSampled(step, rate) if rate < 1.0 else step, times=steps)
        found = ggdp.epsilon(mechanism, delta=run["delta"], adjacency=ggdp.Adjacency.REMOVE).lower
        said = " | ".join(f"{plrv_claim(run, many):.3g}" for many in (1, dimension))
        print(f"| {steps} | {rate:g} | {ratio:.3g} | {dimension} | {said} | {found:.4g} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("claim", choices=["rank-one", "laplace", "plrv"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    options = parser.parse_args()
    if options.claim == "rank-one":
        rank_one(options.epsilon, options.delta)
    else:
        {"laplace": laplace, "plrv": plrv}[options.claim]()


if __name__ == "__main__":
    main()
