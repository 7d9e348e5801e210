# SPDX-License-Identifier: Apache-2.0
"""A scale whose epsilon is estimated to meet a target. It guarantees nothing."""

import math
from dataclasses import dataclass
from typing import Literal

from ggdp.accounting import Estimate
from ggdp.accounting import epsilon as epsilon_of
from ggdp.calibration.calibrate import INSIDE, step_of
from ggdp.calibration.run import run_of
from ggdp.calibration.target import Target
from ggdp.errors import CannotCertifyError, EpsilonTooLargeError
from ggdp.mechanisms import AdditiveNoise, Adjacency
from ggdp.privacy_loss.dominating import NOISE_MULTIPLIER
from ggdp.search import geometric, halve

Method = Literal["scanned", "one-coordinate"]

_HALVINGS = 28  # halvings of the range of noise multipliers


@dataclass(frozen=True)
class EstimatedScale:
    """A step whose epsilon is estimated, not certified, to meet a target.

    It is a type of its own so that nothing takes it for a `Calibrated`.
    """

    step: AdditiveNoise
    rate: float
    steps: int
    delta: float
    achieved: Estimate


def estimate_scale(
    *,
    beta: float,
    epsilon: float,
    delta: float,
    rate: float = 1.0,
    steps: int = 1,
    sensitivity: float = 1.0,
    norm: float | str | None = None,
    dimension: int | float = 1,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    method: Method,
) -> EstimatedScale:
    """The smallest scale for which an estimate of epsilon meets a target. It guarantees nothing.

    The arguments are those of `calibrate_scale`, which certifies its answer, and `method`, the way to
    estimate epsilon: "scanned" or "one-coordinate", as for `ggdp.epsilon`.

    Raises:
        ValueError: an argument is out of range, or no noise multiplier that the accountant covers is the
            answer.
    """
    target = Target(epsilon, delta, adjacency)
    estimates: dict[float, EstimatedScale] = {}

    def is_met(multiplier: float) -> bool:
        scale = math.sqrt(2.0) * multiplier * sensitivity
        step = step_of(beta, scale, sensitivity, norm, dimension)
        run = run_of(step, rate, steps)
        try:
            found = epsilon_of(run, delta=target.delta, adjacency=target.adjacency, method=method)
        except (EpsilonTooLargeError, CannotCertifyError):
            return False
        estimates[multiplier] = EstimatedScale(step, rate, steps, target.delta, found)
        return found.value <= target.epsilon

    low, high = NOISE_MULTIPLIER.least * (1.0 + INSIDE), NOISE_MULTIPLIER.most * (1.0 - INSIDE)
    if not is_met(high):
        raise ValueError(
            f"{target} is not met by noise_multiplier={high:g}; take fewer steps, or a larger epsilon or "
            "delta"
        )
    smallest, _ = halve(is_met, high, low, middle=geometric, halvings=_HALVINGS)
    return estimates[smallest]
