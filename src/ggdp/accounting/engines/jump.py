# SPDX-License-Identifier: Apache-2.0
"""At most one jump: a composition of few kinds of release of which one large loss, or none, decides delta.

Cut the noise at a point c. Below it lies the bulk B of a release, beyond it the jump J: the same two laws,
restricted to either side. Multiplied out, delta of T releases is a sum over the number of jumps,

    delta(eps) = D_0 + D_1 + D_2 + ...,      D_k = binomial(T, k) * delta of k jumps and T - k bulks,

exactly, with every term positive. A tilt that suits one of the terms does not suit the next: the law of the
sum, tilted to eps, has a hump for no jump and a hump for one, and eps may lie in the valley between. Taken
apart,

- D_0 has bounded losses. It is bounded by Chernoff where that makes it negligible, else by the contour.
- D_1 = T * sum of m(y) g(eps - y), where g is the closed form of one jump, and m the law of T - 1 bulks on a
  grid: one that dominates them from above and one that they dominate from below (`engines.grid_law`), each
  composed by one tilted transform. Without a law below, Jensen's inequality gives g at the mean: with p and q
  the masses of T - 1 bulks under P and Q, D_1 >= T p g(eps + log_of(q / p)), because x -> g(log x) is convex.
- The rest, two jumps or more, is only bounded. Either two jumps occur of which one exceeds a loss c_2: at
  most T^2 P(J) P(loss > c_2). Or all losses are at most c_2 and two are jumps: at most T^2 / 2 * M^2
  phi^(T-2) e^(-theta eps) with phi the moment generating function of losses up to c_2, and M that of the
  jumps among them, bounded cell by cell through their survival function.

`engines.bulk` holds the sums of one jump and all bulks beside it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ggdp.accounting.bounds import ErrorLedger
from ggdp.accounting.engines import contour, moments
from ggdp.accounting.engines.bulk import Bulk, Composed, Drawn, Jump, Sum, Window, bounded_exp, log_of
from ggdp.accounting.engines.curve import CLOCK, Curve, LogDelta
from ggdp.accounting.engines.lattice import log_sum
from ggdp.accounting.engines.tilt import Parts, TiltPlan, saddle_for_epsilon
from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.hockey_stick import log_masses, thresholds
from ggdp.privacy_loss.shift_pair import ShiftPair
from ggdp.search import geometric, halve

_FRACTIONS = (0.03, 0.05, 0.07, 0.1, 0.14, 0.19, 0.25, 0.32, 0.4, 0.48, 0.56, 0.64, 0.72, 0.8, 0.88)
HIGH = 0.4  # share of epsilon at which jumps may begin where none of them decides
_NEGLIGIBLE = -14.0  # log of what two jumps may add, relative to delta
_NO_MATTER = -25.0  # log of each charge that is to be negligible, relative to delta
_TILTS = np.geomspace(0.2, 2000.0, 40)  # times epsilon
_STEPS = np.geomspace(0.01, 1e5, 90)  # of a tilt, times epsilon
MOST_POINTS = 2**20
MOST_KINDS = 40  # of release of which jumps are bounded
_MOST_SPLIT = 12  # of which they are split off: each takes its own transform, and more take five seconds
MOST_KNOTS, FEWEST_KNOTS = 12_000, 2000  # at which jumps are asked for their delta, in all, and of one kind
_FEWEST_SUMS, _MOST_SUMS = 1500, 16_000  # points of a grid of sums of bulks that are drawn
_MINOR = 18.0  # log of how much smaller the jumps of a kind are that are only bounded
_FEW = 3  # kinds up to which plans are fine
_CELLS = 400  # of a bound on the moment generating function of a jump
_COARSE = 400  # points at which a window is planned


@dataclass(frozen=True)
class _Beside:
    """One kind of jump, how many releases may have it, and all other bulks from above and from below.

    Attributes:
        log_rest: no more than log of the mass under P of the other bulks.
        knots: points at which the jump's delta is asked for; none where it is far smaller than that of
            another kind, and only bounded.
    """

    jump: Jump
    times: int
    above: Bulk
    below: Bulk | None
    log_rest: float
    knots: int

    def at(self, epsilon: float, base: float) -> "Sum":
        """D_1 of this kind relative to e^base: the ends of both laws, the value in their middle."""
        if not self.knots:
            high = self.times * bounded_exp(self.above.log_at_most(self.jump, epsilon) - base)
            return Sum(base, 0.0, 0.0, high, 0.0, 0.0, high)
        upper = self.above.with_jump(self.jump, epsilon, self.knots)
        lower = None if self.below is None else self.below.with_jump(self.jump, epsilon, self.knots)
        ratio = self.times * bounded_exp(upper.log_scale - base)
        low, value, apart = self._jensen(epsilon, upper.log_scale), upper.value, math.inf
        if lower is not None:
            shrunk = bounded_exp(lower.log_scale - upper.log_scale)
            low = max(low, shrunk * lower.low)
            apart = abs(value - shrunk * lower.value)
            value = 0.5 * (value + shrunk * lower.value)
        if not low <= upper.high:
            raise CannotCertifyError("the law below lies above the law above: arithmetic failed")
        value, apart = min(max(value, low), upper.high), min(apart, upper.high - low)
        scaled = (ratio * v for v in (low, value, upper.high, upper.slope, upper.noise, upper.alias, apart))
        return Sum(base, *scaled)

    def _jensen(self, epsilon: float, base: float) -> float:
        """One jump beside bulks that say nothing, relative to e^base."""
        one = self.jump.delta(np.array([epsilon - self.log_rest]))
        value = float(one.value[0] - one.error[0])
        return bounded_exp(math.log(value) + self.log_rest - base) * (1.0 - 1e-14) if value > 0.0 else 0.0


@dataclass(frozen=True)
class OneJump:
    """delta of a composition, split by the number of jumps."""

    kinds: Sequence[_Beside]
    none: Callable[[float], tuple[float, float, float, float]]
    many: Callable[[float], float]

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon."""
        rough = [
            math.log(kind.times) + log_of(kind.jump.delta(np.array([epsilon])).value)[0]
            for kind in self.kinds
        ]
        none = self.none(epsilon)
        base = float(max(max(rough), none[1], -690.0))
        sums = [kind.at(epsilon, base) for kind in self.kinds]
        low, value, high, slope, noise, alias, apart = (
            math.fsum(getattr(one, name) for one in sums)
            for name in ("low", "value", "high", "slope", "noise", "alias", "apart")
        )
        rounding = 1.0 + 4.0 * UNIT_ROUNDOFF * (
            abs(base) + 16.0 + max(abs(kind.above.log_phi) for kind in self.kinds) + len(self.kinds)
        )
        none_low, none_here, none_high = (bounded_exp(v - base) for v in none[:3])
        none_slope = -none[3] * none_here
        more = bounded_exp(self.many(epsilon) - base)
        total, bottom, top = value + none_here, low / rounding + none_low, high * rounding + none_high + more
        if not total > 0.0:
            raise CannotCertifyError("the jump is lost in rounding")
        return LogDelta(
            lower=base + math.log(bottom) if bottom > 0.0 else -math.inf,
            estimate=base + math.log(total),
            upper=base + math.log(top),
            slope=-(slope + none_slope) / total,
            ledger=ErrorLedger(
                truncation=(more + max(none_high - none_here, 0.0)) / total,
                aliasing=alias / total,
                quadrature=0.0,
                roundoff=noise / total + rounding - 1.0,
                discretization=apart / total,
            ),
        )


@dataclass(frozen=True)
class NoJump:
    """delta of a composition of which no jump decides: D_0, and a bound on all other terms.

    D_1 of one kind is at most T (g(eps) + e^(K - theta eps) sup of e^(theta t) g(t)), with K the cumulant of
    all other bulks and t from where jumps begin to eps: the sum of the bulks is negative, or eps - t.

    Attributes:
        line: D_0.
        many: log of a bound on two jumps or more.
        tilt: theta.
        places: increasing t.
        log_jumps: log of the sum of times g(t) over all kinds, from above.
        cumulant: no less than that of all bulks but any one.
    """

    line: Curve
    many: Callable[[float], float]
    tilt: float
    places: Array
    log_jumps: Array
    cumulant: float

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon."""
        found = self.line.log_delta(epsilon)
        last = int(np.searchsorted(self.places, epsilon, side="right")) - 1  # g does not rise after it
        if not 0 <= last < len(self.places) - 1:
            raise CannotCertifyError("epsilon lies too far from where jumps were split off")
        rises = self.log_jumps[: last + 1] + self.tilt * (self.places[1 : last + 2] - epsilon)
        one = np.logaddexp(float(self.log_jumps[last]), float(rises.max()) + self.cumulant)
        more = float(np.logaddexp(one, self.many(epsilon))) + 1e-8
        share = bounded_exp(more - found.estimate)
        return replace(
            found,
            upper=float(np.logaddexp(found.upper, more)) + 4.0 * UNIT_ROUNDOFF * (1.0 + abs(found.upper)),
            ledger=replace(found.ledger, truncation=found.ledger.truncation + share),
        )


def without_jump(parts: Parts, plan: TiltPlan, epsilon: float, log_delta: float) -> NoJump:
    """Draw D_0 for questions near one epsilon, and bound all jumps; they begin at `HIGH` epsilon at least.

    Raises:
        CannotCertifyError: jumps matter, or D_0 cannot be had.
    """
    jumps, many = _chosen_jumps(parts, plan, epsilon, log_delta, HIGH)
    known = [(count, jump) for (_, count), jump in zip(parts, jumps, strict=True) if jump is not None]
    bulks = tuple(
        (pair if jump is None else jump.bulk, count) for (pair, count), jump in zip(parts, jumps, strict=True)
    )
    rest = TiltPlan.of(bulks)
    begins = min((jump.bulk.supremum for _, jump in known), default=HIGH * epsilon)
    places = np.linspace((1.0 - 1e-9) * begins, 1.3 * epsilon, _CELLS)
    total = np.full(_CELLS, 1e-300)
    for count, jump in known:
        one = jump.delta(places)
        total += count * (one.value + one.error)
    # g is at most the mass of the jump, and that is taken for all t up to the first place
    total[0] = 1e-300 + sum(count * math.exp(jump.log_p) for count, jump in known)
    log_jumps = np.log(total) + 1e-9
    tilts = _TILTS / epsilon
    before = places[:-1] < epsilon
    rises = [float((log_jumps[:-1] + tilt * (places[1:] - epsilon))[before].max()) for tilt in tilts]
    bounds = [
        float(rest.times @ rest.log_phis(float(tilt))) + rise for tilt, rise in zip(tilts, rises, strict=True)
    ]
    tilt = float(tilts[int(np.argmin(bounds))])
    # divided by the moment generating function of the release that jumps, no less than its mass to the
    # power 1 + tilt: Jensen's inequality
    least = min((math.log1p(-math.exp(jump.log_p)) for _, jump in known), default=0.0)
    cumulant = moments.certified_cumulant(bulks, rest, tilt) - (1.0 + tilt) * least * (1.0 + 1e-9)
    line = contour.draw(bulks, rest, saddle_for_epsilon(rest, epsilon))
    return NoJump(line, many, tilt, places, log_jumps, cumulant)


def planned(plan: TiltPlan, log_delta: float, most: float) -> tuple[float, float]:
    """A rough epsilon at a delta, at most the one given, and the least share of it at which to begin jumps.

    It is that of one jump, or of no loss above `HIGH` epsilon, whichever is more; by halving. In the second
    case jumps had better begin there: a tilt for bulks and a small jump does not suit bulks and a large one.
    """

    def one(epsilon: float) -> float:
        with np.errstate(divide="ignore"):
            singles = np.log(plan.times) + plan.log_single_deltas(np.full(len(plan.times), epsilon))
        return float(np.logaddexp.reduce(singles))

    def none(epsilon: float) -> float:
        return saddle_for_epsilon(plan.below(HIGH * epsilon), epsilon).log_delta

    low, _ = halve(lambda point: one(point) >= log_delta, 1e-3 * most, most, middle=geometric, halvings=14)
    if none(low) <= log_delta:
        return low, 0.0
    low, _ = halve(lambda point: none(point) >= log_delta, low, most, middle=geometric, halvings=8)
    return low, HIGH


def build(
    parts: Parts,
    plan: TiltPlan,
    epsilon: float,
    tolerance: float,
    most_points: int = MOST_POINTS,
    least: float = 0.0,
    drawn: bool = False,
) -> OneJump:
    """Split for questions near one epsilon, so finely that epsilon's relative width is about `tolerance`, if
    `most_points` are enough for that. Jumps begin at a share of epsilon no less than `least`. The sum of the
    bulks is composed by transforms, or `drawn` by contours, which suits very many releases.

    Raises:
        CannotCertifyError: two jumps are not negligible wherever they begin, or D_0 cannot be had.
    """
    if len(parts) > (MOST_KINDS if drawn else _MOST_SPLIT):
        raise CannotCertifyError("jumps are split off few kinds of release")
    times = plan.times
    with np.errstate(divide="ignore"):
        singles = np.log(times) + plan.log_single_deltas(np.full(len(parts), epsilon))
    log_delta = float(np.logaddexp.reduce(singles))
    if not log_delta > -690.0:
        raise CannotCertifyError("no loss is large enough to be a jump")
    jumps, many = _chosen_jumps(parts, plan, epsilon, log_delta, least)
    bulks = tuple(
        (pair if jump is None else jump.bulk, count) for (pair, count), jump in zip(parts, jumps, strict=True)
    )
    rest = TiltPlan.of(bulks)
    none = _no_jump(bulks, rest, epsilon, log_delta)
    window = _planned_window(rest, jumps, epsilon)
    lows = _lowest(rest, window.tilt)
    highs = [_highest(pair, rest, index, log_delta) for index, (pair, _) in enumerate(bulks)]
    spacing = (window.high - window.low) / 2.0**12
    known = [(index, jump) for index, jump in enumerate(jumps) if jump is not None]
    less = [index for index, _ in known]
    rare = sum(parts[index][1] * -math.log1p(-math.exp(jump.log_p)) for index, jump in known) * (1.0 + 1e-12)
    unit = float(np.logaddexp.reduce([math.log(parts[index][1]) + jump.log_p for index, jump in known]))
    releases = math.log(float(times.sum()))
    negligible = math.exp(min(max(log_delta + _NO_MATTER - unit - releases, -690.0), 0.0))
    most = most_points / (1 if len(parts) == 1 else 8)  # several kinds cost as many transforms
    grids: Drawn | Composed = Composed(bulks, jumps, lows, highs, window, negligible)
    if drawn:
        grids = Drawn.of(parts, jumps, window.tilt, log_delta)
        spacing, most = grids.width / _FEWEST_SUMS, _MOST_SUMS
    while True:
        CLOCK.check()
        above = grids.above(spacing, less)
        shares = [
            math.log(parts[index][1]) + over.log_at_most(jump, epsilon)
            for (index, jump), over in zip(known, above, strict=True)
        ]
        enough = max(*shares, none(epsilon)[1]) - _MINOR
        large = [index for index, share in zip(less, shares, strict=True) if share > enough]
        below = dict(zip(large, grids.below(large), strict=True)) if large else {}
        knots = max(MOST_KNOTS // max(len(large), 1), FEWEST_KNOTS)
        kinds = [
            _Beside(jump, parts[index][1], over, below.get(index), -rare, knots if index in below else 0)
            for (index, jump), over in zip(known, above, strict=True)
        ]
        found = OneJump(kinds, none, many)
        here = found.log_delta(epsilon)
        wanted = -0.5 * tolerance * here.slope * epsilon
        lost = here.ledger.roundoff > 0.1  # no finer grid helps against that
        size = len(above[0].loss)
        if here.ledger.discretization <= wanted or lost or 2 * size > most:
            return found
        finer = min(max(0.7 * wanted / here.ledger.discretization, 1.0 / 32.0), 0.25)
        spacing *= max(finer, size / most)


def _chosen_jumps(
    parts: Parts, plan: TiltPlan, epsilon: float, log_delta: float, least: float
) -> tuple[list[Jump | None], Callable[[float], float]]:
    """The smallest loss at which jumps may begin so that two of them are negligible, the jumps of all kinds
    that have any, and a bound on two."""
    tilts = (_TILTS if len(parts) <= _FEW else _TILTS[::3]) / epsilon
    loss, log_mass = plan.loss, plan.log_mass + plan.log_times
    rests: dict[float, list[float]] = {}
    for fraction in _FRACTIONS:
        if fraction < least:
            continue
        first = fraction * epsilon
        for limit in (1.0, 0.8, 0.65):
            second = limit * epsilon
            if first >= second:
                continue
            big = float(np.logaddexp.reduce(np.where(loss > second, log_mass, -np.inf)))
            small = float(np.logaddexp.reduce(np.where(loss > first, log_mass, -np.inf)))
            if big + small > log_delta + _NEGLIGIBLE:
                continue
            if second not in rests:
                kept = plan.below(second)
                rests[second] = [float(kept.times @ kept.log_phis(float(tilt))) for tilt in tilts]
            inside = (loss > first) & (loss <= second)
            bounds = []
            for tilt, rest in zip(tilts, rests[second], strict=True):
                jumps = log_sum(np.append(log_mass[inside] + tilt * loss[inside], -1e4))
                bounds.append(2.0 * jumps + rest - tilt * epsilon)
            best = int(np.argmin(bounds))
            if bounds[best] <= log_delta + _NEGLIGIBLE:
                chosen = [
                    Jump.beyond_loss(pair, first) if pair.supremum > first * (1.0 + 1e-9) else None
                    for pair, _ in parts
                ]
                return chosen, _several(parts, chosen, second, float(tilts[best]))
    raise CannotCertifyError("more than one jump may matter")


def _several(
    parts: Parts, jumps: Sequence[Jump | None], second: float, tilt: float
) -> Callable[[float], float]:
    """log of a bound on D_2 + D_3 + ..., as a function of epsilon."""
    log_jumps, log_all, log_big = -math.inf, -math.inf, -math.inf
    kept: list[tuple[ShiftPair, int]] = []
    for (pair, times), jump in zip(parts, jumps, strict=True):
        if jump is None:
            kept.append((pair, times))
            continue
        edges = np.linspace(float(pair.loss(np.array(jump.cut))), second, _CELLS + 1)
        places = thresholds(pair, edges)[0]
        log_p, _, slip = log_masses(pair, np.where(np.isfinite(places), places, jump.cut))
        # a place is off by next to nothing
        log_p = np.where(np.isfinite(places), log_p + slip, -np.inf) + 1e-6
        log_p[0] = jump.log_p
        # E[e^{tilt L}; jump, L <= c_2]
        #   <= e^{tilt l_1} P(J) + sum of (e^{tilt l_{i+1}} - e^{tilt l_i}) P(L > l_i)
        above = tilt * edges * (1.0 + 1e-9)
        rises = above[2:] + np.log(-np.expm1(above[1:-1] - above[2:]))
        log_jump = float(np.logaddexp.reduce(np.append(rises + log_p[1:-1], above[1] + log_p[0]))) + 1e-9
        # divided by the moment generating function of a release that is a jump, no less than its mass to the
        # power 1 + tilt: Jensen's inequality
        big = float(log_p[-1])
        if not big < -0.1:
            raise CannotCertifyError("no jump is rare")
        log_jump -= (1.0 + tilt) * math.log1p(-math.exp(big)) * (1.0 + 1e-9)
        count = math.log(times)
        log_jumps = float(np.logaddexp(log_jumps, count + log_jump))
        log_all = float(np.logaddexp(log_all, count + jump.log_p))
        log_big = float(np.logaddexp(log_big, count + big))
        kept.append((replace(pair, cut=float(places[-1])) if np.isfinite(places[-1]) else pair, times))
    restricted = tuple(kept)
    rest = moments.certified_cumulant(restricted, TiltPlan.of(restricted), tilt)

    def bound(epsilon: float) -> float:
        return float(np.logaddexp(log_all + log_big, 2.0 * log_jumps + rest - tilt * epsilon)) + 1e-8

    return bound


def _no_jump(
    parts: Parts, plan: TiltPlan, epsilon: float, log_delta: float
) -> Callable[[float], tuple[float, float, float, float]]:
    """log of D_0, from below, roughly and from above, with its slope, as a function of epsilon."""
    tilts = _TILTS / epsilon
    planned = [float(plan.times @ plan.log_phis(float(tilt))) - tilt * epsilon for tilt in tilts]
    tilt = float(tilts[int(np.argmin(planned))])
    if min(planned) + moments.log_chernoff_constant(tilt) <= log_delta + _NEGLIGIBLE:
        cumulant = moments.certified_cumulant(parts, plan, tilt) + moments.log_chernoff_constant(tilt)
        return lambda point: (-math.inf, -math.inf, cumulant - tilt * point + 1e-9, 0.0)
    line: Curve = contour.draw(parts, plan, saddle_for_epsilon(plan, epsilon))

    def value(point: float) -> tuple[float, float, float, float]:
        here = line.log_delta(point)
        return here.lower, here.estimate, here.upper, here.slope

    return value


def _planned_window(plan: TiltPlan, jumps: Sequence[Jump | None], epsilon: float) -> Window:
    """The tilt at which rounding of the transform does least harm, and a window that holds nearly all."""
    known = [
        (math.log(count), jump) for jump, count in zip(jumps, plan.times, strict=True) if jump is not None
    ]
    log_p = float(np.logaddexp.reduce([count + jump.log_p for count, jump in known]))

    def log_delta(t: Array) -> Array:
        """Of any one jump."""
        return np.asarray(np.logaddexp.reduce([count + log_of(jump.delta(t).value) for count, jump in known]))

    def cumulant(tilt: float) -> float:
        return float(plan.times @ plan.log_phis(tilt))

    def ends(tilt: float, right: float, left: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Last sum and a further tilt, first sum and a lesser tilt: e^-right and e^-left lie outside."""
        here = cumulant(tilt) if tilt else 0.0
        above = min(((cumulant(tilt + step) - here + right) / step, step) for step in steps)
        below = max(((here - cumulant(tilt - step) - left) / step, step) for step in steps)
        return above, below

    steps = [float(step) for step in (_STEPS if len(jumps) <= _FEW else _STEPS[::3]) / epsilon]
    log_one = float(log_delta(np.array([epsilon]))[0])
    (high, right), (low, left) = ends(0.0, log_p - log_one - _NO_MATTER, 3.0 - _NO_MATTER)
    for _ in range(3):
        sums = np.linspace(low, max(high, low + 1e-3 * epsilon), _COARSE)
        log_deltas = log_delta(epsilon - sums)
        spares = [(cumulant(step) + float((log_deltas - step * sums).max()), step) for step in [0.0, *steps]]
        spare, tilt = min(spares)
        enough = 3.0 - _NO_MATTER + max(spare - log_one, 0.0)
        (last, tilted_right), (first, tilted_left) = ends(tilt, enough, enough)
        wider = max(last - high, low - first) > 0.02 * (high - low)
        high, low = max(high, last), min(low, first)
        if not wider:  # else a tilt that suited the narrower window may not suit this one
            break
    most = sum(
        float(count) * (math.inf if jump is None else jump.bulk.supremum)
        for count, jump in zip(plan.times, jumps, strict=True)
    )
    high = most if high > 0.7 * most else high  # nothing lies beyond the largest sum, whatever the tilt
    if not 0.0 < high - low < math.inf:
        raise CannotCertifyError("no window holds the bulk")
    more = 0.01 * (high - low)
    return Window(low - more, high + more, tilt, right, left, tilted_right, tilted_left)


def _lowest(plan: TiltPlan, tilt: float) -> list[float]:
    """For each part, a loss below which there is next to nothing of a bulk, tilted or not."""
    found, releases = [], math.log(float(plan.times.sum()))
    for index in range(len(plan.times)):
        loss, log_mass, _ = plan.part(index)
        least = np.logaddexp.accumulate(log_mass) + max(tilt, 0.0) * loss
        least = least - (log_mass + max(tilt, 0.0) * loss).max()
        found.append(float(loss[max(int((least < -42.0 - releases).sum()) - 1, 0)]))
    return found


def _highest(pair: ShiftPair, plan: TiltPlan, index: int, log_delta: float) -> float:
    """A loss beyond which there is next to nothing of a bulk, or its largest one."""
    if math.isfinite(pair.supremum):
        return pair.supremum
    loss, log_mass, times = plan.part(index)
    beyond = np.logaddexp.accumulate(log_mass[::-1])[::-1] > log_delta + _NO_MATTER - math.log(times)
    return float(loss[min(int(beyond.sum()), len(loss) - 1)])
