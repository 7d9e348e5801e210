# SPDX-License-Identifier: Apache-2.0
"""A privacy loss that is known by one distribution function, that with the record.

Let L = log P/Q at an outcome drawn from P. Q weighs a loss t by e^-t times what P does, so the distribution
function of L under P is enough: it gives delta(epsilon) = E[(1 - e^(epsilon - L))_+]. That is the mean of an
increasing function of the loss, of one release and of several composed. So moving probability to an infinite
loss raises delta, and taking probability away from the largest losses lowers it. Where the function is right
up to an error, moving and taking away that much gives an upper and a lower law.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ggdp import arguments
from ggdp.mechanisms.custom import CustomMechanism
from ggdp.numerics import Array
from ggdp.privacy_loss.cells import Cells
from ggdp.privacy_loss.custom import cells_of

_ERROR = 2.0**-50  # to which the distribution function is taken to be right, absolutely
_GROUP = 16  # fine cells put together: the finer they are, the better the mass without the record is known
_FEWEST, _MOST = 1 << 16, 1 << 21


@dataclass(frozen=True)
class LossCdf(CustomMechanism):
    """A release by the distribution function of its loss; only REMOVE can be asked about, without sampling.

    Args:
        cdf: t -> probability of a loss of at most t, given that it is finite, for arrays; right to 8e-16.
        infinite: probability of an infinite loss.
        cells: into how many cells a unit of loss is cut, at most 2^21 in all.
    """

    cdf: Callable[[Any], Any]
    infinite: float
    cells: int

    def __post_init__(self) -> None:
        infinite = arguments.real("infinite", self.infinite, least=0.0, below=1.0)
        object.__setattr__(self, "infinite", infinite)
        object.__setattr__(self, "cells", arguments.whole("cells", self.cells))


@cells_of.register
def _(mechanism: LossCdf) -> Cells:
    finite = 1.0 - mechanism.infinite
    low, high = _span(mechanism)
    fine = min(max(math.ceil((high - low) * mechanism.cells), _FEWEST), _MOST)
    right = np.linspace(low, high, -(-fine // _GROUP) * _GROUP + 1)
    left = np.append(-math.inf, right[:-1])  # the first cell holds all smaller losses
    cdf = np.maximum.accumulate(_values(mechanism, right))
    before = np.append(0.0, cdf[:-1])
    p = (cdf - before) * finite
    p_low = np.where(1.0 - cdf >= _ERROR, p, np.maximum(1.0 - before - _ERROR, 0.0) * finite)
    with np.errstate(over="ignore", invalid="ignore"):
        q_low, q_high = p * np.exp(-right), np.where(p > 0.0, np.minimum(p * np.exp(-left), 1.0), 0.0)
    if float(q_low.sum()) > 1.0 + 1e-6:
        raise ValueError(
            "cdf must be that of a privacy loss log P/Q under P, for which e^-loss has a mean of at most 1, "
            f"got one with a mean of at least {float(q_low.sum()):.6g}"
        )
    starts = np.append(0, np.arange(1, len(p), _GROUP))
    last = np.append(starts[1:], len(p)) - 1
    beyond = (1.0 - float(cdf[-1]) + _ERROR) * finite + mechanism.infinite

    def sums(values: Array, at_infinity: float, rounding: float) -> Array:
        return np.append(np.add.reduceat(values, starts), at_infinity) * (1.0 + rounding)

    return Cells(
        sums(p_low, mechanism.infinite, -1e-14),
        sums(p, beyond, 1e-14),
        sums(q_low, 0.0, -1e-12),
        sums(q_high, 0.0, 1e-12),
        np.append(left[starts], math.inf),
        np.append(right[last], math.inf),
    )


def _values(mechanism: LossCdf, points: Array) -> Array:
    with np.errstate(all="ignore"):
        value = np.asarray(mechanism.cdf(points), dtype=np.float64)
    if value.shape != points.shape or not np.all((value >= -_ERROR) & (value <= 1.0 + _ERROR)):
        raise ValueError(f"cdf must return a probability for each loss, got {value!r}")
    return np.clip(value, 0.0, 1.0)


def _span(mechanism: LossCdf) -> tuple[float, float]:
    """Between which losses nearly all probability lies."""
    sizes = 2.0 ** (np.arange(-40.0, 45.0) / 4.0)
    above = np.nonzero(1.0 - _values(mechanism, sizes) <= _ERROR)[0]
    below = np.nonzero(_values(mechanism, -sizes) <= _ERROR)[0]
    return -float(sizes[below[0] if len(below) else -1]), float(sizes[above[0] if len(above) else -1])
