# SPDX-License-Identifier: Apache-2.0
"""Any mechanism as steps: what is released, at which rate records are sampled, and how often.

Which datasets are neighbours is resolved here and nowhere else:

- ADD_REMOVE asks about two directions, REMOVE and ADD. Each is composed on its own and the worse answer taken
  at the end: composing the worse of the two at every step is not valid in general (Lebeda, Regehr, Kamath,
  Steinke 2024).
- REPLACE of a record that always takes part moves a query twice as far as removing it does, so the step's
  sensitivity is doubled. A known shift is taken as it is given: the user has named it for these neighbours.
- REPLACE of a sampled record compares the two laws with one record and with the other; the pair
  `ShiftPair(up=m, down=-m)` dominates (docs/adjacency.md).
- A custom release is asked for the two laws of a replacement, and is then a step without sampling.
- Batches other than Poisson samples become steps by `accounting.batches`; docs/batches.md has the proofs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Protocol, runtime_checkable

from ggdp import arguments
from ggdp.accounting.engines.atoms import Enclosed
from ggdp.errors import NoDominatingPairError
from ggdp.mechanisms import (
    AdditiveNoise,
    Adjacency,
    Batched,
    Composed,
    CustomMechanism,
    Mechanism,
    PoissonSampled,
)
from ggdp.privacy_loss.cells import Cells
from ggdp.privacy_loss.custom import LossCdf, Replaceable, cells_of, sketch_of
from ggdp.privacy_loss.dominating import (
    MOST_TIMES,
    Parts,
    WorstShift,
    check_covered,
    dominating_pairs,
    rotated,
    worst_shift,
)
from ggdp.privacy_loss.shift_pair import ShiftPair


@runtime_checkable
class Vote(Protocol):
    """Something that costs what a mechanism costs, such as the winner of a noisy vote.

    Where it has an attribute `adjacency`, it says itself which datasets are neighbours.
    """

    def as_mechanism(self, times: int = 1) -> Mechanism:
        """The same privacy loss as a mechanism, to be asked about with the adjacency ADD_REMOVE."""
        ...


@dataclass(frozen=True)
class NoiseStep:
    """Generalized Gaussian noise on a number or a vector."""

    noise: AdditiveNoise
    rate: float
    times: int
    seen: Adjacency | None = None
    """A direction that is fixed for this step; the direction that is asked for is then ignored."""

    @property
    def worst_shift(self) -> WorstShift | None:
        """The shift that dominates, where one is known."""
        return worst_shift(self.noise, self.rate)

    def pairs(self, direction: Adjacency) -> Parts:
        """The pairs that dominate one release in one direction.

        Raises:
            NoDominatingPairError: none are known.
        """
        found = dominating_pairs(self.noise, self.rate, self.seen or direction)
        if found is None:
            raise no_single_shift(self)
        return found


def no_single_shift(step: NoiseStep) -> NoDominatingPairError:
    """The error for a vector whose worst shift is not known, where one is needed."""
    return NoDominatingPairError(
        f"no single shift is known to be the worst for norm={step.noise.norm} and "
        f"dimension={step.noise.dimension}{' under Poisson sampling' if step.rate < 1.0 else ''} "
        f"with noise of beta={step.noise.noise.beta:g}, which composition with a custom mechanism "
        "needs; take norm=1, or beta=2, or account for the two apart"
    )


@dataclass(frozen=True)
class CellStep:
    """A release whose two output laws are known by their masses on cells (`privacy_loss.cells`)."""

    release: CustomMechanism
    rate: float
    times: int
    seen: Adjacency | None = None
    """A direction that is fixed for this step; the direction that is asked for is then ignored."""

    def enclosed(self, direction: Adjacency, *, sketched: bool = False) -> Enclosed:
        """The discrete pairs above and below the release in one direction.

        With `sketched` they are approximate, which may be much faster, and prove nothing.
        """
        direction = self.seen or direction
        if isinstance(self.release, LossCdf) and (direction is not Adjacency.REMOVE or self.rate < 1.0):
            raise ValueError(
                "adjacency must be 'remove' and rate 1 for a loss known by its distribution function with "
                f"the record alone, got {direction.value!r} and {self.rate:g}; give both laws as LossSurvival"
            )
        cells = (sketch_of if sketched else _cells)(self.release).sampled(self.rate)
        cells = cells.reversed if direction is Adjacency.ADD else cells
        return Enclosed(cells.above(), cells.below(), self.times)


class EnclosedStep(Protocol):
    """A release, or several, between two discrete pairs."""

    @property
    def times(self) -> int:
        """How often."""
        ...

    def enclosed(self, direction: Adjacency) -> Enclosed:
        """The discrete pairs above and below it in one direction."""
        ...


@dataclass(frozen=True)
class Steps:
    """A mechanism as steps, for a given adjacency.

    Attributes:
        noisy: steps with Generalized Gaussian noise.
        custom: steps known by discrete pairs around them.
        directions: which of REMOVE, ADD and REPLACE are computed; the largest cost counts.
        below: other steps that cost no more than the mechanism, if these here may cost more than it does.
        charge: the probability, on either of two neighbours, that the mechanism does not do what the steps
            say; it adds (1 + e^epsilon) times itself to delta.
        also: other steps that the mechanism costs as much as, up to their own `below` and `charge`; both
            bounds hold.
    """

    noisy: tuple[NoiseStep, ...]
    custom: tuple[EnclosedStep, ...]
    directions: tuple[Adjacency, ...]
    below: tuple["Steps", ...] = ()
    charge: float = 0.0
    also: "Steps | None" = None

    @property
    def have_worst_shifts(self) -> bool:
        """Whether a dominating pair is known for every step that is not custom."""
        return all(step.worst_shift is not None for step in self.noisy)

    def pairs(self) -> list[Parts]:
        """The pairs of all steps that are not custom, one composition for each direction that differs.

        Raises:
            NoDominatingPairError: none are known for some step.
        """
        return list(dict.fromkeys(self.pairs_in(direction) for direction in self.directions))

    def pairs_in(self, direction: Adjacency) -> Parts:
        """The pairs of all steps that are not custom, in one direction."""
        counts: dict[ShiftPair, int] = {}
        for step in self.noisy:
            for pair, count in step.pairs(direction):
                counts[pair] = counts.get(pair, 0) + count * step.times
        return rotated(tuple(counts.items()))

    def with_noise(self, change: Callable[[NoiseStep], AdditiveNoise]) -> "Steps":
        """The same steps with other noise."""
        return replace(self, noisy=tuple(replace(step, noise=change(step)) for step in self.noisy))

    def pure_epsilon(self) -> Fraction | None:
        """The exact epsilon at delta = 0 of unsampled Laplace releases of numbers; None for other mechanisms.

        It is the sum of sensitivity / scale. Doubles are rational numbers, so the sum is computed with
        fractions. For a smaller epsilon delta is positive.
        """
        total = Fraction(0)
        for step in self.noisy:
            noise = step.noise
            if noise.noise.beta != 1.0 or noise.dimension != 1 or noise.shift or step.rate < 1.0:
                return None
            total += step.times * Fraction(noise.sensitivity) / Fraction(noise.noise.scale)
        return None if self.custom or self.below or self.charge else total


def steps_of(mechanism: Mechanism | Vote, adjacency: Adjacency | None = None) -> Steps:
    """The steps of a mechanism, each checked to lie within what the accountant covers.

    Args:
        mechanism: what is released; or a vote, which names its own neighbours.
        adjacency: which datasets are neighbours; ADD_REMOVE, or those of the vote, if left out.

    Raises:
        ValueError: the mechanism, or the adjacency for it, is not covered.
    """
    if isinstance(mechanism, Vote):
        own = getattr(mechanism, "adjacency", None)
        if own is not None and adjacency is not None and Adjacency(adjacency) is not own:
            raise ValueError(
                f"adjacency must be left out for {type(mechanism).__name__}, which has its own, "
                f"{own.value!r}, got {Adjacency(adjacency).value!r}; build it with adjacency=... instead"
            )
        mechanism, adjacency = mechanism.as_mechanism(), Adjacency.ADD_REMOVE
    if adjacency is None:
        adjacency = Adjacency.ADD_REMOVE
    arguments.one_of("adjacency", adjacency, [kind.value for kind in Adjacency])
    adjacency = Adjacency(adjacency)
    composed = mechanism if isinstance(mechanism, Composed) else Composed(mechanism)
    arguments.whole("times", sum(times for _, times in composed.parts), most=MOST_TIMES)
    noisy: list[NoiseStep] = []
    custom: list[EnclosedStep] = []
    batched: list[tuple[Batched, int]] = []
    for step, times in composed.parts:
        if isinstance(step, Batched):
            batched.append((step, times))
            continue
        release, rate = (step.mechanism, step.rate) if isinstance(step, PoissonSampled) else (step, 1.0)
        if isinstance(release, AdditiveNoise):
            check_covered(release, rate, adjacency)
            noisy.append(NoiseStep(resolved(release, rate, adjacency), rate, times))
        else:
            custom.append(resolved_cells(release, rate, times, adjacency))
    if adjacency is Adjacency.ADD_REMOVE:
        directions: tuple[Adjacency, ...] = (Adjacency.REMOVE, Adjacency.ADD)
    else:
        directions = (adjacency,)
    plain = Steps(tuple(noisy), tuple(custom), directions)
    if not batched:
        return plain
    from ggdp.accounting.batches import with_batches  # which needs the steps of plain releases

    return with_batches(plain, batched, adjacency)


def resolved(release: AdditiveNoise, rate: float, adjacency: Adjacency) -> AdditiveNoise:
    """The release with the sensitivity that belongs to the adjacency: doubled for an unsampled REPLACE."""
    if adjacency is not Adjacency.REPLACE or rate < 1.0 or release.shift is not None:
        return release
    return replace(release, sensitivity=2.0 * release.sensitivity)


def resolved_cells(release: CustomMechanism, rate: float, times: int, adjacency: Adjacency) -> CellStep:
    """A custom release as a step whose two laws belong to the adjacency."""
    if adjacency is not Adjacency.REPLACE:
        return CellStep(release, rate, times)
    if not isinstance(release, Replaceable):
        raise ValueError(
            "adjacency must be 'add-remove', 'add' or 'remove' for a custom mechanism known by its laws with "
            "and without a record, got 'replace'; describe the two laws of the replacement, and ask for "
            "'add-remove'"
        )
    return CellStep(release.replaced(rate), 1.0, times)


@lru_cache(maxsize=16)
def _cells(release: CustomMechanism) -> Cells:
    found = cells_of(release)
    arguments.instance("cells_of(mechanism)", found, Cells)
    return found
