# SPDX-License-Identifier: Apache-2.0
"""Calibration of a family of mechanisms that the user describes: a small parameter that meets a target."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.accounting import epsilon as epsilon_of
from ggdp.calibration.target import Target
from ggdp.errors import CannotCertifyError
from ggdp.mechanisms import Adjacency, Mechanism


@dataclass(frozen=True)
class CalibratedFamily:
    """A member of a family that meets a target.

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
    """A small parameter, between two ends, for which a mechanism is (epsilon, delta)-private.

    Args:
        family: parameter -> mechanism, of any kind; a larger parameter should mean more privacy, as a scale
            does.
        epsilon: the target, in [0, 2000].
        delta: the target, in [1e-100, 0.5].
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
    best = _met(family(high), target)
    if best is None:
        raise ValueError(
            f"{target} is not met by the parameter {high:g}, the larger end of between; give a larger one, "
            "or a larger epsilon or delta"
        )
    at_low = _met(family(low), target)
    if at_low is not None:
        return CalibratedFamily(low, family(low), target.delta, at_low)
    while high > low * (1.0 + relative):
        middle = math.sqrt(low * high)
        found = _met(family(middle), target)
        if found is None:
            low = middle
        else:
            high, best = middle, found
    return CalibratedFamily(high, family(high), target.delta, best)


def _met(mechanism: Mechanism, target: Target) -> Bounds | None:
    """Epsilon of a mechanism that certifiably meets the target; None if it does not."""
    try:
        found = epsilon_of(mechanism, delta=target.delta, adjacency=target.adjacency)
    except CannotCertifyError:
        return None
    except ValueError as refusal:
        if "to be computed" in str(refusal):  # an epsilon beyond reach is beyond the target
            return None
        raise
    return found if found.upper <= target.epsilon else None
