# SPDX-License-Identifier: Apache-2.0
"""Poisson batches cut at a largest size, where the records that are left out are chosen at random.

Of n records, each is drawn with probability q. If more than B are drawn, a uniformly random B of them are
kept. Let D be the n records and D' those without x, and let K be how many of the other n - 1 are drawn.
Whether K >= B has the same probability t on both, and may be told: that makes two cases out of one.

- K < B: no batch is cut, and x joins it with probability q, as in a Poisson sample.
- K >= B: the batch of D' is a uniform B of the other records, whatever K is. In the batch of D, x is in
  place of a uniform one of these with probability g = E[q B / (K + 1) | K >= B], which is
  (B / n) P[Bin(n, q) > B] / t. That is a batch of a fixed size, with g in place of B / n.

The dominating pairs of the two cases, with weights 1 - t and t and with the case told, dominate the release.
docs/batches.md has the proof and says what bounds the cost from below.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ggdp.accounting.batch_steps import (
    LARGEST_LOSS,
    LOG_LEAST_PROB,
    Batches,
    EitherWayStep,
    choice,
    interval_masses,
    replacement,
    single_pair,
    without_rare,
)
from ggdp.accounting.engines.atoms import Enclosed
from ggdp.accounting.steps import CellStep, NoiseStep, resolved_cells
from ggdp.mechanisms import AdditiveNoise, Adjacency, RandomlyTruncatedPoisson
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.allocation import pair_curve
from ggdp.privacy_loss.cells import Atoms, Cells
from ggdp.privacy_loss.curves import Curve
from ggdp.privacy_loss.dominating import RATE
from ggdp.privacy_loss.shift_pair import ShiftPair

_MOST_TERMS = 2_000_000  # terms of a binomial law
_LEAST_TERM = 1e-290  # of these, over the largest one; smaller terms are bounded together
_FINENESS = 0.001  # distance of the losses at which a curve is evaluated, over their distance from 0
_HALF_CELLS = 8_000  # intervals that one half of the noise is cut into by `CutQueryStep`
_MOST_CELLS = 100_000  # of the intervals, about
_PLACE_ERROR = 1e-11  # relative error of masses of intervals, as their ends are rounded
_MOST_VALUES = 4_000  # values of its query that it distinguishes
_UNSEEN = 1e-60  # probability of the values that it does not


@dataclass(frozen=True)
class Binomial:
    """The law of how many of `count` independent events of probability `rate` happen, certified.

    Attributes:
        first: the smallest number that has a term.
        term: the probabilities of that number and of the next ones, times a common factor.
        fewer: an upper bound on the probabilities of smaller numbers together, times that factor.
        more: the same for larger numbers.
        slip: a bound on the relative error of each term, and of sums of terms.
    """

    first: int
    term: Array
    fewer: float
    more: float
    slip: float

    @staticmethod
    def of(count: int, rate: float) -> "Binomial | None":
        """The law for a rate in (0, 1); None if it has too many terms that matter.

        Terms follow from their neighbours by ratios, outwards from the largest. Beyond the last one they fall
        faster than a geometric series.
        """
        top = min(math.floor((count + 1.0) * rate), count)
        variance = count * rate * (1.0 - rate)
        reach = math.ceil(223.0 + math.sqrt(223.0**2 + 1340.0 * variance))
        if reach > _MOST_TERMS:
            return None
        odds = rate / (1.0 - rate)
        up = np.arange(top, min(top + reach, count), dtype=float)
        rising = (count - up) / (up + 1.0) * odds
        down = np.arange(top, max(top - reach, 0), -1.0)
        falling = down / (count - down + 1.0) / odds
        right, more = _outwards(rising, len(up) == count - top)
        left, fewer = _outwards(falling, len(down) == top)
        term = np.concatenate([left[::-1], [1.0], right])
        slip = 16.0 * (len(term) + 16.0) * UNIT_ROUNDOFF
        return Binomial(top - len(left), term, fewer, more, slip)

    def least(self, number: int) -> tuple[float, float]:
        """Bounds on the probability that at least so many happen."""
        place = max(number - self.first, 0)
        inside = math.fsum(self.term[place:])
        outside = self.more + (self.fewer if number < self.first else 0.0)
        return self._bounds(inside, outside)

    def below(self, number: int) -> tuple[float, float]:
        """Bounds on the probability that fewer happen."""
        place = max(number - self.first, 0)
        inside = math.fsum(self.term[:place])
        outside = self.fewer + (self.more if place > len(self.term) else 0.0)
        return self._bounds(inside, outside)

    def _bounds(self, inside: float, outside: float) -> tuple[float, float]:
        total = math.fsum(self.term)
        low = inside * (1.0 - self.slip) / (total * (1.0 + self.slip) + self.fewer + self.more)
        high = (inside * (1.0 + self.slip) + outside) / (total * (1.0 - self.slip))
        return low * (1.0 - 8.0 * UNIT_ROUNDOFF), min(high * (1.0 + 8.0 * UNIT_ROUNDOFF), 1.0)


def _outwards(ratio: Array, to_the_end: bool) -> tuple[Array, float]:
    """The terms on one side of a term that is 1, by their ratios, which fall, and a bound on the rest.

    `to_the_end`: whether the last ratio leads to the last number of all.
    """
    with np.errstate(under="ignore"):
        term: Array = np.cumprod(ratio, dtype=np.float64)
    kept = int((term > _LEAST_TERM).sum())
    if kept == len(term) and to_the_end:
        return term, 0.0
    last = float(term[kept - 1]) if kept else 1.0
    shrink = float(ratio[min(kept, len(ratio) - 1)])
    return term[:kept], last * shrink / (1.0 - shrink) * (1.0 + 1e-9) if shrink < 1.0 else math.inf


@dataclass(frozen=True)
class Chances:
    """How often batches are cut, and how often a record is in them.

    Attributes:
        uncut: an upper bound on the probability that fewer than B other records are drawn.
        cut: the same for B or more, which is t.
        joins: an upper bound on g, how often the record is in the batch if B or more others are drawn.
        takes_part: a lower bound on how often it is in the batch at all.
        others: the law of how many other records are drawn.
    """

    uncut: float
    cut: float
    joins: float
    takes_part: float
    others: Binomial

    @staticmethod
    def of(step: RandomlyTruncatedPoisson) -> "Chances | None":
        """The chances for a rate below 1.

        None if there are too many sizes of a batch to add up, or if a record takes part more rarely than the
        accountant covers.
        """
        others = Binomial.of(step.population - 1, step.rate)
        every = Binomial.of(step.population, step.rate)
        if others is None or every is None:
            return None
        most, rate = step.largest_batch, step.rate
        share = most / step.population
        uncut, cut = others.below(most), others.least(most)
        in_cut = [share * bound for bound in every.least(most + 1)]
        # E[q B / (K + 1) | K >= B] is at most q B / (B + 1)
        joins = min(in_cut[1] / cut[0] if cut[0] > 0.0 else math.inf, rate * most / (most + 1.0))
        slack = 16.0 * UNIT_ROUNDOFF
        takes_part = (rate * uncut[0] + in_cut[0]) * (1.0 - slack)
        if takes_part < RATE.least:
            return None
        joins = max(joins * (1.0 + slack), RATE.least)  # a larger one costs no less
        return Chances(uncut[1], cut[1], joins, takes_part, others)


def randomly_truncated(
    step: RandomlyTruncatedPoisson, uncut: NoiseStep | CellStep, adjacency: Adjacency, chances: Chances
) -> Batches:
    """The steps of releases on batches that may be cut.

    Args:
        step: the mechanism.
        uncut: the step of the same releases on Poisson batches that are never cut.
        adjacency: which data sets are neighbours.
        chances: those of `step`.

    Raises:
        NoDominatingPairError: a batch that is not cut, or one that is, has no single dominating pair.
    """
    replaced = adjacency is Adjacency.REPLACE
    cut = replacement(step.mechanism, chances.joins, uncut.times, "RandomlyTruncatedPoisson")
    for one in (uncut, cut):
        if isinstance(one, NoiseStep):
            single_pair(one, Adjacency.REMOVE)
    above = CutStep(uncut, EitherWayStep(cut) if replaced else cut, chances.uncut, chances.cut)
    rate = min(chances.takes_part, step.rate)
    below = [choice(_at_rate(step, rate, uncut.times, adjacency))]  # no other record moves the value
    if isinstance(uncut, NoiseStep) and len(chances.others.term) <= _MOST_VALUES:
        unit = single_pair(uncut, Adjacency.REMOVE)
        for seen in (Adjacency.REMOVE, Adjacency.ADD) if replaced else (None,):
            below.append(choice(CutQueryStep(unit.beta, unit.up, step, uncut.times, replaced, seen)))
    return Batches(custom=(above,), below=tuple(below))


def _at_rate(
    step: RandomlyTruncatedPoisson, rate: float, times: int, adjacency: Adjacency
) -> NoiseStep | CellStep:
    if isinstance(step.mechanism, AdditiveNoise):
        return NoiseStep(step.mechanism, rate, times)
    return resolved_cells(step.mechanism, rate, times, adjacency)


@dataclass(frozen=True)
class CutStep:
    """One of two releases, by a coin that is told and falls alike on both neighbours.

    Attributes:
        uncut: what is released if the batch is not full without the record.
        cut: what is released if it is.
        share_uncut: an upper bound on the probability of the first.
        share_cut: an upper bound on the probability of the second.
    """

    uncut: NoiseStep | CellStep
    cut: NoiseStep | CellStep | EitherWayStep
    share_uncut: float
    share_cut: float

    @property
    def times(self) -> int:
        """How often."""
        return self.uncut.times

    def enclosed(self, direction: Adjacency) -> Enclosed:
        """A discrete pair that dominates; without its infinite losses it stands for the unknown lower one."""
        shares = (self.share_uncut, self.share_cut)
        parts = [_above(one, direction) for one in (self.uncut, self.cut)]
        loss = np.concatenate([part.loss for part in parts])
        mass = np.concatenate([share * part.mass for share, part in zip(shares, parts, strict=True)])
        underflows = (mass == 0.0) & (np.concatenate([part.mass for part in parts]) > 0.0)
        mass *= 1.0 + 8.0 * UNIT_ROUNDOFF
        infinite = sum(share * part.infinite for share, part in zip(shares, parts, strict=True))
        infinite += 5e-324 * int(underflows.sum())
        order = np.argsort(loss, kind="stable")
        kept = order[mass[order] > 0.0]
        found = Atoms(loss[kept], mass[kept], infinite * (1.0 + 8.0 * UNIT_ROUNDOFF))
        return Enclosed(found, Atoms(found.loss, found.mass, 0.0), self.times)


def _above(step: NoiseStep | CellStep | EitherWayStep, direction: Adjacency) -> Atoms:
    if isinstance(step, NoiseStep):
        return _pair_above(single_pair(step, direction))
    return step.enclosed(direction).above


def _pair_above(pair: ShiftPair) -> Atoms:
    """The loss of a discrete pair that dominates a sampled one."""
    if pair.up == 0.0:  # ADD, the pair of REMOVE the other way round
        return _pair_curve(pair.reverse).reversed.above()
    return _pair_curve(pair).above()


@lru_cache(maxsize=16)
def _pair_curve(pair: ShiftPair) -> Curve:
    reach = LOG_LEAST_PROB ** (1.0 / pair.beta)
    ends = pair.loss(np.array([pair.down - reach, pair.up + reach]))
    most = min(pair.supremum, float(ends[1]), LARGEST_LOSS)
    least = max(pair.infimum, float(ends[0]), -LARGEST_LOSS)
    scale = math.log1p(pair.rate) / 64.0
    count = math.ceil(math.asinh(max(most, -least) / scale) / _FINENESS)
    half = scale * np.sinh(np.arange(1, count) * _FINENESS)
    loss = np.concatenate([[least], -half[half < -least][::-1], [0.0], half[half < most], [most]])
    return pair_curve(pair)(loss)


@dataclass(frozen=True)
class CutQueryStep:
    """A query for which cuts cost much, by intervals of its noisy value, on one pair of data sets.

    The query counts the records of a batch other than x, and takes the distance of this count to B - 1 with a
    minus sign. Then x adds 1, and the record that stands in its place on a neighbour, if there is one, takes
    1 off. So one record more or less changes the value by 1. A full batch without x has the value -1; with x
    in place of one of the others it has the value 1. To tell only the interval that the noisy value lies in
    is post-processing, so that the true cost is at least this one.

    Attributes:
        beta: of the noise.
        unit: how far one record moves the value, over the scale of the noise.
        batches: how batches are drawn.
        times: how often all this happens.
        replaced: whether the neighbour has a record in place of x; otherwise it lacks x.
        seen: a direction that is fixed for this step; the direction that is asked for is then ignored.
    """

    beta: float
    unit: float
    batches: RandomlyTruncatedPoisson
    times: int
    replaced: bool
    seen: Adjacency | None = None

    def enclosed(self, direction: Adjacency) -> Enclosed:
        """A discrete pair that costs no more, in one direction; it stands for the upper one too."""
        drawn = (self.batches.rate, self.batches.largest_batch, self.batches.population)
        cells = _query_cells(self.beta, self.unit, *drawn, self.replaced)
        cells = cells.reversed if (self.seen or direction) is Adjacency.ADD else cells
        atoms = without_rare(cells.below(), False)
        return Enclosed(atoms, atoms, self.times)


@lru_cache(maxsize=8)
def _query_cells(
    beta: float, unit: float, rate: float, largest: int, population: int, replaced: bool
) -> Cells:
    """Both laws of the noisy value on intervals of one length, of which whole numbers make up a unit."""
    others = Binomial.of(population - 1, rate)
    if others is None:
        raise ValueError("population must be such that the law of drawn records can be added up")
    with_record, without = _values(others, rate, largest, replaced)
    reach = LOG_LEAST_PROB ** (1.0 / beta)
    width = max(reach / _HALF_CELLS, len(without) * unit / _MOST_CELLS)
    per_unit = max(round(unit / width), 1)
    width = unit / per_unit
    half = math.ceil(reach / width)
    low, high = interval_masses(beta, width * np.arange(-half, half + 1.0))
    low, high = low[1:-1] * (1.0 - _PLACE_ERROR), high[1:-1] * (1.0 + _PLACE_ERROR)
    slip = others.slip + 8.0 * (len(without) + 64.0) * UNIT_ROUNDOFF

    def spread(law: Array, mass: Array, factor: float, rest: float) -> Array:
        total = np.full(len(mass) + per_unit * (len(law) - 1), rest)
        for place in np.flatnonzero(law):
            start = per_unit * int(place)
            total[start : start + len(mass)] += law[place] * factor * mass
        return total

    p_low, q_low = (spread(law, low, 1.0 - slip, 0.0) for law in (with_record, without))
    p_high, q_high = (spread(law, high, 1.0 + slip, _UNSEEN) for law in (with_record, without))
    anything = np.full(len(p_low), math.inf)
    return Cells(p_low, p_high, q_low, q_high, -anything, anything)


def _values(others: Binomial, rate: float, largest: int, replaced: bool) -> tuple[Array, Array]:
    """The laws of the query's value without noise, on whole numbers up to 1, with the record and without it;
    values of a probability below `_UNSEEN` together are left out."""
    law = others.term / math.fsum(others.term)
    number = others.first + np.arange(len(law))
    uncut = number < largest
    kept = uncut & (law > _UNSEEN / (4.0 * len(law)))
    value = number[kept] - (largest - 1)  # not above 0, since the batch is not full
    least = min(int(value.min()) if kept.any() else 0, -1) - 1
    found = np.zeros((2, 2 - least))
    for row, moved in ((0, 1), (1, -1 if replaced else 0)):
        found[row, value - least] += (1.0 - rate) * law[kept]
        found[row, value + moved - least] += rate * law[kept]
    share, more = law[~uncut], number[~uncut] + 1.0
    found[0, 1 - least] += math.fsum(share * rate * largest / more)
    found[0, -1 - least] += math.fsum(share * ((more - largest) + largest * (1.0 - rate)) / more)
    found[1, -1 - least] += math.fsum(share)
    return found[0], found[1]
