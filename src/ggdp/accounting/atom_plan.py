# SPDX-License-Identifier: Apache-2.0
"""Where to look when losses are discrete: the tilt, the grid, its ends. Plans only, nothing is certified."""

import math

import numpy as np

from ggdp.accounting.engines.tilt import FarPeaks, Saddle, TiltPlan
from ggdp.accounting.steps import Direction, Part
from ggdp.numerics import Array

_PLANNED = 4000  # atoms kept
_LARGE = 100.0


def plan_of(direction: Direction) -> TiltPlan:
    """Nodes of all parts, described ones first and thinned."""
    pieces = []
    for part in direction.described:
        loss, log_mass = _thinned(part)
        nowhere = FarPeaks(*(np.array([value]) for value in (1.0, 0.0, 0.0, math.inf)))
        one = TiltPlan(
            z=np.zeros_like(loss),
            loss=loss,
            log_mass=log_mass,
            starts=np.zeros(1, dtype=np.intp),
            times=np.array([float(part.times)]),
            far=nowhere,
        )
        pieces.append(one)
    pieces.extend(TiltPlan.of((known,)) for known in direction.known)
    lengths = [len(piece.loss) for piece in pieces]
    return TiltPlan(
        z=np.concatenate([piece.z for piece in pieces]),
        loss=np.concatenate([piece.loss for piece in pieces]),
        log_mass=np.concatenate([piece.log_mass for piece in pieces]),
        starts=np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.intp),
        times=np.concatenate([piece.times for piece in pieces]),
        far=FarPeaks(
            beta=np.concatenate([piece.far.beta for piece in pieces]),
            up=np.concatenate([piece.far.up for piece in pieces]),
            log_rate=np.concatenate([piece.far.log_rate for piece in pieces]),
            furthest=np.concatenate([piece.far.furthest for piece in pieces]),
        ),
    )


def _thinned(part: Part) -> tuple[Array, Array]:
    loss, mass = part.above.loss, np.maximum(part.above.mass, 1e-300)
    if len(loss) > _PLANNED:
        starts = np.arange(0, len(loss), -(-len(loss) // _PLANNED))
        total = np.add.reduceat(mass, starts)
        loss, mass = np.add.reduceat(mass * loss, starts) / total, total
    return loss, np.log(mass)


def span_of(part: Part, saddle: Saddle) -> tuple[float, float]:
    """Losses that can matter: tilted mass below, mass above, both negligible."""
    loss, mass = part.above.loss, np.maximum(part.above.mass, 1e-320)
    tilted = np.log(mass) + saddle.theta * loss
    from_left = np.logaddexp.accumulate(tilted - tilted.max())
    low = float(loss[max(int((from_left < -42.0 - math.log(part.times)).sum()) - 1, 0)])
    above = np.cumsum(mass[::-1])[::-1]
    enough = math.exp(saddle.log_delta - 34.0 - math.log(part.times))
    high = float(loss[min(int((above > enough).sum()), len(loss) - 1)])
    slack = 1e-12 * (1.0 + abs(low) + abs(high))
    return low - slack, high + slack


def aligned(direction: Direction, spacing: float) -> float:
    """A spacing, no coarser, that divides the distance of the two extreme losses, which are often atoms."""
    if len(direction.described) != 1 or direction.known:
        return spacing
    loss = direction.described[0].above.loss
    between = float(loss[-1] - loss[0])
    return between / math.ceil(between / spacing) if between > spacing else spacing


def origin_of(part: Part) -> float:
    """A point of the grid: the largest loss, often an atom, unless it is too large to matter."""
    return part.above.supremum if abs(part.above.supremum) < _LARGE else 0.0
