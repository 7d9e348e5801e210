# SPDX-License-Identifier: Apache-2.0
"""Several mechanisms run one after another on the same data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Union

from ggdp import arguments
from ggdp.mechanisms.additive_noise import AdditiveNoise
from ggdp.mechanisms.poisson_sampled import PoissonSampled

Step = AdditiveNoise | PoissonSampled
Part = tuple[Union[Step, "Composed"], int]


@dataclass(frozen=True, init=False)
class Composed:
    """`Composed(step, times=5000)`, or `Composed([(step, 5000), (other, 3)])`.

    `parts` is flat: nested compositions are multiplied out and equal steps are counted together, so that ten
    million equal steps cost one entry and two descriptions of the same composition compare equal.
    """

    parts: tuple[tuple[Step, int], ...]

    def __init__(self, mechanism: "Step | Composed | Iterable[Part]", times: int = 1) -> None:
        times = arguments.whole("times", times)
        listed: Iterable[Part]
        if isinstance(mechanism, (AdditiveNoise, PoissonSampled, Composed)):
            listed = [(mechanism, 1)]
        else:
            listed = mechanism
        counts: dict[Step, int] = {}
        for step, count in listed:
            arguments.whole("times", count)
            inner = step.parts if isinstance(step, Composed) else ((step, 1),)
            for leaf, leaf_count in inner:
                counts[leaf] = counts.get(leaf, 0) + leaf_count * count * times
        if not counts:
            raise ValueError("mechanism must hold at least one step, got an empty composition")
        object.__setattr__(self, "parts", tuple(counts.items()))
