# SPDX-License-Identifier: Apache-2.0
"""One direction of a composition of known pairs, answered by the cheapest engine that certifies itself.

Engines are tried in turn; what each certifies is true, so two answers to the same question are intersected.
An engine that cannot certify itself, or whose arithmetic leaves the range of doubles, has no say (both are
`ArithmeticError`). A curve that an engine has built is kept: further questions nearby are read off it.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial

from ggdp.accounting.bounds import Bounds, ErrorLedger
from ggdp.accounting.engines import contour, jumps, lattice, moments, rare
from ggdp.accounting.engines.curve import (
    MOST_EPSILON,
    ClosedForm,
    Curve,
    EpsilonSandwich,
    crossing,
    raised,
    seconds_for,
    too_large,
)
from ggdp.accounting.engines.kept import KeptCurve, KeptCurves
from ggdp.accounting.engines.tilt import Saddle, TiltPlan, saddle_for_epsilon, saddle_for_log_delta
from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError
from ggdp.privacy_loss.dominating import Parts

CLOSED_FORM = "closed form"
"""The method of one release, which has no largest epsilon."""

_SMALLEST_LOG_DELTA = math.log(1e-290)  # beyond, delta is as good as none, and only bounded
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
_MOST_STEEP = 25.0
_SUPREMUM_ERROR = 1e-14  # relative rounding error of a sum of largest losses
_MANY = 12  # different parts beyond which each attempt takes a second or so, and fewer are made
_MOST_ON_GRID = 60  # different parts that are put on a grid
_MOST_SPLIT = 60  # different parts that are split by the number of jumps
_MOST_RARE = 100  # different parts of which a rare event is split off, or a line drawn twice
_SECONDS = 3.1  # of a thread's time that the engines may take for one question
_FIRST = 1.0  # of these for an engine that may fail late
_LOST = 1e-4  # roundoff of a contour from which on a window does not help
_SURELY = 1.5  # log of how many times too large a planned delta shows that it is too large
_APART = 0.02  # how far two plans may be apart that agree
_ROUGHLY = 1e9  # how many times wider than usual curves are by which epsilon is sought,
_AIM = 4e-6  # and then answered, to about this width,
_MOST_DRAWN = 4  # in so many turns,
_LEAST_SPARED = 0.05  # of the usual errors,
_MOST_SPARED = 4e4  # where steeper curves cannot be so many times wider
_LEAST_EPSILON = 1e-14  # that jumps are told apart for
_MOST_TURNS = 8  # of curves drawn one after another
_FURTHEST = 2.0  # how far, in its logarithm, one goes towards epsilon
_CLOSE = 0.02  # epsilons for which one curve serves
_NEARLY = 1.5  # by how much the answers of a kept curve may be wider than where it was built
_WHOLE = ("contour", "windowed contour", "lattice")  # engines that compose whole losses, around a saddle

Engine = Callable[[Parts, TiltPlan, Saddle], Curve]
Solved = tuple[EpsilonSandwich, Curve]


class PairComposition:
    """One direction of a composition of known pairs.

    Args:
        parts: the pairs and how often each is released.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._kept = KeptCurves()
        self._guesses: dict[tuple[str, float], float] = {}

    @cached_property
    def _plan(self) -> TiltPlan:
        return TiltPlan.of(self.parts)

    @cached_property
    def _ceiling(self) -> float:
        """No less than the sum of the largest losses, rounding included."""
        return math.fsum(times * pair.supremum for pair, times in self.parts) * (1.0 + _SUPREMUM_ERROR)

    @cached_property
    def _releases(self) -> int:
        return sum(times for _, times in self.parts)

    @cached_property
    def _may_be_rare(self) -> bool:
        """Whether a large loss can be much rarer than a small one: sampled, and tails not Laplace."""
        return len(self.parts) <= _MOST_RARE and any(
            pair.rate < 1.0 and pair.up > 0.0 and pair.beta > 1.0 for pair, _ in self.parts
        )

    def largest_loss(self) -> tuple[float, float]:
        """Bounds on the largest loss, which is epsilon at delta = 0; infinite where losses have no bound."""
        return self._ceiling * (1.0 - 4.0 * _SUPREMUM_ERROR), self._ceiling

    def epsilon(self, log_delta: float, known: float = 0.0) -> Bounds:
        """Certified epsilon at log delta; a rough one if certainly below `known`, another direction's.

        Raises:
            EpsilonTooLargeError: it exceeds what is computed.
        """
        with CLOCK.running(self._allowed()):
            return self._epsilon(log_delta, known)

    def _epsilon(self, log_delta: float, known: float) -> Bounds:
        best = moments.top_atom(self.parts, log_delta)
        if best is not None and best.width <= _GOOD_WIDTH * best.upper:
            return best
        if (kept := self._epsilon_from_built(log_delta)) is not None:
            return kept
        if self._releases == 1:
            return self._closed_form_epsilon(log_delta)
        plan = self._plan
        saddle = saddle_for_log_delta(plan, log_delta)
        next_to_zero = saddle.epsilon < saddle.deviation
        if next_to_zero and self._is_zero(log_delta):
            return Bounds(0.0, 0.0, 0.0, "total variation")
        if saddle.epsilon > MOST_EPSILON:
            least = moments.epsilon_below(self.parts, plan, log_delta)
            if least > MOST_EPSILON:
                raise too_large(least)
        tried: list[tuple[float, KeptCurve]] = []
        lost = False  # to rounding, which a window does not help against
        for turn, (method, attempt) in enumerate(self._attempts(saddle, log_delta)):
            if lost and method == "windowed contour":
                continue
            misled = turn == 1 and best is None and not next_to_zero  # as the plan may have been
            if misled and self._is_zero(log_delta):
                return Bounds(0.0, 0.0, 0.0, "total variation")
            try:
                with CLOCK.running(self._allowed(method)):
                    found, curve = attempt()
            except ArithmeticError:
                continue
            lost = lost or (method == "contour" and found.ledger.roundoff > _LOST)
            built = self._keep(method, curve, saddle, found.estimate, log_delta, found.slope)
            answer = self._as_bounds(found, method)
            tried.append((_relative_width(answer), built))
            best = answer if best is None else Bounds.intersection(best, answer)
            if _is_good(best, method) or best.upper <= known:
                return best
        if tried:
            width, narrowest = min(tried, key=lambda one: one[0])
            narrowest.enough_epsilon = _NEARLY * width
        return self._epsilon_with_moments(log_delta, saddle, best)

    def delta(self, epsilon: float, known: float = 0.0) -> Bounds:
        """Certified delta at epsilon.

        Where it is certainly below `known`, what another direction costs at least, a rough answer is enough.
        """
        with CLOCK.running(self._allowed()):
            return self._delta(epsilon, known)

    def _delta(self, epsilon: float, known: float) -> Bounds:
        if epsilon >= self._ceiling:
            return Bounds(0.0, 0.0, 0.0, "pure")
        if self._releases == 1:
            return ClosedForm(self.parts[0][0]).log_delta(epsilon).as_delta(CLOSED_FORM)
        for built in self._kept.nearest(lambda built: abs(built.epsilon - epsilon) / built.reach):
            try:
                found = built.curve.log_delta(epsilon)
            except ArithmeticError:
                continue
            answer = found.as_delta(built.method)
            is_best = built.is_at_home(epsilon) and _relative_width(answer) <= built.enough_delta
            if is_best or _is_good(answer, built.method, -found.slope * epsilon):
                return answer
        saddle = saddle_for_epsilon(self._plan, epsilon)
        best: Bounds | None = None
        far = epsilon > MOST_EPSILON or (saddle.log_delta < _SMALLEST_LOG_DELTA and self._is_tiny(epsilon))
        if not saddle.deviation > 0.0 or far or moments.is_nearly_one(self.parts, epsilon):
            return self._delta_by_moments(saddle, epsilon)
        tried: list[tuple[float, KeptCurve]] = []
        lost = False
        for turn, (method, attempt) in enumerate(self._delta_attempts(saddle, epsilon)):
            if lost and method == "windowed contour":
                continue
            if turn == 1 and known > 0.0:
                rough = self._delta_by_moments(saddle, epsilon)
                if rough.upper <= known:
                    return rough
            try:
                with CLOCK.running(self._allowed(method)):
                    curve = attempt()
                found = curve.log_delta(epsilon)
            except ArithmeticError:
                continue
            lost = lost or (method == "contour" and found.ledger.roundoff > _LOST)
            answer = found.as_delta(method)
            kept = self._keep(method, curve, saddle, epsilon, found.estimate, found.slope)
            tried.append((_relative_width(answer), kept))
            best = answer if best is None else Bounds.intersection(best, answer)
            steepness = -found.slope * epsilon
            if _is_good(best, method, steepness) or best.upper <= known:
                return best
        if tried:
            width, narrowest = min(tried, key=lambda one: one[0])
            narrowest.enough_delta = _NEARLY * width
        wide = self._delta_by_moments(saddle, epsilon)
        return wide if best is None else Bounds.intersection(best, wide)

    def _is_tiny(self, epsilon: float) -> bool:
        """Whether a delta that is planned as none is none: of rare large losses a plan may know little."""
        least = _SMALLEST_LOG_DELTA
        return not (self._may_be_rare and moments.log_delta_below(self.parts, self._plan, epsilon) > least)

    def _allowed(self, method: str = "") -> float:
        """Seconds for one engine: what is tried on the chance leaves time for others."""
        return _FIRST if method == "contour with rare event" else seconds_for(len(self.parts), _SECONDS)

    def costs_no_more(self, log_delta: float, epsilon: float) -> bool:
        """Whether a quick bound shows that epsilon at log delta is at most the one given.

        Worth asking only of many different parts, of which the engines' answer takes long.
        """
        if len(self.parts) <= _MANY:
            return self._ceiling <= epsilon
        theta = saddle_for_log_delta(self._plan, log_delta).theta
        return moments.epsilon_above(self.parts, self._plan, theta, log_delta, 0.9999 * epsilon) <= epsilon

    # --- curves that are there already

    def _keep(
        self,
        method: str,
        curve: Curve,
        saddle: Saddle | None,
        epsilon: float,
        log_delta: float,
        slope: float,
    ) -> KeptCurve:
        """Keep a curve that has this log delta and slope at epsilon."""
        # where a rare event decides, the saddle of the whole loss says nothing about how far a curve reaches
        reach = 2.0 * saddle.deviation if saddle is not None and method in _WHOLE else 0.2 * epsilon
        return self._kept.keep(method, curve, reach, epsilon, log_delta, slope)

    def _epsilon_from_built(self, log_delta: float) -> Bounds | None:
        """A good answer read off a curve that is there; None where there is none."""
        for built in self._kept.nearest(lambda built: abs(built.log_delta - log_delta)):
            start = built.epsilon + (log_delta - built.log_delta) / built.slope
            try:
                found = crossing(built.curve, log_delta, start, built.reach)
            except ArithmeticError:
                continue
            answer = self._as_bounds(found, built.method)
            is_best = built.is_at_home(found.estimate) and _relative_width(answer) <= built.enough_epsilon
            if is_best or _is_good(answer, built.method):
                built.epsilon, built.log_delta, built.slope = found.estimate, log_delta, found.slope
                return answer
        return None

    # --- epsilon

    def _closed_form_epsilon(self, log_delta: float) -> Bounds:
        curve = ClosedForm(self.parts[0][0])
        found = curve.epsilon(log_delta, self._ceiling)
        if found.slope < 0.0:
            self._keep(CLOSED_FORM, curve, None, found.estimate, log_delta, found.slope)
        return self._as_bounds(found, CLOSED_FORM)

    def _is_zero(self, log_delta: float) -> bool:
        """Whether delta at zero, the distance of the two laws in total variation, is certainly no larger."""
        if moments.log_total_variation_above(self.parts) <= log_delta:
            return True
        if moments.log_delta_below(self.parts, self._plan, 0.0) > log_delta:
            return False
        with suppress(ArithmeticError):
            about = jumps.planned_log_delta(self.parts, self._plan, _LEAST_EPSILON)
            if about > log_delta + _SURELY:
                return False
        with CLOCK.running(_FIRST):
            at_zero = self._delta(0.0, 0.0).upper
        return at_zero > 0.0 and math.log(at_zero) <= log_delta - 2.0**-52 * abs(log_delta)

    def _attempts(self, saddle: Saddle, log_delta: float) -> Iterator[tuple[str, Callable[[], Solved]]]:
        """Ways to an answer, the cheapest first."""
        planned = saddle.epsilon < 5.0 * MOST_EPSILON  # else no tilt brings delta down to it
        several = len(self.parts)
        if planned:
            yield "contour", partial(self._by_engine, contour.draw, saddle, log_delta)
        if self._may_be_rare and several <= _MOST_SPLIT:
            yield "contour with rare event", partial(self._with_rare, log_delta)
        if planned and not self._is_valley(saddle, log_delta):
            yield "windowed contour", partial(self._by_engine, contour.draw_windowed, saddle, log_delta)
        if several <= _MOST_SPLIT:
            if self._may_be_rare:
                yield "jumps with rare event", partial(self._by_jumps, saddle, log_delta, apart=True)
            yield "jumps", partial(self._by_jumps, saddle, log_delta, apart=False)
        if planned and several <= _MOST_RARE:
            yield "contour", partial(self._by_engine, _patient, saddle, log_delta)
        if planned and several <= _MOST_ON_GRID:
            yield "lattice", partial(self._by_engine, _grid, saddle, log_delta)

    def _is_valley(self, saddle: Saddle, log_delta: float) -> bool:
        """Whether large losses make epsilon another one than the saddle says."""
        if not self._may_be_rare:
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
                best = self._split_near(guess, log_delta, apart, _ROUGHLY)
                spare = _ROUGHLY
                for _ in range(_MOST_DRAWN):
                    answer = self._as_bounds(best[0], "jumps")
                    if spare <= _LEAST_SPARED or _is_good(answer, "jumps"):
                        break
                    # errors are as many times larger as is spared, up to a share of delta
                    most = _MOST_SPARED / max(-best[0].slope * best[0].estimate, 0.02)
                    spare = max(min(spare, most) * min(_AIM / _relative_width(answer), 0.25), _LEAST_SPARED)
                    again = self._split_near(best[0].estimate, log_delta, apart, spare)
                    best = best if again[0].width > best[0].width else again
            if best is not None:
                return best
        raise CannotCertifyError("no epsilon found that one large loss or another decides")

    def _split_at(self, guess: float, log_delta: float, apart: bool, spare: float) -> Curve:
        """A split for questions close to an epsilon; a rare event may be set apart before."""
        if not apart:
            return jumps.draw(self.parts, self._plan, guess, spare)
        margin = 1.3 if spare == _ROUGHLY else 1.02
        split = rare.cut(self.parts, self._plan, margin * guess, log_delta)
        return rare.RareSplit(jumps.draw(split.parts, split.plan, guess, spare), split.rare)

    def _split_near(self, guess: float, log_delta: float, apart: bool, spare: float) -> Solved:
        """epsilon by a split drawn where it was found last, until it stays."""
        best: Solved | None = None
        resolution = 1e-3 if spare == _ROUGHLY else 0.0
        for _ in range(_MOST_TURNS):
            try:
                again = _reached(
                    lambda near: self._split_at(near, log_delta, apart, spare), guess, log_delta, resolution
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
        """Where the split by the number of jumps expects epsilon, and where it may lie if that is wrong."""
        with suppress(ArithmeticError):
            yield self._jumps_guess(saddle, log_delta)
        yield self._jumps_start(saddle, log_delta)

    def _jumps_start(self, saddle: Saddle, log_delta: float) -> float:
        start = saddle.epsilon
        if len(self.parts) <= _MOST_SPLIT:
            with suppress(ArithmeticError):
                start = self._rare_guess(log_delta)
        if start > 1.2 * MOST_EPSILON:
            raise CannotCertifyError("epsilon is larger than what is computed")
        return max(start, _LEAST_EPSILON)

    def _jumps_guess(self, saddle: Saddle, log_delta: float) -> float:
        start = self._jumps_start(saddle, log_delta)
        plan = partial(jumps.planned_epsilon, self.parts, self._plan, log_delta, start)
        return self._planned("jumps", log_delta, plan)

    def _by_engine(self, engine: Engine, saddle: Saddle, log_delta: float) -> Solved:
        """Build the engine at the saddle, solve, and build again where it turned out to lie elsewhere."""
        best: Solved | None = None
        for _ in range(3):
            try:
                curve = engine(self.parts, self._plan, saddle)
                again = crossing(curve, log_delta, saddle.epsilon, 2.0 * saddle.deviation)
            except ArithmeticError:
                if best is None:
                    raise
                return best
            best = (again, curve) if best is None or again.width < best[0].width else best
            found = best[0]
            # what a window costs is known, and mended, where its line was drawn for
            close, good = (1e-3, _FAIR_WIDTH) if engine is contour.draw_windowed else (0.25, _GOOD_WIDTH)
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
        plan = partial(rare.planned_epsilon, self.parts, self._plan, log_delta)
        return self._planned("rare", log_delta, plan)

    def _planned(self, name: str, log_delta: float, plan: Callable[[], float]) -> float:
        """What a plan says, which is asked once."""
        if (name, log_delta) not in self._guesses:
            self._guesses[name, log_delta] = math.nan  # if there is none, it is not sought again
            self._guesses[name, log_delta] = plan()
        if math.isnan(self._guesses[name, log_delta]):
            raise CannotCertifyError("no epsilon is planned")
        return self._guesses[name, log_delta]

    def _as_bounds(self, found: EpsilonSandwich, method: str) -> Bounds:
        """Clip to what is known anyway: no negative epsilon, none beyond the largest loss."""
        values = (found.lower, found.estimate, found.upper)
        lower, estimate, upper = (min(max(value, 0.0), self._ceiling) for value in values)
        return Bounds(lower, estimate, upper, method, found.ledger)

    def _epsilon_with_moments(self, log_delta: float, saddle: Saddle, best: Bounds | None) -> Bounds:
        upper = min(self._ceiling, moments.epsilon_above(self.parts, self._plan, saddle.theta, log_delta))
        lower = min(moments.epsilon_below(self.parts, self._plan, log_delta), upper)
        if best is None and upper > MOST_EPSILON and saddle.epsilon > MOST_EPSILON:
            raise too_large(lower, about=saddle.epsilon)
        wide = Bounds(lower, min(max(saddle.epsilon, lower), upper), upper, "moments", ErrorLedger())
        return wide if best is None else Bounds.intersection(best, wide)

    # --- delta

    def _delta_attempts(self, saddle: Saddle, epsilon: float) -> Iterator[tuple[str, Callable[[], Curve]]]:
        several = len(self.parts)
        yield "contour", partial(contour.draw, self.parts, self._plan, saddle)
        if self._may_be_rare:
            yield "contour with rare event", partial(self._rare_curve, _line_beside, epsilon)
        yield "windowed contour", partial(contour.draw_windowed, self.parts, self._plan, saddle, 1.0)
        if several <= _MOST_SPLIT:
            if self._may_be_rare:
                yield "jumps with rare event", partial(self._rare_curve, _jumps_beside, epsilon)
            asked = max(epsilon, _LEAST_EPSILON)
            yield "jumps", partial(jumps.draw, self.parts, self._plan, asked, least_steep=1.0)
        if several <= _MOST_RARE:
            yield "contour", partial(_patient, self.parts, self._plan, saddle)
        if several <= _MOST_ON_GRID:
            yield "lattice", partial(_grid, self.parts, self._plan, saddle)

    def _rare_curve(self, engine: Callable[[rare.Cut, float], Curve], epsilon: float) -> Curve:
        """Split off for the delta of the plan, which a rare event makes too large, then for the one found."""
        guess = max(epsilon, _LEAST_EPSILON)
        log_delta = saddle_for_epsilon(self._plan, guess).log_delta
        while True:
            split = rare.cut(self.parts, self._plan, 1.05 * guess, log_delta)
            curve = rare.RareSplit(engine(split, guess), split.rare)
            found = curve.log_delta(epsilon).estimate
            if found > log_delta - 1.0:
                return curve
            log_delta = found

    def _delta_by_moments(self, saddle: Saddle, epsilon: float) -> Bounds:
        log_upper = min(moments.log_total_variation_above(self.parts), 0.0)
        log_upper = min(log_upper, moments.log_delta_above(self.parts, self._plan, saddle.theta, epsilon))
        upper = raised(log_upper)
        lower = min(math.exp(moments.log_delta_below(self.parts, self._plan, epsilon)), upper)
        return Bounds(lower, min(max(math.exp(min(saddle.log_delta, 0.0)), lower), upper), upper, "moments")


def _reached(
    curve_at: Callable[[float], Curve], guess: float, log_delta: float, resolution: float = 0.0
) -> Solved:
    """epsilon by a curve drawn at a guess, or closer to epsilon where that one does not reach it."""
    low, high, point = -math.inf, math.inf, math.log(guess)
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


def _relative_width(found: Bounds) -> float:
    return found.width / found.upper if 0.0 < found.upper < math.inf else math.inf


def _is_good(found: Bounds, method: str, steepness: float = 1.0) -> bool:
    """Whether it is narrow enough; a steep delta, -d log(delta) / d log(eps), may be a few times wider."""
    enough = _ENOUGH.get(method, _FAIR_WIDTH) * min(max(steepness, 1.0), _MOST_STEEP)
    return found.width <= enough * found.upper < math.inf
