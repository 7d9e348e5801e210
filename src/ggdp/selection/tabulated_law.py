# SPDX-License-Identifier: Apache-2.0
"""Density and upper tail of noise of scale 1 at many points: one power, one exponential, one table.

With a = 1/beta and y = u^beta the tail is Q(a, y) / 2. Both halves of the table are smooth functions of y:

    y < 1:   Q(a, y) = 1 - u h(y),      h entire (DLMF 8.7.1),
    y >= 1:  Q(a, y) = exp(-y) w(y),    w slowly falling (DLMF 8.11.2).

Each is a polynomial of degree 5 on cells of width 1/32, through Chebyshev points: relative error below 1e-11,
and 1e-13 where beta <= 2.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gamma, gammainc

from ggdp.distributions import gamma_tail

Floats = NDArray[np.float64]

_CELLS = 32
_DEGREE = 5
_MIDDLE = 1.0
_END = 140.0
"""Beyond, w is taken as at the end: it is larger than the truth there, by a factor below y / 140."""


@dataclass(frozen=True, eq=False)
class TabulatedLaw:
    """The law with density exp(-|u|^beta) / (2 Gamma(1 + 1/beta)); build it with `tabulated`."""

    beta: float
    table: tuple[Floats, ...]

    def density_and_tail(self, distance: Floats) -> tuple[Floats, Floats]:
        """f(u) and P(noise > u) at u = distance >= 0."""
        normaliser = 2.0 * gamma(1.0 + 1.0 / self.beta)
        with np.errstate(under="ignore", over="ignore"):
            y = distance**self.beta if self.beta != 1.0 else distance
            decay = np.exp(-y)
            if self.beta == 1.0:
                return 0.5 * decay, 0.5 * decay
            smooth = self._smooth(y)
            tail = np.where(y < _MIDDLE, 0.5 - distance * smooth, decay * smooth)
        return decay / normaliser, tail

    def _smooth(self, y: Floats) -> Floats:
        """h(y) / 2 below the middle, w(y) / 2 above it."""
        position = np.minimum(y, _END - 0.5 / _CELLS) * _CELLS
        cell = position.astype(np.intp)
        position -= cell
        value = self.table[-1][cell]
        for coefficient in self.table[-2::-1]:
            value *= position
            value += coefficient[cell]
        return value


@functools.lru_cache(maxsize=64)
def tabulated(beta: float) -> TabulatedLaw:
    """The table of one exponent, in [1, 64]."""
    if beta == 1.0:
        return TabulatedLaw(beta, ())
    a = 1.0 / beta
    nodes = 0.5 - 0.5 * np.cos(math.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
    starts = np.arange(int(_END * _CELLS))
    y = (starts[:, None] + nodes) / _CELLS
    near = 0.5 * gammainc(a, y) / y**a
    far = 0.5 * np.exp(gamma_tail.log_upper(a, y) + y)
    values = np.where(y < _MIDDLE, near, far)
    coefficients = values @ np.linalg.inv(np.vander(nodes, increasing=True)).T
    return TabulatedLaw(beta, tuple(np.ascontiguousarray(column) for column in coefficients.T))
