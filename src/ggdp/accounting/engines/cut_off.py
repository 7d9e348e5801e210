# SPDX-License-Identifier: Apache-2.0
"""How far along the line Re s = theta the contour integral must go, and a proved bound on what lies beyond.

Write chi(w) = phi(theta + iw) / phi(theta), the characteristic function of one step's tilted loss. Beyond
omega the integrand is at most prod |chi_i|^times_i / w^2, and |chi_i| is bounded in two ways.

1. Far out, |chi| <= m + V/w (`privacy_loss.decay`).
2. In between, chi is evaluated on a grid, and between grid points y = sqrt(1 - |chi|^2) moves by no more
  than the tilted standard deviation per unit of w. Proof: with D the difference of two independent copies of
  the loss, |chi|^2 = E cos wD =: f, so |f'| <= sqrt(E D^2 E sin^2 wD), E sin^2 wD = (1 - f(2w))/2 <= 2 (1 -
  f(w)), and |y'| = |f'| / (2 y) <= sqrt(E D^2 / 2).

For small sampling rates the tilted loss has a narrow bulk and rare large values. These are kept apart: with
m1 the mass of noise beyond a cut on either side, |chi| <= (1 - m1) |chi of the bulk| + m1, and only the bulk,
whose deviation is small, is covered.

Leaving a part out of the product is leaving its factor at 1, which is always a bound. Of many parts only
those are covered that bring it down most, and on each stretch of the line only as many as make it negligible.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ggdp.accounting.engines.characteristic import characteristic, power_units
from ggdp.accounting.engines.tilt import Parts, Saddle, TiltPlan
from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError
from ggdp.numerics import Array
from ggdp.privacy_loss.decay import Decay, decay
from ggdp.privacy_loss.quadrature import Nodes, certified_nodes
from ggdp.search import geometric, halve

PLANNING_ERROR = 1e-5
"""How far the planned log phi may lie below the certified one; the caller checks it."""

MANY = 50
"""Parts beyond which only those that tell are covered."""

_SHORT_LINE = 500  # points up to which a plain line is cheaper than a cover
_RUN = 48  # cover points per doubling of w
_FURTHEST = 1e11  # in steps of the line; only a cover goes that far
_LONG_LINE = 20_000
_FAR_OUT = 1e5  # deviations' worth of w at which a plan is no longer followed
_TELLING = 0.8  # of the fall of the product, which these bring about
_SPARE = 5.0  # log of how much smaller a run is made than the truncation aimed at
_BULK_ACCURACY = -20.0  # log of the error allowed per panel of a bulk: below the planning error
_TOLERANCE = 9.0  # log of how much more truncation than aimed at is still taken


def cut_off(
    parts: Parts, plan: TiltPlan, saddle: Saddle, step: float, enough: float, log_phis: Array
) -> tuple[float, float]:
    """The end of the line and log of the truncation there, relative to e^K(theta).

    Holds if no part's certified log phi(theta) exceeds the one given by more than `PLANNING_ERROR`.

    Args:
        parts: the composition.
        plan: its rough cumulants.
        saddle: where the line crosses the real axis.
        step: spacing of the line, to weigh a cover against a longer line.
        enough: log of the truncation aimed at, relative to e^K(theta).
        log_phis: log phi(theta) of each part, planned or certified.

    Raises:
        CannotCertifyError: the characteristic function falls too slowly.
    """
    decays = [decay(pair, saddle.theta, float(v)) for (pair, _), v in zip(parts, log_phis, strict=True)]
    furthest = _far_end(parts, decays, saddle.deviation, enough - 1.0, step)
    beyond = _log_far_tail(parts, decays, furthest)
    if furthest <= _SHORT_LINE * step or beyond > enough:
        return furthest, beyond
    if len(parts) > MANY:
        chosen = _telling(plan, saddle, enough)
        parts, decays, log_phis = (
            tuple(parts[i] for i in chosen),
            [decays[i] for i in chosen],
            log_phis[chosen],
        )
        plan = plan.only(chosen)
    bulks = _bulks(parts, plan, saddle, log_phis, furthest)
    return _covered(parts, bulks, decays, saddle, furthest, beyond, enough)


def planned_end(plan: TiltPlan, saddle: Saddle, enough: float) -> tuple[float, Array]:
    """Where the line is likely to end, roughly, and each part's -log |chi| there."""
    omega = 4.0 / saddle.deviation
    while True:
        held = -plan.times * plan.log_moduli(saddle.theta, omega)
        if held.sum() > -enough or omega > _FAR_OUT / saddle.deviation:
            return omega, held
        omega *= 1.5


def _telling(plan: TiltPlan, saddle: Saddle, enough: float) -> list[int]:
    """The parts that hold most of -log |chi| where the line is likely to end."""
    held = planned_end(plan, saddle, enough)[1]
    order = np.argsort(-held, kind="stable")
    reached = np.cumsum(held[order]) / max(held.sum(), 1e-300)
    return sorted(int(i) for i in order[: 1 + int((reached < _TELLING).sum())])


def _log_far_tail(parts: Parts, decays: Sequence[Decay], omega: float) -> float:
    """log of 1/pi * integral from omega of prod (m + V/w)^times / w^2."""
    fall = 0.0
    for part, (_, times) in zip(decays, parts, strict=True):
        mass, variation = part.coefficients(omega)
        fall += times * min(math.log(max(mass + variation / omega, 5e-324)), 0.0)
    return fall - math.log(math.pi * omega)


def _far_end(parts: Parts, decays: Sequence[Decay], deviation: float, enough: float, step: float) -> float:
    """The nearest point, within a few percent, from which the decay alone suffices."""
    omega = 6.0 / deviation
    while _log_far_tail(parts, decays, omega) > enough:
        omega *= 1.6
        if omega > _FURTHEST * step:
            return _tolerable_end(parts, decays, enough, step)
    return halve(
        lambda point: _log_far_tail(parts, decays, point) <= enough,
        omega,
        omega / 1.6,
        middle=geometric,
        halvings=3,
    )[0]


def _tolerable_end(parts: Parts, decays: Sequence[Decay], enough: float, step: float) -> float:
    """Where atoms keep |chi| from falling any further: a long line, if what lies beyond is small all the
    same.
    """
    omega = _LONG_LINE * step
    if _log_far_tail(parts, decays, omega) > enough + _TOLERANCE:
        raise CannotCertifyError("the characteristic function falls too slowly")
    return omega


def _bulks(
    parts: Parts, plan: TiltPlan, saddle: Saddle, log_phis: Array, omega: float
) -> list[tuple[Nodes, float] | None]:
    """Nodes of each part's bulk, certified up to omega, and the tilted mass left out of it.

    None for a part of so large a loss that it oscillates too fast: its decay has to do.
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
    """Cover the line with intervals, bound the integrand on each, end it where the rest is small enough."""
    if all(bulk is None for bulk in bulks):
        raise CannotCertifyError("the loss oscillates too fast for quadrature")
    widest = max(bulk[0].deviation for bulk in bulks if bulk is not None)
    none: Array = np.empty(0)
    starts, widths, log_bounds = [none], [none], [none]  # of each run
    for first, step, count in _runs(4.0 / saddle.deviation, furthest, widest):
        CLOCK.check()
        log_bound = np.zeros(count)
        for (_, times), bulk, fall in zip(parts, bulks, decays, strict=True):
            if bulk is None:
                mass, variation = fall.coefficients(first)
                log_bound += times * min(math.log(mass + variation / first), 0.0)
            else:
                log_bound += times * _log_between(*bulk, first, step, count)
            if log_bound.max() - math.log(math.pi * first) < enough - _SPARE:
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
    """Uniform runs (start, step, count): steps grow with w until they reach half a deviation's worth."""
    coarsest = 0.5 / widest
    while first < furthest:
        step = first / _RUN
        if step >= coarsest:
            count = math.ceil((furthest - first) / coarsest)
            if count > 40_000:
                raise CannotCertifyError("the cover of the characteristic function is too long")
            yield first, coarsest, count
            return
        count = min(_RUN, math.ceil((furthest - first) / step))
        yield first, step, count
        first += step * count


def _log_between(bulk: Nodes, rare: float, first: float, step: float, count: int) -> Array:
    """log of a bound on |chi| over each of the intervals [first + k step, first + (k+1) step]."""
    value = np.abs(characteristic(bulk.share, bulk.loss - bulk.mean, first, step, count + 1))
    slip = bulk.quadrature[0] + bulk.roundoff[0] + 2.0**-50 * (first + step * count) * bulk.deviation
    slip += 2.0**-53 * power_units(count + 1) + (first + step * count) * bulk.loss_error
    height = np.sqrt(np.maximum(1.0 - (value + slip) ** 2, 0.0))
    lowest = 0.5 * (height[1:] + height[:-1] - step * bulk.deviation * (1.0 + 1e-9))
    modulus = np.sqrt(1.0 - np.clip(lowest, 0.0, 1.0) ** 2)
    return np.asarray(np.log1p(np.minimum((1.0 - rare) * (modulus - 1.0), 0.0)))
