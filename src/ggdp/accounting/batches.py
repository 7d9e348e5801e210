# SPDX-License-Identifier: Apache-2.0
"""How batches that are not Poisson samples are accounted for: as steps that bound them from above and below.

| batches | add-remove | replace |
|---|---|---|
| fixed size, without replacement | exact | two ends |
| fixed size, with replacement | exact, for numbers and Gaussian noise | refused |
| Poisson cut at a largest size | exact up to what is charged | the same |
| random allocation | exact for one use, two ends for several | refused |
| shuffled | two ends | two ends |

docs/batches.md has the proofs.
"""

import contextlib
import functools
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np
from scipy.special import gammainccinv, gammaln

from ggdp.accounting.engines.atoms import Enclosed
from ggdp.accounting.steps import (
    CellStep,
    EnclosedStep,
    NoiseStep,
    Steps,
    resolved,
    resolved_cells,
    steps_of,
)
from ggdp.distributions.gamma_tail import upper
from ggdp.errors import NoDominatingPairError
from ggdp.mechanisms import (
    AdditiveNoise,
    Adjacency,
    Batched,
    Composed,
    CustomMechanism,
    FixedSizeSampled,
    PoissonSampled,
    RandomAllocation,
    Shuffled,
    TruncatedPoisson,
)
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.allocation import allocated, enclosed_curve, pair_curve
from ggdp.privacy_loss.cells import Atoms, Cells, vector_cells
from ggdp.privacy_loss.curves import Curve, curve_of, either_way
from ggdp.privacy_loss.dominating import Parts, check_covered
from ggdp.privacy_loss.shift_pair import ShiftPair

_FINENESS = 0.004  # distance of the losses at which a curve is evaluated, over their distance from 0
_SHARES = (1.0, 1.6, 2.5)  # thresholds tried by `CountStep`, as shares of log(steps)
_MOST_COUNTED = 12  # counts of `CountStep` from here on are merged
_CELL_EDGES = 20_000  # edges of the cells of noise
_MASS_ERROR = 2e-13  # relative error of the probability of a tail of the noise
_NEGLIGIBLE = 1e-18  # probability of large losses that need no place on a lattice
_MOST_TERMS = 20_000  # terms of a binomial tail that are added up
_LOG_LEAST_PROB = 150.0  # noise is followed up to points that it exceeds with probability e^-150

_Choice = tuple[tuple[NoiseStep, ...], tuple[EnclosedStep, ...]]


@dataclass(frozen=True)
class _Batches:
    """Steps that cost no less than a batched mechanism, and steps that cost no more.

    Attributes:
        noisy: those of the steps that cost no less which have Generalized Gaussian noise.
        custom: the others of these.
        below: several choices of steps that cost no more; None if `noisy` and `custom` cost exactly as much.
        charge: as in `Steps`.
    """

    noisy: tuple[NoiseStep, ...] = ()
    custom: tuple[EnclosedStep, ...] = ()
    below: tuple[_Choice, ...] | None = None
    charge: float = 0.0


def with_batches(plain: Steps, batched: list[tuple[Batched, int]], adjacency: Adjacency) -> Steps:
    """The steps of a composition: `plain`, and those of its parts with batches."""
    found = [_batches(step, times, adjacency) for step, times in batched]
    above = replace(
        plain,
        noisy=plain.noisy + tuple(step for one in found for step in one.noisy),
        custom=plain.custom + tuple(step for one in found for step in one.custom),
        charge=math.fsum(one.charge for one in found),
    )
    return replace(above, below=_below(plain, found))


def _below(plain: Steps, batched: list[_Batches]) -> tuple[Steps, ...]:
    """Compositions that cost no more, one for each choice of steps; none if the steps above are exact."""
    if all(found.below is None for found in batched):
        return ()
    options = [found.below or ((found.noisy, found.custom),) for found in batched]
    compositions = []
    for index in range(max(map(len, options))):
        chosen = [option[min(index, len(option) - 1)] for option in options]
        noisy = plain.noisy + tuple(step for steps, _ in chosen for step in steps)
        custom = plain.custom + tuple(step for _, steps in chosen for step in steps)
        compositions.append(Steps(noisy, custom, plain.directions))
    return tuple(compositions)


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
    k = np.arange(most + 1, min(count, most + _MOST_TERMS) + 1, dtype=float)
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
        return CellStep(resolved_cells(release, 1.0, times, Adjacency.REPLACE).release, rate, times)
    if release.shift is not None:
        raise ValueError(
            f"mechanism of {kind} must be given by its sensitivity, got a known shift: how far two records "
            "are apart is not known; give norm and dimension in place of shift"
        )
    twice = resolved(release, 1.0, Adjacency.REPLACE)
    check_covered(twice, rate, Adjacency.REMOVE)
    return NoiseStep(twice, rate, times)


@dataclass(frozen=True)
class EitherWayStep:
    """A sampled replacement, as the smallest pair that dominates both directions (`curves.either_way`)."""

    step: NoiseStep | CellStep

    @property
    def times(self) -> int:
        """How often."""
        return self.step.times

    def enclosed(self, direction: Adjacency) -> Enclosed:
        """A discrete pair that dominates in either direction; it also stands for the unknown lower pair."""
        if isinstance(self.step, CellStep):
            above = self.step.enclosed(Adjacency.REMOVE).above
        else:
            above = _atoms_above(_single_pair(self.step, Adjacency.REMOVE))
        found = either_way(above)
        return Enclosed(found, found, self.times)


@lru_cache(maxsize=16)
def _atoms_above(pair: ShiftPair) -> Atoms:
    """The loss of a discrete pair that dominates a sampled one, at losses of at least 0."""
    scale = math.log1p(pair.rate) / 64.0
    top = min(pair.supremum, float(pair.loss(np.array(pair.up + _LOG_LEAST_PROB ** (1.0 / pair.beta)))))
    count = math.asinh(top / scale) / _FINENESS
    loss = scale * np.sinh(np.arange(math.ceil(count)) * _FINENESS)
    return curve_of(pair, np.append(loss[loss < top], top)).above()


def _single_pair(step: NoiseStep, direction: Adjacency) -> ShiftPair:
    """The one pair that dominates a step.

    Raises:
        NoDominatingPairError: several are needed, or none is known.
    """
    found: Parts = ()
    with contextlib.suppress(NoDominatingPairError):  # a message for batches follows
        found = step.pairs(direction)
    if len(found) != 1 or found[0][1] > 1:
        raise NoDominatingPairError(
            "the noise must be that of a number, of norm=1, or of beta=2, where batches are allocated, drawn "
            f"with replacement, or of a fixed size, got a vector of norm={step.noise.norm} with noise of "
            f"beta={step.noise.noise.beta:g}, of which no one coordinate is known to be the worst; or draw "
            "Poisson samples"
        )
    return found[0][0]


def _with_replacement(step: FixedSizeSampled, times: int, adjacency: Adjacency) -> _Batches:
    """The record is drawn K times, with K binomial, and moves the value K times as far: docs/batches.md."""
    noise = step.mechanism
    if adjacency is Adjacency.REPLACE:
        raise ValueError(
            "adjacency must be add-remove, add or remove for batches drawn with replacement, got replace: no "
            "pair is known to dominate; draw without replacement, or as a Poisson sample"
        )
    if not isinstance(noise, AdditiveNoise):
        raise ValueError(
            f"mechanism must be AdditiveNoise for batches drawn with replacement, got "
            f"{type(noise).__name__}: what several copies of a record do is not known; draw without "
            "replacement"
        )
    if step.population == 1:
        raise ValueError("population must be at least 2 where neighbours have one record less, got 1")
    pair = _single_pair(
        cast(NoiseStep, _replacement(noise, 1.0, times, "FixedSizeSampled")), Adjacency.REMOVE
    )
    if noise.dimension != 1 and pair.beta != 2.0:
        raise ValueError(
            "dimension must be 1, or beta 2, for batches drawn with replacement, got "
            f"dimension={noise.dimension} and beta={pair.beta:g}: the worst shifts of one and of several "
            "copies are not known to be the same; draw without replacement"
        )
    exact = RepeatedStep(pair, step.sample_size, step.population, times)
    ever = -math.expm1(step.sample_size * math.log1p(-1.0 / step.population)) * (1.0 - 1e-12)
    # several draws of the record count as one
    once = _replacement(noise, ever, times, "FixedSizeSampled")
    return _Batches(custom=(exact,), below=(_choice(exact), _choice(once)))


@dataclass(frozen=True)
class RepeatedStep:
    """A step of which a record is drawn K times, K binomial (with replacement), against one without it.

    Attributes:
        pair: the two laws for K = 1.
        draws: how often a record is drawn.
        population: from how many.
        times: how often all this happens.
    """

    pair: ShiftPair
    draws: int
    population: int
    times: int

    def enclosed(self, direction: Adjacency) -> Enclosed:
        """The discrete pairs above and below in one direction."""
        cells = _repeated_cells(self.pair, self.draws, self.population)
        cells = cells.reversed if direction is Adjacency.ADD else cells
        return Enclosed(_cut(cells.above(), True), _cut(cells.below(), False), self.times)


def _cut(atoms: Atoms, raised: bool) -> Atoms:
    """The atoms without very rare large losses: these become infinite if `raised`, and are dropped if not."""
    kept = int((np.cumsum(atoms.mass[::-1])[::-1] > _NEGLIGIBLE).sum())
    beyond = math.fsum(atoms.mass[kept:]) * (1.0 + 1e-12) if raised else 0.0
    return Atoms(atoms.loss[:kept], atoms.mass[:kept], atoms.infinite + beyond)


@lru_cache(maxsize=8)
def _repeated_cells(pair: ShiftPair, draws: int, population: int) -> Cells:
    """Intervals of the noise as cells. The loss rises with the noise, so the ends of an interval bound it."""
    weights = [math.exp(draws * math.log1p(-1.0 / population))]
    while (weights[-1] > 1e-40 or len(weights) < draws / population) and len(weights) <= draws:
        k = len(weights)
        weights.append(weights[-1] * (draws - k + 1) / k / (population - 1.0))
    shifts = pair.up * np.arange(len(weights))
    reach = _LOG_LEAST_PROB ** (1.0 / pair.beta)
    z = np.unique(np.concatenate([np.linspace(-reach, reach + shifts[-1], _CELL_EDGES), shifts]))
    below, above, ratio = np.zeros(len(z) + 1), np.zeros(len(z) + 1), np.zeros(len(z))
    for weight, shift in zip(weights, shifts, strict=True):
        low, high = _interval_masses(pair.beta, z - shift)
        below, above = below + weight * low, above + weight * high
        if shift > 0.0:
            with np.errstate(over="ignore"):
                ratio += weight * np.expm1(pair.log_odds(z, shift))
    rare = 1e-38 if len(weights) <= draws else 0.0  # probability of more draws than are considered
    loss = np.log1p(ratio)
    known = np.minimum(loss, 700.0)
    slack = 256.0 * UNIT_ROUNDOFF * (1.0 + np.abs(known))
    ends = np.concatenate([[-math.inf], known - slack]), np.concatenate([loss + slack, [math.inf]])
    low, high = _interval_masses(pair.beta, z)
    above[-1] += rare
    return Cells(below, above, low, high, *ends)


def _interval_masses(beta: float, z: Array) -> tuple[Array, Array]:
    """Bounds on the masses of unit noise between increasing points, and beyond the first and the last."""
    beyond, before = survival(beta, z), survival(beta, -z)
    inner = np.where(z[:-1] >= 0.0, beyond[:-1] - beyond[1:], before[1:] - before[:-1])
    size = np.where(z[:-1] >= 0.0, beyond[:-1], before[1:])
    mass = np.concatenate([before[:1], inner, beyond[-1:]])
    error = _MASS_ERROR * np.concatenate([before[:1], size, beyond[-1:]]) + 1e-300
    return np.maximum(mass - error, 0.0), np.maximum(mass, 0.0) + error


@_batches.register
def _(step: RandomAllocation, times: int, adjacency: Adjacency) -> _Batches:
    if adjacency is Adjacency.REPLACE:
        raise ValueError(
            "adjacency must be add-remove, add or remove for RandomAllocation, got replace: no pair is known "
            "that dominates the replacement of a record that is allocated at random; shuffled batches have a "
            "bound, without amplification"
        )
    plain = steps_of(Composed(step.mechanism, times=times * step.times_used), adjacency)
    each = step.steps // step.times_used
    if each == 1 and step.times_used == step.steps:
        return _Batches(plain.noisy, plain.custom)
    one = _only_step(plain)
    above = _choice(one if each == 1 else AllocatedStep(one, each, times * step.times_used))
    if step.times_used == 1:
        return _Batches(*above)
    below = tuple(((), (CountStep(one, step.steps, step.times_used, 0, share, times),)) for share in _SHARES)
    return _Batches(*above, below=below)


def _only_step(plain: Steps) -> NoiseStep | CellStep:
    """The step of one release."""
    return plain.noisy[0] if plain.noisy else cast(CellStep, plain.custom[0])


def _one_coordinate(one: NoiseStep | CellStep) -> NoiseStep | CellStep:
    """A step with one dominating pair that costs no more: its shift is in one coordinate."""
    if isinstance(one, CellStep) or one.noise.dimension == 1 or one.noise.noise.beta == 2.0:
        return one
    if one.noise.shift is None:
        return replace(one, noise=replace(one.noise, dimension=1))
    return one


@_batches.register
def _(step: Shuffled, times: int, adjacency: Adjacency) -> _Batches:
    plain = steps_of(Composed(step.mechanism, times=times), adjacency)
    if step.steps == 1:
        return _Batches(plain.noisy, plain.custom)
    one = _only_step(plain)
    flat = _one_coordinate(one)
    below: list[_Choice] = [((), (AllocatedStep(replace(flat, times=1), step.steps, times),))]
    if adjacency is not Adjacency.REPLACE and isinstance(flat, NoiseStep):
        below += [((), (CountStep(flat, step.steps, 1, 1, share, times),)) for share in _SHARES]
    return _Batches(plain.noisy, plain.custom, tuple(below))


@dataclass(frozen=True)
class AllocatedStep:
    """A record that takes part in one of `steps` releases, chosen at random (`privacy_loss.allocation`)."""

    one: NoiseStep | CellStep
    steps: int
    times: int

    def enclosed(self, direction: Adjacency) -> Enclosed:
        """The discrete pairs above and below in one direction; a replacement has those of a removal."""
        if isinstance(self.one, NoiseStep):
            curve = _allocated_noise(_single_pair(self.one, Adjacency.REMOVE), self.steps)
        else:
            curve = _allocated_cells(self.one, self.steps)
        curve = curve.reversed if direction is Adjacency.ADD else curve
        return Enclosed(curve.above(), curve.below(), self.times)


@lru_cache(maxsize=16)
def _allocated_noise(pair: ShiftPair, steps: int) -> Curve:
    return allocated(pair_curve(pair), steps, pair.supremum, pair.infimum)


@lru_cache(maxsize=16)
def _allocated_cells(one: CellStep, steps: int) -> Curve:
    found = one.enclosed(Adjacency.REMOVE)
    infinite = found.above.infinite > 0.0
    return allocated(
        enclosed_curve(found.above, found.below),
        steps,
        math.inf if infinite else found.above.supremum,
        -math.inf,
    )


@dataclass(frozen=True)
class CountStep:
    """How many of `steps` noisy numbers exceed a threshold; as post-processing, it costs no more than these.

    `used` of the numbers, chosen at random, contain the record. With `kept` = 0 these are moved by one unit
    on the dataset with the record, and not on the other. With `kept` = 1 the other has an empty record in its
    place, and other records move theirs by one unit the other way: two units with the record, one without.

    Attributes:
        one: one release.
        steps: how many there are.
        used: how many of them contain the record.
        kept: 1 if an empty place also moves the number, else 0.
        share: sets the threshold, as a share of the logarithm of the number of steps.
        times: how often all this happens.
    """

    one: NoiseStep | CellStep
    steps: int
    used: int
    kept: int
    share: float
    times: int

    def enclosed(self, direction: Adjacency) -> Enclosed:
        """The law of the count, which is both its upper and its lower pair."""
        low, middle, high = self._chances()
        rest = binomial(self.steps - self.used, low)
        with_record = np.convolve(binomial(self.used, high), rest)
        without = np.convolve(binomial(self.used, middle if self.kept else low), rest)
        most = min(len(rest), _MOST_COUNTED)
        merged = [np.append(law[:most], law[most:].sum()) for law in (with_record, without)]
        if direction is Adjacency.ADD:
            merged.reverse()
        # relative error of a binomial probability
        error = 1e-10 + 64.0 * UNIT_ROUNDOFF * float(gammaln(self.steps + 2.0))
        atoms = vector_cells(merged[0], merged[1], error).below()
        return Enclosed(atoms, atoms, self.times)

    def _chances(self) -> tuple[float, float, float]:
        """Probabilities that a release exceeds the threshold, with a shift of none, one and two units."""
        if isinstance(self.one, CellStep):
            cells = self.one.enclosed(Adjacency.REMOVE).below
            order = np.cumsum((cells.mass * np.exp(-cells.loss))[::-1])[::-1]
            cut = int(np.searchsorted(-order, -self._chance))
            cut = min(cut, len(order) - 1)
            p = float(cells.mass[cut:].sum()) + cells.infinite
            return float(order[cut]), p, p
        pair = _single_pair(self.one, Adjacency.REMOVE)
        threshold = upper_quantile(pair.beta, self._chance)
        units = (0.0, pair.up, 2.0 * pair.up) if self.kept else (0.0, pair.up, pair.up)
        low, middle, high = survival(pair.beta, threshold - np.array(units)).tolist()
        return low, middle, high

    @property
    def _chance(self) -> float:
        return float(float(self.steps) ** -self.share)


def upper_quantile(beta: float, chance: float) -> float:
    """The z that noise of scale 1 exceeds with about this probability, which is at most a half."""
    return float(gammainccinv(1.0 / beta, 2.0 * min(chance, 0.5)) ** (1.0 / beta))


def survival(beta: float, place: Array) -> Array:
    """The probability that unit noise exceeds a place."""
    half = 0.5 * upper(1.0 / beta, np.abs(place) ** beta)
    return np.where(place >= 0.0, half, 1.0 - half)


def binomial(count: int, chance: float) -> Array:
    """The probabilities of 0, ..., `count` successes in `count` trials."""
    k = np.arange(count + 1, dtype=float)
    if not 0.0 < chance < 1.0:
        return np.asarray(k == count * (chance >= 1.0), dtype=float)
    log_law = gammaln(count + 1.0) - gammaln(k + 1.0) - gammaln(count - k + 1.0)
    return np.asarray(np.exp(log_law + k * math.log(chance) + (count - k) * math.log1p(-chance)))
