# SPDX-License-Identifier: Apache-2.0
"""The smallest noise that meets a target."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal, overload

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.calibration.calibrated import Calibrated, run_of
from ggdp.calibration.estimated import EstimatedScale, Method, estimated_scale
from ggdp.calibration.search import LogAxis
from ggdp.calibration.solve import resolution, solve
from ggdp.calibration.target import Target
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise, Adjacency, Mechanism
from ggdp.mechanisms.composed import Part
from ggdp.privacy_loss.dominating import NOISE_MULTIPLIER


@overload
def calibrate_scale(
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
    alongside: Sequence[Part] = (),
    method: None = None,
    allow_estimate: Literal[False] = False,
) -> Calibrated: ...
@overload
def calibrate_scale(
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
    alongside: Sequence[Part] = (),
    method: Method | None = None,
    allow_estimate: bool,
) -> Calibrated | EstimatedScale: ...
def calibrate_scale(
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
    alongside: Sequence[Part] = (),
    method: Method | None = None,
    allow_estimate: bool = False,
) -> Calibrated | EstimatedScale:
    """The smallest scale of Generalized Gaussian noise for which a run is (epsilon, delta)-private.

    Args:
        beta: exponent of the noise, in [1, 32].
        epsilon: the target, in [0, 2000].
        delta: the target, in [1e-100, 0.5].
        rate: Poisson sampling probability of each step, in [1e-7, 1].
        steps: number of steps, at most 10^7.
        sensitivity: most one record moves a step's value.
        norm: in which the sensitivity of a vector is measured; beta if left out.
        dimension: of a step's value, up to 10^9 or infinity.
        adjacency: which datasets are neighbours.
        alongside: other releases on the same data that share the target, as pairs (mechanism, times): a
            normalisation before training, say. Their noise is what it is; the scale found leaves room for
            them.
        method: "scanned" or "one-coordinate", which estimate epsilon without a guarantee.
        allow_estimate: True to calibrate to such an estimate all the same, which is no `Calibrated`.

    Guarantees:
        1. The certified upper bound of epsilon at `delta`, `achieved.upper`, is at most `epsilon`.
        2. A scale smaller by 4e-7 relative was tried, and no bound certifies that it meets the target; where
           `sharp` is true, a bound certifies that it does not.

    Raises:
        ValueError: an argument is out of range, or no noise multiplier that the accountant covers is the
            answer.

    >>> found = calibrate_scale(beta=1.5, epsilon=2.0, delta=1e-6, rate=0.01, steps=5000)
    >>> round(found.scale, 5), found.achieved.upper <= 2.0, found.sharp
    (2.01607, True, True)
    """
    target = Target(epsilon, delta, adjacency)
    if method is not None:
        if alongside:
            raise ValueError(
                f"alongside must be left out where an estimate is calibrated to, got {alongside!r}"
            )
        step = partial(AdditiveNoise, sensitivity=sensitivity, norm=norm, dimension=dimension)
        return estimated_scale(target, beta, step, rate, steps, method, allow_estimate)
    sensitivity = arguments.real("sensitivity", sensitivity, above=0.0)
    rate = arguments.real("rate", rate, above=0.0, most=1.0)
    steps = arguments.whole("steps", steps)

    def step_at(precision: float) -> AdditiveNoise:
        scale = math.sqrt(2.0) * sensitivity / precision
        return AdditiveNoise(GeneralizedGaussian(beta, scale), sensitivity, norm, dimension)

    def at(precision: float) -> Mechanism:
        return run_of(step_at(precision), rate, steps, tuple(alongside))

    # Along 1 / noise_multiplier privacy falls. A little inside the range, so that rounding does not leave it.
    axis = LogAxis(
        (1.0 + 1e-9) / NOISE_MULTIPLIER.most, (1.0 - 1e-9) / NOISE_MULTIPLIER.least, resolution(steps)
    )
    target.check(at(1.0))
    found = solve(axis, at, target)
    if found.value is None or found.achieved is None:
        raise ValueError(_too_strict(target, found.achieved))
    if found.is_last:
        raise ValueError(_too_loose(target, found.achieved))
    return Calibrated(
        step=step_at(found.value),
        rate=rate,
        steps=steps,
        delta=target.delta,
        achieved=found.achieved,
        sharp=found.sharp,
        alongside=tuple(alongside),
    )


_COVERED = f"the noise multipliers covered, [{NOISE_MULTIPLIER.least:g}, {NOISE_MULTIPLIER.most:g}]"


def _too_strict(target: Target, at_most_noise: Bounds | None) -> str:
    cost = f" (epsilon there is {at_most_noise.estimate:g})" if at_most_noise else ""
    return (
        f"{target} cannot be met by {_COVERED}, not even by the largest{cost}; "
        "take fewer steps, a smaller rate, or a larger epsilon or delta"
    )


def _too_loose(target: Target, at_least_noise: Bounds) -> str:
    return (
        f"{target} is met by all of {_COVERED}, so that the smallest scale is not known; ask for a smaller "
        f"epsilon or delta, or take noise_multiplier = {NOISE_MULTIPLIER.least:g}, whose epsilon is "
        f"{at_least_noise.upper:g}"
    )
