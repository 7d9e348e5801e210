# SPDX-License-Identifier: Apache-2.0
"""Noise on one number that dominates noise on a vector, whichever direction a record moves it in.

**Theorem** (docs/vector-releases.md, "Score envelope"). Let pi(t) be at least E(v.s - t)_+ for all allowed
shifts v of length one, t >= 0 (`score_envelope`), and let a symmetric log-concave noise on one number have
a score whose stop loss is at least pi. Then every shift of length c is dominated by that number moved by
c.

Let pi be joined by chords between the points t_k = k h. The noise whose score has exactly that stop loss
takes the scores t_k: its density e^-V falls with slope V' = t_k for a distance d_k from the centre, one k
after the other, and ends, where pi is no more than its last value. With S = t_k y + pi_k the density in
terms of the mass y beyond, that takes d_k = log(S_k / S_(k+1)) / t_k.

**Rounding.** The distances are rounded to multiples of a power of two, which makes another noise of the
same kind, exactly known: every place where its density, or that of the noise moved, changes its slope is a
double. Its stop losses pi'_k are sums of positive numbers, and from pi <= (1 + e) pi' it follows that c (1
+ e) is enough.

**Cells** lie between such places. There both densities are exponential, and the loss is linear and rises.
"""

import math
from dataclasses import dataclass

import numpy as np

from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.cells import Cells
from ggdp.privacy_loss.score_envelope import StopLoss, envelope, furthest

LEAST_LENGTH = 1e-5
"""The shortest shift: places are multiples of 2^-42, which is too coarse for shorter ones."""

_UNIT = 2.0**-42
_FURTHEST = 500.0  # largest place; sums of two multiples of the unit are exact up to there
_DEPTHS = (75.0, 90.0, 110.0, 140.0, 180.0, 230.0, 300.0, 400.0)
_ENOUGH = 60.0  # -log of the mass at infinite loss, about


@dataclass(frozen=True)
class PiecewiseExponential:
    """Symmetric noise of density proportional to e^-V up to its last place, and 0 beyond.

    Attributes:
        slope: of V between `place[k]` and `place[k + 1]`; it begins with 0 and does not decrease.
        place: the places where the slope changes, from 0 on; multiples of a power of two.
    """

    slope: Array
    place: Array

    @property
    def height(self) -> Array:
        """V at the places."""
        return np.concatenate([[0.0], np.cumsum(self.slope * np.diff(self.place))])

    @property
    def doubt(self) -> float:
        """A bound on the error of a height, and on the relative error of a mass or a sum of masses."""
        return 8.0 * (len(self.place) + 16.0) * UNIT_ROUNDOFF * (1.0 + float(self.height[-1]))

    def masses(self) -> Array:
        """The masses of the pieces on one side, over the density at the centre."""
        width = np.diff(self.place)
        return np.exp(-self.height[:-1]) * width * _mean_fall(self.slope * width)

    def stop_loss(self) -> Array:
        """E(score - t)_+ at the slopes t."""
        mass, grow = self.masses(), np.diff(self.slope)
        beyond = np.cumsum(mass[::-1])[::-1]
        value = np.append(np.cumsum((beyond[1:] * grow)[::-1])[::-1], 0.0) + math.exp(-self.height[-1])
        return value / (2.0 * float(mass.sum()))

    def at(self, z: Array) -> Array:
        """V inside the support."""
        size = np.abs(z)
        piece = np.minimum(np.searchsorted(self.place, size, side="right"), len(self.slope)) - 1
        return np.asarray(self.height[piece] + self.slope[piece] * (size - self.place[piece]))

    def cells(self, length: float) -> Cells:
        """The cells of this noise moved by a length, a multiple of the unit, against this noise."""
        ends = np.unique(np.concatenate([-self.place, self.place]))
        edges = np.unique(np.concatenate([ends, ends + length]))
        left, right = edges[:-1], edges[1:]
        p, p_left, p_right = self._on(left - length, right - length)
        q, q_left, q_right = self._on(left, right)
        off = 2.0 * self.doubt
        with np.errstate(invalid="ignore"):
            low, high = (
                np.where(q == 0.0, math.inf, np.where(p == 0.0, -math.inf, one - other))
                for one, other in ((q_left, p_left), (q_right, p_right))
            )
        return Cells(
            p * (1.0 - off), p * (1.0 + off), q * (1.0 - off), q * (1.0 + off), low - off, high + off
        )

    def _on(self, left: Array, right: Array) -> tuple[Array, Array, Array]:
        """Masses between places, none of which lies between, and V at both ends."""
        inside = np.abs(0.5 * (left + right)) < self.place[-1]
        at_left, at_right = self.at(left), self.at(right)
        width = right - left
        piece = np.searchsorted(self.place, np.abs(0.5 * (left + right)), side="right") - 1
        slope = self.slope[np.minimum(piece, len(self.slope) - 1)]
        mass = np.exp(-np.minimum(at_left, at_right)) * width * _mean_fall(slope * width)
        mass /= 2.0 * float(self.masses().sum())
        return np.where(inside, mass, 0.0), at_left, at_right


def noise_of(table: StopLoss) -> PiecewiseExponential:
    """The noise whose score has the stop loss of a table, with places rounded to multiples of the unit."""
    beyond = np.minimum(np.append(table.drops, 0.0), 0.5)  # the mass beyond the end of each piece
    mass = np.append(0.5, beyond[:-1]) - beyond
    slope = table.spacing * np.arange(len(table.value))
    end = slope * beyond + table.value
    grown = slope * mass / end
    with np.errstate(invalid="ignore", divide="ignore"):
        width = np.where(slope > 0.0, np.log1p(grown) / slope, mass / end)
    place = np.asarray(np.round(np.append(0.0, np.cumsum(width)) / _UNIT) * _UNIT, dtype=float)
    if place[-1] > _FURTHEST:
        raise CannotCertifyError("the noise reaches too far for its places to be exact")
    return PiecewiseExponential(np.asarray(slope, dtype=np.float64), place)


def dominating_cells(beta: float, p: float, dimension: int, length: float) -> Cells:
    """A pair of one number that dominates all shifts of an l_p length in units of the scale, as cells.

    Args:
        beta: exponent of the noise, above 1.
        p: the norm, above 1.
        dimension: how many coordinates.
        length: of the shifts, in units of the scale.

    Raises:
        CannotCertifyError: the shift is so long or so short that no useful bound is known.
    """
    for depth in _DEPTHS:
        if depth - length * furthest(beta, p, dimension, depth) >= _ENOUGH:
            break
    else:
        raise CannotCertifyError("the shift is too long for the tails that are computed")
    if length < LEAST_LENGTH:
        raise CannotCertifyError("the shift is too short for the places of the noise")
    table = envelope(beta, p, dimension, depth)
    noise = noise_of(table)
    stretch = max(float(np.max(table.value / noise.stop_loss())), 1.0) * (1.0 + 4.0 * noise.doubt)
    return noise.cells(math.ceil(length * stretch / _UNIT + 1.0) * _UNIT)


def _mean_fall(drop: Array) -> Array:
    """(1 - e^-x) / x, the mean of e^-u over u in [0, x]."""
    safe = np.where(drop > 0.0, drop, 1.0)
    return np.where(drop > 0.0, -np.expm1(-safe) / safe, 1.0)
