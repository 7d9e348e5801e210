# SPDX-License-Identifier: Apache-2.0
"""How mechanisms are put together: which datasets are neighbours, and composition."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Union

from ggdp import arguments
from ggdp.mechanisms.additive_noise import AdditiveNoise
from ggdp.mechanisms.batches import Batched, PoissonSampled
from ggdp.mechanisms.custom import CustomMechanism, PlainData


class Adjacency(StrEnum):
    """The neighbouring relation a guarantee speaks about.

    `ADD_REMOVE` is the worse of `ADD` and `REMOVE`, each composed on its own. In `REMOVE` the adversary tests
    the output with the record against the output without it; in `ADD` the other way round. `REPLACE` lets one
    record change its value, which moves a query by up to twice its add-remove sensitivity.
    """

    ADD_REMOVE = "add-remove"
    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


Step = AdditiveNoise | PoissonSampled | Batched | CustomMechanism
Part = tuple[Union[Step, "Composed"], int]


@dataclass(frozen=True, init=False)
class Composed(PlainData):
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


def _listed(mechanism: "Step | Composed | Iterable[Part]") -> list[Part]:
    """The pairs (mechanism, times) that the caller meant, each checked."""
    kinds = (AdditiveNoise, PoissonSampled, Batched, Composed, CustomMechanism)
    if isinstance(mechanism, kinds):
        return [(mechanism, 1)]
    if not isinstance(mechanism, Iterable):
        raise ValueError(
            "mechanism must be AdditiveNoise, PoissonSampled or other batches, Composed, a CustomMechanism, "
            f"or a list of pairs (mechanism, times), got {type(mechanism).__name__}; noise becomes a mechanism by "
            "AdditiveNoise(noise, sensitivity=...), a vote by vote.as_mechanism()"
        )
    listed = []
    for part in mechanism:
        if not (isinstance(part, (tuple, list)) and len(part) == 2):
            raise ValueError(f"each part of a composition must be a pair (mechanism, times), got {part!r}")
        step, count = part
        arguments.instance("mechanism", step, kinds)
        listed.append((step, arguments.whole("times", count)))
    return listed
