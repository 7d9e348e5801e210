# SPDX-License-Identifier: Apache-2.0
"""Any mechanism as steps: what is released, at which rate records are sampled, and how often.

Which datasets are neighbours is resolved here and nowhere else:

- ADD_REMOVE asks about two directions, REMOVE and ADD. Each is composed on its own and the worse answer taken
  at the end: composing the worse of the two at every step is not valid in general (Lebeda, Regehr, Kamath,
  Steinke 2024).
- REPLACE of a record that always takes part moves a query twice as far as removing it does, so the step's
  sensitivity is doubled. A known shift is what it is, for whichever neighbours are meant.
- REPLACE of a sampled record compares the two laws with one record and with the other; the pair
  `ShiftPair(up=m, down=-m)` dominates (docs/adjacency.md).
- A custom release is asked for the two laws of a replacement, and is then a step without sampling.
- Batches other than Poisson samples become steps by `accounting.batches`; docs/batches.md has the proofs.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from scipy.special import gammaln

from ggdp import arguments
from ggdp.accounting.engines.atoms import Enclosed
from ggdp.errors import NoDominatingPairError
from ggdp.mechanisms import (
    AdditiveNoise,
    Adjacency,
    Batched,
    Composed,
    CustomMechanism,
    FixedSizeSampled,
    Mechanism,
    PoissonSampled,
    TruncatedPoisson,
)
from ggdp.numerics import UNIT_ROUNDOFF
from ggdp.privacy_loss.cells import Atoms, Cells
from ggdp.privacy_loss.curves import curve_of, either_way
from ggdp.privacy_loss.custom import LossCdf, Replaceable, cells_of
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

_FINENESS = 0.004  # of losses that a curve is known at, relative to their distance from loss 0
_TERMS = 20_000  # of a binomial tail
_DEEP = 250.0  # log of one over the probability of noise that is not followed


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
    """The direction it is seen from, whichever is asked for."""

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
            raise NoDominatingPairError(
                f"no single shift is known to be the worst for norm={self.noise.norm} and "
                f"dimension={self.noise.dimension}{' under Poisson sampling' if self.rate < 1.0 else ''} "
                f"with noise of beta={self.noise.noise.beta:g}, which composition with a custom mechanism "
                "needs; take norm=1, or beta=2, or account for the two apart"
            )
        return found


@dataclass(frozen=True)
class CellStep:
    """A release whose two output laws are known by their masses on cells (`privacy_loss.cells`)."""

    release: CustomMechanism
    rate: float
    times: int
    seen: Adjacency | None = None
    """The direction it is seen from, whichever is asked for."""

    def enclosed(self, direction: Adjacency) -> Enclosed:
        """The discrete pairs above and below the release in one direction."""
        direction = self.seen or direction
        if isinstance(self.release, LossCdf) and (direction is not Adjacency.REMOVE or self.rate < 1.0):
            raise ValueError(
                "adjacency must be 'remove' and rate 1 for a loss known by its distribution function with "
                f"the record alone, got {direction.value!r} and {self.rate:g}; give both laws as LossSurvival"
            )
        cells = _cells(self.release).sampled(self.rate)
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
    """A mechanism whose neighbours are resolved: steps, and the directions an adversary may look from.

    Attributes:
        noisy: steps with Generalized Gaussian noise.
        custom: steps known by discrete pairs around them.
        directions: those an adversary may look from.
        below: where the steps only bound the mechanism from above, others that bound it from below.
        charge: the probability, on either of two neighbours, that the mechanism does not do what the steps
            say; it adds (1 + e^epsilon) times itself to delta.
    """

    noisy: tuple[NoiseStep, ...]
    custom: tuple[EnclosedStep, ...]
    directions: tuple[Adjacency, ...]
    below: tuple["Steps", ...] = ()
    charge: float = 0.0

    @property
    def have_worst_shifts(self) -> bool:
        """Whether a dominating pair is known for every step that is not custom."""
        return all(step.worst_shift is not None for step in self.noisy)

    def pairs(self) -> list[Parts]:
        """The pairs of all steps that are not custom, one composition for each direction that differs.

        Raises:
            NoDominatingPairError: of a step none are known.
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
        """The epsilon of unsampled Laplace releases of numbers at delta = 0, exactly; None for any other
        mechanism.

        Such releases are private at the sum of sensitivity / scale to the last bit: one unit in the last
        place below, delta is positive. Doubles are rational numbers, so the sum is one of fractions.
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
    batched: list[_Batches] = []
    for step, times in composed.parts:
        if isinstance(step, Batched):
            batched.append(_batches(step, times, adjacency))
            continue
        release, rate = (step.mechanism, step.rate) if isinstance(step, PoissonSampled) else (step, 1.0)
        if isinstance(release, AdditiveNoise):
            check_covered(release, rate, adjacency)
            noisy.append(NoiseStep(_resolved(release, rate, adjacency), rate, times))
        else:
            custom.append(_resolved_cells(release, rate, times, adjacency))
    if adjacency is Adjacency.ADD_REMOVE:
        directions: tuple[Adjacency, ...] = (Adjacency.REMOVE, Adjacency.ADD)
    else:
        directions = (adjacency,)
    if not batched:
        return Steps(tuple(noisy), tuple(custom), directions)
    noisy += [step for found in batched for step in found.noisy]
    custom += [step for found in batched for step in found.custom]
    above = Steps(
        tuple(noisy), tuple(custom), directions, charge=math.fsum(found.charge for found in batched)
    )
    return replace(above, below=_below(above, batched))


def _below(above: Steps, batched: list["_Batches"]) -> tuple[Steps, ...]:
    """One composition for each choice of what bounds the batches from below; none where all are exact."""
    if all(found.below is None for found in batched):
        return ()
    apart = {id(step) for found in batched for step in (*found.noisy, *found.custom)}
    noisy = tuple(step for step in above.noisy if id(step) not in apart)
    custom = tuple(step for step in above.custom if id(step) not in apart)
    options = [found.below or ((found.noisy, found.custom),) for found in batched]
    compositions = []
    for index in range(max(map(len, options))):
        chosen = [option[min(index, len(option) - 1)] for option in options]
        compositions.append(
            Steps(
                noisy + tuple(step for steps, _ in chosen for step in steps),
                custom + tuple(step for _, steps in chosen for step in steps),
                above.directions,
            )
        )
    return tuple(compositions)


# --- batches other than Poisson samples: docs/batches.md has the proofs

_Choice = tuple[tuple[NoiseStep, ...], tuple[EnclosedStep, ...]]


@dataclass(frozen=True)
class _Batches:
    """Steps that bound one batched mechanism from above, and those that bound it from below.

    Attributes:
        noisy: the noisy steps above.
        custom: the others above.
        below: choices of steps below; None where the steps above are exact.
        charge: as in `Steps`.
    """

    noisy: tuple[NoiseStep, ...] = ()
    custom: tuple[EnclosedStep, ...] = ()
    below: tuple[_Choice, ...] | None = None
    charge: float = 0.0


@functools.singledispatch
def _batches(step: Batched, times: int, adjacency: Adjacency) -> _Batches:
    raise ValueError(
        f"mechanism must be batches with an accountant, got {type(step).__name__}; FixedSizeSampled, "
        "TruncatedPoisson, RandomAllocation and Shuffled have one"
    )


@_batches.register
def _(step: TruncatedPoisson, times: int, adjacency: Adjacency) -> _Batches:
    plain = steps_of(Composed(PoissonSampled(step.mechanism, step.rate), times=times), adjacency)
    records = step.population + (adjacency is not Adjacency.REPLACE)
    return _Batches(
        plain.noisy, plain.custom, None, times * binomial_tail(records, step.rate, step.largest_batch)
    )


def binomial_tail(count: int, rate: float, most: int) -> float:
    """An upper bound of the probability that of `count` independent events of probability `rate` more than
    `most` happen: the terms one by one, and beyond the last a geometric series."""
    if most >= count:
        return 0.0
    if rate == 1.0 or most < rate * count:
        return 1.0
    k = np.arange(most + 1, min(count, most + _TERMS) + 1, dtype=float)
    sizes = [gammaln(count + 1.0), gammaln(k + 1.0), gammaln(count - k + 1.0)]
    log_term = sizes[0] - sizes[1] - sizes[2] + k * math.log(rate) + (count - k) * math.log1p(-rate)
    slip = 64.0 * UNIT_ROUNDOFF * (sizes[0] + 1.0 + count * abs(math.log(rate)))  # every term is that good
    ratio = (count - k[-1]) / (k[-1] + 1.0) * rate / (1.0 - rate)
    rest = ratio / (1.0 - ratio) * math.exp(log_term[-1]) if ratio < 1.0 else math.inf
    return min((float(np.exp(log_term).sum()) + rest) * math.exp(min(slip + 1e-9, 1.0)) + 1e-300, 1.0)


@_batches.register
def _(step: FixedSizeSampled, times: int, adjacency: Adjacency) -> _Batches:
    if step.replacement:
        return _with_replacement(step, times, adjacency)
    replaced = _replacement(step.mechanism, step.rate, times, "FixedSizeSampled")
    if adjacency is not Adjacency.REPLACE:
        if step.sample_size == step.population:
            raise ValueError(
                f"sample_size must be less than population, {step.population}, where neighbours have one "
                f"record less, got {step.sample_size}: they could not fill the batch; ask for the adjacency "
                "'replace'"
            )
        return _one(replaced)
    if step.sample_size == step.population:
        return _one(replaced)
    directions = (Adjacency.REMOVE, Adjacency.ADD)
    below = tuple(_choice(replace(replaced, seen=direction)) for direction in directions)
    if isinstance(replaced, NoiseStep) and isinstance(step.mechanism, AdditiveNoise):
        below += (_choice(NoiseStep(step.mechanism, step.rate, times, Adjacency.REPLACE)),)
    return _Batches(custom=(EitherWayStep(replaced),), below=below)


def _one(step: NoiseStep | CellStep) -> _Batches:
    return _Batches(*_choice(step))


def _choice(step: "NoiseStep | EnclosedStep") -> _Choice:
    return ((step,), ()) if isinstance(step, NoiseStep) else ((), (step,))


def _replacement(
    release: AdditiveNoise | CustomMechanism, rate: float, times: int, kind: str
) -> NoiseStep | CellStep:
    """One record in place of another with probability `rate`: the pair ((1 - rate) Q + rate P, Q), with P and
    Q the two laws of a replacement without sampling."""
    if not isinstance(release, AdditiveNoise):
        return CellStep(_resolved_cells(release, 1.0, times, Adjacency.REPLACE).release, rate, times)
    if release.shift is not None:
        raise ValueError(
            f"mechanism of {kind} must be given by its sensitivity, got a known shift: how far two records "
            "are apart is not known; give norm and dimension in place of shift"
        )
    twice = _resolved(release, 1.0, Adjacency.REPLACE)
    check_covered(twice, rate, Adjacency.REMOVE)
    return NoiseStep(twice, rate, times)


@dataclass(frozen=True)
class EitherWayStep:
    """The smallest pair that dominates a sampled replacement in both orders (`curves.either_way`)."""

    step: NoiseStep | CellStep

    @property
    def times(self) -> int:
        """How often."""
        return self.step.times

    def enclosed(self, direction: Adjacency) -> Enclosed:
        """The pair as discrete ones; nothing is said from below."""
        if isinstance(self.step, CellStep):
            above = self.step.enclosed(Adjacency.REMOVE).above
        else:
            above = _atoms_above(_single_pair(self.step, Adjacency.REMOVE))
        found = either_way(above)
        return Enclosed(found, found, self.times)


@lru_cache(maxsize=16)
def _atoms_above(pair: ShiftPair) -> Atoms:
    """The loss of a pair above a sampled one, from loss 0 on."""
    scale = math.log1p(pair.rate) / 64.0
    top = min(pair.supremum, float(pair.loss(np.array(pair.up + _DEEP ** (1.0 / pair.beta)))))
    count = math.asinh(top / scale) / _FINENESS
    loss = scale * np.sinh(np.arange(math.ceil(count)) * _FINENESS)
    return curve_of(pair, np.append(loss[loss < top], top)).above()


def _single_pair(step: NoiseStep, direction: Adjacency) -> ShiftPair:
    """The one pair that dominates a step.

    Raises:
        NoDominatingPairError: it takes several, or none is known.
    """
    found = step.pairs(direction)
    if len(found) > 1 or found[0][1] > 1:
        raise NoDominatingPairError(
            "the noise must be that of a number, of norm 1, or of beta = 2, where batches are not Poisson "
            f"samples, got a vector of norm={step.noise.norm} whose worst shift moves several coordinates"
        )
    return found[0][0]


def _with_replacement(step: FixedSizeSampled, times: int, adjacency: Adjacency) -> _Batches:
    raise NotImplementedError


def _resolved(release: AdditiveNoise, rate: float, adjacency: Adjacency) -> AdditiveNoise:
    if adjacency is not Adjacency.REPLACE or rate < 1.0 or release.shift is not None:
        return release
    return replace(release, sensitivity=2.0 * release.sensitivity)


def _resolved_cells(release: CustomMechanism, rate: float, times: int, adjacency: Adjacency) -> CellStep:
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
