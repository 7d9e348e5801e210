# SPDX-License-Identifier: Apache-2.0
"""Calibration of any family of mechanisms: a small parameter that meets a privacy target."""

from collections.abc import Callable
from dataclasses import dataclass

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.calibration.target import Target
from ggdp.mechanisms import Adjacency, Mechanism
from ggdp.search import geometric, halve


@dataclass(frozen=True)
class CalibratedFamily:
    """A member of a family of mechanisms that meets a target.

    Attributes:
        value: its parameter.
        mechanism: the member itself.
        delta: the target's.
        achieved: certified bounds of epsilon at `delta`; `achieved.upper` is at most the target.
    """

    value: float
    mechanism: Mechanism
    delta: float
    achieved: Bounds


def calibrate_family(
    family: Callable[[float], Mechanism],
    *,
    epsilon: float,
    delta: float,
    between: tuple[float, float],
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    relative: float = 1e-4,
) -> CalibratedFamily:
    """Find a small parameter of a family of mechanisms, between two ends, that meets (epsilon, delta).

    Args:
        family: parameter -> mechanism, of any kind; a larger parameter should mean more privacy, as a scale
            does.
        epsilon: the target, in [0, 2000].
        delta: the target: in [1e-100, 1), or 0 for pure privacy, which Laplace noise has.
        between: (low, high), positive; the answer is one of them or lies between.
        adjacency: which datasets are neighbours.
        relative: how close to the smallest such parameter to come.

    Guarantees:
        1. `achieved.upper` is at most `epsilon`, whether or not larger parameters mean more privacy.
        2. If they do, a parameter smaller by the share `relative` is not certified to meet the target.

    Raises:
        ValueError: an argument is out of range, or the larger end does not meet the target.

    >>> from ggdp import OutcomeProbabilities
    >>> def response(flip):  # randomized response that lies with probability flip
    ...     return OutcomeProbabilities((1.0 - flip, flip), (flip, 1.0 - flip))
    >>> found = calibrate_family(response, epsilon=1.0, delta=1e-9, between=(0.01, 0.5))
    >>> round(found.value, 3)  # 1 / (1 + e)
    0.269
    """
    target = Target(epsilon, delta, adjacency)
    low, high = (arguments.real("between", end, above=0.0) for end in between)
    if not low < high:
        raise ValueError(f"between must be an interval (low, high), got {between!r}")
    relative = arguments.real("relative", relative, least=1e-12, most=0.5)
    met: dict[float, CalibratedFamily] = {}

    def is_met(value: float) -> bool:
        mechanism = family(value)
        achieved = target.met_by(mechanism)
        if achieved is not None:
            met[value] = CalibratedFamily(value, mechanism, target.delta, achieved)
        return achieved is not None

    if not is_met(high):
        raise ValueError(
            f"{target} is not met by the parameter {high:g}, the larger end of between; give a larger one, "
            "or a larger epsilon or delta"
        )
    if is_met(low):
        return met[low]
    smallest, _ = halve(is_met, high, low, middle=geometric, relative=relative)
    return met[smallest]
