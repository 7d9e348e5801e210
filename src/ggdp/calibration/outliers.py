# SPDX-License-Identifier: Apache-2.0
"""How likely noise of a given privacy is to be far out, and the exponent that makes it least likely.

w(beta, epsilon, delta, t) = P(|X| > t) for the smallest noise X of exponent beta that is (epsilon,
delta)-private (the paper's appendix on outliers). Everything here is in logarithms, so that a weight of
1e-1000 can be told from one of 1e-900.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ggdp import arguments
from ggdp.calibration.calibrate import Calibrated, calibrate_scale
from ggdp.mechanisms import Adjacency
from ggdp.privacy_loss.dominating import BETA

_NUM_SCANNED = 13
_STUDY_TOLERANCE = 4e-3  # in beta; the picture of a study shows two decimals
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True)
class OutlierTarget:
    """The privacy that every noise compared has, and the run it is for."""

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
class LeastOutliers:
    """The exponent whose noise, at equal privacy, is least often beyond a threshold.

    Attributes:
        beta: that exponent, to 1e-3.
        log_tail_weight: log P(|X| > threshold) of its noise.
        threshold: the one asked about.
        noise: the calibrated noise.
    """

    beta: float
    log_tail_weight: float
    threshold: float
    noise: Calibrated

    @property
    def tail_weight(self) -> float:
        """P(|X| > threshold); 0 where it is smaller than any double."""
        return math.exp(self.log_tail_weight)


def tail_weight_at(
    beta: float,
    epsilon: float,
    delta: float,
    threshold: float,
    *,
    rate: float = 1.0,
    steps: int = 1,
    sensitivity: float = 1.0,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> float:
    """P(|X| > threshold) for the smallest noise X of exponent beta that is (epsilon, delta)-private.

    The arguments are those of `calibrate_scale`, and the threshold is in the unit of the sensitivity.

    >>> round(tail_weight_at(1.0, epsilon=1.5, delta=1e-5, threshold=2.0), 5)
    0.04979
    """
    log_weight = log_tail_weight_at(
        beta, epsilon, delta, threshold, rate=rate, steps=steps, sensitivity=sensitivity, adjacency=adjacency
    )
    return math.exp(log_weight)


def log_tail_weight_at(
    beta: float,
    epsilon: float,
    delta: float,
    threshold: float,
    *,
    rate: float = 1.0,
    steps: int = 1,
    sensitivity: float = 1.0,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> float:
    """The logarithm of `tail_weight_at`; does not underflow."""
    threshold = arguments.real("threshold", threshold, least=0.0)
    target = OutlierTarget(epsilon, delta, rate, steps, sensitivity, adjacency)
    return log_tail_weight(target.noise(beta), threshold)


def log_tail_weight(noise: Calibrated, threshold: float) -> float:
    """log P(|X| > threshold) of a calibrated noise: both sides weigh the same."""
    return float(noise.noise.logsf(threshold)) + math.log(2.0)


def best_beta_for_outliers(
    epsilon: float,
    delta: float,
    threshold: float,
    *,
    rate: float = 1.0,
    steps: int = 1,
    sensitivity: float = 1.0,
    betas: tuple[float, float] = (1.0, 4.0),
    tolerance: float = 1e-3,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> LeastOutliers:
    """The beta in an interval that minimises `tail_weight_at`.

    A scan of 13 exponents finds the valley, golden section its bottom, to `tolerance` in beta. The logarithm
    of the weight need not have one valley only; the scan guards against the shallow ones that it can see.

    Args:
        epsilon: the target, as in `calibrate_scale`.
        delta: the target.
        threshold: beyond which noise counts as an outlier, > 0, in the unit of the sensitivity.
        rate: Poisson sampling probability of each step.
        steps: number of steps.
        sensitivity: most one record moves a step's value.
        betas: the interval, inside [1, 32].
        tolerance: of the answer.
        adjacency: which datasets are neighbours.

    >>> best = best_beta_for_outliers(1.5, 1e-5, 1.0)
    >>> best.beta
    1.0
    """
    target = OutlierTarget(epsilon, delta, rate, steps, sensitivity, adjacency)
    return least_outliers(target.noise, threshold, betas, tolerance)


def least_outliers(
    noise_at: Callable[[float], Calibrated], threshold: float, betas: tuple[float, float], tolerance: float
) -> LeastOutliers:
    """`best_beta_for_outliers` for noises that the caller calibrates, and may keep for other thresholds."""
    threshold = arguments.real("threshold", threshold, above=0.0)
    tolerance = arguments.real("tolerance", tolerance, least=1e-9)
    low, high = (arguments.real("betas", end, least=BETA.least, most=BETA.most) for end in betas)
    if low > high:
        raise ValueError(f"betas must be (low, high) with low <= high, got {betas!r}")
    beta = lowest(lambda beta: log_tail_weight(noise_at(beta), threshold), low, high, tolerance)
    noise = noise_at(beta)
    return LeastOutliers(beta, log_tail_weight(noise, threshold), threshold, noise)


def lowest(function: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """Where a function is least on [low, high]: the best of a scan, improved by golden section."""
    scan = [float(point) for point in np.unique(np.linspace(low, high, _NUM_SCANNED))]
    values = [function(point) for point in scan]
    best = values.index(min(values))
    left, right = scan[max(best - 1, 0)], scan[min(best + 1, len(scan) - 1)]
    seen = {scan[best]: values[best]}
    while right - left > tolerance:
        inner, outer = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
        for point in (inner, outer):
            if point not in seen:
                seen[point] = function(point)
        left, right = (left, outer) if seen[inner] <= seen[outer] else (inner, right)
    return min(seen, key=lambda point: seen[point])


@dataclass(frozen=True)
class OutlierStudy:
    """Noises of equal privacy, and for each threshold the exponent with the least tail weight."""

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

    A noise is calibrated once, whatever the number of thresholds. `on_progress` is called with a short text
    for each of the evenly spaced exponents and for each threshold.
    """
    calibrated = functools.cache(target.noise)

    def noise_at(beta: float) -> Calibrated:
        return calibrated(round(beta, 12))  # the same exponent on two grids may differ in its last bit

    noises, best = [], []
    for beta in np.linspace(*betas, num_betas):
        on_progress(f"calibrating beta = {beta:.3g}")
        noises.append(noise_at(float(beta)))
    for threshold in thresholds:
        on_progress(f"best beta of threshold {threshold:g}")
        best.append(least_outliers(noise_at, threshold, betas, _STUDY_TOLERANCE))
    return OutlierStudy(target, tuple(noises), tuple(best))


def _weight_record(noise: Calibrated, log_weight: float) -> dict[str, Any]:
    achieved = noise.achieved  # finite, because it meets a target
    return {
        "beta": noise.beta,
        "scale": noise.scale,
        "std": noise.noise.std,
        "epsilon": {"lower": achieved.lower, "estimate": achieved.estimate, "upper": achieved.upper},
        "tail_weight": math.exp(log_weight),
        "log_tail_weight": log_weight,
    }
