# SPDX-License-Identifier: Apache-2.0
"""Where the contour integral along the line Re s = theta may end, and a proved bound on what lies beyond.

Let s = theta + iw, and let chi_i(w) = phi_i(theta + iw) / phi_i(theta) be the characteristic function of the
tilted loss of part i. Relative to e^K(theta), the integrand at w is at most the product of |chi_i|^times_i,
divided by w^2. Each |chi_i| is bounded in two ways.

1. At large w, |chi| <= m + V/w (`privacy_loss.decay`).
2. At smaller w, chi is evaluated at grid points. Between two of them y = sqrt(1 - |chi|^2) changes by no more
  than the tilted standard deviation of the loss times their distance. Proof: with D the difference of two
  independent copies of the loss, |chi|^2 = E cos wD =: f, so |f'| <= sqrt(E D^2 E sin^2 wD), E sin^2 wD =
  (1 - f(2w))/2 <= 2 (1 - f(w)), and |y'| = |f'| / (2 y) <= sqrt(E D^2 / 2). The intervals between the grid
  points are called the *cover* of the line.

For small sampling rates the tilted loss has a narrow bulk and rare large values, and its standard deviation
is that of the large values. So the noise is cut on both sides. With m1 the tilted mass of the noise beyond
the cuts, |chi| <= (1 - m1) |chi of the bulk| + m1. Only the bulk, which has a small standard deviation, is
covered.

Since |chi| <= 1, any factor may be replaced by 1. Of many parts only those are covered whose factors are
smallest, and on each stretch of the line only as many of these as make the product negligible.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ggdp.accounting.engines.characteristic import characteristic, power_units
from ggdp.accounting.engines.tilt import Parts, Saddle, TiltPlan
from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.decay import Decay, decay
from ggdp.privacy_loss.quadrature import Nodes, certified_nodes
from ggdp.search import geometric, halve

PLANNING_ERROR = 1e-5
"""How far below the certified log phi(theta) the given one may lie; the caller checks it."""

MANY = 50
"""Number of parts beyond which only some are covered."""

_SHORT_LINE_POINTS = 500  # a line with no more points than this is cheaper than a cover
_POINTS_PER_RUN = 48  # points of the cover while w grows to twice its value
_FURTHEST_STEPS = 1e11  # where a cover may end, in steps of the line
_LONG_LINE_POINTS = 20_000  # points of a line whose integrand does not become negligible
_FURTHEST_PLANNED = 1e5  # largest w of a plan, over 1 / standard deviation of the whole loss
_COVERED_SHARE = 0.8  # share of -log of the product that the covered parts have, of very many parts
_RUN_MARGIN = 5.0  # a run needs no further parts if its integral is e^5 times smaller than what is allowed
_BULK_ACCURACY = -20.0  # log of the error allowed per panel of a bulk: below the planning error
_TOLERANCE = 9.0  # log of how many times the truncation aimed at is still accepted


def cut_off(
    parts: Parts, plan: TiltPlan, saddle: Saddle, step: float, enough: float, log_phis: Array
) -> tuple[float, float]:
    """The end of the line, and log of a bound on the integral beyond it, relative to e^K(theta).

    The bound holds if no part's certified log phi(theta) exceeds the one given by more than `PLANNING_ERROR`.

    Args:
        parts: the composition.
        plan: its rough cumulants.
        saddle: where the line crosses the real axis.
        step: distance of the points of the line; it decides whether a cover is cheaper than a longer line.
        enough: log of the bound that is aimed at, relative to e^K(theta).
        log_phis: log phi(theta) of each part, planned or certified.

    Raises:
        CannotCertifyError: the characteristic function falls too slowly.
    """
    decays = [decay(pair, saddle.theta, float(v)) for (pair, _), v in zip(parts, log_phis, strict=True)]
    furthest = _far_end(parts, decays, saddle.deviation, enough - 1.0, step)
    beyond = _log_far_tail(parts, decays, furthest)
    if furthest <= _SHORT_LINE_POINTS * step or beyond > enough:
        return furthest, beyond
    if len(parts) > MANY:
        chosen = _most_telling(plan, saddle, enough)
        parts, decays, log_phis = (
            tuple(parts[i] for i in chosen),
            [decays[i] for i in chosen],
            log_phis[chosen],
        )
        plan = plan.only(chosen)
    bulks = _bulks(parts, plan, saddle, log_phis, furthest)
    return _covered(parts, bulks, decays, saddle, furthest, beyond, enough)


def planned_end(plan: TiltPlan, saddle: Saddle, enough: float) -> tuple[float, Array]:
    """Where the line is likely to end, roughly, and -times log |chi| of each part there."""
    omega = 4.0 / saddle.deviation
    while True:
        held = -plan.times * plan.log_moduli(saddle.theta, omega)
        if held.sum() > -enough or omega > _FURTHEST_PLANNED / saddle.deviation:
            return omega, held
        omega *= 1.5


def _most_telling(plan: TiltPlan, saddle: Saddle, enough: float) -> list[int]:
    """The parts with the smallest |chi|^times where the line is likely to end."""
    held = planned_end(plan, saddle, enough)[1]
    order = np.argsort(-held, kind="stable")
    reached = np.cumsum(held[order]) / max(held.sum(), 1e-300)
    return sorted(int(i) for i in order[: 1 + int((reached < _COVERED_SHARE).sum())])


def _log_far_tail(parts: Parts, decays: Sequence[Decay], omega: float) -> float:
    """log of 1/pi * integral from omega of prod (m + V/w)^times / w^2."""
    fall = 0.0
    for part, (_, times) in zip(decays, parts, strict=True):
        mass, variation = part.coefficients(omega)
        fall += times * min(math.log(max(mass + variation / omega, 5e-324)), 0.0)
    return fall - math.log(math.pi * omega)


def _far_end(parts: Parts, decays: Sequence[Decay], deviation: float, enough: float, step: float) -> float:
    """The smallest w, within a few percent, beyond which |chi| <= m + V/w is small enough by itself."""
    omega = 6.0 / deviation
    while _log_far_tail(parts, decays, omega) > enough:
        omega *= 1.6
        if omega > _FURTHEST_STEPS * step:
            return _tolerable_end(parts, decays, enough, step)
    return halve(
        lambda point: _log_far_tail(parts, decays, point) <= enough,
        omega,
        omega / 1.6,
        middle=geometric,
        halvings=3,
    )[0]


def _tolerable_end(parts: Parts, decays: Sequence[Decay], enough: float, step: float) -> float:
    """The end of a long line, for losses so discrete that |chi| does not tend to 0.

    Raises:
        CannotCertifyError: the bound on what lies beyond is too large even so.
    """
    omega = _LONG_LINE_POINTS * step
    if _log_far_tail(parts, decays, omega) > enough + _TOLERANCE:
        raise CannotCertifyError("the characteristic function falls too slowly")
    return omega


def _bulks(
    parts: Parts, plan: TiltPlan, saddle: Saddle, log_phis: Array, omega: float
) -> list[tuple[Nodes, float] | None]:
    """Quadrature nodes of each part's bulk, certified up to omega, and a bound on the tilted mass beyond it.

    None for a part whose integrand oscillates too fast for quadrature: m + V/w has to be enough for it.
    """
    rare = 0.25 * min(0.04, math.exp(-45.0 / float(plan.times.sum())))
    bulks: list[tuple[Nodes, float] | None] = []
    ends = plan.quantiles(saddle.theta, rare)
    for (pair, _), log_phi, (floor, cut) in zip(parts, log_phis, ends, strict=True):
        cut = min(max(cut, 1.01 * pair.up + 1e-3), pair.cut)
        floor = min(floor, 1.01 * pair.down - 1e-3)
        try:
            bulk = certified_nodes(
                pair,
                (saddle.theta,),
                omega,
                (float(log_phi),),
                floor=floor,
                cut=cut,
                most_panels=1000,
                negligible=_BULK_ACCURACY,
            )
        except CannotCertifyError:
            bulks.append(None)
            continue
        slack = bulk.quadrature[0] + bulk.roundoff[0] + 2.0 * PLANNING_ERROR
        bulks.append((bulk, -math.expm1(min(bulk.log_phi[0] - float(log_phi), 0.0)) + slack))
    return bulks


def _covered(
    parts: Parts,
    bulks: Sequence[tuple[Nodes, float] | None],
    decays: Sequence[Decay],
    saddle: Saddle,
    furthest: float,
    beyond: float,
    enough: float,
) -> tuple[float, float]:
    """Bound the integrand on each interval of the cover, and end the line where the rest is small enough."""
    if all(bulk is None for bulk in bulks):
        raise CannotCertifyError("the loss oscillates too fast for quadrature")
    widest = max(bulk[0].deviation for bulk in bulks if bulk is not None)
    none: Array = np.empty(0)
    starts, widths, log_bounds = [none], [none], [none]  # of the intervals of each run
    for first, step, count in _runs(4.0 / saddle.deviation, furthest, widest):
        CLOCK.check()
        log_bound = np.zeros(count)
        for (_, times), bulk, fall in zip(parts, bulks, decays, strict=True):
            if bulk is None:
                mass, variation = fall.coefficients(first)
                log_bound += times * min(math.log(mass + variation / first), 0.0)
            else:
                log_bound += times * _log_between(*bulk, first, step, count)
            if log_bound.max() - math.log(math.pi * first) < enough - _RUN_MARGIN:
                break  # the integral over this run is small enough without the others
        starts.append(np.asarray(first + step * np.arange(count), dtype=np.float64))
        widths.append(np.full(count, step))
        log_bounds.append(log_bound)
    omega, width = np.concatenate(starts), np.concatenate(widths)
    log_piece = np.concatenate(log_bounds) + np.log(width / (math.pi * omega**2))
    log_rest = np.logaddexp.accumulate(np.append(beyond, log_piece[::-1]))[::-1]
    small = np.nonzero(log_rest <= enough)[0]
    if not len(small):
        raise CannotCertifyError("the characteristic function falls too slowly")
    end = int(small[0])
    return float(np.append(omega, furthest)[end]), float(log_rest[end])


def _runs(first: float, furthest: float, widest: float) -> Iterator[tuple[float, float, int]]:
    """Runs (start, step, count) of equal intervals. They become longer with w, up to 0.5 / `widest`."""
    coarsest = 0.5 / widest
    while first < furthest:
        step = first / _POINTS_PER_RUN
        if step >= coarsest:
            count = math.ceil((furthest - first) / coarsest)
            if count > 40_000:
                raise CannotCertifyError("the cover of the characteristic function is too long")
            yield first, coarsest, count
            return
        count = min(_POINTS_PER_RUN, math.ceil((furthest - first) / step))
        yield first, step, count
        first += step * count


def _log_between(bulk: Nodes, rare: float, first: float, step: float, count: int) -> Array:
    """log of a bound on |chi| over each interval [first + k step, first + (k+1) step], for k < count.

    `rare` is a bound on the tilted mass that is not in the bulk.
    """
    value = np.abs(characteristic(bulk.share, bulk.loss - bulk.mean, first, step, count + 1))
    slip = bulk.quadrature[0] + bulk.roundoff[0] + 2.0**-50 * (first + step * count) * bulk.deviation
    slip += UNIT_ROUNDOFF * power_units(count + 1) + (first + step * count) * bulk.loss_error
    height = np.sqrt(np.maximum(1.0 - (value + slip) ** 2, 0.0))
    lowest = 0.5 * (height[1:] + height[:-1] - step * bulk.deviation * (1.0 + 1e-9))
    modulus = np.sqrt(1.0 - np.clip(lowest, 0.0, 1.0) ** 2)
    return np.asarray(np.log1p(np.minimum((1.0 - rare) * (modulus - 1.0), 0.0)))
