# SPDX-License-Identifier: Apache-2.0
"""How often noise of equal privacy is far out, for a range of exponents and thresholds, as one record."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ggdp.calibration import Calibrated, calibrate_scale
from ggdp.calibration.outliers import LeastOutliers, least_outliers, log_tail_weight
from ggdp.mechanisms import Adjacency
from ggdp.reporting.privacy_records import bounds_record

_TOLERANCE = 4e-3  # in beta; the picture shows two decimals


@dataclass(frozen=True)
class OutlierTarget:
    """The privacy that every noise of the study has, and the run it is for."""

    epsilon: float
    delta: float
    rate: float = 1.0
    steps: int = 1
    sensitivity: float = 1.0
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def noise(self, beta: float) -> Calibrated:
        """The smallest noise of this exponent."""
        return calibrate_scale(
            beta=beta,
            epsilon=self.epsilon,
            delta=self.delta,
            rate=self.rate,
            steps=self.steps,
            sensitivity=self.sensitivity,
            adjacency=self.adjacency,
        )


@dataclass(frozen=True)
class OutlierStudy:
    """Tail weights by threshold and exponent, and the best exponent of each threshold."""

    target: OutlierTarget
    noises: tuple[Calibrated, ...]
    best: tuple[LeastOutliers, ...]

    def log_weights(self, threshold: float) -> list[float]:
        """log P(|noise| > threshold), one for each noise."""
        return [log_tail_weight(noise, threshold) for noise in self.noises]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; weights also as logarithms, which do not underflow."""
        target = self.target
        return {
            "target_epsilon": target.epsilon,
            "delta": target.delta,
            "rate": target.rate,
            "steps": target.steps,
            "sensitivity": target.sensitivity,
            "adjacency": str(target.adjacency),
            "results": [self._of_threshold(best) for best in self.best],
        }

    def _of_threshold(self, best: LeastOutliers) -> dict[str, Any]:
        weights = zip(self.noises, self.log_weights(best.threshold), strict=True)
        return {
            "threshold": best.threshold,
            "best": _weight_record(best.noise, best.log_tail_weight),
            "weights": [_weight_record(noise, log_weight) for noise, log_weight in weights],
        }


def outlier_study(
    target: OutlierTarget,
    thresholds: Sequence[float],
    betas: tuple[float, float],
    num_betas: int,
    *,
    on_progress: Callable[[str], None] = lambda step: None,
) -> OutlierStudy:
    """Calibrate evenly spaced exponents, weigh their tails, and find the best exponent of each threshold.

    A noise is calibrated once, whatever the number of thresholds. `on_progress` hears of each of the evenly
    spaced exponents and of each threshold.
    """
    calibrated = functools.cache(target.noise)

    def noise_at(beta: float) -> Calibrated:
        return calibrated(round(beta, 12))  # one place on two grids may differ in its last bit

    noises, best = [], []
    for beta in np.linspace(*betas, num_betas):
        on_progress(f"calibrating beta = {beta:.3g}")
        noises.append(noise_at(float(beta)))
    for threshold in thresholds:
        on_progress(f"best beta of threshold {threshold:g}")
        best.append(least_outliers(noise_at, threshold, betas, _TOLERANCE))
    return OutlierStudy(target, tuple(noises), tuple(best))


def _weight_record(noise: Calibrated, log_weight: float) -> dict[str, Any]:
    return {
        "beta": noise.beta,
        "scale": noise.scale,
        "std": noise.noise.std,
        "epsilon": bounds_record(noise.achieved),
        "tail_weight": math.exp(log_weight),
        "log_tail_weight": log_weight,
    }
