# SPDX-License-Identifier: Apache-2.0
"""The least noise for which labelling a number of queries fits a privacy budget."""

import math
from collections.abc import Callable
from dataclasses import replace

from ggdp import arguments
from ggdp.calibration.search import LogAxis
from ggdp.calibration.solve import solve
from ggdp.calibration.target import Target
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import Adjacency, Mechanism
from ggdp.privacy_loss.dominating import NOISE_MULTIPLIER
from ggdp.selection.aggregation import ConfidentGGNMax, GGNMax

THRESHOLD_NOISE_RATIO = 3.75
"""Noise of the check over noise of the counts: 150 / 40, as Papernot et al. 2018 chose for MNIST."""

_RESOLUTION = 2e-5
"""Relative spacing of the scales tried: the noise is at most this much more than it needs to be."""


def calibrate_ggnmax(
    *, beta: float, epsilon: float, delta: float, queries: int, adjacency: Adjacency = Adjacency.REPLACE
) -> GGNMax:
    """GGNMax with the least noise for which so many labels are (epsilon, delta)-private.

    Guarantees:
        1. The certified upper bound of epsilon for `queries` answers is at most `epsilon`.

    >>> aggregator = calibrate_ggnmax(beta=2.0, epsilon=2.0, delta=1e-5, queries=100)
    >>> round(aggregator.noise.std, 2)
    28.2
    """
    queries = arguments.whole("queries", queries)

    def at(scale: float) -> GGNMax:
        return GGNMax(GeneralizedGaussian(beta, scale), adjacency)

    scale = _least_scale(lambda scale: at(scale).mechanism(queries, queries), 1.0, epsilon, delta)
    return at(scale)


def calibrate_confident_ggnmax(
    *,
    beta: float,
    epsilon: float,
    delta: float,
    queries: int,
    threshold: float,
    most_answers: int | None = None,
    noise_ratio: float = THRESHOLD_NOISE_RATIO,
    adjacency: Adjacency = Adjacency.REPLACE,
) -> ConfidentGGNMax:
    """Confident-GGNMax with the least noise for which its checks and answers are (epsilon, delta)-private.

    Args:
        beta: exponent of both noises, in [1, 8].
        epsilon: the budget.
        delta: the budget.
        queries: how many are checked.
        threshold: what the largest count must reach, with noise.
        most_answers: after how many answers labelling stops, decided in advance; all queries if left out.
        noise_ratio: scale of the check's noise over that of the counts.
        adjacency: REPLACE if a voter may change its vote.

    Guarantees:
        1. The certified upper bound for `queries` checks and `most_answers` answers is at most `epsilon`.
    """
    queries = arguments.whole("queries", queries)
    answers = queries if most_answers is None else arguments.whole("most_answers", most_answers, most=queries)
    ratio = arguments.real("noise_ratio", noise_ratio, least=0.01, most=100.0)

    def at(scale: float) -> ConfidentGGNMax:
        law = GeneralizedGaussian(beta, scale)
        return ConfidentGGNMax(law, threshold, replace(law, scale=ratio * scale), adjacency)

    scale = _least_scale(lambda scale: at(scale).mechanism(queries, answers), ratio, epsilon, delta)
    return at(scale)


def _least_scale(at: Callable[[float], Mechanism], ratio: float, epsilon: float, delta: float) -> float:
    """The least scale whose mechanism meets the budget; both noises stay in the accountant's range."""
    target = Target(epsilon, delta)
    least = NOISE_MULTIPLIER.least / min(ratio, 1.0) * (1.0 + 1e-9)
    most = NOISE_MULTIPLIER.most / max(ratio, 1.0) * (1.0 - 1e-9)

    def at_precision(precision: float) -> Mechanism:
        return at(math.sqrt(2.0) / precision)

    found = solve(LogAxis(1.0 / most, 1.0 / least, _RESOLUTION), at_precision, target)
    if found.value is None:
        raise ValueError(
            f"{target} cannot be met for so many queries by noise multipliers up to {most:g}; "
            "ask fewer queries, allow fewer answers, or take a larger epsilon or delta"
        )
    if found.is_last:
        raise ValueError(
            f"{target} is more than so few queries can use: noise multiplier {least:g}, the least covered, "
            "meets it; ask more queries, or take a smaller epsilon or delta"
        )
    return math.sqrt(2.0) / found.value
