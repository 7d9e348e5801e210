# SPDX-License-Identifier: Apache-2.0
"""Calibration to an estimate: for those who know that what they get is not a guarantee."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ggdp.accounting import Estimate
from ggdp.accounting import epsilon as epsilon_of
from ggdp.calibration.calibrated import run_of
from ggdp.calibration.target import Target
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise
from ggdp.privacy_loss.dominating import NOISE_MULTIPLIER

Method = Literal["scanned", "one-coordinate"]
_HALVINGS = 28


@dataclass(frozen=True)
class EstimatedScale:
    """A step whose epsilon is estimated, not certified, to meet a target; never to be taken for a
    `Calibrated`."""

    step: AdditiveNoise
    rate: float
    steps: int
    delta: float
    achieved: Estimate


def estimated_scale(
    target: Target,
    beta: float,
    noisy: Callable[[GeneralizedGaussian], AdditiveNoise],
    rate: float,
    steps: int,
    method: Method,
    allow_estimate: bool,
) -> EstimatedScale:
    """The smallest scale for which an estimate of epsilon meets a target.

    Raises:
        ValueError: without allow_estimate=True; or no noise multiplier that the accountant covers is the
        answer.
    """
    if allow_estimate is not True:
        raise ValueError(
            f"allow_estimate must be True to calibrate to an estimate, got {allow_estimate!r}: it guarantees "
            "nothing; leave method out for a certified answer"
        )
    sensitivity = noisy(GeneralizedGaussian(beta, 1.0)).sensitivity

    def step_at(multiplier: float) -> AdditiveNoise:
        return noisy(GeneralizedGaussian(beta, math.sqrt(2.0) * multiplier * sensitivity))

    def estimate_at(multiplier: float) -> Estimate | None:
        run = run_of(step_at(multiplier), rate, steps)
        try:
            return epsilon_of(run, delta=target.delta, adjacency=target.adjacency, method=method)
        except ValueError:
            return None  # too much to be computed, so too much

    low, high = NOISE_MULTIPLIER.least * (1.0 + 1e-9), NOISE_MULTIPLIER.most * (1.0 - 1e-9)
    best = estimate_at(high)
    if best is None or best.value > target.epsilon:
        raise ValueError(
            f"{target} is not met by noise_multiplier={high:g}; take fewer steps, or a larger epsilon or "
            "delta"
        )
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        found = estimate_at(middle)
        if found is not None and found.value <= target.epsilon:
            high, best = middle, found
        else:
            low = middle
    return EstimatedScale(step_at(high), rate, steps, target.delta, best)
