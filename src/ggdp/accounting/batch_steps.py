# SPDX-License-Identifier: Apache-2.0
"""The steps that stand for batches other than Poisson samples, and the discrete pairs around each.

A step here is one release on batches, or an epoch of them. `accounting.batches` says which steps stand for
which batches; docs/batches.md has the proofs.
"""

import contextlib
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammainccinv, gammaln

from ggdp.accounting.engines.atoms import Enclosed
from ggdp.accounting.steps import CellStep, EnclosedStep, NoiseStep, resolved, resolved_cells
from ggdp.distributions.gamma_tail import upper
from ggdp.errors import NoDominatingPairError
from ggdp.mechanisms import AdditiveNoise, Adjacency, CustomMechanism
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.allocation import allocated, enclosed_curve, pair_curve
from ggdp.privacy_loss.cells import Atoms, Cells, vector_cells
from ggdp.privacy_loss.curves import Curve, curve_of, either_way
from ggdp.privacy_loss.dominating import Parts, check_covered
from ggdp.privacy_loss.shift_pair import ShiftPair

_FINENESS = 0.004  # distance of the losses at which a curve is evaluated, over their distance from 0
_MOST_COUNTED = 12  # counts of `CountStep` from here on are merged
_CELL_EDGES = 20_000  # edges of the cells of noise
_MASS_ERROR = 2e-13  # relative error of the probability of a tail of the noise
_NEGLIGIBLE = 1e-18  # probability of large losses that need no place on a lattice
LOG_LEAST_PROB = 150.0  # noise is followed up to points that it exceeds with probability e^-150
LARGEST_LOSS = 600.0  # losses beyond have exponentials that overflow, and become infinite

Choice = tuple[tuple[NoiseStep, ...], tuple[EnclosedStep, ...]]


@dataclass(frozen=True)
class Batches:
    """Steps that cost no less than a batched mechanism, and steps that cost no more.

    Attributes:
        noisy: those of the steps that cost no less which have Generalized Gaussian noise.
        custom: the others of these.
        below: several choices of steps that cost no more; None if `noisy` and `custom` cost exactly as much.
        charge: as in `Steps`.
        also: the same batches by other steps, whose bounds hold too.
    """

    noisy: tuple[NoiseStep, ...] = ()
    custom: tuple[EnclosedStep, ...] = ()
    below: tuple[Choice, ...] | None = None
    charge: float = 0.0
    also: "Batches | None" = None


def exactly(step: NoiseStep | CellStep) -> Batches:
    """Batches that cost exactly what one step costs."""
    return Batches(*choice(step))


def choice(step: "NoiseStep | EnclosedStep") -> Choice:
    """One step as a choice of steps."""
    return ((step,), ()) if isinstance(step, NoiseStep) else ((), (step,))


def replacement(
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
            above = atoms_above(single_pair(self.step, Adjacency.REMOVE))
        found = either_way(above)
        return Enclosed(found, found, self.times)


@lru_cache(maxsize=16)
def atoms_above(pair: ShiftPair) -> Atoms:
    """The loss of a discrete pair that dominates a sampled one, at losses of at least 0."""
    scale = math.log1p(pair.rate) / 64.0
    reached = float(pair.loss(np.array(pair.up + LOG_LEAST_PROB ** (1.0 / pair.beta))))
    top = min(pair.supremum, reached, LARGEST_LOSS)
    count = math.asinh(top / scale) / _FINENESS
    loss = scale * np.sinh(np.arange(math.ceil(count)) * _FINENESS)
    return curve_of(pair, np.append(loss[loss < top], top)).above()


def single_pair(step: NoiseStep, direction: Adjacency) -> ShiftPair:
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
        return Enclosed(without_rare(cells.above(), True), without_rare(cells.below(), False), self.times)


def without_rare(atoms: Atoms, raised: bool) -> Atoms:
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
    reach = LOG_LEAST_PROB ** (1.0 / pair.beta)
    z = np.unique(np.concatenate([np.linspace(-reach, reach + shifts[-1], _CELL_EDGES), shifts]))
    below, above, ratio = np.zeros(len(z) + 1), np.zeros(len(z) + 1), np.zeros(len(z))
    for weight, shift in zip(weights, shifts, strict=True):
        low, high = interval_masses(pair.beta, z - shift)
        below, above = below + weight * low, above + weight * high
        if shift > 0.0:
            with np.errstate(over="ignore"):
                ratio += weight * np.expm1(pair.log_odds(z, shift))
    rare = 1e-38 if len(weights) <= draws else 0.0  # probability of more draws than are considered
    loss = np.log1p(ratio)
    known = np.minimum(loss, 700.0)
    slack = 256.0 * UNIT_ROUNDOFF * (1.0 + np.abs(known))
    ends = np.concatenate([[-math.inf], known - slack]), np.concatenate([loss + slack, [math.inf]])
    low, high = interval_masses(pair.beta, z)
    above[-1] += rare
    return Cells(below, above, low, high, *ends)


def interval_masses(beta: float, z: Array) -> tuple[Array, Array]:
    """Bounds on the masses of unit noise between increasing points, and beyond the first and the last."""
    beyond, before = survival(beta, z), survival(beta, -z)
    inner = np.where(z[:-1] >= 0.0, beyond[:-1] - beyond[1:], before[1:] - before[:-1])
    size = np.where(z[:-1] >= 0.0, beyond[:-1], before[1:])
    mass = np.concatenate([before[:1], inner, beyond[-1:]])
    error = _MASS_ERROR * np.concatenate([before[:1], size, beyond[-1:]]) + 1e-300
    return np.maximum(mass - error, 0.0), np.maximum(mass, 0.0) + error


@dataclass(frozen=True)
class AllocatedStep:
    """A record that takes part in one of `steps` releases, chosen at random (`privacy_loss.allocation`)."""

    one: NoiseStep | CellStep
    steps: int
    times: int

    def enclosed(self, direction: Adjacency) -> Enclosed:
        """The discrete pairs above and below in one direction; a replacement has those of a removal."""
        if isinstance(self.one, NoiseStep):
            curve = _allocated_noise(single_pair(self.one, Adjacency.REMOVE), self.steps)
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
        pair = single_pair(self.one, Adjacency.REMOVE)
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
