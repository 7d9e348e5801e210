# SPDX-License-Identifier: Apache-2.0
"""From votes to published labels, and the least noise for which they fit a privacy budget.

`GGNMax` answers every query, `ConfidentGGNMax` those with a clear vote; `calibrate_ggnmax` and
`calibrate_confident_ggnmax` find their noise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.accounting import epsilon as epsilon_of
from ggdp.calibration.target import Target, solve
from ggdp.distributions import GeneralizedGaussian
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.mechanisms import Adjacency, Composed, Mechanism
from ggdp.mechanisms.release import generator_or_secure, grid_of, on_grid
from ggdp.numerics import Array
from ggdp.privacy_loss.dominating import NOISE_MULTIPLIER
from ggdp.search import LogAxis
from ggdp.selection.argmax import NoisyArgmax, NoisyThreshold, noisy_argmax
from ggdp.selection.data_dependent import Analysis, DataDependentEpsilon, data_dependent_epsilon
from ggdp.selection.votes import Votes

ABSTAINED = -1
"""The label of a query that was not answered."""

THRESHOLD_NOISE_RATIO = 3.75
"""Noise of the check over noise of the counts: 150 / 40, as Papernot et al. 2018 chose for MNIST."""

_RESOLUTION = 2e-5
"""Relative spacing of the scales tried: the noise is at most this much more than it needs to be."""


class Aggregator(Protocol):
    """Labels votes, and knows what that costs."""

    def label(self, votes: Votes, *, most_answers: int | None = None, rng: Rng | None = None) -> "Labelling":
        """Labels for the queries, in order."""
        ...

    def mechanism(self, times: int, most_answers: int) -> Mechanism:
        """What labelling `times` queries costs, as the accountant reads it."""
        ...

    def data_dependent_epsilon(
        self, votes: Votes, labelling: "Labelling", *, delta: float, analysis: Analysis
    ) -> DataDependentEpsilon:
        """What it cost on these votes; private data."""
        ...


@dataclass(frozen=True, eq=False)
class Labelling:
    """Labels that may be published, one for each query; `ABSTAINED` where there is none.

    Attributes:
        labels: a class for each query, or -1.
        aggregator: how they were made.
        most_answers: after how many answers labelling would have stopped; fixed before the votes were seen.
    """

    labels: NDArray[np.int64]
    aggregator: Aggregator
    most_answers: int

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which queries have a label."""
        return np.asarray(self.labels != ABSTAINED)

    @property
    def num_answered(self) -> int:
        """How many have one."""
        return int(self.answered.sum())

    @property
    def num_abstained(self) -> int:
        """How many have none."""
        return len(self.labels) - self.num_answered

    @property
    def mechanism(self) -> Mechanism:
        """What could have been released, whatever the votes: all checks, and `most_answers` answers."""
        return self.aggregator.mechanism(len(self.labels), self.most_answers)

    def epsilon(self, *, delta: float) -> Bounds:
        """Certified epsilon of the labels, whatever the votes; this one may be published."""
        return epsilon_of(self.mechanism, delta=delta)

    def data_dependent_epsilon(
        self, votes: Votes, *, delta: float, analysis: Analysis = Analysis.EXACT
    ) -> DataDependentEpsilon:
        """What the labels cost on these votes; it is private data."""
        return self.aggregator.data_dependent_epsilon(votes, self, delta=delta, analysis=analysis)

    def accuracy(self, truth: ArrayLike) -> float:
        """The part of the answered queries whose label is the true one; NaN if none was answered."""
        true_labels = np.asarray(truth)
        if true_labels.shape != self.labels.shape:
            raise ValueError(
                f"truth must hold a label for each of {len(self.labels)} queries, got {true_labels.shape}"
            )
        right = (true_labels == self.labels)[self.answered]
        return float(np.mean(right)) if len(right) else float("nan")


@dataclass(frozen=True)
class GGNMax:
    """A way to label queries by votes: noise is added to the counts, and the class with the largest one wins.

    `calibrate_ggnmax` makes one with the least noise for a budget.

    Args:
        noise: the noise on every count.
        adjacency: which datasets are neighbours; REPLACE if left out.

    >>> from ggdp import Gaussian
    >>> labelling = GGNMax(Gaussian(std=0.5)).label(Votes([[9, 1], [0, 10]]), rng=np.random.default_rng(1))
    >>> labelling.labels.tolist(), labelling.num_abstained
    ([0, 1], 0)
    """

    noise: GeneralizedGaussian
    adjacency: Adjacency = Adjacency.REPLACE

    def __post_init__(self) -> None:
        arguments.instance("noise", self.noise, GeneralizedGaussian)
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))

    def label(self, votes: Votes, *, most_answers: int | None = None, rng: Rng | None = None) -> Labelling:
        """Label the queries in order, and none after `most_answers` of them."""
        most = _most_answers(most_answers, votes)
        labels = np.full(votes.num_queries, ABSTAINED, dtype=np.int64)
        labels[:most] = noisy_argmax(votes.counts[:most], self.noise, rng=rng)
        return Labelling(labels, self, most)

    def mechanism(self, times: int, most_answers: int) -> Mechanism:
        """`most_answers` argmax releases."""
        return NoisyArgmax(self.noise, self.adjacency).as_mechanism(most_answers)

    def data_dependent_epsilon(
        self, votes: Votes, labelling: Labelling, *, delta: float, analysis: Analysis
    ) -> DataDependentEpsilon:
        """What the answers cost on these votes; private data."""
        return data_dependent_epsilon(
            votes.counts,
            self.noise,
            delta=delta,
            answered=labelling.answered,
            adjacency=self.adjacency,
            analysis=analysis,
        )


@dataclass(frozen=True)
class ConfidentGGNMax:
    """`GGNMax` that answers only where the largest count, with noise of its own, reaches a threshold.

    Other queries get no label (`ABSTAINED`). The check is charged for every query, answered or not.
    `calibrate_confident_ggnmax` makes one with the least noise for a budget.

    >>> from ggdp import Gaussian
    >>> aggregator = ConfidentGGNMax(Gaussian(std=0.5), threshold=8, threshold_noise=Gaussian(std=0.5))
    >>> aggregator.label(Votes([[10, 0], [5, 5]]), rng=np.random.default_rng(1)).labels.tolist()
    [0, -1]
    """

    noise: GeneralizedGaussian
    threshold: float
    threshold_noise: GeneralizedGaussian
    adjacency: Adjacency = Adjacency.REPLACE

    def __post_init__(self) -> None:
        arguments.instance("noise", self.noise, GeneralizedGaussian)
        arguments.instance("threshold_noise", self.threshold_noise, GeneralizedGaussian)
        object.__setattr__(self, "threshold", arguments.real("threshold", self.threshold))
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))

    def label(self, votes: Votes, *, most_answers: int | None = None, rng: Rng | None = None) -> Labelling:
        """Label the queries in order; after `most_answers` answers the rest is neither checked nor shown."""
        most = _most_answers(most_answers, votes)
        rng = generator_or_secure(rng)
        largest, step = votes.counts.max(axis=1).astype(np.float64), grid_of(self.threshold_noise)
        noisy_largest = on_grid(self.threshold_noise, largest, rng, step) * step
        passed = np.flatnonzero(noisy_largest >= self.threshold)[:most]
        labels = np.full(votes.num_queries, ABSTAINED, dtype=np.int64)
        if len(passed):
            labels[passed] = noisy_argmax(votes.counts[passed], self.noise, rng=rng)
        return Labelling(labels, self, most)

    def pass_probability(self, votes: Votes) -> Array:
        """The probability that each query passes the check. Private: it depends on the votes."""
        return self.threshold_noise.sf(self.threshold - votes.counts.max(axis=1))

    def mechanism(self, times: int, most_answers: int) -> Mechanism:
        """A check for every query and `most_answers` argmax releases, in whatever order they come."""
        checks = NoisyThreshold(self.threshold_noise).as_mechanism(times)
        answers = NoisyArgmax(self.noise, self.adjacency).as_mechanism(most_answers)
        return Composed([(checks, 1), (answers, 1)])

    def data_dependent_epsilon(
        self, votes: Votes, labelling: Labelling, *, delta: float, analysis: Analysis
    ) -> DataDependentEpsilon:
        """What checks and answers cost on these votes; private data."""
        return data_dependent_epsilon(
            votes.counts,
            self.noise,
            delta=delta,
            threshold=self.threshold,
            threshold_noise=self.threshold_noise,
            answered=labelling.answered,
            adjacency=self.adjacency,
            analysis=analysis,
        )


def calibrate_ggnmax(
    *, beta: float, epsilon: float, delta: float, times: int, adjacency: Adjacency = Adjacency.REPLACE
) -> GGNMax:
    """Return a `GGNMax` with the least noise for which `times` labels together are (epsilon, delta)-private.

    Args:
        beta: exponent of the noise.
        epsilon: the budget's epsilon, for all labels together.
        delta: the budget's delta.
        times: how many queries are answered.
        adjacency: by default REPLACE: a replaced record changes one teacher and so one vote. Where numbers
            are calibrated, the default is ADD_REMOVE.

    Guarantees:
        1. The certified upper bound of epsilon for `times` answers is at most `epsilon`.

    >>> aggregator = calibrate_ggnmax(beta=2.0, epsilon=2.0, delta=1e-5, times=100)
    >>> round(aggregator.noise.std, 2)
    28.2
    """
    times = arguments.whole("times", times)

    def at(scale: float) -> GGNMax:
        return GGNMax(GeneralizedGaussian(beta, scale), adjacency)

    scale = _least_scale(lambda scale: at(scale).mechanism(times, times), 1.0, epsilon, delta)
    return at(scale)


def calibrate_confident_ggnmax(
    *,
    beta: float,
    epsilon: float,
    delta: float,
    times: int,
    threshold: float,
    most_answers: int | None = None,
    noise_ratio: float = THRESHOLD_NOISE_RATIO,
    adjacency: Adjacency = Adjacency.REPLACE,
) -> ConfidentGGNMax:
    """Return a `ConfidentGGNMax` with the least noise for which checks and answers fit a budget.

    Args:
        beta: exponent of both noises.
        epsilon: the budget.
        delta: the budget.
        times: how many queries are checked.
        threshold: what the largest count must reach, with noise.
        most_answers: after how many answers labelling stops, decided in advance; all queries if left out.
        noise_ratio: scale of the check's noise over that of the counts.
        adjacency: as for `calibrate_ggnmax`.

    Guarantees:
        1. The certified upper bound for `times` checks and `most_answers` answers is at most `epsilon`.
    """
    times = arguments.whole("times", times)
    answers = times if most_answers is None else arguments.whole("most_answers", most_answers, most=times)
    ratio = arguments.real("noise_ratio", noise_ratio, least=0.01, most=100.0)

    def at(scale: float) -> ConfidentGGNMax:
        law = GeneralizedGaussian(beta, scale)
        return ConfidentGGNMax(law, threshold, replace(law, scale=ratio * scale), adjacency)

    scale = _least_scale(lambda scale: at(scale).mechanism(times, answers), ratio, epsilon, delta)
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


def _most_answers(most_answers: int | None, votes: Votes) -> int:
    arguments.instance("votes", votes, Votes)
    if most_answers is None:
        return votes.num_queries
    hint = "there are no more queries"
    return arguments.whole("most_answers", most_answers, most=votes.num_queries, hint=hint)
