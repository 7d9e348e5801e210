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
    """Which two datasets count as neighbours, that is, what kind of change in the data epsilon is about.

    `ADD_REMOVE`, the default, means that one record is added or removed; its epsilon is the larger of those
    of `ADD` and `REMOVE`. `REMOVE` is about one direction only: outputs with the record are at most e^epsilon
    times as likely as without it, up to delta. `ADD` is the other direction. `REPLACE` means that one record
    changes its value, which moves a query by up to twice its sensitivity.

    >>> from ggdp import Laplace, epsilon
    >>> epsilon(AdditiveNoise(Laplace(scale=2.0)), delta=0, adjacency=Adjacency.REPLACE).upper
    1.0
    """

    ADD_REMOVE = "add-remove"
    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


Step = AdditiveNoise | PoissonSampled | Batched | CustomMechanism
Part = tuple[Union[Step, "Composed"], int]


@dataclass(frozen=True, init=False)
class Composed(PlainData):
    """Several releases on the same data, described as one mechanism.

    Write `Composed(step, times=5000)` for one mechanism that is run many times, and
    `Composed([(step, 5000), (other, 3)])` for different ones. The order of the releases does not matter.

    Args:
        mechanism: the mechanism that is run, or a list of pairs (mechanism, times).
        times: how often all of it is run, at least 1.

    Attributes:
        parts: pairs (mechanism, times). A composition inside a composition is multiplied out and equal
            mechanisms are counted together, so that equal compositions compare equal.

    Raises:
        ValueError: the list is empty, or holds something that is not a pair (mechanism, times).

    >>> from ggdp import Laplace, epsilon
    >>> step = AdditiveNoise(Laplace(scale=2.0))
    >>> epsilon(Composed(step, times=3), delta=0).upper
    1.5
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
            f"or a list of pairs (mechanism, times), got {type(mechanism).__name__}; noise becomes a "
            "mechanism by AdditiveNoise(noise, sensitivity=...), a vote by vote.as_mechanism()"
        )
    listed = []
    for part in mechanism:
        if not (isinstance(part, (tuple, list)) and len(part) == 2):
            raise ValueError(
                f"each part of a composition must be a pair (mechanism, times), got {part!r}; "
                "write (mechanism, 1) for one release"
            )
        step, count = part
        arguments.instance("mechanism", step, kinds)
        listed.append((step, arguments.whole("times", count)))
    return listed
