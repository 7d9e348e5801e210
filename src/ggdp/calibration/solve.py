# SPDX-License-Identifier: Apache-2.0
"""From an axis of mechanisms to the last one that meets a target: plan cheaply, then certify."""

from collections.abc import Callable
from dataclasses import dataclass

from ggdp.accounting import Bounds
from ggdp.calibration.search import Axis, LogAxis, border
from ggdp.calibration.target import Target, Verdict
from ggdp.mechanisms import Mechanism

_RESOLUTION = 4e-7
_SINGLE_RESOLUTION = 1e-9  # one release has a closed form: questions are cheap and answers sharp

_PLAN_RESOLUTION = 1e-3

At = Callable[[float], Mechanism]


@dataclass(frozen=True)
class Solution:
    """The least private place that meets the target, and what its neighbour says.

    Attributes:
        value: at that place; None if not even the most private end meets the target.
        achieved: epsilon there; at the most private end if `value` is None, and None where it is beyond
            reach.
        sharp: the next place certifiably misses the target.
        is_last: there is no next place.
    """

    value: float | None
    achieved: Bounds | None
    sharp: bool
    is_last: bool


def resolution(steps: int) -> float:
    """Relative spacing of the grid of scales or rates; the answer is this close to the best certifiable."""
    return _SINGLE_RESOLUTION if steps == 1 else _RESOLUTION


def solve(axis: Axis, at: At, target: Target) -> Solution:
    """The largest value on an axis of falling privacy whose mechanism certifiably meets the target.

    Guarantees:
        The mechanism at `value` was asked and its certified upper bound meets the target; the one at the next
        place was asked and its upper bound does not.
    """
    verdicts: dict[int, Verdict] = {}

    def excess(place: int) -> float:
        verdicts[place] = target.judge(at(axis.value(place)))
        return verdicts[place].at_most

    start, slope = _plan(axis, at, target)
    found = border(axis, excess, start=start, slope=slope)
    sharp = found.lost is not None and verdicts[found.lost].at_least > 0.0
    if found.private is None:
        return Solution(None, verdicts[axis.least].epsilon, sharp, False)
    value = axis.value(found.private)
    achieved = target.achieved(at(value), verdicts[found.private])
    return Solution(value, achieved, sharp, found.lost is None)


def _plan(axis: Axis, at: At, target: Target) -> tuple[int | None, float]:
    """Where to start, and how steep it is there, by the saddle-point method; no plan for cheap questions."""
    low, high = axis.value(axis.least), axis.value(axis.most)
    if target.by_delta(at(low)) and target.by_delta(at(high)):
        return None, 1.0
    coarse = LogAxis(low, high, _PLAN_RESOLUTION)
    found = border(
        coarse,
        lambda place: target.planned_excess(at(coarse.value(place))),
        learn_from=3.0 * _PLAN_RESOLUTION,
    )
    return axis.place(found.log_value), found.slope
