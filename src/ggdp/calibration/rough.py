# SPDX-License-Identifier: Apache-2.0
"""Rough costs for searches: wide certified bounds, whose estimates are good to about 1e-5.

Engines run with a larger tolerance, which makes a question about few releases about ten times faster. For
custom releases approximate *sketches* are used, which prove nothing.
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from ggdp.accounting import Bounds
from ggdp.accounting.engines import contour, lattice
from ggdp.accounting.engines.atoms import Enclosed, grid_above, origin_of, plan_of, span_of
from ggdp.accounting.engines.attempts import Engine
from ggdp.accounting.engines.cells import CellComposition
from ggdp.accounting.engines.curve import Curve, crossing
from ggdp.accounting.engines.moments import is_nearly_one
from ggdp.accounting.engines.tilt import (
    Parts,
    Saddle,
    TiltPlan,
    saddle_for_epsilon,
    saddle_for_log_delta,
)
from ggdp.errors import CannotCertifyError
from ggdp.privacy_loss.hockey_stick import hockey_stick

_ROUGH = 1e-3  # width of bounds whose estimate is good to about 1e-5
_USELESS = 0.1  # width of bounds whose estimate is not
_FEW_RELEASES = 300  # up to which a lattice is fast
_FINER = (1.0, 0.25, 0.05)  # shares of the first width that lattices are built for, one after the other
_COARSEST, _SHARE = 0.02, 0.01  # spacing of a sketch's lattice, over 1 + theta and over a loss's deviation
_MOST_POINTS = 2**18
_MOST_LOG_DELTA = 100.0  # largest |log delta| that is asked for
_NEARLY_ONE = 1.0 - 1e-12
_FAR = 2.0**45  # spacings from zero, beyond which the places of a lattice are not whole numbers


def like_one_gaussian(parts: Parts, epsilon: float) -> float:
    """Delta at epsilon of Gaussian noise in place of every release that has the same delta at epsilon 0.

    Where delta is large it is a better plan than a saddle point: it is right for one release, and nearly so
    for many, whatever the noise.
    """
    squares = 0.0
    for pair, times in parts:
        distance = float(hockey_stick(pair, np.zeros(1)).value[0])
        squares += times * (2.0 * float(ndtri(0.5 + 0.5 * min(max(distance, 0.0), _NEARLY_ONE)))) ** 2
    if squares == 0.0:
        return 0.0
    mu = math.sqrt(squares)
    away = epsilon / mu
    return float(ndtr(0.5 * mu - away) - math.exp(epsilon + float(log_ndtr(-0.5 * mu - away))))


def rough_delta(parts: Parts, epsilon: float) -> Bounds | None:
    """Delta of several releases at epsilon, if it is about 1% or more; None if no fast engine answers."""
    if is_nearly_one(parts, epsilon):
        return Bounds(1.0 - 1e-12, 1.0, 1.0, "rough")
    plan = TiltPlan.of(parts)
    saddle = saddle_for_epsilon(plan, epsilon)
    if not abs(saddle.log_delta) < _MOST_LOG_DELTA:
        return None

    def answers() -> Iterator[Bounds]:
        for engine in _cheap_engines(parts, _ROUGH):
            try:
                yield engine(parts, plan, saddle).log_delta(epsilon).as_delta("rough")
            except ArithmeticError:
                continue

    return _first_narrow(answers())


def rough_epsilon(parts: Parts, log_delta: float) -> Bounds | None:
    """Epsilon of several releases at log delta; None if no fast engine answers."""
    plan = TiltPlan.of(parts)
    saddle = saddle_for_log_delta(plan, log_delta)
    wide = _ROUGH * max(saddle.theta * saddle.epsilon, 1e-2)

    def answers() -> Iterator[Bounds]:
        for engine in _cheap_engines(parts, wide):
            try:
                curve = engine(parts, plan, saddle)
                found = crossing(curve, log_delta, saddle.epsilon, 2.0 * saddle.deviation)
            except ArithmeticError:
                continue
            lower, estimate, upper = (max(one, 0.0) for one in (found.lower, found.estimate, found.upper))
            yield Bounds(lower, estimate, upper, "rough", found.ledger)

    return _first_narrow(answers())


def _first_narrow(answers: Iterator[Bounds]) -> Bounds | None:
    """The first answer that is narrow enough, or else the last one that was narrower than the one before."""
    best: Bounds | None = None
    for found in answers:
        if best is not None and not found.width < 0.5 * best.width:
            break
        best = found
        if found.width <= _ROUGH * found.upper < math.inf:
            break
    return best if best is not None and best.width <= _USELESS * best.upper < math.inf else None


def _cheap_engines(parts: Parts, wide: float) -> list[Engine]:
    """The contour and a few lattices, the finest last, built for a given width of log delta."""
    engines: list[Engine] = [partial(lattice.build, tolerance=share * wide) for share in _FINER]
    releases = sum(times for _, times in parts)
    # the contour would fail, and slowly
    may_oscillate = any(pair.rate < 1.0 for pair, _ in parts) and releases <= _FEW_RELEASES
    return [*engines, contour.draw] if may_oscillate else [contour.draw, *engines]


def sketched_delta(parts: list[Enclosed], epsilon: float) -> float:
    """Delta of custom releases at epsilon, approximate as in `sketched_epsilon`."""
    if sum(part.times for part in parts) > 1:
        plan = plan_of(parts, ())
        if (curve := _sketched_curve(parts, plan, saddle_for_epsilon(plan, epsilon))) is not None:
            return math.exp(curve.log_delta(epsilon).estimate)
    return CellComposition(parts, ()).delta(epsilon).estimate


def sketched_epsilon(parts: list[Enclosed], log_delta: float) -> float:
    """Epsilon of custom releases to about 1e-4, uncertified: one lattice of the upper atoms."""
    if sum(part.times for part in parts) == 1:
        return CellComposition(parts, ()).epsilon(log_delta).estimate
    plan = plan_of(parts, ())
    saddle = saddle_for_log_delta(plan, log_delta)
    curve = _sketched_curve(parts, plan, saddle)
    if curve is None:
        return saddle.epsilon
    return max(crossing(curve, log_delta, saddle.epsilon, 2.0 * saddle.deviation).estimate, 0.0)


def _sketched_curve(parts: list[Enclosed], plan: TiltPlan, saddle: Saddle) -> Curve | None:
    """One lattice; None if losses are so large that the saddle-point method is accurate enough."""
    if not saddle.deviation > 0.0:
        raise CannotCertifyError("the losses are too small or too large for a sketch")
    if saddle.log_delta > _MOST_LOG_DELTA:
        return None
    window = lattice.window_of(plan, saddle)
    each = saddle.deviation / math.sqrt(sum(part.times for part in parts))
    spacing = max(min(_COARSEST / (saddle.theta + 1.0), _SHARE * each), 1.5 * window / _MOST_POINTS)
    spans = [span_of(part, saddle) for part in parts]
    farthest = max(part.times * max(map(abs, span)) for part, span in zip(parts, spans, strict=True))
    if any(high - low > _MOST_POINTS * spacing for low, high in spans) or farthest > _FAR * spacing:
        return None
    laws = [
        (grid_above(part.above, spacing, *span, origin_of(part)), part.times)
        for part, span in zip(parts, spans, strict=True)
    ]
    size = 1 << max(6, math.ceil(math.log2(1.5 * window / spacing)))
    return lattice.compose(laws, saddle, size, spacing)
