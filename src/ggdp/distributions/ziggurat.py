# SPDX-License-Identifier: Apache-2.0
"""Layers of equal area under exp(-x^beta): the table behind the exact CPU sampler.

The ziggurat of Marsaglia and Tsang (2000) covers the graph of a decreasing density f on [0, inf) by
horizontal layers of one area V. Layer 0 is the strip of height f(r) with everything beyond x = r; layer i >=
1 is the rectangle [0, x_i] x [f(x_i), f(x_{i+1})], with x_1 = r, x_{i+1} = f^{-1}(f(x_i) + V / x_i) and x_n =
0. A point uniform in a uniform layer, kept when it lies under the graph, has an abscissa with density f. The
only error is the rounding of the x_i, which makes the areas unequal by less than 1e-9 of V.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gamma, gammaincc

from ggdp.search import arithmetic, halve

LAYER_BITS = 10
NUM_LAYERS = 1 << LAYER_BITS
PLACE_BITS = 53


@dataclass(frozen=True)
class Ziggurat:
    """The layers for one beta, at scale 1.

    Attributes:
        beta: The exponent.
        unit: Width of each layer, times 2^-52: a signed 53-bit integer plus a half, times this, is a place in
            the layer or its mirror image. The width of layer 0 is V / f(r), its tail folded into a rectangle.
        inner: Part of each layer's width which lies wholly under the graph: the point is kept without a look
            at f.
        height: f at each layer's right end, then f(0) = 1; layer i spans height[i] to height[i + 1].
    """

    beta: float
    unit: NDArray[np.float64]
    inner: NDArray[np.float64]
    height: NDArray[np.float64]

    @property
    def tail_start(self) -> float:
        """The abscissa r beyond which layer 0 becomes the tail."""
        return float(self.inner[0])


@lru_cache(maxsize=64)
def ziggurat(beta: float) -> Ziggurat:
    """Return the layers for exponent `beta` >= 1, built once per beta.

    >>> float(round(ziggurat(2.0).tail_start, 3))
    2.856
    """
    # A tail that starts too far left makes V too large: the stack reaches f = 1 before its last layer.
    far = 800.0 ** (1.0 / beta)
    start, _ = halve(lambda start: not _overflows(beta, start), far, 0.0, middle=arithmetic)
    right_ends = _right_ends(beta, start)
    inner = np.append(right_ends[1:], 0.0)
    height = np.append(np.exp(-(right_ends**beta)), 1.0)
    height[0] = 0.0  # Layer 0 reaches down to the axis.
    return Ziggurat(beta, right_ends * 2.0 ** (1 - PLACE_BITS), inner, height)


def _area(beta: float, start: float) -> float:
    """V(r) = r f(r) + integral of f over (r, inf)."""
    power = start**beta
    return float(start * np.exp(-power) + gamma(1.0 + 1.0 / beta) * gammaincc(1.0 / beta, power))


def _right_ends(beta: float, start: float) -> NDArray[np.float64]:
    """Return x_0 = V / f(r), x_1 = r, x_2, ...; NaN from where the stack has passed f = 1."""
    area = _area(beta, start)
    ends = np.full(NUM_LAYERS, np.nan)
    ends[0], ends[1] = area * np.exp(start**beta), start
    for layer in range(2, NUM_LAYERS):
        top = np.exp(-(ends[layer - 1] ** beta)) + area / ends[layer - 1]
        if not top < 1.0:
            break
        ends[layer] = (-np.log(top)) ** (1.0 / beta)
    return ends


def _overflows(beta: float, start: float) -> bool:
    if start == 0.0:
        return True
    last = _right_ends(beta, start)[-1]
    return bool(np.isnan(last) or np.exp(-(last**beta)) + _area(beta, start) / last > 1.0)
