# SPDX-License-Identifier: Apache-2.0
"""Contours, one for each number of large losses.

Cut the noise of every release where its loss exceeds a number c. Below lies the bulk B, beyond it the jump J:
the same two laws, restricted to either side. Multiplied out, delta of a composition is a sum over the number
of jumps,

    delta(eps) = D_0 + D_1 + D_2 + ...,

exactly, with no term negative. A tilt that suits one of the terms does not suit the next: the law of the sum,
tilted to eps, has a hump for every number of jumps, and where eps lies in a valley between two of them, a
contour of the whole loses as many digits as the valley is deep. D_k alone has one hump. With phi_B and phi_J
the moment generating functions of the bulks and of the jumps, that of D_k is the coefficient of z^k in

    product over the kinds of release of (phi_B(s) + z phi_J(s))^times,

a polynomial at every point of the line. It is drawn at a tilt of its own and ends in a window
(`engines.contour`). It errs by no more than the difference of the polynomial with |phi| + error in place of
phi and that with |phi|.

More than k jumps add, for every theta > 0 and z >= 1, at most

    z^-(k+1) * product of (phi_B(theta) + z phi_J(theta))^times * e^(-theta eps) * sup (1 - e^-x) e^(-theta x)

over x > 0: Chernoff's inequality, and z^j >= z^(k+1) for every j > k.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ggdp.accounting.bounds import ErrorLedger
from ggdp.accounting.engines.characteristic import of_nodes
from ggdp.accounting.engines.contour import (
    TOO_LITTLE,
    Line,
    Window,
    period,
    sparable,
    sparing,
    windowed_points,
)
from ggdp.accounting.engines.curve import MOST_EPSILON, LogDelta
from ggdp.accounting.engines.moments import log_chernoff_constant
from ggdp.accounting.engines.polynomial import Polynomial, product
from ggdp.accounting.engines.tilt import Parts, Saddle, TiltPlan
from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.hockey_stick import thresholds
from ggdp.privacy_loss.quadrature import Nodes, certified_nodes_of_all

_FRACTIONS = (0.4, 0.25, 0.6, 0.15)  # of epsilon at which jumps begin, in the order in which they are tried,
_SPREADS = (8.0, 20.0)  # and likewise of the standard deviation of all losses below, where epsilon is smaller
_MOST_JUMPS = 6
_NEGLIGIBLE = 2e-7  # what a bound may add, relative to delta times its steepness
_LEAST_STEEP = 0.02
_MOST_PANELS = 60_000  # of all kinds
_FACTORS = np.linspace(-3.0, 2.0, 11)  # log z, beside the log of how many jumps are one too many
_MARGIN = 5.0  # log of how much smaller still a term is planned to be that is only bounded
_TILTS = 1e-3, 1e4  # times 1 / epsilon, between which saddles are sought,
_LEAST_TILT = 1e-4  # and from here on where epsilon is next to 0
_MOST_TURNS, _FURTHEST = 16, 2.0  # steps of a search for epsilon, and how far one goes in its logarithm
_CLOSE = 0.02  # to an epsilon that is planned, in its logarithm
_COARSE, _FINE = 1.0, 0.25  # distance of the tilts that are tried, in their logarithms
_TILTS_NEAR, _TURNS_NEAR = 7, 3  # between the neighbours of the best, so many times
_UNDERFLOW = 1e-300  # no less than what underflows in a sum of products of numbers up to 1
_LARGE = 700.0  # exponent of the largest factor taken


@dataclass(frozen=True)
class Jumps:
    """delta of a composition, from a line for each number of jumps.

    Attributes:
        lines: that of no jump, or of one, and so on.
        begins: an epsilon from which those of fewer jumps are zero.
        bounds: for each a, b and c, what is left out is at most e^(a - b eps), and about e^(c - b eps).
    """

    lines: Sequence[Line]
    begins: float
    bounds: Sequence[tuple[float, float, float]]

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon."""
        if epsilon < self.begins:
            raise CannotCertifyError("epsilon lies below what fewer jumps add up to")
        terms = [line.delta(epsilon) for line in self.lines]
        base = max(term.log_value for term in terms)
        # each base, K(theta) - theta eps, is a difference of possibly large numbers
        doubt = max(abs(line.log_phi) + line.theta * abs(epsilon) + abs(base) + 4.0 for line in self.lines)
        doubt *= 8.0 * UNIT_ROUNDOFF
        scales = [math.exp(min(term.base - base, _LARGE)) for term in terms]

        def total(each: Sequence[float]) -> float:
            return math.fsum(scale * one for scale, one in zip(scales, each, strict=True))

        exponents = [a - b * epsilon - base for a, b, _ in self.bounds]
        if max(exponents) > _LARGE:
            raise CannotCertifyError("epsilon is far from where the lines were drawn")
        more = math.fsum(math.exp(one) for one in exponents) * (1.0 + 1e-9)
        rest = [(math.exp(min(c - b * epsilon - base, _LARGE)), b) for _, b, c in self.bounds]
        about = math.fsum(one for one, _ in rest)
        value = total([term.value for term in terms]) + about
        low = total([max(term.low, 0.0) for term in terms])
        high = total([max(term.high, 0.0) for term in terms]) + more
        if not value > 0.0:
            raise CannotCertifyError("the contours are too far from their saddles")
        return LogDelta(
            lower=base + math.log(low) - doubt if low > 0.0 else -math.inf,
            estimate=base + math.log(min(value, high)),
            upper=base + math.log(high) + doubt,
            slope=(total([term.slope for term in terms]) - math.fsum(one * b for one, b in rest)) / value,
            ledger=ErrorLedger(
                truncation=(more + total([term.truncation for term in terms])) / value,
                aliasing=total([term.aliasing for term in terms]) / value,
                quadrature=0.0,
                roundoff=total([term.roundoff for term in terms]) / value + doubt,
            ),
        )


def draw(parts: Parts, plan: TiltPlan, epsilon: float, spare: float = 1.0, least_steep: float = 0.0) -> Jumps:
    """Draw a line for every number of jumps that matters at epsilon.

    Args:
        parts: the composition.
        plan: its rough nodes.
        epsilon: where questions will be asked.
        spare: how many times wider than usual the answer may be.
        least_steep: -d log(delta) / d log(eps) that is taken for a smaller one, where a width of delta is
            asked for and none of epsilon.

    Raises:
        CannotCertifyError: no loss is large enough, too many jumps matter, or a line cannot be drawn.
    """
    found = _planned(parts, plan, epsilon)
    steepness = max(found.steepness, least_steep)
    spare = min(spare, sparable(steepness))
    split, saddles = found.split, dict(enumerate(found.saddles, found.fewest))
    bounds = [(split.certified_many(*found.more), found.more[1], -math.inf)]
    rarity = {}  # of the terms that get a line
    for turn, one in saddles.items():
        if _chernoff(one) <= found.log_delta + min(found.log_allowed + math.log(spare), 0.0) - _MARGIN:
            log_one = split.certified_one(turn, one.theta)
            bounds.append((log_one, one.theta, one.log_delta + one.theta * epsilon))
        else:
            rarity[turn] = spare * math.exp(min(found.log_delta - one.log_delta, _LARGE))
    lines = {turn: split.line(turn, saddles[turn], steepness, rare) for turn, rare in rarity.items()}
    found_there = {turn: line.delta(epsilon) for turn, line in lines.items()}
    whole = float(np.logaddexp.reduce([one.log_value for one in found_there.values()]))
    for turn, one_there in found_there.items():  # a plan may be wrong by a factor of thousands
        share = math.exp(min(one_there.log_value - whole, 0.0))
        left = sparing(one_there, steepness, share, spare)
        if left < TOO_LITTLE:
            rare = min(rarity[turn], sparable(steepness)) * left
            with suppress(CannotCertifyError):
                lines[turn] = split.line(turn, saddles[turn], steepness, rare)
    return Jumps(list(lines.values()), split.largest_bulk if found.fewest else 0.0, bounds)


def planned_log_delta(parts: Parts, plan: TiltPlan, epsilon: float) -> float:
    """A rough log delta at an epsilon.

    Raises:
        CannotCertifyError: jumps cannot be told from other losses there.
    """
    return _planned(parts, plan, epsilon).log_delta


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
            found = _planned(parts, plan, math.exp(point))
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


@dataclass(frozen=True)
class _Planned:
    """How a composition is split at an epsilon, roughly.

    Attributes:
        saddles: where each line crosses the real axis, from that of the fewest jumps on.
        fewest: their number.
        log_delta: log of the sum.
        steepness: -d log(delta) / d log(eps).
        more: the number of jumps beyond which they are bounded, the tilt and log z of that bound.
    """

    split: "_Split"
    saddles: list[Saddle]
    fewest: int
    log_delta: float
    steepness: float
    more: tuple[int, float, float]

    @property
    def log_allowed(self) -> float:
        """log of what a bound may add, relative to the sum."""
        return math.log(_NEGLIGIBLE * max(self.steepness, _LEAST_STEEP))


def _chernoff(saddle: Saddle) -> float:
    """log of Chernoff's bound on a term, by the plan of its line."""
    theta = saddle.theta
    spread = math.log(math.sqrt(2.0 * math.pi) * saddle.deviation * theta * (1.0 + theta))
    return saddle.log_delta + spread + log_chernoff_constant(theta)


def _planned(parts: Parts, plan: TiltPlan, epsilon: float) -> _Planned:
    for cut in [fraction * epsilon for fraction in _FRACTIONS] + _gaps(plan):
        CLOCK.check()
        if not 0.0 < cut < MOST_EPSILON:
            continue
        split = _Split(parts, cut, epsilon, *plan.split(cut))
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
            planned = _Planned(split, saddles, fewest, log_delta, steepness, (count, tilt, factor))
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


@dataclass(frozen=True)
class _Split:
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
        return math.fsum(times * pair.supremum for pair, times in self.bulks) * (1.0 + 1e-12)

    @property
    def _all(self) -> int:
        """The releases that may be jumps."""
        return sum(self.parts[index][1] for index in self.which)

    # --- plans

    def planned(self, theta: float, most: int) -> Array:
        """log of the coefficients of 1, z, ... z^most at a tilt, roughly."""
        return self._log_coefficients(self.plan.log_phis(theta), self.jump_plan.log_phis(theta), most)

    def _log_coefficients(self, log_bulks: Array, log_jumps: Array, most: int) -> Array:
        """log of the coefficients, the last axis, of products over the kinds, the last axis of both."""
        times = self.plan.times[self.which]
        log_each = log_jumps - log_bulks[..., self.which] + np.log(times)
        log_mean = np.logaddexp.reduce(log_each, axis=-1)[..., None]
        turns = np.arange(most + 1)
        shares = np.maximum(1.0 - turns[:-1] / times[:, None], 0.0) / turns[1:]
        shares = np.cumprod(np.concatenate([np.ones((len(times), 1)), shares], axis=1), axis=1)
        with np.errstate(under="ignore"):
            found = product(shares * np.exp(log_each - log_mean)[..., None] ** turns)
        whole = (log_bulks @ self.plan.times)[..., None]
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
        found = self._log_coefficients(log_bulks, log_jumps, _MOST_JUMPS) - rest[:, None]
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
        bend = max(float(up - 2.0 * here + down) / (near[1] - near[0]) ** 2, 0.1)
        if not math.isfinite(here + bend):
            raise CannotCertifyError("so many jumps cannot be planned")
        theta, lowest = math.exp(near[middle]), float(here)
        bend /= theta**2
        log_delta = lowest - 0.5 * math.log(2.0 * math.pi * bend)
        return Saddle(theta, self.epsilon, log_delta, math.sqrt(bend))

    @property
    def may_be_few(self) -> bool:
        """Whether more jumps than are told apart can be negligible."""
        log_tilts, *logs = self._table
        log_delta = float(np.logaddexp.reduce(self._exponents(log_tilts, *logs).min(axis=0)))
        return self.many(_MOST_JUMPS)[0] <= log_delta + math.log(_NEGLIGIBLE) + 2.0 * _MARGIN

    def many(self, count: int) -> tuple[float, float, float]:
        """log of the bound on more jumps, roughly, and the tilt and log z where it is least."""
        if count >= self._all:
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

    # --- what is certified

    def nodes(self, tilts: tuple[float, ...], omega: float, jumps: bool) -> tuple[list[Nodes], list[Nodes]]:
        """Quadrature of all bulks and, if they are asked for, of all jumps."""
        found: list[list[Nodes]] = []
        for parts, plan in ((self.bulks, self.plan), (self.jumps, self.jump_plan)):
            if found and not jumps:
                found.append([])
                continue
            found.append(
                certified_nodes_of_all(
                    [pair for pair, _ in parts],
                    tilts,
                    omega,
                    np.stack([plan.log_phis(tilt) for tilt in tilts], axis=1),
                    most_panels=_MOST_PANELS,
                    most_in_all=_MOST_PANELS,
                )
            )
        return found[0], found[1]

    def certified_many(self, count: int, tilt: float, factor: float) -> float:
        """No less than log of the bound on more jumps at epsilon zero."""
        if count >= self._all:
            return -math.inf
        bulks, jumps = self.nodes((tilt,), 0.0, jumps=True)
        log_jumps = dict(zip(self.which, (_raised(one, 0) for one in jumps), strict=True))
        total = log_chernoff_constant(tilt) - (count + 1) * factor
        size = 0.0
        for index, (bulk, (_, times)) in enumerate(zip(bulks, self.bulks, strict=True)):
            log_jump = log_jumps.get(index, -math.inf) + factor
            one = times * float(np.logaddexp(_raised(bulk, 0), log_jump))
            total, size = total + one, size + abs(one)
        return total + 1e-9 + 1e-12 * (size + (count + 1) * factor)

    def certified_one(self, count: int, tilt: float) -> float:
        """No less than log of Chernoff's bound on the term of so many jumps at epsilon zero."""
        upper = [np.array([_raised(one, 0) for one in some]) for some in self.nodes((tilt,), 0.0, count > 0)]
        return self._above(upper[0], upper[1], count) + log_chernoff_constant(tilt)

    def _above(self, log_bulks: Array, log_jumps: Array, count: int) -> float:
        """No less than log of a coefficient, from no less than the logarithms of what it is made of."""
        whole = self.plan.times @ log_bulks
        if count:
            whole = self._log_coefficients(log_bulks, log_jumps, count)[count]
        return float(whole) + 1e-9 + 1e-12 * float(self.plan.times @ np.abs(log_bulks))

    def line(self, count: int, saddle: Saddle, steepness: float, rarity: float) -> Line:
        """The line of so many jumps; of a term that is less than the whole, by the `rarity`, fewer digits."""
        CLOCK.check()
        theta = saddle.theta
        window, theta_2 = period(lambda tilt: float(self.planned(tilt, count)[count]), saddle)
        step = 2.0 * math.pi / window
        kinds = len(self.bulks) + (len(self.jumps) if count else 0)
        points = windowed_points(theta, step, steepness, kinds, rarity)
        bulks, jumps = self.nodes((theta, theta_2), step * points, jumps=count > 0)
        omega = np.asarray(step * np.arange(points), dtype=np.float64)
        beside = dict(zip(self.which, jumps, strict=False))
        expected = [
            math.log(self.bulks[index][1]) + jump.log_phi[0] - bulks[index].log_phi[0]
            for index, jump in beside.items()
        ]
        unit = (
            float(np.logaddexp.reduce(expected)) if expected else 0.0
        )  # log of the expected number of jumps
        found = Polynomial.one(points, count)
        log_phi = mean = 0.0
        for index, (bulk, (_, times)) in enumerate(zip(bulks, self.bulks, strict=True)):
            CLOCK.check()
            value, error = of_nodes(bulk, step, points)
            error += bulk.quadrature[0]
            with np.errstate(divide="ignore", invalid="ignore"):
                # of the power, whose exponent is times log(value)
                error += 4.0 * UNIT_ROUNDOFF * np.nan_to_num(np.abs(value * np.log(value)))
            error += 4.0 * UNIT_ROUNDOFF * omega * abs(bulk.mean)
            log_phi += times * bulk.log_phi[0]
            mean += times * bulk.mean
            if index not in beside:
                found = found.times(value, error, None, None, times)
                continue
            jump = beside[index]
            one, slip = of_nodes(jump, step, points)
            size = math.exp(jump.log_phi[0] - bulk.log_phi[0] - unit)
            one = size * one * np.exp(1j * omega * (jump.mean - bulk.mean))
            slip = size * (
                slip + jump.quadrature[0] + 4.0 * UNIT_ROUNDOFF * omega * (abs(jump.mean) + abs(bulk.mean))
            )
            found = found.times(value, error, one, slip, times)
        real = float(found.size[count, 0])
        if not real > 0.0:
            raise CannotCertifyError("so many jumps are lost in rounding")
        size, larger = found.size[count] / real, found.larger[count] / real
        with np.errstate(divide="ignore"):
            exponent = np.where(found.value[count] != 0.0, np.log(found.value[count] / real), -745.0)
        upper = [np.array([_raised(one, 1) for one in some]) for some in (bulks, jumps)]
        return Line(
            theta=theta,
            step=step,
            s=np.asarray(theta + 1j * omega, dtype=np.complex128),
            exponent=exponent + 1j * omega * mean,
            excess_quadrature=np.zeros(points),
            excess_roundoff=np.maximum(larger - size, 0.0) + _units(kinds, count) * UNIT_ROUNDOFF * larger,
            log_phi=log_phi + count * unit + math.log(real),
            log_truncation=-math.inf,
            chernoff=(theta_2, self._above(upper[0], upper[1], count)),
            window=Window.ending(omega),
        )


def _units(kinds: int, most: int) -> float:
    """Rounding of products of so many polynomials, in units of that of their moduli."""
    return 64.0 + kinds * (most + 32.0)


def _raised(part: Nodes, tilt: int) -> float:
    """No less than log phi at a tilt of the nodes."""
    return part.log_phi[tilt] + part.quadrature[tilt] + part.roundoff[tilt]
