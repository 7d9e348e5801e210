# SPDX-License-Identifier: Apache-2.0
"""One direction of a composition, answered by the cheapest engine that certifies itself well enough.

Engines are tried in turn; what each certifies is true, so two answers to the same question are intersected.
An engine that cannot certify itself, or whose arithmetic leaves the range of doubles, has no say (both are
`ArithmeticError`).
"""

import math
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np

from ggdp.accounting import contour, jump, lattice, moments, rare, top_atom
from ggdp.accounting.bounds import Bounds, ErrorLedger
from ggdp.accounting.closed_form import ClosedForm
from ggdp.accounting.curve import Curve, EpsilonSandwich, LogDelta, crossing
from ggdp.accounting.tilt import Saddle, TiltPlan, saddle_for_epsilon, saddle_for_log_delta
from ggdp.numerics import UNIT_ROUNDOFF
from ggdp.privacy_loss.dominating import Parts

MOST_EPSILON = 2000.0
CLOSED_FORM = "closed form"
"""The method of one release, which has no largest epsilon."""

_SMALLEST_LOG_DELTA = math.log(1e-290)  # beyond, delta is as good as none, and only bounded
_GOOD_WIDTH = 2e-7  # relative width at which an engine's answer is taken as it is
_FAIR_WIDTH = 1e-6  # and after the second engine too
_ENOUGH = {"contour": _GOOD_WIDTH, "one jump": 5e-6}  # where one jump decides, no other engine does better
SUPREMUM_ERROR = 1e-14  # relative rounding error of a sum of largest losses
_MANY = 12  # different parts beyond which each attempt takes a second or so, and fewer are made
_MOST_ON_GRID = 60  # different parts that are put on a grid
_MOST_RARE = 100  # different parts of which a rare event is split off, or a line drawn twice
_LEAST_DELTA = 5e-324  # a positive delta never becomes an upper bound of zero

Engine = Callable[[Parts, TiltPlan, Saddle], Curve]


def too_much(what: str, bounds: Bounds | None, about: float = math.inf) -> str:
    """The sentence that refuses an epsilon beyond what is computed."""
    size = f"about {about:g}" if bounds is None else f"at least {bounds.lower:g}"
    return (
        f"{what} must be at most {MOST_EPSILON:g} to be computed, and is {size}: "
        "take more noise, fewer steps or a larger delta"
    )


def largest_loss(parts: Parts) -> float:
    """No less than the sum of the largest losses, rounding included."""
    return sum(times * pair.supremum for pair, times in parts) * (1.0 + SUPREMUM_ERROR)


def _releases(parts: Parts) -> int:
    return sum(times for _, times in parts)


def _grid(parts: Parts, plan: TiltPlan, saddle: Saddle) -> Curve:
    # the estimate is far better than the width; few releases are cheap, and get it to eight digits
    width = 1e-7 if _releases(parts) < 20 else 5e-7
    return lattice.build(parts, plan, saddle, width * max(saddle.theta * saddle.epsilon, 1e-2))


def _patient(parts: Parts, plan: TiltPlan, saddle: Saddle) -> Curve:
    return contour.draw(parts, plan, saddle, effort=20.0)


def epsilon_of(parts: Parts, target: float) -> Bounds:
    """Epsilon of one direction at log delta = target.

    Raises:
        ValueError: epsilon would exceed what is computed.
    """
    ceiling = largest_loss(parts)
    best = top_atom.epsilon_bounds(parts, target)
    if best is not None and best.width <= _GOOD_WIDTH * best.upper:
        return best
    if _releases(parts) == 1:
        curve = ClosedForm(parts[0][0])
        start = curve.start(target)
        if start <= 0.0:
            return Bounds(0.0, 0.0, 0.0, CLOSED_FORM)
        try:
            return _as_bounds(crossing(curve, target, start, 0.1 * start), CLOSED_FORM, ceiling)
        except ArithmeticError:
            return _around(curve, target, start)
    plan = TiltPlan.of(parts)
    saddle = saddle_for_log_delta(plan, target)
    if saddle.epsilon < saddle.deviation and _is_zero(parts, plan, target):
        return Bounds(0.0, 0.0, 0.0, "total variation")
    if saddle.epsilon > MOST_EPSILON and (least := moments.epsilon_below(parts, plan, target)) > MOST_EPSILON:
        raise ValueError(too_much("epsilon at this delta", Bounds(least, least, least, "moments")))
    for name, attempt in _attempts(parts, plan, saddle, target):
        try:
            found = attempt()
        except ArithmeticError:
            continue
        answer = _as_bounds(found, name, ceiling)
        best = answer if best is None else _both(best, answer)
        good = _ENOUGH.get(name, _FAIR_WIDTH) * best.upper
        if best.width <= good and math.isfinite(good):
            return best
    return _with_moments(parts, plan, target, ceiling, best)


def _around(curve: ClosedForm, target: float, start: float) -> Bounds:
    """Certified points on both sides of an epsilon so large that its neighbours cannot be told apart."""
    for share in (1e-12, 1e-9, 1e-6, 1e-3, 0.1):
        low, high = start * (1.0 - share), start * (1.0 + share)
        if curve.log_delta(low).lower >= target and curve.log_delta(high).upper <= target:
            return Bounds(low, start, high, CLOSED_FORM)
    raise ValueError(too_much("epsilon at this delta", None, about=start))


def costs_no_more(parts: Parts, target: float, epsilon: float) -> bool:
    """Whether a quick bound shows that one direction costs at most `epsilon` at log delta = target.

    Worth asking only of many different parts, of which the engines' answer takes long.
    """
    if len(parts) <= _MANY:
        return largest_loss(parts) <= epsilon
    plan = TiltPlan.of(parts)
    saddle = saddle_for_log_delta(plan, target)
    return moments.epsilon_above(parts, plan, saddle.theta, target, 0.9999 * epsilon) <= epsilon


def _is_zero(parts: Parts, plan: TiltPlan, target: float) -> bool:
    """Whether delta at zero, the distance of the two laws in total variation, is certainly small enough."""
    with np.errstate(divide="ignore"):
        rough = math.log(plan.times @ np.exp(plan.log_single_deltas(np.zeros(len(parts)))) + _LEAST_DELTA)
    if rough <= target + 0.1 and moments.log_total_variation_above(parts) <= target:
        return True
    at_zero = saddle_for_epsilon(plan, 0.0)
    if at_zero.log_delta > target + 0.5:  # rough, but clearly above
        return False
    try:
        return contour.draw(parts, plan, at_zero).log_delta(0.0).upper <= target
    except ArithmeticError:
        return False


def _attempts(
    parts: Parts, plan: TiltPlan, saddle: Saddle, target: float
) -> Iterator[tuple[str, Callable[[], EpsilonSandwich]]]:
    """Ways to an answer, the cheapest first."""
    planned = saddle.epsilon < 5.0 * MOST_EPSILON  # else no tilt of the whole loss brings delta down to it
    may_be_rare = _may_be_rare(parts)
    split: list[EpsilonSandwich] = []  # what one jump found: a lattice has nothing better then
    guess = cache(partial(rare.planned_epsilon, parts, plan, target))
    if planned:
        yield "contour", partial(_by_engine, contour.draw, parts, plan, saddle, target)
    if may_be_rare:
        yield "contour with rare event", partial(_with_rare, contour.draw, parts, plan, target, guess)
        if len(parts) == 1:
            yield "one jump", partial(_with_jump, parts, plan, target, guess, split)
        if len(parts) <= _MANY and not split:
            yield "lattice with rare event", partial(_with_rare, _grid, parts, plan, target, guess)
    if planned and len(parts) <= _MOST_ON_GRID and not split:
        yield "lattice", partial(_by_engine, _grid, parts, plan, saddle, target)
    if planned and len(parts) <= _MOST_RARE:
        yield "contour", partial(_by_engine, _patient, parts, plan, saddle, target)
    if may_be_rare and len(parts) <= _MANY:
        yield "contour with rare event", partial(_with_rare, _patient, parts, plan, target, guess)


def _may_be_rare(parts: Parts) -> bool:
    """Whether a large loss can be much rarer than a small one: sampled, and tails not Laplace."""
    return len(parts) <= _MOST_RARE and any(
        pair.rate < 1.0 and pair.up > 0.0 and pair.beta > 1.0 for pair, _ in parts
    )


def _with_rare(
    engine: Engine, parts: Parts, plan: TiltPlan, target: float, planned: Callable[[], float]
) -> EpsilonSandwich:
    guess = planned()
    found: EpsilonSandwich | None = None
    for margin in (1.3, 1.05, 1.01, 1.001):
        split = rare.cut(parts, plan, margin * guess, target)
        saddle = saddle_for_epsilon(split.plan, guess)
        try:
            curve = rare.RareSplit(engine(split.parts, split.plan, saddle), split.rare)
            again = crossing(curve, target, guess, 0.1 * guess)
        except ArithmeticError:
            if found is None:
                raise
            return found
        before = math.inf if found is None else found.upper - found.lower
        found = again if found is None or again.upper - again.lower < before else found
        now = found.upper - found.lower
        enough = _FAIR_WIDTH if engine is not _grid else 1e-4  # a grid is as fine as it can be
        if now <= enough * found.upper or (math.isfinite(before) and now > 0.5 * before):
            break
        guess = found.estimate
    assert found is not None
    return found


def _with_jump(
    parts: Parts, plan: TiltPlan, target: float, planned: Callable[[], float], into: list[EpsilonSandwich]
) -> EpsilonSandwich:
    """Split by the number of jumps where epsilon is expected: coarsely first, then where it was found."""
    guess = planned()
    for most_points in (2**12, 2**12, jump.MOST_POINTS):
        curve = jump.build(parts, plan, guess, _FAIR_WIDTH, most_points)
        found = crossing(curve, target, guess, 0.1 * guess, resolution=1e-9)
        if found.upper - found.lower <= _FAIR_WIDTH * found.upper < math.inf:
            break
        guess = found.estimate
    into.append(found)
    return found


def _by_engine(
    engine: Engine, parts: Parts, plan: TiltPlan, saddle: Saddle, target: float
) -> EpsilonSandwich:
    """Build the engine at the saddle, solve, and build again where it turned out to lie elsewhere."""
    found: EpsilonSandwich | None = None
    for _ in range(3):
        try:
            curve = engine(parts, plan, saddle)
            again = crossing(curve, target, saddle.epsilon, 2.0 * saddle.deviation)
        except ArithmeticError:
            if found is None:
                raise
            return found
        found = again if found is None or again.upper - again.lower < found.upper - found.lower else found
        well_placed = abs(found.estimate - saddle.epsilon) <= 0.25 * saddle.deviation
        if well_placed or found.upper - found.lower <= _GOOD_WIDTH * found.upper:
            break
        saddle = saddle_for_epsilon(plan, found.estimate)
    assert found is not None
    return found


def _as_bounds(found: EpsilonSandwich, method: str, ceiling: float) -> Bounds:
    """Clip to what is known anyway: no negative epsilon, none beyond the largest loss."""
    lower, estimate, upper = (min(max(v, 0.0), ceiling) for v in (found.lower, found.estimate, found.upper))
    return Bounds(lower, estimate, upper, method, found.ledger)


def _both(one: Bounds, other: Bounds) -> Bounds:
    """The intersection of two certified answers to the same question."""
    head = one if one.width <= other.width else other
    lower, upper = max(one.lower, other.lower), min(one.upper, other.upper)
    return Bounds(lower, min(max(head.estimate, lower), upper), upper, head.method, head.ledger)


def _with_moments(parts: Parts, plan: TiltPlan, target: float, ceiling: float, best: Bounds | None) -> Bounds:
    saddle = saddle_for_log_delta(plan, target)
    upper = min(ceiling, moments.epsilon_above(parts, plan, saddle.theta, target))
    lower = min(moments.epsilon_below(parts, plan, target), upper)
    if best is None and upper > MOST_EPSILON and saddle.epsilon > MOST_EPSILON:
        raise ValueError(too_much("epsilon at this delta", None, about=saddle.epsilon))
    wide = Bounds(lower, min(max(saddle.epsilon, lower), upper), upper, "moments", ErrorLedger())
    return wide if best is None else _both(best, wide)


def delta_of(parts: Parts, epsilon: float) -> Bounds:
    """delta of one direction."""
    if epsilon >= largest_loss(parts):
        return Bounds(0.0, 0.0, 0.0, "pure")
    if _releases(parts) == 1:
        return _delta_bounds(ClosedForm(parts[0][0]).log_delta(epsilon), CLOSED_FORM)
    plan = TiltPlan.of(parts)
    saddle = saddle_for_epsilon(plan, epsilon)
    best: Bounds | None = None
    if not saddle.deviation > 0.0 or saddle.log_delta < _SMALLEST_LOG_DELTA or epsilon > MOST_EPSILON:
        return _delta_by_moments(parts, plan, saddle, epsilon)
    for name, attempt in _delta_attempts(parts, plan, saddle, epsilon):
        try:
            answer = _delta_bounds(attempt().log_delta(epsilon), name)
        except ArithmeticError:
            continue
        best = answer if best is None else _both(best, answer)
        # a jump's delta falls steeply: this much of it is next to nothing of epsilon
        enough = 1e-4 if name == "one jump" else _ENOUGH.get(name, _FAIR_WIDTH)
        if best.width <= enough * best.upper < math.inf:
            return best
    wide = _delta_by_moments(parts, plan, saddle, epsilon)
    return wide if best is None else _both(best, wide)


def _delta_by_moments(parts: Parts, plan: TiltPlan, saddle: Saddle, epsilon: float) -> Bounds:
    log_upper = min(moments.log_total_variation_above(parts), 0.0)
    log_upper = min(log_upper, moments.log_delta_above(parts, plan, saddle.theta, epsilon))
    upper = _raised(log_upper)
    lower = min(math.exp(moments.log_delta_below(parts, plan, epsilon)), upper)
    return Bounds(lower, min(max(math.exp(min(saddle.log_delta, 0.0)), lower), upper), upper, "moments")


def _delta_attempts(
    parts: Parts, plan: TiltPlan, saddle: Saddle, epsilon: float
) -> Iterator[tuple[str, Callable[[], Curve]]]:
    yield "contour", lambda: contour.draw(parts, plan, saddle)
    if _may_be_rare(parts) and epsilon < 600.0:
        yield "contour with rare event", partial(_rare_curve, contour.draw, parts, plan, epsilon)
        if len(parts) == 1:
            yield "one jump", partial(jump.build, parts, plan, max(epsilon, 1e-14), _FAIR_WIDTH)
        if len(parts) <= _MANY:
            yield "lattice with rare event", partial(_rare_curve, _grid, parts, plan, epsilon)
    if len(parts) <= _MOST_ON_GRID:
        yield "lattice", lambda: _grid(parts, plan, saddle)
    if len(parts) <= _MOST_RARE:
        yield "contour", lambda: _patient(parts, plan, saddle)


def _rare_curve(engine: Engine, parts: Parts, plan: TiltPlan, epsilon: float) -> Curve:
    guess = max(epsilon, 1e-14)
    split = rare.cut(parts, plan, guess, saddle_for_epsilon(plan, guess).log_delta)
    return rare.RareSplit(engine(split.parts, split.plan, saddle_for_epsilon(split.plan, guess)), split.rare)


def _delta_bounds(found: LogDelta, method: str) -> Bounds:
    upper = _raised(found.upper)
    lower = min(math.exp(min(found.lower, 0.0)) * (1.0 - 4.0 * UNIT_ROUNDOFF), upper)
    estimate = min(max(math.exp(min(found.estimate, 0.0)), lower), upper)
    return Bounds(lower, estimate, upper, method, found.ledger)


def _raised(log_delta: float) -> float:
    """No less than the delta of that logarithm, and positive."""
    return min(math.exp(min(log_delta, 0.0)) * (1.0 + 4.0 * UNIT_ROUNDOFF) + _LEAST_DELTA, 1.0)
