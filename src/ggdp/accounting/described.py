# SPDX-License-Identifier: Apache-2.0
"""From mechanisms that users describe to what each direction's adversary sees, enclosed by discrete pairs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ggdp import arguments
from ggdp.accounting.tilt import Parts
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, Mechanism, PoissonSampled
from ggdp.mechanisms.custom import CustomMechanism
from ggdp.numerics import UNIT_ROUNDOFF
from ggdp.privacy_loss.cells import Atoms, Cells
from ggdp.privacy_loss.custom import Replaceable, cells_of
from ggdp.privacy_loss.dominating import MOST_TIMES, directions
from ggdp.privacy_loss.loss_cdf import LossCdf


@dataclass(frozen=True)
class Part:
    """One described release, enclosed, and how often it happens."""

    above: Atoms
    below: Atoms
    times: int


@dataclass(frozen=True)
class Direction:
    """Everything one adversary sees: described releases and known ones."""

    described: tuple[Part, ...]
    known: Parts

    @property
    def releases(self) -> int:
        """Their number."""
        return sum(part.times for part in self.described) + sum(times for _, times in self.known)

    @property
    def supremum(self) -> float:
        """A bound on the sum of all finite losses, not below zero; zero if a release has no finite loss."""
        if any(not len(part.above.loss) for part in self.described):
            return 0.0
        losses = [part.times * part.above.supremum for part in self.described]
        total = math.fsum([*losses, *(times * pair.supremum for pair, times in self.known)])
        return max(total * (1.0 + 8.0 * UNIT_ROUNDOFF), 0.0)

    @property
    def reached(self) -> float:
        """A loss, not below zero, that the sum of all losses certainly exceeds or reaches at times."""
        if any(not len(part.below.loss) for part in self.described):
            return 0.0
        losses = [part.times * part.below.supremum for part in self.described]
        total = math.fsum([*losses, *(times * pair.supremum for pair, times in self.known)])
        return max(total * (1.0 - 32.0 * UNIT_ROUNDOFF), 0.0) if math.isfinite(total) else 0.0

    @cached_property
    def infinite(self) -> tuple[float, float]:
        """Bounds on the probability that any release has an infinite loss."""
        low = _infinite([(part.below, part.times) for part in self.described], -1.0)
        high = _infinite([(part.above, part.times) for part in self.described], 1.0)
        return low, max(low, high)


def is_described(mechanism: Mechanism) -> bool:
    """Whether any release is one that users describe."""
    if isinstance(mechanism, Composed):
        return any(is_described(step) for step, _ in mechanism.parts)
    if isinstance(mechanism, PoissonSampled):
        return isinstance(mechanism.mechanism, CustomMechanism)
    return isinstance(mechanism, CustomMechanism)


def described_directions(mechanism: Mechanism, adjacency: Adjacency) -> list[Direction]:
    """The compositions whose largest delta is the mechanism's.

    Raises:
        ValueError: the mechanism, or the adjacency for it, is not covered.
    """
    composed = mechanism if isinstance(mechanism, Composed) else Composed(mechanism)
    arguments.whole("times", sum(times for _, times in composed.parts), most=MOST_TIMES)
    wanted = [Adjacency.REMOVE, Adjacency.ADD] if adjacency is Adjacency.ADD_REMOVE else [adjacency]
    others = [(step, times) for step, times in composed.parts if not is_described(step)]
    found = []
    for direction in wanted:
        described = [
            _enclosed(step, direction, times) for step, times in composed.parts if is_described(step)
        ]
        known = directions(Composed(others), direction)[0] if others else ()
        found.append(Direction(tuple(described), known))
    if len(found) == 2 and not others and all(map(_same, found[0].described, found[1].described)):
        return found[:1]  # each pair is its own mirror image, as noise on a grid is: both answers are one
    return found


def _same(one: Part, other: Part) -> bool:
    """Whether two enclosures agree to the last bit."""
    return all(
        mine.infinite == theirs.infinite
        and np.array_equal(mine.loss, theirs.loss)
        and np.array_equal(mine.mass, theirs.mass)
        for mine, theirs in ((one.above, other.above), (one.below, other.below))
    )


@lru_cache(maxsize=16)
def _cells(mechanism: CustomMechanism) -> Cells:
    found = cells_of(mechanism)
    arguments.instance("cells_of(mechanism)", found, Cells)
    return found


def _enclosed(
    step: AdditiveNoise | CustomMechanism | PoissonSampled, direction: Adjacency, times: int
) -> Part:
    inner, rate = (step.mechanism, step.rate) if isinstance(step, PoissonSampled) else (step, 1.0)
    assert isinstance(inner, CustomMechanism)
    if direction is Adjacency.REPLACE:
        if not isinstance(inner, Replaceable):
            raise ValueError(
                "adjacency must be 'add-remove', 'add' or 'remove' for a mechanism described with and "
                "without a record, got 'replace'; describe the two laws of the "
                "replacement, and ask for 'add-remove'"
            )
        inner, rate = inner.replaced(rate), 1.0
    if isinstance(inner, LossCdf) and (direction is not Adjacency.REMOVE or rate < 1.0):
        raise ValueError(
            "adjacency must be 'remove' and rate 1 for a loss known by its distribution function with the "
            f"record alone, got {direction.value!r} and {rate:g}; give both laws as LossSurvival"
        )
    cells = _cells(inner).sampled(rate)
    cells = cells.reversed if direction is Adjacency.ADD else cells
    return Part(cells.above(), cells.below(), times)


def _infinite(parts: Sequence[tuple[Atoms, int]], side: float) -> float:
    """Composed mass of infinite losses, prod (finite + infinite) - prod finite, rounded to a side."""
    if not any(atoms.infinite for atoms, _ in parts):
        return 0.0
    log_finite, growth, count = 0.0, 0.0, 0
    for atoms, times in parts:
        finite = float(atoms.mass.sum())
        if finite <= 0.0:
            return atoms.infinite if side < 0.0 else 1.0
        log_finite += times * math.log(finite)
        growth += times * math.log1p(atoms.infinite / finite)
        count += times
    slip = 1.0 + side * 64.0 * UNIT_ROUNDOFF * (count + 1.0)  # sums of masses are good to some 20 ulps
    return min(math.exp(min(log_finite, 600.0)) * math.expm1(min(growth, 600.0)) * slip, 1.0)
