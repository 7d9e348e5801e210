# SPDX-License-Identifier: Apache-2.0
"""One labelling of votes as a record: what may be published, and, apart from it, what may not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggdp.accounting import Bounds
from ggdp.distributions import GeneralizedGaussian
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.mechanisms import Adjacency
from ggdp.reporting.privacy_records import SEED_CAVEAT, bounds_record
from ggdp.selection import (
    THRESHOLD_NOISE_RATIO,
    ConfidentGGNMax,
    DataDependentEpsilon,
    GGNMax,
    Labelling,
    Votes,
    calibrate_confident_ggnmax,
    calibrate_ggnmax,
    hardmax_utility,
)


@dataclass(frozen=True)
class PateTarget:
    """The budget and the way to spend it; public, and fixed before the votes are seen."""

    beta: float
    epsilon: float
    delta: float
    threshold: float | None = None
    noise_ratio: float = THRESHOLD_NOISE_RATIO
    most_answers: int | None = None
    adjacency: Adjacency = Adjacency.REPLACE

    def aggregator(self, num_queries: int) -> GGNMax | ConfidentGGNMax:
        """The least noise that meets the budget."""
        if self.threshold is None:
            return calibrate_ggnmax(
                beta=self.beta,
                epsilon=self.epsilon,
                delta=self.delta,
                times=self.most_answers or num_queries,
                adjacency=self.adjacency,
            )
        return calibrate_confident_ggnmax(
            beta=self.beta,
            epsilon=self.epsilon,
            delta=self.delta,
            times=num_queries,
            threshold=self.threshold,
            most_answers=self.most_answers,
            noise_ratio=self.noise_ratio,
            adjacency=self.adjacency,
        )


@dataclass(frozen=True, eq=False)
class PateStudy:
    """A labelling and everything that is reported of it.

    Attributes:
        target: what was asked for.
        labelling: the labels, which may be published.
        num_teachers: likewise.
        achieved: certified epsilon, likewise.
        data_dependent: what it cost on these votes. Private.
        gaps: votes between the first and the second class of each query. Private.
        expected_utility: mean probability that the plurality wins. Private.
        accuracy: against the truth, where it is known. As private as the truth.
        seeded: whether the noise came from a seed, in which case nothing here may be published.
    """

    target: PateTarget
    labelling: Labelling
    num_teachers: int
    achieved: Bounds
    data_dependent: DataDependentEpsilon
    gaps: NDArray[np.int64]
    expected_utility: float
    accuracy: float | None
    seeded: bool = False

    @property
    def noises(self) -> dict[str, GeneralizedGaussian]:
        """The noise of each step, by its name."""
        aggregator = self.labelling.aggregator
        if isinstance(aggregator, ConfidentGGNMax):
            return {"votes": aggregator.noise, "threshold check": aggregator.threshold_noise}
        return {"votes": aggregator.noise} if isinstance(aggregator, GGNMax) else {}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what must not be published is under `private`, and nowhere else."""
        target, labelling = self.target, self.labelling
        return {
            "epsilon": bounds_record(self.achieved),
            "delta": target.delta,
            "method": self.achieved.method,
            "target_epsilon": target.epsilon,
            "adjacency": str(target.adjacency),
            "teachers": self.num_teachers,
            "queries": len(labelling.labels),
            "answered": labelling.num_answered,
            "abstained": labelling.num_abstained,
            "most_answers": labelling.most_answers,
            "threshold": target.threshold,
            "noise": {
                name: {"beta": noise.beta, "scale": noise.scale, "std": noise.std}
                for name, noise in self.noises.items()
            },
            "seeded": self.seeded,
            "caveats": [SEED_CAVEAT] if self.seeded else [],
            "private": {
                "data_dependent_epsilon": self.data_dependent.value,
                "caveat": self.data_dependent.caveat,
                "expected_utility": self.expected_utility,
                "accuracy": self.accuracy,
            },
        }


NUM_PROGRESS_STEPS = 4


def pate_study(
    votes: Votes,
    target: PateTarget,
    *,
    truth: NDArray[np.int64] | None = None,
    rng: Rng | None = None,
    on_progress: Callable[[str], None] = lambda step: None,
) -> PateStudy:
    """Calibrate, label, account both ways; `on_progress` hears of each step. A given `rng` is a seed."""
    on_progress("calibrating the noise")
    calibrated = target.aggregator(votes.num_queries)
    on_progress("labelling")
    labelling = calibrated.label(votes, most_answers=target.most_answers, rng=rng)
    on_progress("chances of winning")
    ranked = -np.sort(-votes.counts, axis=1)
    gaps = ranked[:, 0] - ranked[:, 1] if votes.num_classes > 1 else ranked[:, 0]
    aggregator = labelling.aggregator
    noise = aggregator.noise if isinstance(aggregator, GGNMax | ConfidentGGNMax) else None
    utility = float(np.mean(hardmax_utility(votes.counts, noise))) if noise is not None else float("nan")
    on_progress("accounting")
    accuracy = None if truth is None or labelling.num_answered == 0 else labelling.accuracy(truth)
    return PateStudy(
        target=target,
        labelling=labelling,
        num_teachers=votes.num_teachers,
        achieved=labelling.epsilon(delta=target.delta),
        data_dependent=labelling.data_dependent_epsilon(votes, delta=target.delta),
        gaps=gaps,
        expected_utility=utility,
        accuracy=accuracy,
        seeded=rng is not None,
    )
