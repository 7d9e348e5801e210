# SPDX-License-Identifier: Apache-2.0
"""Which exponent finds the true winner most often, at equal privacy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ggdp import arguments
from ggdp.calibration import calibrate_scale
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import Adjacency
from ggdp.selection.calibrated_aggregator import calibrate_ggnmax
from ggdp.selection.win_probability import hardmax_utility, histograms_from

BETAS = tuple(float(beta) for beta in np.linspace(1.0, 4.0, 31))


@dataclass(frozen=True)
class BestBeta:
    """Mean hardmax utility of equally private noises. Private: it depends on the counts.

    Attributes:
        noises: the least noise of each exponent that meets the target.
        utilities: for each noise, the mean probability that a class with the largest count wins.
    """

    noises: tuple[GeneralizedGaussian, ...]
    utilities: tuple[float, ...]

    @property
    def best(self) -> GeneralizedGaussian:
        """The noise with the largest utility; of several, the one with the smallest exponent."""
        return self.noises[int(np.argmax(self.utilities))]

    @property
    def beta(self) -> float:
        """Its exponent."""
        return self.best.beta

    @property
    def utility(self) -> float:
        """Its utility."""
        return max(self.utilities)


def best_beta(
    histograms: ArrayLike,
    epsilon: float,
    delta: float,
    *,
    betas: Sequence[float] = BETAS,
    queries: int = 1,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> BestBeta:
    """Compare exponents on histograms [queries, classes], each with the least noise that meets the target.

    Args:
        histograms: counts; one histogram or many.
        epsilon: of `queries` noisy votes together.
        delta: likewise.
        betas: exponents to compare, each in [1, 8].
        queries: how many votes share the budget.
        adjacency: REPLACE if a voter may change its vote, else one count moves by one.

    Guarantees:
        1. Utilities are exact to 1e-10: the comparison has no sampling error.

    >>> found = best_beta([[60, 40]], epsilon=1.0, delta=1e-5, betas=(1.5, 2.0, 4.0), queries=100)
    >>> found.beta, round(found.utility, 3)
    (1.5, 0.65)
    """
    counts = histograms_from("histograms", histograms)
    if len(betas) == 0:
        raise ValueError("betas must hold at least one exponent, got none")
    noises = tuple(calibrated_noise(beta, epsilon, delta, queries, adjacency) for beta in betas)
    return BestBeta(noises, tuple(float(np.mean(hardmax_utility(counts, noise))) for noise in noises))


def calibrated_noise(
    beta: float, epsilon: float, delta: float, queries: int, adjacency: Adjacency
) -> GeneralizedGaussian:
    """The least noise of an exponent for which so many noisy votes are private."""
    queries = arguments.whole("queries", queries)
    if Adjacency(adjacency) is Adjacency.REPLACE:
        return calibrate_ggnmax(beta=beta, epsilon=epsilon, delta=delta, queries=queries).noise
    return calibrate_scale(beta=beta, epsilon=epsilon, delta=delta, steps=queries).noise
