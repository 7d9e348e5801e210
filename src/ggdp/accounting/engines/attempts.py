# SPDX-License-Identifier: Apache-2.0
"""Where the curve of each engine is drawn, and drawn again until epsilon lies there.

An engine's curve is good near the epsilon that it was drawn for. That epsilon is planned first, without any
guarantee; a rough curve then says where it really lies, and the last curve is drawn there. `Attempts` lists
the engines for a question, the cheapest first. Trying them and choosing among answers is left to
`engines.pairs`.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial

from ggdp.accounting.bounds import Bounds
from ggdp.accounting.engines import contour, jumps, lattice, moments, rare
from ggdp.accounting.engines.curve import MOST_EPSILON, Curve, EpsilonSandwich, crossing
from ggdp.accounting.engines.jump_plan import planned_epsilon
from ggdp.accounting.engines.tilt import Saddle, TiltPlan, saddle_for_epsilon
from ggdp.errors import CannotCertifyError
from ggdp.privacy_loss.dominating import Parts

LEAST_EPSILON = 1e-14
"""The smallest epsilon that large and small losses are told apart for."""

_GOOD_WIDTH = 2e-7  # relative width at which the contour's answer is taken as it is
_FAIR_WIDTH = 1e-6  # and any other engine's,
_SPLIT_WIDTH = 8e-6  # and that of a split by the number of jumps
_ENOUGH = {
    "contour": _GOOD_WIDTH,
    "contour with rare event": 3e-6,
    "windowed contour": 5.5e-6,
    "jumps": _SPLIT_WIDTH,
    "jumps with rare event": _SPLIT_WIDTH,
}
_MOST_STEEP = 25.0  # times as wide an answer may be where delta is steep
_MOST_ON_GRID = 60  # different parts that are put on a grid
_MOST_SPLIT = 60  # different parts that are split by the number of jumps
_MOST_RARE = 100  # different parts of which a rare event is split off, or a line drawn twice
_MANY = 12  # different parts beyond which a plan of their jumps costs more than a curve drawn in vain
_MISSED = 0.2  # how far the best plan's log delta may be off, relative to it
_APART = 0.02  # how far two plans may be apart that agree
_RARELY = 0.1  # samples of a record in all, up to which the sum of all releases' own costs is looked at
_ROUGHLY = 1e9  # how many times wider than usual curves are by which epsilon is sought,
_AIM = 4e-6  # and then answered, to about this width,
_MOST_DRAWN = 4  # in so many turns,
_LEAST_SPARED = 0.05  # of the usual errors,
_MOST_SPARED = 4e4  # where steeper curves cannot be so many times wider
_NO_SHARE = 1e-7  # of delta, that may be bounded only
_MOST_TURNS = 8  # of curves drawn one after another
_FURTHEST = 2.0  # how far, in its logarithm, one goes towards epsilon
_CLOSE = 0.02  # epsilons for which one curve serves

Engine = Callable[[Parts, TiltPlan, Saddle], Curve]
Solved = tuple[EpsilonSandwich, Curve]


def relative_width(found: Bounds | EpsilonSandwich) -> float:
    """Width over upper end; infinite where there is no positive upper end."""
    return found.width / found.upper if 0.0 < found.upper < math.inf else math.inf


def is_good(found: Bounds | EpsilonSandwich, method: str, steepness: float = 1.0) -> bool:
    """Whether an answer is narrow enough to stop; of a delta with a large steepness, which is
    -d log(delta) / d log(eps), it may be a few times wider.
    """
    enough = _ENOUGH.get(method, _FAIR_WIDTH) * min(max(steepness, 1.0), _MOST_STEEP)
    return found.width <= enough * found.upper < math.inf


class Attempts:
    """The engines that may answer questions about one composition.

    Args:
        parts: the pairs and how often each is released.
        plan: its rough cumulants.
    """

    def __init__(self, parts: Parts, plan: TiltPlan) -> None:
        self.parts = parts
        self._plan = plan
        self._guesses: dict[tuple[str, float], float] = {}

    @cached_property
    def may_be_rare(self) -> bool:
        """Whether a large loss can be much rarer than a small one: sampled, and tails not Laplace."""
        return len(self.parts) <= _MOST_RARE and any(
            pair.rate < 1.0 and pair.up > 0.0 and pair.beta > 1.0 for pair, _ in self.parts
        )

    def for_epsilon(self, saddle: Saddle, log_delta: float) -> Iterator[tuple[str, Callable[[], Solved]]]:
        """Ways to epsilon at a delta, the cheapest first."""
        planned = saddle.epsilon < 5.0 * MOST_EPSILON  # else no tilt brings delta down to it
        several = len(self.parts)
        missed = abs(saddle.log_delta - log_delta) > _MISSED * abs(log_delta)  # the plan jumps over it
        if planned and not (missed and self.may_be_rare):
            yield "contour", partial(self._by_engine, contour.draw, saddle, log_delta)
        if self.may_be_rare and several <= _MOST_SPLIT:
            yield "contour with rare event", partial(self._with_rare, log_delta)
        if planned and not missed and not self._is_valley(saddle, log_delta):
            yield "windowed contour", partial(self._by_engine, contour.draw_windowed, saddle, log_delta)
        if several <= _MOST_SPLIT:
            if self.may_be_rare:
                yield "jumps with rare event", partial(self._by_jumps, saddle, log_delta, apart=True)
            yield "jumps", partial(self._by_jumps, saddle, log_delta, apart=False)
        if planned and several <= _MOST_RARE:
            yield "contour", partial(self._by_engine, _patient, saddle, log_delta)
        if planned and several <= _MOST_ON_GRID:
            yield "lattice", partial(self._by_engine, _grid, saddle, log_delta)

    def for_delta(self, saddle: Saddle, epsilon: float) -> Iterator[tuple[str, Callable[[], Curve]]]:
        """Ways to delta at an epsilon, the cheapest first."""
        several = len(self.parts)
        yield "contour", partial(contour.draw, self.parts, self._plan, saddle)
        if self.may_be_rare:
            yield "contour with rare event", partial(self._rare_curve, _line_beside, epsilon)
        yield "windowed contour", partial(contour.draw_windowed, self.parts, self._plan, saddle, 1.0)
        if several <= _MOST_SPLIT:
            if self.may_be_rare:
                yield "jumps with rare event", partial(self._rare_curve, _jumps_beside, epsilon)
            asked = max(epsilon, LEAST_EPSILON)
            yield "jumps", partial(jumps.draw, self.parts, self._plan, asked, least_steep=1.0)
        if several <= _MOST_RARE:
            yield "contour", partial(_patient, self.parts, self._plan, saddle)
        if several <= _MOST_ON_GRID:
            yield "lattice", partial(_grid, self.parts, self._plan, saddle)

    # --- epsilon

    def _is_valley(self, saddle: Saddle, log_delta: float) -> bool:
        """Whether large losses make epsilon another one than the saddle says."""
        if not self.may_be_rare:
            return False
        few = len(self.parts) <= _MOST_SPLIT
        guess = self._rare_guess if few else partial(self._jumps_guess, saddle)
        with suppress(ArithmeticError):
            return abs(guess(log_delta) - saddle.epsilon) > _APART * saddle.epsilon
        return False

    def _by_jumps(self, saddle: Saddle, log_delta: float, apart: bool) -> Solved:
        """Split by the number of jumps, roughly until epsilon is found, then finely; a rare event may be set
        `apart` before.
        """
        for guess in self._jumps_guesses(saddle, log_delta):
            best: Solved | None = None
            with suppress(ArithmeticError):
                spare, steep = _ROUGHLY, 0.0
                best = self._split_near(guess, log_delta, apart, spare, steep)
                for _ in range(_MOST_DRAWN):
                    if spare <= _LEAST_SPARED or is_good(best[0], "jumps"):
                        break
                    steep = -best[0].slope * best[0].estimate
                    # errors are as many times larger as is spared, up to a share of delta
                    most = _MOST_SPARED / max(steep, 0.02)
                    spare = max(min(spare, most) * min(_AIM / relative_width(best[0]), 0.25), _LEAST_SPARED)
                    again = self._split_near(best[0].estimate, log_delta, apart, spare, steep)
                    best = best if again[0].width > best[0].width else again
            if best is not None:
                return best
        raise CannotCertifyError("no epsilon found that one large loss or another decides")

    def _split_at(self, guess: float, log_delta: float, apart: bool, spare: float, steep: float) -> Curve:
        """A split for questions close to an epsilon; a rare event may be set apart before."""
        if not apart:
            return jumps.draw(self.parts, self._plan, guess, spare, steep)
        for margin in (1.3,) if spare == _ROUGHLY else (1.02, 1.3):
            split = rare.cut(self.parts, self._plan, margin * guess, log_delta)
            if split.rare.delta(guess)[2] <= _NO_SHARE * math.exp(log_delta):
                break  # what is only bounded is small enough
        return rare.RareSplit(jumps.draw(split.parts, split.plan, guess, spare, steep), split.rare)

    def _split_near(self, guess: float, log_delta: float, apart: bool, spare: float, steep: float) -> Solved:
        """epsilon by a split drawn where it was found last, until it stays."""
        best: Solved | None = None
        resolution = 1e-3 if spare == _ROUGHLY else 1e-11
        for _ in range(_MOST_TURNS):
            try:
                again = _reached(
                    lambda near: self._split_at(near, log_delta, apart, spare, steep),
                    guess,
                    log_delta,
                    resolution,
                )
            except ArithmeticError:
                if best is None:
                    raise
                break
            best = again if best is None or not again[0].width > best[0].width else best
            guess, before = again[0].estimate, guess
            if abs(guess - before) <= _CLOSE * before:
                break
        assert best is not None
        return best

    def _jumps_guesses(self, saddle: Saddle, log_delta: float) -> Iterator[float]:
        """Where epsilon is expected, the likeliest first: a plan overlooks what brings delta down further."""
        start = self._jumps_start(saddle, log_delta)
        guesses = [start]
        if len(self.parts) > _MANY:
            yield guesses.pop()
        with suppress(ArithmeticError):
            guesses.append(self._jumps_guess(saddle, log_delta))
        yield from sorted(guesses)

    def _jumps_start(self, saddle: Saddle, log_delta: float) -> float:
        start = saddle.epsilon
        if len(self.parts) <= _MOST_SPLIT:
            with suppress(ArithmeticError):
                start = self._rare_guess(log_delta)
        if start > 1.2 * MOST_EPSILON:
            raise CannotCertifyError("epsilon is larger than what is computed")
        return max(start, LEAST_EPSILON)

    def _jumps_guess(self, saddle: Saddle, log_delta: float) -> float:
        start = self._jumps_start(saddle, log_delta)
        plan = partial(planned_epsilon, self.parts, self._plan, log_delta, start)
        return self._planned("jumps", log_delta, plan)

    def _by_engine(self, engine: Engine, saddle: Saddle, log_delta: float) -> Solved:
        """Build the engine at the saddle, solve, and build again where it turned out to lie elsewhere."""
        best: Solved | None = None
        # what a window costs is known, and mended, where its line was drawn for; lines that end in one are
        # long, and rounding leaves the last digits of their answers undecided
        windowed = engine is contour.draw_windowed
        close, good, resolution = (1e-3, 2.0 * _FAIR_WIDTH, 1e-11) if windowed else (0.25, _GOOD_WIDTH, 0.0)
        for _ in range(3):
            try:
                curve = engine(self.parts, self._plan, saddle)
                again = crossing(curve, log_delta, saddle.epsilon, 2.0 * saddle.deviation, resolution)
            except ArithmeticError:
                if best is None:
                    raise
                return best
            best = (again, curve) if best is None or again.width < best[0].width else best
            found = best[0]
            well_placed = abs(found.estimate - saddle.epsilon) <= close * saddle.deviation
            if well_placed or found.width <= good * found.upper < math.inf:
                break
            saddle = saddle_for_epsilon(self._plan, found.estimate)
        assert best is not None
        return best

    def _with_rare(self, log_delta: float) -> Solved:
        """Set a rare event apart, ever closer to the epsilon expected, and draw a contour of the rest."""
        guess, best = self._rare_guess(log_delta), None
        for margin in (1.3, 1.05, 1.01, 1.001):
            curve_at = partial(self._rare_at, log_delta, margin)
            try:
                again = _reached(curve_at, guess, log_delta)
            except ArithmeticError:
                if best is None:
                    raise
                break
            before = math.inf if best is None else best[0].width
            best = again if best is None or not again[0].width > before else best
            now = best[0].width
            if now <= _FAIR_WIDTH * best[0].upper < math.inf or (
                math.isfinite(before) and now > 0.5 * before
            ):
                break
            guess = best[0].estimate
        assert best is not None
        return best

    def _rare_at(self, log_delta: float, margin: float, guess: float) -> Curve:
        """A contour beside a rare event, for questions close to an epsilon."""
        split = rare.cut(self.parts, self._plan, margin * guess, log_delta)
        return rare.RareSplit(_line_beside(split, guess), split.rare)

    def _rare_guess(self, log_delta: float) -> float:
        def plan() -> float:
            planned = rare.planned_epsilon(self.parts, self._plan, log_delta)
            if sum(times * pair.rate for pair, times in self.parts) > _RARELY:
                return planned
            return min(planned, max(moments.epsilon_of_each(self.parts, log_delta), LEAST_EPSILON))

        return self._planned("rare", log_delta, plan)

    def _planned(self, name: str, log_delta: float, plan: Callable[[], float]) -> float:
        """What a plan says, which is asked once."""
        if (name, log_delta) not in self._guesses:
            self._guesses[name, log_delta] = math.nan  # if there is none, it is not sought again
            self._guesses[name, log_delta] = plan()
        if math.isnan(self._guesses[name, log_delta]):
            raise CannotCertifyError("no epsilon is planned")
        return self._guesses[name, log_delta]

    # --- delta

    def _rare_curve(self, engine: Callable[[rare.Cut, float], Curve], epsilon: float) -> Curve:
        """Split off for the delta of the plan, which a rare event makes too large, then for the one found."""
        guess = max(epsilon, LEAST_EPSILON)
        log_delta = saddle_for_epsilon(self._plan, guess).log_delta
        while True:
            split = rare.cut(self.parts, self._plan, 1.05 * guess, log_delta)
            curve = rare.RareSplit(engine(split, guess), split.rare)
            found = curve.log_delta(epsilon).estimate
            if found > log_delta - 1.0:
                return curve
            log_delta = found


def _reached(
    curve_at: Callable[[float], Curve], guess: float, log_delta: float, resolution: float = 0.0
) -> Solved:
    """epsilon by a curve drawn at a guess, or closer to epsilon where that one does not reach it."""
    low, high, point = -math.inf, math.inf, math.log(max(guess, LEAST_EPSILON))
    for _ in range(_MOST_TURNS):
        guess = math.exp(point)
        curve = curve_at(guess)
        with suppress(ArithmeticError):
            return crossing(curve, log_delta, guess, 0.1 * guess, resolution), curve
        here = curve.log_delta(guess)
        low, high = (point, high) if here.estimate > log_delta else (low, point)
        step = (here.estimate - log_delta) / max(-here.slope * guess, 1e-9)
        step = max(-_FURTHEST, min(step, _FURTHEST))
        point = point + step if low < point + step < high else 0.5 * (low + high)
    raise CannotCertifyError("no epsilon found where curves can be drawn")


def _grid(parts: Parts, plan: TiltPlan, saddle: Saddle) -> Curve:
    # the estimate is far better than the width; few releases are cheap, and get it to eight digits
    width = 1e-7 if sum(times for _, times in parts) < 20 else 5e-7
    return lattice.build(parts, plan, saddle, width * max(saddle.theta * saddle.epsilon, 1e-2))


def _line_beside(split: rare.Cut, epsilon: float) -> Curve:
    return contour.draw(split.parts, split.plan, saddle_for_epsilon(split.plan, epsilon))


def _jumps_beside(split: rare.Cut, epsilon: float) -> Curve:
    return jumps.draw(split.parts, split.plan, epsilon, least_steep=1.0)


def _patient(parts: Parts, plan: TiltPlan, saddle: Saddle) -> Curve:
    return contour.draw(parts, plan, saddle, effort=20.0)
