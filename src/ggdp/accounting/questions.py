# SPDX-License-Identifier: Apache-2.0
"""The questions people ask: epsilon at a delta, delta at an epsilon, and the whole curve."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, overload

import numpy as np

from ggdp import arguments
from ggdp.accounting import contour, general, lattice, moments, rare, top_atom, vector
from ggdp.accounting.bounds import Bounds, ErrorLedger, Estimate
from ggdp.accounting.closed_form import ClosedForm
from ggdp.accounting.curve import Curve, EpsilonSandwich, LogDelta, crossing
from ggdp.accounting.described import is_described
from ggdp.accounting.tilt import Saddle, TiltPlan, saddle_for_epsilon, saddle_for_log_delta
from ggdp.mechanisms import Adjacency, Mechanism
from ggdp.privacy_loss.dominating import Parts, directions
from ggdp.privacy_loss.quadrature import CannotCertifyError

MOST_EPSILON = 2000.0
LEAST_LOG_DELTA = math.log(1e-100)
_SMALLEST_LOG_DELTA = math.log(1e-290)  # beyond, delta is as good as none, and only bounded
_GOOD_WIDTH = 2e-7  # relative width at which an engine's answer is taken as it is
_FAIR_WIDTH = 1e-6  # and after the second engine too
_LEAST_DELTA = 5e-324  # a positive delta never becomes an upper bound of zero


@overload
def epsilon(
    mechanism: Mechanism,
    *,
    delta: float | None = None,
    log_delta: float | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    method: None = None,
) -> Bounds: ...
@overload
def epsilon(
    mechanism: Mechanism,
    *,
    delta: float | None = None,
    log_delta: float | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    method: Literal["scanned", "one-coordinate"],
) -> Estimate: ...
def epsilon(
    mechanism: Mechanism,
    *,
    delta: float | None = None,
    log_delta: float | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    method: Literal["scanned", "one-coordinate"] | None = None,
) -> Bounds | Estimate:
    """The smallest epsilon for which the mechanism is (epsilon, delta)-private.

    Args:
        mechanism: what is released.
        delta: in [1e-100, 0.5]; or
        log_delta: its natural logarithm.
        adjacency: which datasets are neighbours; ADD_REMOVE is the worse of both directions.
        method: for a vector release, "scanned" (the worst of equal splits) or "one-coordinate", both without a
            guarantee; leave it out for the best certified route.

    Returns:
        Certified bounds; `upper` is the number to publish. With a `method`, and for norm="matched", an `Estimate`.

    Guarantees:
        lower <= truth <= upper, rounding included. tests/accounting/test_soundness.py holds this against
        closed forms and mpmath.

    Raises:
        ValueError: an argument is out of range, or epsilon would exceed 2000.

    >>> from ggdp import AdditiveNoise, Composed, Gaussian, PoissonSampled
    >>> step = PoissonSampled(AdditiveNoise(Gaussian(std=1.0)), rate=0.01)
    >>> round(epsilon(Composed(step, times=10_000), delta=1e-6).upper, 6)
    6.907384
    """
    target = _log_delta_argument(delta, log_delta)
    if is_described(mechanism):
        return general.epsilon(mechanism, target, Adjacency(adjacency))
    # --- vector releases without a known worst shift, and estimates: ggdp.accounting.vector
    ask = partial(epsilon, log_delta=target, adjacency=Adjacency(adjacency))
    routed = vector.answer(mechanism, Adjacency(adjacency), method, ask, vector.EpsilonAt(target))
    if isinstance(routed, Bounds) and routed.upper > MOST_EPSILON:
        raise ValueError(_too_much("epsilon at this delta", routed))
    if routed is not None:
        return routed
    # ---
    worst: Bounds | None = None
    for parts in directions(mechanism, Adjacency(adjacency)):
        if worst is not None and _supremum(parts) <= worst.lower:
            continue  # this direction's loss never exceeds what the other one already costs
        one = _epsilon_of(parts, target)
        worst = one if worst is None else Bounds.worst(worst, one)
    if worst is None or worst.lower > MOST_EPSILON:
        raise ValueError(_too_much("epsilon at this delta", worst))
    return vector.named(worst, mechanism, Adjacency(adjacency))


@overload
def delta(
    mechanism: Mechanism, *, epsilon: float, adjacency: Adjacency = Adjacency.ADD_REMOVE, method: None = None
) -> Bounds: ...
@overload
def delta(
    mechanism: Mechanism,
    *,
    epsilon: float,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    method: Literal["scanned", "one-coordinate"],
) -> Estimate: ...
def delta(
    mechanism: Mechanism,
    *,
    epsilon: float,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    method: Literal["scanned", "one-coordinate"] | None = None,
) -> Bounds | Estimate:
    """The smallest delta for which the mechanism is (epsilon, delta)-private.

    Args:
        mechanism: what is released.
        epsilon: in [0, 2000].
        adjacency: which datasets are neighbours.
        method: as for `epsilon`.

    Guarantees:
        lower <= truth <= upper; exactly 0 from the epsilon on at which the mechanism is purely private.

    >>> from ggdp import AdditiveNoise, Laplace
    >>> delta(AdditiveNoise(Laplace(scale=2.0)), epsilon=0.5).upper
    0.0
    """
    epsilon = arguments.real("epsilon", epsilon, least=0.0, most=MOST_EPSILON)
    if is_described(mechanism):
        return general.delta(mechanism, epsilon, Adjacency(adjacency))
    # --- vector releases without a known worst shift, and estimates: ggdp.accounting.vector
    ask = partial(delta, epsilon=epsilon, adjacency=Adjacency(adjacency))
    routed = vector.answer(mechanism, Adjacency(adjacency), method, ask, vector.DeltaAt(epsilon))
    if routed is not None:
        return routed
    # ---
    worst: Bounds | None = None
    for parts in directions(mechanism, Adjacency(adjacency)):
        one = _delta_of(parts, epsilon)
        worst = one if worst is None else Bounds.worst(worst, one)
    if worst is None:
        raise ValueError("mechanism must hold at least one step")
    return vector.named(worst, mechanism, Adjacency(adjacency))


def privacy_curve(
    mechanism: Mechanism,
    *,
    epsilons: Sequence[float] | None = None,
    deltas: Sequence[float] | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> list[Bounds]:
    """delta at each epsilon, or epsilon at each delta."""
    if (epsilons is None) == (deltas is None):
        raise ValueError(
            f"give epsilons or deltas, one of them, got epsilons={epsilons!r}, deltas={deltas!r}"
        )
    if epsilons is not None:
        return [delta(mechanism, epsilon=float(e), adjacency=adjacency) for e in epsilons]
    return [epsilon(mechanism, delta=float(d), adjacency=adjacency) for d in np.asarray(deltas)]


def _log_delta_argument(delta: float | None, log_delta: float | None) -> float:
    if (delta is None) == (log_delta is None):
        raise ValueError(
            f"give delta or log_delta, one of them, got delta={delta!r}, log_delta={log_delta!r}"
        )
    if delta is not None:
        return math.log(arguments.real("delta", delta, least=1e-100, most=0.5))
    assert log_delta is not None
    return arguments.real("log_delta", log_delta, least=LEAST_LOG_DELTA - 1e-9, most=math.log(0.5))


def _too_much(what: str, bounds: Bounds | None) -> str:
    lower = bounds.lower if bounds is not None else math.inf
    return (
        f"{what} must be at most {MOST_EPSILON:g} to be computed, and is at least {lower:g}: "
        "take more noise, fewer steps or a larger delta"
    )


def _supremum(parts: Parts) -> float:
    return sum(times * pair.supremum for pair, times in parts)


def _releases(parts: Parts) -> int:
    return sum(times for _, times in parts)


Engine = Callable[[Parts, TiltPlan, Saddle], Curve]


def _grid(parts: Parts, plan: TiltPlan, saddle: Saddle) -> Curve:
    return lattice.build(parts, plan, saddle, 1e-7 * max(saddle.theta * saddle.epsilon, 1e-2))


def _patient(parts: Parts, plan: TiltPlan, saddle: Saddle) -> Curve:
    return contour.draw(parts, plan, saddle, effort=20.0)


_ENGINES: tuple[tuple[str, Engine], ...] = (("contour", contour.draw), ("lattice", _grid))


def _epsilon_of(parts: Parts, target: float) -> Bounds:
    """Epsilon of one direction."""
    ceiling = _supremum(parts)
    best = top_atom.epsilon_bounds(parts, target)
    if best is not None and best.width <= _GOOD_WIDTH * best.upper:
        return best
    if _releases(parts) == 1:
        curve = ClosedForm(parts[0][0])
        start = curve.start(target)
        if start <= 0.0 or start >= MOST_EPSILON * 1.5:
            return _at_an_end(start, "closed form")
        return _as_bounds(crossing(curve, target, start, 0.1 * start), "closed form", ceiling)
    plan = TiltPlan.of(parts)
    if _is_zero(parts, plan, target):
        return Bounds(0.0, 0.0, 0.0, "total variation")
    for name, attempt in _attempts(parts, plan, target):
        try:
            found = attempt()
        except CannotCertifyError:
            continue
        answer = _as_bounds(found, name, ceiling)
        best = answer if best is None else _both(best, answer)
        if best.width <= (_GOOD_WIDTH if name == "contour" else _FAIR_WIDTH) * best.upper:
            return best
    return _with_moments(parts, plan, target, ceiling, best)


def _is_zero(parts: Parts, plan: TiltPlan, target: float) -> bool:
    """Whether delta at epsilon zero, the distance of the two laws in total variation, is certainly small
    enough.
    """
    if moments.log_total_variation_above(parts) <= target:
        return True
    at_zero = saddle_for_epsilon(plan, 0.0)
    if at_zero.log_delta > target + 0.5:  # rough, but clearly above
        return False
    try:
        return contour.draw(parts, plan, at_zero).log_delta(0.0).upper <= target
    except CannotCertifyError:
        return False


def _attempts(
    parts: Parts, plan: TiltPlan, target: float
) -> Iterator[tuple[str, Callable[[], EpsilonSandwich]]]:
    """Ways to an answer, the cheapest first."""
    yield "contour", lambda: _by_engine(contour.draw, parts, plan, target)
    if _may_be_rare(parts) and saddle_for_log_delta(plan, target).epsilon < 1000.0:
        for name, engine in _ENGINES:
            yield f"{name} with rare event", partial(_with_rare, engine, parts, plan, target)
    yield "lattice", lambda: _by_engine(_grid, parts, plan, target)
    yield "contour", lambda: _by_engine(_patient, parts, plan, target)
    if _may_be_rare(parts) and saddle_for_log_delta(plan, target).epsilon < 1000.0:
        yield "contour with rare event", lambda: _with_rare(_patient, parts, plan, target)


def _may_be_rare(parts: Parts) -> bool:
    """Whether a large loss can be much rarer than a small one: sampled, and tails not Laplace."""
    return any(pair.rate < 1.0 and pair.up > 0.0 and pair.beta > 1.0 for pair, _ in parts)


def _with_rare(engine: Engine, parts: Parts, plan: TiltPlan, target: float) -> EpsilonSandwich:
    guess = rare.planned_epsilon(parts, plan, target)
    found: EpsilonSandwich | None = None
    for margin in (1.3, 1.05, 1.02):
        split = rare.cut(parts, plan, margin * guess, target)
        saddle = saddle_for_epsilon(split.plan, guess)
        try:
            curve = rare.RareSplit(engine(split.parts, split.plan, saddle), split.rare)
            again = crossing(curve, target, guess, 0.1 * guess)
        except CannotCertifyError:
            if found is None:
                raise
            return found
        found = again if found is None or again.upper - again.lower < found.upper - found.lower else found
        if (
            found.upper - found.lower <= _GOOD_WIDTH * found.upper
            or abs(found.estimate - guess) < 1e-3 * guess
        ):
            break
        guess = found.estimate
    assert found is not None
    return found


def _by_engine(engine: Engine, parts: Parts, plan: TiltPlan, target: float) -> EpsilonSandwich:
    """Build the engine at the saddle, solve, and build again where it turned out to lie elsewhere."""
    saddle = saddle_for_log_delta(plan, target)
    found: EpsilonSandwich | None = None
    for _ in range(3):
        try:
            curve = engine(parts, plan, saddle)
            again = crossing(curve, target, saddle.epsilon, 2.0 * saddle.deviation)
        except CannotCertifyError:
            if found is None:
                raise
            return found
        found = again if found is None or again.upper - again.lower < found.upper - found.lower else found
        if found.upper - found.lower <= _GOOD_WIDTH * found.upper:
            break
        saddle = saddle_for_epsilon(plan, found.estimate)
    assert found is not None
    return found


def _as_bounds(found: EpsilonSandwich, method: str, ceiling: float) -> Bounds:
    """Clip to what is known anyway: no negative epsilon, none beyond the largest loss."""

    def clip(value: float) -> float:
        return min(max(value, 0.0), ceiling)

    return Bounds(clip(found.lower), clip(found.estimate), clip(found.upper), method, found.ledger)


def _at_an_end(start: float, method: str) -> Bounds:
    if start <= 0.0:
        return Bounds(0.0, 0.0, 0.0, method)
    raise ValueError(_too_much("epsilon at this delta", Bounds(start, start, start, method)))


def _both(one: Bounds, other: Bounds) -> Bounds:
    """The intersection of two certified answers to the same question."""
    head = one if one.width <= other.width else other
    lower, upper = max(one.lower, other.lower), min(one.upper, other.upper)
    return Bounds(lower, min(max(head.estimate, lower), upper), upper, head.method, head.ledger)


def _with_moments(parts: Parts, plan: TiltPlan, target: float, ceiling: float, best: Bounds | None) -> Bounds:
    saddle = saddle_for_log_delta(plan, target)
    upper = ceiling
    for factor in (1.0, 0.7, 0.4):
        try:
            upper = min(upper, moments.epsilon_above(parts, plan, factor * saddle.theta, target))
        except CannotCertifyError:
            continue
    lower = min(moments.epsilon_below(parts, target), upper)
    wide = Bounds(lower, min(max(saddle.epsilon, lower), upper), upper, "moments", ErrorLedger())
    return wide if best is None else _both(best, wide)


def _delta_of(parts: Parts, epsilon: float) -> Bounds:
    """delta of one direction."""
    if epsilon >= _supremum(parts):
        return Bounds(0.0, 0.0, 0.0, "pure")
    if _releases(parts) == 1:
        return _delta_bounds(ClosedForm(parts[0][0]).log_delta(epsilon), "closed form")
    plan = TiltPlan.of(parts)
    saddle = saddle_for_epsilon(plan, epsilon)
    best: Bounds | None = None
    if not saddle.deviation > 0.0 or saddle.log_delta < _SMALLEST_LOG_DELTA:
        return _delta_by_moments(parts, plan, saddle, epsilon)
    for name, attempt in _delta_attempts(parts, plan, saddle, epsilon):
        try:
            answer = _delta_bounds(attempt().log_delta(epsilon), name)
        except CannotCertifyError:
            continue
        best = answer if best is None else _both(best, answer)
        if best.width <= (_GOOD_WIDTH if name == "contour" else _FAIR_WIDTH) * best.upper:
            return best
    wide = _delta_by_moments(parts, plan, saddle, epsilon)
    return wide if best is None else _both(best, wide)


def _delta_by_moments(parts: Parts, plan: TiltPlan, saddle: Saddle, epsilon: float) -> Bounds:
    log_upper = min(moments.log_total_variation_above(parts), 0.0)
    for factor in (1.0, 0.7, 0.4):
        try:
            log_upper = min(log_upper, moments.log_delta_above(parts, plan, factor * saddle.theta, epsilon))
        except CannotCertifyError:
            continue
    upper = max(math.exp(log_upper), _LEAST_DELTA)
    lower = min(math.exp(moments.log_delta_below(parts, epsilon)), upper)
    return Bounds(lower, min(max(math.exp(min(saddle.log_delta, 0.0)), lower), upper), upper, "moments")


def _delta_attempts(
    parts: Parts, plan: TiltPlan, saddle: Saddle, epsilon: float
) -> Iterator[tuple[str, Callable[[], Curve]]]:
    yield "contour", lambda: contour.draw(parts, plan, saddle)
    if _may_be_rare(parts) and epsilon < 600.0:
        for name, engine in _ENGINES:
            yield f"{name} with rare event", partial(_rare_curve, engine, parts, plan, epsilon)
    yield "lattice", lambda: _grid(parts, plan, saddle)
    yield "contour", lambda: _patient(parts, plan, saddle)


def _rare_curve(engine: Engine, parts: Parts, plan: TiltPlan, epsilon: float) -> Curve:
    guess = max(epsilon, 1e-14)
    split = rare.cut(parts, plan, guess, saddle_for_epsilon(plan, guess).log_delta)
    return rare.RareSplit(engine(split.parts, split.plan, saddle_for_epsilon(split.plan, guess)), split.rare)


def _delta_bounds(found: LogDelta, method: str) -> Bounds:
    lower, estimate, upper = (min(math.exp(v), 1.0) for v in (found.lower, found.estimate, found.upper))
    return Bounds(lower, estimate, max(upper, _LEAST_DELTA), method, found.ledger)
