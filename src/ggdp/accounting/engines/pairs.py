# SPDX-License-Identifier: Apache-2.0
"""One direction of a composition of known pairs, answered by the cheapest engine that certifies itself.

Engines are tried in turn; what each certifies is true, so two answers to the same question are intersected.
An engine that cannot certify itself, or whose arithmetic leaves the range of doubles, has no say (both are
`ArithmeticError`). A curve that an engine has built is kept: further questions nearby are read off it.
"""

import math
from contextlib import suppress
from functools import cached_property

from ggdp.accounting.bounds import Bounds, ErrorLedger
from ggdp.accounting.engines import moments
from ggdp.accounting.engines.attempts import LEAST_EPSILON, Attempts, is_good, relative_width
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
from ggdp.accounting.engines.jump_plan import planned_log_delta
from ggdp.accounting.engines.kept import KeptCurve, KeptCurves
from ggdp.accounting.engines.tilt import Saddle, TiltPlan, saddle_for_epsilon, saddle_for_log_delta
from ggdp.clock import CLOCK
from ggdp.privacy_loss.dominating import Parts

CLOSED_FORM = "closed form"
"""The method of one release, which has no largest epsilon."""

_SMALLEST_LOG_DELTA = math.log(1e-290)  # beyond, delta is as good as none, and only bounded
_SUPREMUM_ERROR = 1e-14  # relative rounding error of a sum of largest losses
_GOOD_WIDTH = 2e-7  # relative width at which a bound by top atoms is taken as it is
_MANY = 12  # different parts beyond which each attempt takes a second or so, and fewer are made
_SECONDS = 3.1  # of a thread's time that the engines may take for one question
_FIRST = 1.0  # of these for an engine that may fail late
_LOST = 1e-4  # roundoff of a contour from which on a window does not help
_SURELY = 1.5  # log of how many times too large a planned delta shows that it is too large
_NEARLY = 1.5  # by how much the answers of a kept curve may be wider than where it was built
_WHOLE = ("contour", "windowed contour", "lattice")  # engines that compose whole losses, around a saddle


class PairComposition:
    """One direction of a composition of known pairs.

    Args:
        parts: the pairs and how often each is released.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._kept = KeptCurves()

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
    def _attempts(self) -> Attempts:
        return Attempts(self.parts, self._plan)

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
        for turn, (method, attempt) in enumerate(self._attempts.for_epsilon(saddle, log_delta)):
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
            tried.append((relative_width(answer), built))
            best = answer if best is None else Bounds.intersection(best, answer)
            if is_good(best, method) or best.upper <= known:
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
            is_best = built.is_at_home(epsilon) and relative_width(answer) <= built.enough_delta
            if is_best or is_good(answer, built.method, -found.slope * epsilon):
                return answer
        saddle = saddle_for_epsilon(self._plan, epsilon)
        best: Bounds | None = None
        far = epsilon > MOST_EPSILON or (saddle.log_delta < _SMALLEST_LOG_DELTA and self._is_tiny(epsilon))
        if not saddle.deviation > 0.0 or far or moments.is_nearly_one(self.parts, epsilon):
            return self._delta_by_moments(saddle, epsilon)
        tried: list[tuple[float, KeptCurve]] = []
        lost = False
        for turn, (method, attempt) in enumerate(self._attempts.for_delta(saddle, epsilon)):
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
            tried.append((relative_width(answer), kept))
            best = answer if best is None else Bounds.intersection(best, answer)
            steepness = -found.slope * epsilon
            if is_good(best, method, steepness) or best.upper <= known:
                return best
        if tried:
            width, narrowest = min(tried, key=lambda one: one[0])
            narrowest.enough_delta = _NEARLY * width
        wide = self._delta_by_moments(saddle, epsilon)
        return wide if best is None else Bounds.intersection(best, wide)

    def _is_tiny(self, epsilon: float) -> bool:
        """Whether a delta that is planned as none is none: of rare large losses a plan may know little."""
        least = _SMALLEST_LOG_DELTA
        return not (
            self._attempts.may_be_rare and moments.log_delta_below(self.parts, self._plan, epsilon) > least
        )

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
            is_best = built.is_at_home(found.estimate) and relative_width(answer) <= built.enough_epsilon
            if is_best or is_good(answer, built.method):
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
            about = planned_log_delta(self.parts, self._plan, LEAST_EPSILON)
            if about > log_delta + _SURELY:
                return False
        with CLOCK.running(_FIRST):
            at_zero = self._delta(0.0, 0.0).upper
        return at_zero > 0.0 and math.log(at_zero) <= log_delta - 2.0**-52 * abs(log_delta)

    def _as_bounds(self, found: EpsilonSandwich, method: str) -> Bounds:
        """Clip to what is known anyway: no negative epsilon, none beyond the largest loss."""
        values = (found.lower, found.estimate, found.upper)
        lower, estimate, upper = (min(max(value, 0.0), self._ceiling) for value in values)
        return Bounds(lower, estimate, upper, method, found.ledger)

    def _epsilon_with_moments(self, log_delta: float, saddle: Saddle, best: Bounds | None) -> Bounds:
        upper = min(self._ceiling, moments.epsilon_above(self.parts, self._plan, saddle.theta, log_delta))
        upper = min(upper, moments.epsilon_of_each(self.parts, log_delta))
        lower = min(moments.epsilon_below(self.parts, self._plan, log_delta), upper)
        if best is None and upper > MOST_EPSILON and saddle.epsilon > MOST_EPSILON:
            raise too_large(lower, about=saddle.epsilon)
        wide = Bounds(lower, min(max(saddle.epsilon, lower), upper), upper, "moments", ErrorLedger())
        return wide if best is None else Bounds.intersection(best, wide)

    # --- delta

    def _delta_by_moments(self, saddle: Saddle, epsilon: float) -> Bounds:
        log_upper = min(moments.log_total_variation_above(self.parts), 0.0)
        log_upper = min(log_upper, moments.log_delta_above(self.parts, self._plan, saddle.theta, epsilon))
        upper = raised(min(log_upper, moments.log_delta_of_each(self.parts, epsilon)))
        lower = min(math.exp(moments.log_delta_below(self.parts, self._plan, epsilon)), upper)
        return Bounds(lower, min(max(math.exp(min(saddle.log_delta, 0.0)), lower), upper), upper, "moments")
