# SPDX-License-Identifier: Apache-2.0
"""One jump beside the sum of all other releases' bulks: the sums that `engines.jump` is made of.

A jump is a release whose noise lies beyond a cut, a bulk one whose noise does not. With g the closed form of
one jump and m the law of all bulks beside it on a grid, what is computed is the sum of m(y) g(eps - y). The
law m comes from one tilted transform; what that wraps around, what lies outside its window, and rounding are
charged as in `engines.lattice`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ggdp.accounting.engines.grid_law import GridLaw, discretize, law_below
from ggdp.accounting.engines.lattice import Laws, log_sum, tilted_sums
from ggdp.accounting.engines.tilt import Parts
from ggdp.accounting.engines.two_scales import BulkSum, Split
from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.hockey_stick import HockeyStick, beyond, log_masses, thresholds
from ggdp.privacy_loss.shift_pair import ShiftPair

_MOST_EXACT = 12_000  # points at which a jump's delta is asked for; between them it is joined
_BLOCKS = 1000  # of a window: those in which one jump hardly matters are only bounded
_LARGE = 600.0  # exponent of the largest factor taken
_APART = 4  # kinds up to which all bulks but one are drawn for each

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Jump:
    """Noise beyond a cut: where it begins, and no less than log of its mass under P."""

    pair: ShiftPair
    cut: float
    log_p: float

    @staticmethod
    def beyond_loss(pair: ShiftPair, loss: float) -> "Jump":
        """The jumps whose loss exceeds the one given."""
        place = float(thresholds(pair, np.array([loss]))[0][0])
        if not math.isfinite(place):
            raise CannotCertifyError("no loss is large enough to be a jump")
        log_p, _, slip = (float(v[0]) for v in log_masses(pair, np.array([place])))
        if not log_p + slip < -0.1:
            raise CannotCertifyError("no jump is rare")
        return Jump(pair, place, log_p + slip)

    def delta(self, t: Array) -> HockeyStick:
        """delta of the jump alone, where its loss exceeds t."""
        return beyond(self.pair, t, self.cut)

    @property
    def log_rest(self) -> float:
        """No more than log of the mass of the rest under P."""
        return math.log1p(-math.exp(self.log_p)) * (1.0 + 1e-12)

    @property
    def bulk(self) -> ShiftPair:
        """The rest of the release."""
        return replace(self.pair, cut=self.cut)


@dataclass(frozen=True)
class Window:
    """Sums of bulks that are looked at, the tilt for it, and further tilts that show by Chernoff's bound how
    little lies outside.

    Attributes:
        low: the first sum.
        high: the last one.
        tilt: that of the transform.
        right: how much larger a tilt shows it beyond the last sum, of the law as it is.
        left: how much smaller a tilt, before the first one.
        tilted_right: the same for the tilted law.
        tilted_left: the same.
    """

    low: float
    high: float
    tilt: float
    right: float
    left: float
    tilted_right: float
    tilted_left: float


@dataclass(frozen=True)
class Bulk:
    """The law of a sum of bulks on a grid, tilted and scaled.

    Attributes:
        loss: the sums.
        share: their tilted masses, which sum to one with what lies outside.
        tilt: theta.
        log_phi: log of what they were scaled by.
        entry_error: bound on the error of each.
        alias: tilted mass that may have been wrapped into the window.
        log_right: log of the mass beyond the window, untilted, infinite losses included.
        log_left: log of the mass before it.
        slip: how far a sum may be off by rounding.
    """

    loss: Array
    share: Array
    tilt: float
    log_phi: float
    entry_error: float
    alias: float
    log_right: float
    log_left: float
    slip: float

    @staticmethod
    def of(laws: Laws, window: Window, less: Sequence[int]) -> "list[Bulk]":
        """The sum of all bulks but one, once for each kind that is one short."""
        spacing, tilt = laws[0][0].spacing, window.tilt
        size = 1 << max(8, math.ceil(math.log2((window.high - window.low) / spacing)))
        sums = tilted_sums(laws, tilt, size, less)
        tilts = (0.0, tilt, window.right, -window.left, tilt + window.tilted_right, tilt - window.tilted_left)
        each = np.array([[log_sum(law.log_mass + one * law.loss) for one in tilts] for law, _ in laws])
        times = np.array([float(count) for _, count in laws])
        found = []
        for short, (entries, entry_error, log_phi) in zip(less, sums, strict=True):
            counts = times - (np.arange(len(laws)) == short)
            origin = sum(count * law.origin for (law, _), count in zip(laws, counts, strict=True))
            first = sum(count * law.first for law, count in laws) - laws[short][0].first
            start = math.floor((window.low - origin) / spacing)
            loss = np.asarray(origin + (start + np.arange(size)) * spacing, dtype=float)
            _, tilted, right, left, tilted_right, tilted_left = (float(v) for v in counts @ each)
            rounding = 1e-13 * float(counts @ (np.abs(each[:, 0]) + np.abs(each[:, 1]))) + 1e-9
            right += rounding - window.right * float(loss[-1])
            left += rounding + window.left * float(loss[0])
            tilted_right -= tilted + window.tilted_right * float(loss[-1])
            tilted_left += window.tilted_left * float(loss[0]) - tilted
            # sums of bounded losses end, and where the window holds all of them nothing lies outside
            slack = 1e-9 * float(loss[-1] - loss[0])
            if float(loss[-1]) > float(counts @ [float(law.loss[-1]) for law, _ in laws]) + slack:
                right = tilted_right = -math.inf
            if float(loss[0]) < float(counts @ [float(law.loss[0]) for law, _ in laws]) - slack:
                left = tilted_left = -math.inf
            beyond_all = float(counts @ [law.infinite for law, _ in laws])
            infinite = math.log(1.01 * beyond_all) if beyond_all > 0.0 else -math.inf
            alias = math.exp(min(tilted_right + rounding, 0.0)) + math.exp(min(tilted_left + rounding, 0.0))
            places = float(
                counts @ [abs(law.origin) + (abs(law.first) + len(law.mass)) * spacing for law, _ in laws]
            )
            found.append(
                Bulk(
                    loss=loss,
                    share=np.roll(entries, -((start - first) % size)),
                    tilt=tilt,
                    log_phi=log_phi,
                    entry_error=entry_error,
                    alias=alias,
                    log_right=float(np.logaddexp(min(right, 0.0), infinite)),
                    log_left=min(left, 0.0),
                    slip=8.0 * UNIT_ROUNDOFF * (places + abs(float(loss[0])) + abs(float(loss[-1]))),
                )
            )
        return found

    @cached_property
    def _untilted(self) -> tuple[Array, float]:
        """e^(-tilt y), and log of what it was divided by."""
        exponent = -self.tilt * self.loss
        peak = float(exponent.max())
        if peak - float(exponent.min()) > _LARGE:
            raise CannotCertifyError("the window is too wide for its tilt")
        return np.exp(exponent - peak), peak

    @cached_property
    def _blocks(self) -> tuple[Indices, Array, Array]:
        """The last points of blocks of the window, and sums over each: of masses, untilted, and of units."""
        untilted = self._untilted[0]
        ends = np.unique(np.linspace(0, len(self.loss) - 1, min(_BLOCKS, len(self.loss))).astype(np.intp))
        starts = np.concatenate([[0], ends[:-1] + 1])
        return ends, np.add.reduceat(self.share * untilted, starts), np.add.reduceat(untilted, starts)

    def _ceiling(self, jump: Jump, epsilon: float) -> Array:
        """For each block a bound on g(epsilon - y) in it: g does not fall as y grows."""
        rough = jump.delta(epsilon - self.loss[self._blocks[0]])
        return np.asarray(rough.value + rough.error)

    def log_at_most(self, jump: Jump, epsilon: float) -> float:
        """No less than log of the sum of m(y) g(epsilon - y), from its blocks alone."""
        log_unit, (_, masses, units) = self._untilted[1], self._blocks
        ceiling = self._ceiling(jump, epsilon)
        log_scale = self.log_phi + log_unit
        # twice what is there is more than its rounding, and that of the sums y
        inside = 2.0 * float((masses + self.entry_error * units) @ ceiling) + 1e-300
        near = self.log_left + math.log(float(ceiling[0]) + 1e-300)
        return float(np.logaddexp.reduce([log_scale + math.log(inside), jump.log_p + self.log_right, near]))

    def with_jump(self, jump: Jump, epsilon: float, knots: int = _MOST_EXACT) -> "Sum":
        """sum of m(y) g(epsilon - y), from below and from above, with its slope."""
        (untilted, log_unit), (ends, masses, units) = self._untilted, self._blocks
        ceiling = self._ceiling(jump, epsilon)
        bound = masses * ceiling
        matters = bound > 1e-10 / len(ends) * float(bound.sum())
        begin, end = int(np.argmax(matters)), len(matters) - int(np.argmax(matters[::-1]))
        where = slice(int(ends[begin - 1]) + 1 if begin else 0, int(ends[end - 1]) + 1)
        exact = _joined(jump, epsilon - self.loss[where], knots)
        weight = self.share[where] * untilted[where]
        value, slope = float(weight @ exact.value), float(weight @ exact.slope)
        size = len(self.loss)
        ulps = size + 64.0 + 8.0 * (abs(self.log_phi) + self.tilt * float(np.abs(self.loss[[0, -1]]).max()))
        noise = self.entry_error * float(units @ ceiling) + self.slip * (slope + self.tilt * value)
        noise += float(weight @ exact.error) + UNIT_ROUNDOFF * ulps * value
        log_scale = self.log_phi + log_unit
        left_out = float(bound[:begin].sum() + bound[end:].sum())
        far = bounded_exp(jump.log_p + self.log_right - log_scale)
        near = bounded_exp(self.log_left - log_scale) * float(ceiling[0])
        alias = self.alias * float((untilted[ends] * ceiling).max()) * self._growth
        high = value + noise + left_out + far + near
        found = (log_scale, value - noise - alias, value, high, slope, noise, alias)
        return Sum(*(float(v) for v in found))

    @property
    def _growth(self) -> float:
        """By how much e^(-tilt y) falls within a block, at most."""
        return math.exp(self.tilt * float(np.diff(self.loss[self._blocks[0]]).max()))


def _joined(jump: Jump, t: Array, most: int = _MOST_EXACT) -> HockeyStick:
    """A jump's delta at falling t, of very many only at some, joined by chords in x = e^t.

    delta is convex in x, so a chord lies above it, by no more than a quarter of the chord's length times the
    difference of the slopes at its ends.
    """
    if len(t) <= most:
        return jump.delta(t)
    knots = np.unique(np.linspace(0, len(t) - 1, most).astype(np.intp))
    known = jump.delta(t[knots])
    left = np.minimum(np.searchsorted(knots, np.arange(len(t)), side="right") - 1, len(knots) - 2)
    # x, relative to that at the left end of its chord; t falls, so x does
    whole, part = np.expm1(t[knots[left + 1]] - t[knots[left]]), np.expm1(t - t[knots[left]])
    share = np.clip(part / whole, 0.0, 1.0)
    steep = known.slope[left + 1] * np.exp(t[knots[left]] - t[knots[left + 1]])
    gap = 0.25 * np.abs(whole) * (np.abs(steep - known.slope[left]) + 1e-9 * (steep + known.slope[left]))

    def between(values: Array) -> Array:
        return np.asarray((1.0 - share) * values[left] + share * values[left + 1])

    value = between(known.value)
    error = between(known.error) + gap + 8.0 * UNIT_ROUNDOFF * value
    return HockeyStick(value, error, between(known.slope))


@dataclass
class Composed:
    """Laws of all bulks but one on a grid, composed by transforms."""

    bulks: Parts
    jumps: Sequence[Jump | None]
    lows: Sequence[float]
    highs: Sequence[float]
    window: Window
    negligible: float
    laws: Sequence[tuple[GridLaw, int]] = ()

    def above(self, spacing: float, less: Sequence[int]) -> list[Bulk]:
        """The laws above, once for each kind that is one short."""
        self.laws = [
            (discretize(pair, spacing, low, high, self.negligible), count)
            for (pair, count), low, high in zip(self.bulks, self.lows, self.highs, strict=True)
        ]
        return Bulk.of(self.laws, self.window, less)

    def below(self, less: Sequence[int]) -> list[Bulk | None]:
        """The laws below on the same grid."""
        under = [
            (law_below(law, 0.0 if jump is None else jump.log_rest), count)
            for (law, count), jump in zip(self.laws, self.jumps, strict=True)
        ]
        return list(Bulk.of(under, self.window, less))


@dataclass
class Drawn:
    """The same from contours.

    Of few kinds all bulks but one are drawn, once for each kind that jumps. Of many, two contours serve for
    all of them: all bulks, normalised, dominate all but one; and they dominate what is left when one of every
    kind that jumps is taken away.

    Attributes:
        splits: the split of each kind.
        log_mass: log of the mass under P of all bulks.
        shift: the sum of their atoms.
        doubt: no less than the error of either.
        over: for each kind that jumps, bulks that dominate all but one of it.
        under: likewise bulks that these dominate; None where there are none.
    """

    splits: Sequence[Split]
    log_mass: float
    shift: float
    doubt: float
    over: dict[int, BulkSum]
    under: dict[int, BulkSum | None]
    spacing: float = 0.0

    @staticmethod
    def of(parts: Parts, jumps: Sequence[Jump | None], tilt: float, log_delta: float) -> "Drawn":
        """Draw them, for questions about deltas of about the one given."""
        splits = [
            Split.between(pair, -math.inf, math.inf if jump is None else jump.cut)
            for (pair, _), jump in zip(parts, jumps, strict=True)
        ]
        counts = [(split, count) for split, (_, count) in zip(splits, parts, strict=True)]
        less = [index for index, jump in enumerate(jumps) if jump is not None]

        def drawn(short: Sequence[int]) -> BulkSum | None:
            left = [(split, count - (index in short)) for index, (split, count) in enumerate(counts)]
            left = [(split, count) for split, count in left if count]
            return BulkSum.of(left, max(tilt, 1e-3), log_delta) if left else None

        under = {index: drawn([index]) for index in less} if len(less) <= _APART else {}
        over = {index: one for index, one in under.items() if one is not None}
        if len(over) < len(less):
            whole, fewer = drawn([]), drawn(less)
            assert whole is not None
            over, under = dict.fromkeys(less, whole), dict.fromkeys(less, fewer)
        log_mass = math.fsum(count * split.log_mass for split, count in counts)
        shift = math.fsum(count * split.atom for split, count in counts)
        doubt = math.fsum(count * split.doubt for split, count in counts)
        return Drawn(splits, log_mass, shift, doubt + 4.0 * UNIT_ROUNDOFF * abs(log_mass), over, under)

    @property
    def width(self) -> float:
        """From the first sum that matters to the last."""
        return max(one.width for one in self.over.values())

    def above(self, spacing: float, less: Sequence[int]) -> list[Bulk]:
        """The law above on a grid, beside a jump of each of the kinds."""
        self.spacing = spacing
        drawn = {id(self.over[index]): self.over[index] for index in less}
        laws = {key: one.on_grid(spacing).hull_above() for key, one in drawn.items()}
        return [self._beside(laws[id(self.over[index])], index, 1.0) for index in less]

    def below(self, less: Sequence[int]) -> list[Bulk | None]:
        """The law below, likewise; None where the grid is too coarse for one."""
        drawn = {id(one): one for index in less if (one := self.under[index]) is not None}
        laws = {key: one.on_grid(self.spacing).dominated() for key, one in drawn.items()}
        found = [laws.get(id(self.under[index])) for index in less]
        return [
            None if law is None else self._beside(law, index, -1.0)
            for law, index in zip(found, less, strict=True)
        ]

    def _beside(self, law: GridLaw, index: int, side: float) -> Bulk:
        split = self.splits[index]
        log_mass = self.log_mass - split.log_mass + side * self.doubt
        shift = self.shift - split.atom + side * self.doubt
        infinite = math.log(law.infinite) if law.infinite > 0.0 else -math.inf
        size = float(np.abs(law.loss[[0, -1]]).max()) + abs(shift)
        return Bulk(
            loss=law.loss + shift,
            share=law.mass,
            tilt=0.0,
            log_phi=log_mass,
            entry_error=0.0,
            alias=0.0,
            log_right=infinite + log_mass,
            log_left=-math.inf,
            slip=16.0 * UNIT_ROUNDOFF * size,
        )


@dataclass(frozen=True)
class Sum:
    """A sum relative to e^log_scale: certified ends, a value, minus its slope, its rounding error, what may
    have been wrapped into it, and how far two laws are apart.
    """

    log_scale: float
    low: float
    value: float
    high: float
    slope: float
    noise: float
    alias: float
    apart: float = 0.0


def bounded_exp(exponent: float) -> float:
    """e^exponent; a charge too large for a double is no charge."""
    if not exponent <= _LARGE:
        raise CannotCertifyError("what is charged is far larger than one jump")
    return math.exp(exponent)


def log_of(values: Array) -> Array:
    """log, minus infinity at zero."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))
