# SPDX-License-Identifier: Apache-2.0
"""Several mechanisms run one after another on the same data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, Union

from ggdp import arguments
from ggdp.mechanisms.additive_noise import AdditiveNoise
from ggdp.mechanisms.custom import CustomMechanism
from ggdp.mechanisms.poisson_sampled import PoissonSampled

Step = AdditiveNoise | PoissonSampled | CustomMechanism
Part = tuple[Union[Step, "Composed"], int]


@dataclass(frozen=True, init=False)
class Composed:
    """`Composed(step, times=5000)`, or `Composed([(step, 5000), (other, 3)])`.

    `parts` is flat: nested compositions are multiplied out and equal steps are counted together, so that ten
    million equal steps cost one entry and two descriptions of the same composition compare equal.

    >>> from ggdp import Laplace
    >>> step = AdditiveNoise(Laplace(scale=2.0))
    >>> Composed([(step, 2), (Composed(step, times=3), 4)]) == Composed(step, times=14)
    True
    """

    parts: tuple[tuple[Step, int], ...]

    def __init__(self, mechanism: "Step | Composed | Iterable[Part]", times: int = 1) -> None:
        times = arguments.whole("times", times)
        counts: dict[Step, int] = {}
        for step, count in _listed(mechanism):
            inner = step.parts if isinstance(step, Composed) else ((step, 1),)
            for leaf, leaf_count in inner:
                counts[leaf] = counts.get(leaf, 0) + leaf_count * count * times
        if not counts:
            raise ValueError("mechanism must hold at least one step, got an empty composition")
        object.__setattr__(self, "parts", tuple(counts.items()))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; see `ggdp.mechanisms.serialization`."""
        from ggdp.mechanisms import serialization

        return serialization.to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The mechanism that `to_dict` described."""
        from ggdp.mechanisms import serialization

        return serialization.from_dict_as(cls, data)


def _listed(mechanism: "Step | Composed | Iterable[Part]") -> list[Part]:
    """The pairs (mechanism, times) that the caller meant, each checked."""
    kinds = (AdditiveNoise, PoissonSampled, Composed, CustomMechanism)
    if isinstance(mechanism, kinds):
        return [(mechanism, 1)]
    arguments.instance("mechanism", mechanism, Iterable, hint="or a list of pairs (mechanism, times)")
    listed = []
    for part in mechanism:
        if not (isinstance(part, (tuple, list)) and len(part) == 2):
            raise ValueError(f"each part of a composition must be a pair (mechanism, times), got {part!r}")
        step, count = part
        arguments.instance("mechanism", step, kinds)
        listed.append((step, arguments.whole("times", count)))
    return listed
