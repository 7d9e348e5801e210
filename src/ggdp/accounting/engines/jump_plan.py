# SPDX-License-Identifier: Apache-2.0
"""Where to cut losses in two, and where the line of each number of large losses crosses the real axis.

`engines.jumps` computes delta as a sum over the number of losses that exceed a number c, and says why. Which
c, how many terms matter and at which tilt each of them is integrated is decided here, from the rough nodes of
a `TiltPlan`. Nothing here is certified but `Split.largest_bulk`: a poor plan makes an answer wide, not wrong.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ggdp.accounting.engines.curve import MOST_EPSILON
from ggdp.accounting.engines.moments import log_chernoff_constant
from ggdp.accounting.engines.polynomial import product
from ggdp.accounting.engines.tilt import Parts, Saddle, TiltPlan
from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError
from ggdp.numerics import Array
from ggdp.privacy_loss.hockey_stick import thresholds

MARGIN = 5.0
"""log of how much smaller still a term is planned to be that is only bounded."""

_FRACTIONS = (0.4, 0.25, 0.6, 0.15)  # of epsilon at which jumps begin, in the order in which they are tried,
_SPREADS = (8.0, 20.0)  # and likewise of the standard deviation of all losses below, where epsilon is smaller
_MOST_JUMPS = 6
_NEGLIGIBLE = 2e-7  # what a bound may add, relative to delta times its steepness
_LEAST_STEEP = 0.02
_FACTORS = np.linspace(-3.0, 2.0, 11)  # log z, beside the log of how many jumps are one too many
_TILTS = 1e-3, 1e4  # times 1 / epsilon, between which saddles are sought,
_LEAST_TILT = 1e-4  # and from here on where epsilon is next to 0
_MOST_TURNS, _FURTHEST = 16, 2.0  # steps of a search for epsilon, and how far one goes in its logarithm
_CLOSE = 0.02  # to an epsilon that is planned, in its logarithm
_COARSE, _FINE = 1.0, 0.25  # distance of the tilts that are tried, in their logarithms
_TILTS_NEAR, _TURNS_NEAR = 7, 3  # between the neighbours of the best, so many times
_SENSELESS = 1e100  # an exponent that no line has
_UNDERFLOW = 1e-300  # no less than what underflows in a sum of products of numbers up to 1


@dataclass(frozen=True)
class Split:
    """A composition cut in two at a loss, jumps beyond it, and rough plans of both.

    Attributes:
        parts: the composition.
        loss: where it is cut.
        epsilon: about which questions are asked.
        plan: of all bulks.
        jump_plan: of all jumps.
        which: the places of the kinds with jumps.
    """

    parts: Parts
    loss: float
    epsilon: float
    plan: TiltPlan
    jump_plan: TiltPlan
    which: list[int]

    @cached_property
    def tilts(self) -> tuple[float, float]:
        """Between which lines are sought."""
        low = _TILTS[0] / self.epsilon if self.loss < self.epsilon else _LEAST_TILT
        return low, _TILTS[1] / max(self.loss, self.epsilon)

    @cached_property
    def _cuts(self) -> list[float]:
        """The noise at which each kind with jumps is cut."""
        losses = np.array([self.loss])
        places = [float(thresholds(self.parts[index][0].whole, losses)[0][0]) for index in self.which]
        for index, place in zip(self.which, places, strict=True):
            if not place < self.parts[index][0].cut:
                raise CannotCertifyError("no noise has the loss that is cut at")
        return places

    @cached_property
    def bulks(self) -> Parts:
        """The composition cut off where jumps begin."""
        found = list(self.parts)
        for index, place in zip(self.which, self._cuts, strict=True):
            pair, times = found[index]
            found[index] = (replace(pair, cut=place), times)
        return tuple(found)

    @cached_property
    def jumps(self) -> Parts:
        """What lies beyond, of the kinds that have any."""
        whole = [self.parts[index] for index in self.which]
        return tuple(
            (replace(pair, floor=cut), times) for (pair, times), cut in zip(whole, self._cuts, strict=True)
        )

    @cached_property
    def largest_bulk(self) -> float:
        """No less than the sum of all losses without a jump."""
        return math.fsum(times * pair.supremum for pair, times in self.bulks) * (1.0 + 1e-9)

    @property
    def releases(self) -> int:
        """The releases that may be jumps."""
        return sum(self.parts[index][1] for index in self.which)

    # --- plans

    def planned(self, theta: float, most: int) -> Array:
        """log of the coefficients of 1, z, ... z^most at a tilt, roughly."""
        return self.log_coefficients(self.plan.log_phis(theta), self.jump_plan.log_phis(theta), most)

    def log_coefficients(self, log_bulks: Array, log_jumps: Array, most: int) -> Array:
        """log of the coefficients, the last axis, of products over the kinds, the last axis of both."""
        times = self.plan.times[self.which]
        log_each = log_jumps - log_bulks[..., self.which] + np.log(times)
        log_mean = np.logaddexp.reduce(log_each, axis=-1)[..., None]
        turns = np.arange(most + 1)
        shares = np.maximum(1.0 - turns[:-1] / times[:, None], 0.0) / turns[1:]
        shares = np.cumprod(np.concatenate([np.ones((len(times), 1)), shares], axis=1), axis=1)
        whole = (log_bulks @ self.plan.times)[..., None]
        with np.errstate(under="ignore", invalid="ignore"):  # a tilt may be beyond what doubles hold
            found = product(shares * np.exp(log_each - log_mean)[..., None] ** turns)
            return np.asarray(whole + log_mean * turns + np.log(found + _UNDERFLOW))

    def _logs(self, log_tilts: Array) -> tuple[Array, Array]:
        """log phi of all bulks and of all jumps at some tilts."""
        tilts = np.exp(log_tilts).tolist()
        return (
            np.array([self.plan.log_phis(tilt) for tilt in tilts]),
            np.array([self.jump_plan.log_phis(tilt) for tilt in tilts]),
        )

    @cached_property
    def _table(self) -> tuple[Array, Array, Array]:
        """log of some tilts, close together where lines of any number of jumps are sought, and log phi of all
        bulks and of all jumps there.
        """
        low, high = np.log(self.tilts)
        coarse = np.linspace(low, high, math.ceil((high - low) / _COARSE) + 1)
        rough = self._logs(coarse)
        places = np.argmin(self._exponents(coarse, *rough), axis=0)
        low, high = coarse[max(places.min() - 1, 0)], coarse[min(places.max() + 1, len(coarse) - 1)]
        fine = np.setdiff1d(np.linspace(low, high, math.ceil((high - low) / _FINE) + 1), coarse)
        order = np.argsort(np.append(coarse, fine))
        bulks, jumps = (
            np.concatenate([one, two])[order] for one, two in zip(rough, self._logs(fine), strict=True)
        )
        return np.append(coarse, fine)[order], bulks, jumps

    def _exponents(self, log_tilts: Array, log_bulks: Array, log_jumps: Array) -> Array:
        """For each tilt, the exponents that are least where lines of no jump, of one, and so on cross."""
        rest = self.epsilon * np.exp(log_tilts) + log_tilts + np.log1p(np.exp(log_tilts))
        found = self.log_coefficients(log_bulks, log_jumps, _MOST_JUMPS) - rest[:, None]
        return np.asarray(np.nan_to_num(found, nan=np.inf))

    def saddle(self, count: int) -> Saddle:
        """Where the line of so many jumps crosses the real axis."""
        near, *logs = self._table
        exponents = self._exponents(near, *logs)[:, count]
        for _ in range(_TURNS_NEAR):
            place = int(np.argmin(exponents))
            near = np.linspace(near[max(place - 1, 0)], near[min(place + 1, len(near) - 1)], _TILTS_NEAR)
            exponents = self._exponents(near, *self._logs(near))[:, count]
        middle = min(max(int(np.argmin(exponents)), 1), _TILTS_NEAR - 2)
        down, here, up = exponents[middle - 1 : middle + 2]
        # at its lowest point the second derivative by log theta is theta^2 times that by theta
        if not abs(here) < _SENSELESS:
            raise CannotCertifyError("so many jumps cannot be planned")
        bend = max(float(min(up - here, _SENSELESS) + min(down - here, _SENSELESS)), 0.0)
        bend = max(bend / (near[1] - near[0]) ** 2, 0.1)
        theta, lowest = math.exp(near[middle]), float(here)
        bend /= theta**2
        log_delta = lowest - 0.5 * math.log(2.0 * math.pi * bend)
        return Saddle(theta, self.epsilon, log_delta, math.sqrt(bend))

    @property
    def may_be_few(self) -> bool:
        """Whether more jumps than are told apart can be negligible."""
        log_tilts, *logs = self._table
        log_delta = float(np.logaddexp.reduce(self._exponents(log_tilts, *logs).min(axis=0)))
        return self.many(_MOST_JUMPS)[0] <= log_delta + math.log(_NEGLIGIBLE) + 2.0 * MARGIN

    def many(self, count: int) -> tuple[float, float, float]:
        """log of the bound on more jumps, roughly, and the tilt and log z where it is least."""
        if count >= self.releases:
            return -math.inf, 1.0, 0.0
        log_tilts, log_bulks, log_jumps = self._table
        times = self.plan.times[self.which]
        log_ratio = log_jumps - log_bulks[:, self.which]
        log_expected = np.logaddexp.reduce(np.log(times) + log_ratio, axis=1)
        factors = np.maximum(_FACTORS + math.log(count + 1.0) - log_expected[:, None], 0.0)
        with np.errstate(over="ignore"):
            one = np.logaddexp(0.0, log_ratio[:, None] + factors[:, :, None]) @ times
        bounds = one - (count + 1) * factors
        tilts = np.exp(log_tilts)
        constants = np.array([log_chernoff_constant(tilt) for tilt in tilts.tolist()])
        bounds = bounds + (log_bulks @ self.plan.times - tilts * self.epsilon + constants)[:, None]
        tilt, factor = np.unravel_index(np.argmin(np.nan_to_num(bounds, nan=np.inf)), bounds.shape)
        return float(bounds[tilt, factor]), float(tilts[tilt]), float(factors[tilt, factor])


@dataclass(frozen=True)
class PlannedSplit:
    """How a composition is split at an epsilon, roughly.

    Attributes:
        saddles: where each line crosses the real axis, from that of the fewest jumps on.
        fewest: their number.
        log_delta: log of the sum.
        steepness: -d log(delta) / d log(eps).
        more: the number of jumps beyond which they are bounded, the tilt and log z of that bound.
    """

    split: Split
    saddles: list[Saddle]
    fewest: int
    log_delta: float
    steepness: float
    more: tuple[int, float, float]

    @property
    def log_allowed(self) -> float:
        """log of what a bound may add, relative to the sum."""
        return math.log(_NEGLIGIBLE * max(self.steepness, _LEAST_STEEP))


def chernoff(saddle: Saddle) -> float:
    """log of Chernoff's bound on a term, by the plan of its line."""
    theta = saddle.theta
    spread = math.log(math.sqrt(2.0 * math.pi) * saddle.deviation * theta * (1.0 + theta))
    return saddle.log_delta + spread + log_chernoff_constant(theta)


def planned_split(parts: Parts, plan: TiltPlan, epsilon: float) -> PlannedSplit:
    """Cut a composition where few jumps matter at an epsilon.

    Raises:
        CannotCertifyError: no loss is a jump there, or more jumps matter than are told apart.
    """
    for cut in [fraction * epsilon for fraction in _FRACTIONS] + _gaps(plan):
        CLOCK.check()
        if not 0.0 < cut < MOST_EPSILON:
            continue
        split = Split(parts, cut, epsilon, *plan.split(cut))
        if not split.which or not split.may_be_few:
            continue
        fewest = 1 if split.largest_bulk < epsilon else 0
        saddles: list[Saddle] = []
        for count in range(fewest, _MOST_JUMPS + 1):
            saddles.append(split.saddle(count))
            log_deltas = np.array([one.log_delta for one in saddles])
            log_delta = float(np.logaddexp.reduce(log_deltas))
            steepness = epsilon * float(np.exp(log_deltas - log_delta) @ [one.theta for one in saddles])
            log_many, tilt, factor = split.many(count)
            planned = PlannedSplit(split, saddles, fewest, log_delta, steepness, (count, tilt, factor))
            if log_many <= log_delta + planned.log_allowed:
                return planned
    raise CannotCertifyError("no loss is a jump, or more jumps matter than are told apart")


def _gaps(plan: TiltPlan) -> list[float]:
    """Losses that are large beside the sum of all smaller ones."""
    order = np.argsort(plan.loss)
    loss, weight = plan.loss[order], np.exp(plan.log_mass + plan.log_times)[order]
    spread = np.sqrt(np.cumsum(weight * loss**2))
    found = [loss[(loss > 0.0) & (loss >= times * spread)] for times in _SPREADS]
    return [float(losses[0]) for losses in found if len(losses)]


def planned_log_delta(parts: Parts, plan: TiltPlan, epsilon: float) -> float:
    """A rough log delta at an epsilon.

    Raises:
        CannotCertifyError: jumps cannot be told from other losses there.
    """
    return planned_split(parts, plan, epsilon).log_delta


def planned_epsilon(parts: Parts, plan: TiltPlan, log_delta: float, start: float) -> float:
    """A rough epsilon at log delta, from one that may be far off.

    Raises:
        CannotCertifyError: jumps cannot be told from other losses there.
    """
    low, high, point = -math.inf, math.inf, math.log(start)
    planned: float | None = None  # the last point that could be
    for _ in range(_MOST_TURNS):
        CLOCK.check()
        try:
            found = planned_split(parts, plan, math.exp(point))
        except CannotCertifyError:
            if planned is None:
                raise
            low, high = (point, high) if point < planned else (low, point)
            point = 0.5 * (point + planned)
            continue
        planned, gap = point, found.log_delta - log_delta
        low, high = (point, high) if gap > 0.0 else (low, point)
        step = max(-_FURTHEST, min(gap / found.steepness, _FURTHEST))
        if abs(step) < _CLOSE:
            break
        point = point + step if low < point + step < high else 0.5 * (low + high)
    return math.exp(point)
