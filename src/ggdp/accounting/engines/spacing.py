# SPDX-License-Identifier: Apache-2.0
"""The spacing of a grid on which discrete losses lie, or lie near.

A loss that lies between two grid points is moved, which makes bounds wider; one that lies on the grid is not.
Everything here plans: a poor spacing makes an answer wide, not wrong.
"""

import math
from collections.abc import Sequence

import numpy as np

_TRIED = 4000  # spacings of which the best is taken where no grid holds all losses
_SAME = 1e-11  # share of a distance that rounding may make of it
_ON_GRID = 1e-7  # of a spacing


def aligned(apart: Sequence[tuple[float, float]], spacing: float) -> float:
    """A spacing, no coarser, that divides all distances, or else one that is near to dividing them.

    Args:
        apart: distances of losses from the point where their grid begins, and how often each occurs.
        spacing: the coarsest one wanted. Distances below it are left alone.
    """
    distance, weight = np.array([one for one in apart if one[0] > spacing]).reshape(-1, 2).T
    if not len(distance):
        return spacing
    common = _common(distance.tolist())
    if common >= spacing:
        return common / math.ceil(common / spacing)
    tried = spacing * np.linspace(1.0, 0.9, _TRIED)
    cost = np.zeros(_TRIED)
    for one, often in zip(distance, weight, strict=True):
        off = one / tried % 1.0
        cost += often * off * (1.0 - off)
    return float(tried[np.argmin(cost)])


def _common(distances: Sequence[float]) -> float:
    """The largest number of which all distances are multiples, to within their rounding; 0 if there is none.

    >>> round(_common([0.3, 0.5, 1.1]), 12)
    0.1
    """
    least = _SAME * max(distances)
    common = 0.0
    for distance in distances:
        one, other = distance, common
        while other > least:
            rest = one % other
            one, other = other, min(rest, other - rest)
        common = one
    counts = [round(distance / common) for distance in distances]
    common = math.fsum(distances) / sum(counts)
    off = max(abs(distance / common - count) for distance, count in zip(distances, counts, strict=True))
    return common if off <= _ON_GRID else 0.0
