# SPDX-License-Identifier: Apache-2.0
"""Two scales: rare large losses on a coarse grid, the sum of all small ones drawn apart as a contour.

With a small sampling rate nearly every loss is of the order of the rate, and a few are of order one. A grid
that suits the few is far too coarse for the others, which it moves to its points release by release. So the
small losses are put on the grid once, after they have been summed up.

Split the noise of a release in two: its bulk, of mass p under P and q under Q, and the jumps on both sides.

- Averaged, the bulk is one atom, of mass p and loss a = log(p/q): all there is to see is that there was no
  jump.
- Normalised, the bulk is the pair (P restricted / p, Q restricted / q), whose losses are the bulk's less a.

The release is the averaged one, followed by a draw from the normalised bulk whenever there was no jump.

Above. Draw from the normalised bulk after a jump, too, and show the result. That shows no less, so n releases
are dominated by n averaged ones and, independently of them, n normalised bulks. The grid of an averaged
release begins at its atom, which is therefore not moved at all. The sum of the normalised bulks is one more
release: its curve is known from the contour engine at every grid point, and is joined by chords like others.

Below. With at most k jumps there are at least n - k bulks; show n - k of them, and of the others only whether
there was a jump. So delta is at least that of n averaged releases and n - k normalised bulks, less what those
outcomes contribute that have more than k jumps: with b the atom's part of an averaged release's moment
generating function at theta > 0 and J that of its jumps,

    E[(1 - e^(eps - S))_+ ; more than k jumps]  <=  e^(-theta eps) Psi z^-k (b + z J)^n    for every z >= 1,

where Psi is the moment generating function of all normalised bulks; each has one of at least 1, by Jensen's
inequality, so leaving out those that are not drawn only raises it. Jumps that are put at infinite loss are
charged with their probability. A bulk much narrower than a cell is worth nothing below, and none is shown.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from ggdp.accounting.engines import contour, lattice, moments
from ggdp.accounting.engines.grid_law import GridCurve, GridLaw, discretize, law_above, law_below
from ggdp.accounting.engines.lattice import Lattice, Laws
from ggdp.accounting.engines.tilt import Parts, Saddle, TiltPlan, saddle_at, saddle_for_epsilon
from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF
from ggdp.privacy_loss.hockey_stick import HockeyStick, beyond, log_masses, thresholds
from ggdp.privacy_loss.shift_pair import ShiftPair

_COARSEST = 0.02  # first spacing tried, against the length over which delta falls by a factor e
_BULK_CELLS = 3.0  # of the grid that a bulk reaches at least
_SPARE = 0.05  # expected number of further jumps that are less than that
_RARE = 0.02  # tilted share of a release's losses that are jumps, at most
_FEW_RELEASES = 16  # of a kind that are put on the grid as they are
_MOST_POINTS = 800_000  # of all curves together
_MOST_SUMS = 2**20  # of the transform
_ROUNDS = 4  # of finer and finer grids
_DEPTH = 36.0  # log of 1 / what is left out of the sum of the bulks
_UNLIKELY = -34.0  # log of the share of more than k jumps
_NARROW = 0.2  # deviation of the bulks, in cells, up to which they say nothing below
_STEPS = np.geomspace(0.3, 3e4, 24)  # of a tilt, in deviations
_LOST = 0.3  # relative error that no finer grid makes good
_STRAY = 1e-20  # mass of far losses that may be left out of a bound
_FURTHER = np.array([1.0, 3.0, 10.0, 30.0, 100.0])  # such losses against those of jumps
_NO_JUMPS = 1e-15  # of delta: chance of a jump up to which there is none
_LEFT = 4  # points before the first loss, or the atom of a release without jumps there
_MOST_BULK_POINTS = 20_000  # at which the sum of the bulks is asked for


@dataclass(frozen=True)
class Split:
    """A release whose noise is split in two.

    Attributes:
        pair: the release, which may be cut; noise beyond its cut is none of it.
        low: noise before it is a jump.
        high: noise beyond it is a jump.
        jump: mass of the jumps under P.
        log_mass: log of the bulk's mass p under P.
        atom: log(p/q).
        doubt: no less than the error of either; added to the atom where it must not be too low.
    """

    pair: ShiftPair
    low: float
    high: float
    jump: float
    log_mass: float
    atom: float
    doubt: float

    @staticmethod
    def at(pair: ShiftPair, below: float, above: float) -> "Split":
        """Jumps are losses less than the first number or more than the second."""
        low, high = (float(v) for v in thresholds(pair.whole, np.array([below, above]))[0])
        return Split.between(pair, low, high)

    @staticmethod
    def between(pair: ShiftPair, low: float, high: float) -> "Split":
        """Jumps are noise before the first number or beyond the second."""
        masses = [np.array([-np.inf, -np.inf, 0.0])]  # log under P, log under Q, and their error
        if math.isfinite(high):
            masses.append(np.array(log_masses(pair.whole, np.array([high]))).ravel())
        if math.isfinite(low):  # the reverse exchanges P and Q
            masses.append(np.array(log_masses(pair.whole.reverse, np.array([-low]))).ravel()[[1, 0, 2]])
        jump_p, jump_q = (math.fsum(math.exp(one[side]) for one in masses) for side in (0, 1))
        if not jump_p + jump_q < 0.9:
            raise CannotCertifyError("no jump is rare")
        slip = 8.0 * max(float(one[2]) for one in masses) + 16.0 * UNIT_ROUNDOFF
        log_p, log_q = math.log1p(-jump_p), math.log1p(-jump_q)
        doubt = slip * (jump_p + jump_q) / 0.1
        return Split(pair, low, high, jump_p, log_p, log_p - log_q, doubt + UNIT_ROUNDOFF)

    @property
    def jumps(self) -> bool:
        """Whether there are any jumps."""
        return math.isfinite(self.low) or math.isfinite(self.high)

    @property
    def bulk(self) -> ShiftPair:
        """The release restricted to its bulk."""
        return replace(self.pair.whole, cut=self.high, floor=self.low)

    def alone(self, spacing: float) -> GridLaw:
        """The averaged release above where its jumps are next to nothing: their losses become infinite."""
        return GridLaw(
            origin=self.atom + self.doubt,
            first=0,
            spacing=spacing,
            mass=np.array([math.exp(self.log_mass) * (1.0 + self.doubt + 4.0 * UNIT_ROUNDOFF)]),
            infinite=self.jump * (1.0 + 1e-9),
            raised=0.0,
            moved=math.inf,
            excess_mass=0.0,
            excess_factor=0.0,
        )

    def alone_below(self, spacing: float) -> GridLaw:
        """The same below: what jumps is left out."""
        mass = np.array([math.exp(self.log_mass) * (1.0 - self.doubt - 4.0 * UNIT_ROUNDOFF)])
        origin = self.atom - 2.0 * self.doubt
        return replace(self.alone(spacing), origin=origin, mass=mass, infinite=0.0, moved=0.0)

    def averaged(self, spacing: float, last: float, first: float) -> GridCurve:
        """The curve of the averaged release on a grid through its atom, from the first loss to the last.

        Right of the atom only jumps upwards have losses so large, left of it only those downwards so small.
        """
        origin, begin = self.atom + self.doubt, -_LEFT
        if math.isfinite(self.low):
            begin = min(math.floor((first - origin) / spacing) - _LEFT, begin)
        end = max(math.ceil((last - origin) / spacing), 8)
        t = np.asarray(origin + np.arange(begin, end + 1) * spacing, dtype=float)
        before, after = t[: 1 - begin], t[-begin:]
        none = np.zeros(len(before))
        left, right = HockeyStick(none, none, none), HockeyStick(*(np.zeros(len(after)) for _ in range(3)))
        if math.isfinite(self.high):
            right = beyond(self.pair.whole, after, self.high)
        if math.isfinite(self.low):
            back = beyond(self.pair.whole.reverse, -before, -self.low)
            grow = np.exp(before)
            error = grow * (back.error + 8.0 * UNIT_ROUNDOFF * back.value)
            # the slope of e^t g(-t) is e^t g + e^t (-g') with -g' the slope kept
            left = HockeyStick(grow * back.value, error, grow * (back.value + back.slope))
        return GridCurve(
            pair=None,
            origin=origin,
            first=begin,
            spacing=spacing,
            turn=-begin,
            t_turn=origin,
            ends=math.isfinite(self.pair.cut) and last == self.pair.supremum,
            left=left,
            right=right,
            is_atom=True,
        )


@dataclass(frozen=True)
class BulkSum:
    """The sum of normalised bulks: a contour, and Chernoff bounds on both sides where it is no use.

    Attributes:
        line: of the restricted laws.
        shift: by how much their losses exceed the normalised ones.
        log_mass: log of the mass of all of them under P.
        doubt: no less than the error of either.
        right: a tilt, and no less than log of the moment generating function of the restricted laws there.
        left: the same for the reversed laws, of which a little may be left out:
        log_stray: log of a bound on its mass.
        last: a loss beyond which next to nothing lies.
        first: a loss before which next to nothing lies, tilted.
        deviation: of the sum, roughly.
    """

    line: contour.Line
    shift: float
    log_mass: float
    doubt: float
    right: tuple[float, float]
    left: tuple[float, float]
    last: float
    first: float
    log_stray: float
    deviation: float

    @staticmethod
    def of(splits: "list[tuple[Split, int]]", theta: float, log_delta: float) -> "BulkSum":
        """Draw the line where a tilt of theta, or a larger one, finds nearly all of the sum."""
        bulks = tuple((split.bulk, times) for split, times in splits)
        plan = TiltPlan.of(bulks)
        shift = math.fsum(times * split.atom for split, times in splits)
        log_mass = math.fsum(times * split.log_mass for split, times in splits)
        doubt = math.fsum(times * split.doubt for split, times in splits) + 4.0 * UNIT_ROUNDOFF * abs(
            log_mass
        )
        deviation = math.sqrt(plan.cumulants(theta).curvature)
        middle = saddle_for_epsilon(plan, shift)
        line = contour.draw(bulks, plan, middle if middle.theta > theta else saddle_at(plan, theta))
        reverse, stray = _reversed(splits)
        right, last = _chernoff(bulks, plan, theta, 0.0, deviation, log_mass + log_delta)
        left, first = _chernoff(reverse, TiltPlan.of(reverse), 0.0, 1.0 + theta, deviation, log_mass - shift)
        return BulkSum(
            line=line,
            shift=shift,
            log_mass=log_mass,
            doubt=doubt,
            right=right,
            left=left,
            last=last - shift,
            first=-first - shift * left[0] / (left[0] + 1.0 + theta),
            log_stray=math.log(stray) - log_mass + shift + 1e-9 if stray > 0.0 else -math.inf,
            deviation=deviation,
        )

    @property
    def width(self) -> float:
        """From the first loss that matters to the last."""
        return self.last - self.first

    def on_grid(self, spacing: float) -> GridCurve:
        """The curve at the multiples of the spacing."""
        first, last = min(math.floor(self.first / spacing), -_LEFT), max(math.ceil(self.last / spacing), 8)
        if last - first > _MOST_BULK_POINTS:
            raise CannotCertifyError("the sum of the bulks is too wide for the grid")
        left, right = (self._side(begin, end, spacing) for begin, end in ((first, 0), (0, last)))
        left.value[-1], left.error[-1] = right.value[0], right.error[0]
        return GridCurve(None, 0.0, first, spacing, -first, 0.0, False, left, right)

    def _side(self, first: int, last: int, spacing: float) -> HockeyStick:
        """delta(t) - (1 - e^t) where t <= 0, or delta(t) where t >= 0, of the normalised bulks."""
        places = np.arange(first, last + 1) * spacing
        is_far = last == 0
        theta, log_phi = self.left if is_far else self.right
        # the far side is e^t times delta at -t of the reversed laws, whose losses and masses are log(p/q) off
        off = places - self.log_mass + self.shift if is_far else np.full_like(places, -self.log_mass)
        away = np.abs(places) + (-self.shift if is_far else self.shift)
        slack = (2.0 + theta) * self.doubt + 1e-9
        log_bound = log_phi - theta * away + off + moments.log_chernoff_constant(theta) + slack
        if is_far:
            log_bound = np.logaddexp(log_bound, self.log_stray + places + slack)
        slip = self.doubt + 4.0 * UNIT_ROUNDOFF * (float(np.abs(places).max()) + abs(self.shift))
        start, count = first * spacing + self.shift, len(places)
        lower, _ = self.line.log_deltas(start + slip, spacing, count)
        _, upper = self.line.log_deltas(start - slip, spacing, count)
        left_out = -np.expm1(places) if is_far else np.zeros(count)
        rounding = 4.0 * UNIT_ROUNDOFF * left_out
        low = np.exp(np.minimum(lower - self.log_mass - slip, 600.0)) - left_out - rounding
        high = np.exp(np.minimum(upper - self.log_mass + slip, 600.0)) - left_out + rounding
        most = np.exp(np.minimum(places, 0.0))  # whatever the laws
        high = np.maximum(np.minimum(high, np.minimum(np.exp(np.minimum(log_bound, 0.0)), most)), 0.0)
        low = np.clip(low, 0.0, high)
        error = 0.5 * (high - low) * (1.0 + 1e-12) + 1e-300
        return HockeyStick(0.5 * (low + high), error, np.zeros(count))


def _chernoff(
    parts: Parts, plan: TiltPlan, least: float, more: float, deviation: float, log_unit: float
) -> tuple[tuple[float, float], float]:
    """A tilt above the least, no less than log of the moment generating function there, and the loss from
    which on e^(-more loss) times the bound that it gives is negligible beside e^log_unit; the nearest found.
    """
    tilts = least + np.append(_STEPS / deviation, [0.01, 0.1, 1.0])
    planned = np.array([float(plan.times @ plan.log_phis(float(tilt))) for tilt in tilts])
    ends = (planned - log_unit + _DEPTH) / (tilts + more)
    for place in np.argsort(ends):
        try:
            cumulant = moments.certified_cumulant(parts, plan, float(tilts[place]))
        except ArithmeticError:
            continue
        return (float(tilts[place]), cumulant), float(ends[place])
    raise CannotCertifyError("no tilt bounds the sum of the bulks")


def _reversed(splits: "list[tuple[Split, int]]") -> tuple[Parts, float]:
    """The bulks with their two laws exchanged, and a bound on the mass of all that is left out of them.

    Losses that fall without bound, and hardly ever do, would make every moment generating function useless.
    """
    found, stray = [], 0.0
    for split, times in splits:
        pair = split.bulk
        low = pair.floor
        if not math.isfinite(low) and math.isfinite(pair.cut):
            places = thresholds(pair.whole, -pair.supremum * _FURTHER)[0]
            places = places[np.isfinite(places)]
            log_q, _, slip = log_masses(pair.whole.reverse, -places)
            masses = times * np.exp(log_q + slip) * (1.0 + 1e-9)
            if (masses < _STRAY).any():
                nearest = int(np.argmax(masses < _STRAY))
                low, stray = float(places[nearest]), stray + float(masses[nearest])
        found.append((replace(pair.reverse, cut=-low, floor=-pair.cut), times))
    return tuple(found), stray


@dataclass(frozen=True)
class _Kinds:
    """How each kind of release is composed: split in two, or put on the grid as it is."""

    split: list[tuple[Split, int, int]]
    whole: list[tuple[ShiftPair, int, int]]

    @staticmethod
    def of(parts: Parts, plan: TiltPlan, theta: float, spacing: float, closely: bool) -> "_Kinds":
        """Jumps begin a few cells from zero; or, `closely`, nearer, where few losses would lie between."""
        found = _Kinds([], [])
        for index, (pair, times) in enumerate(parts):
            loss, log_mass, _ = plan.part(index)
            exponent = log_mass + theta * loss
            expected = np.exp(exponent - exponent.max())
            expected *= times / expected.sum()
            beyond = [float(expected[side * loss > _BULK_CELLS * spacing].sum()) for side in (-1.0, 1.0)]
            if times <= _FEW_RELEASES and sum(beyond) > 1e-3 * times:
                found.whole.append((pair, times, index))
                continue
            last = len(loss) - 1
            fewest = [min(_RARE * times, _SPARE + 2.0 * count if closely else count) for count in beyond]
            first, end = (
                min(int((np.cumsum(side) < few).sum()), last)
                for side, few in zip((expected, expected[::-1]), fewest, strict=True)
            )
            below, above = min(float(loss[first]), 0.0), max(float(loss[last - end]), 0.0)
            if not closely:
                below, above = min(below, -_BULK_CELLS * spacing), max(above, _BULK_CELLS * spacing)
            up = above if pair.supremum > above > 0.0 else math.inf
            # jumps downwards only are not split off: the grid is too short for a law below
            down = below if math.isfinite(up) and pair.infimum < below < 0.0 else -math.inf
            found.split.append((Split.at(pair, down, up), times, index))
        return found

    def bulks(self, saddle: Saddle) -> BulkSum:
        """The sum of all bulks."""
        if not self.split:
            raise CannotCertifyError("no kind of release has a bulk and jumps")
        return BulkSum.of([(split, times) for split, times, _ in self.split], saddle.theta, saddle.log_delta)


def build(parts: Parts, plan: TiltPlan, saddle: Saddle, tolerance: float) -> Lattice:
    """Compose on two scales around the saddle, fine enough for a relative width of `tolerance` in delta if
    affordable.

    Raises:
        CannotCertifyError: the window misses the answer, or the sum of the bulks cannot be drawn.
    """
    spans = [lattice.span_of(pair, plan, saddle, index) for index, (pair, _) in enumerate(parts)]
    window = lattice.window_of(plan, saddle)
    finest = max(1.5 * window / _MOST_SUMS, sum(high - low for low, high in spans) / _MOST_POINTS)
    spacing = max(_COARSEST / (saddle.theta + 1.0), finest)
    best, narrowest = None, math.inf
    for _ in range(_ROUNDS):
        try:
            found = _on_grid(parts, plan, spans, saddle, window, spacing)
            ledger = found.log_delta(saddle.epsilon).ledger
        except CannotCertifyError:
            if best is None:
                raise
            return best
        width = ledger.discretization
        if best is None or width < narrowest:
            best, narrowest = found, width
        lost = max(ledger.roundoff, ledger.truncation) > _LOST
        if lost or width <= tolerance or spacing <= finest:
            break
        finer = 0.8 * math.sqrt(tolerance / width) if math.isfinite(width) else 0.25
        spacing = max(finest, spacing * min(max(finer, 0.02), 0.5))
    assert best is not None
    return best


def _on_grid(
    parts: Parts,
    plan: TiltPlan,
    spans: list[tuple[float, float]],
    saddle: Saddle,
    window: float,
    spacing: float,
) -> Lattice:
    try:
        kinds = _Kinds.of(parts, plan, saddle.theta, spacing, closely=False)
        bulks = kinds.bulks(saddle)
    except CannotCertifyError:  # losses much larger than the others, and rare, remain in the bulk
        kinds = _Kinds.of(parts, plan, saddle.theta, spacing, closely=True)
        bulks = kinds.bulks(saddle)
    size = 1 << max(6, math.ceil(math.log2(1.5 * window / spacing)))
    negligible = 1e-11 * math.exp(saddle.log_delta)
    whole = [
        (discretize(pair, spacing, *spans[index], negligible / times), times)
        for pair, times, index in kinds.whole
    ]
    averaged = [
        (
            split.alone(spacing)
            if split.jump * times <= _NO_JUMPS * math.exp(saddle.log_delta)
            else law_above(split.averaged(spacing, spans[index][1], spans[index][0]), negligible / times),
            times,
        )
        for split, times, index in kinds.split
        if split.jumps
    ]
    sum_above = bulks.on_grid(spacing).hull_above()
    above = lattice.compose([*whole, *averaged, (sum_above, 1)], saddle, size, spacing)
    try:
        return replace(above, below=_below(above, whole, averaged, kinds, bulks, saddle, size, spacing))
    except CannotCertifyError:
        return above


def _below(
    above: Lattice,
    whole: Laws,
    averaged: Laws,
    kinds: _Kinds,
    bulks: BulkSum,
    saddle: Saddle,
    size: int,
    spacing: float,
) -> Lattice:
    """The composition below, with what more jumps than are allowed for may have added to it."""
    laws = [(law_below(law), times) for law, times in whole]
    splits = [split for split, _, _ in kinds.split if split.jumps]
    for (law, times), split in zip(averaged, splits, strict=True):
        laws.append((law.below or split.alone_below(spacing), times))
    charged, drawn = 0.0, None
    if bulks.deviation > _NARROW * spacing:
        fewer = [(split, times) for split, times, _ in kinds.split if not split.jumps]
        for (law, times), split in zip(averaged, splits, strict=True):
            most = _most_jumps(law, times, saddle.theta, _UNLIKELY - math.log(len(averaged)))
            charged += times * law.infinite * math.exp(-above.base)
            if times > most:
                fewer.append((split, times - most))
        charged += math.exp(_UNLIKELY)
        if fewer:
            some = BulkSum.of(fewer, saddle.theta, saddle.log_delta)
            drawn = some.on_grid(spacing).dominated()
    if drawn is None:
        return lattice.compose(laws, saddle, size, spacing)
    found = lattice.compose([*laws, (drawn, 1)], saddle, size, spacing)
    return replace(found, alias=found.alias + charged * math.exp(min(above.base - found.base, 600.0)))


def _most_jumps(law: GridLaw, times: int, theta: float, rare: float) -> int:
    """A number of jumps of one kind that is exceeded, under the tilted law, with log probability `rare`."""
    if law.curve is None:  # jumps are infinite, and counted apart
        return 0
    tilted = np.exp(law.log_mass + theta * (law.loss - law.origin))
    atom = float(tilted[-law.first])
    mean = times * max(float(tilted.sum()) - atom, 0.0) / atom * (1.0 + 1e-9) + 1e-300
    most = math.ceil(max(1.0, 2.0 * mean))
    while most - mean - most * math.log(most / mean) > rare:
        most = math.ceil(1.1 * most)
    return most
