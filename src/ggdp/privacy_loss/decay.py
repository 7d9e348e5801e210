# SPDX-License-Identifier: Apache-2.0
"""How fast the characteristic function of a tilted loss falls: |phi(theta + i w)| <= phi(theta) (m + V / w).

With g the density of the tilted law in noise space (integral 1), integration by parts gives

    | integral g e^{i w L} dz |  =  | integral (g / L') d(e^{i w L}) / (i w) |  <=  TV(g / L') / w

on any set of cells, where TV is the total variation and includes the jumps at the ends of each run of cells.
For cells where L' is too small for this to help, their mass m is the bound. So the bound is exact for Laplace
noise, whose loss is constant outside of [0, shift].

TV is bounded, not sampled. On a cell that holds no kink and neither up/2 nor down/2, each factor of

    L' = share_up l_up' + share_down |l_down'|,      (log g)' = (log N(0))' + (1+theta) share_up l_up' +
    theta share_down |l_down'|

is monotone (l_v' has its only extremum at v/2, shares and the slope of a log-concave density are monotone),
so its range is the interval between its end values. The test that would fail if this were wrong:
tests/privacy_loss/test_decay.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ggdp.numerics import Array
from ggdp.privacy_loss.panel_error import log_tilted
from ggdp.privacy_loss.quadrature import tail_ends
from ggdp.privacy_loss.shift_pair import ShiftPair

_CELLS_PER_PIECE = 240
_MOST = 300.0  # log of the largest density that is told from an infinite one


@dataclass(frozen=True)
class Decay:
    """Bounds from which m and V follow, for each cell of the noise.

    Attributes:
        mass: bounds on the tilted mass of the cells.
        variation: bounds on TV(g/L') inside them.
        at_left: g/L' at their left ends.
        at_right: g/L' at their right ends.
        jump: bounds on the jump of g/L' from each cell to the next.
        outside: a bound on the mass outside of all cells.
    """

    mass: Array
    variation: Array
    at_left: Array
    at_right: Array
    jump: Array
    outside: float

    def coefficients(self, omega: float) -> tuple[float, float]:
        """(m, V) such that |phi(theta + iw)| / phi(theta) <= m + V / w for every w >= omega."""
        by_mass = ~(self.variation < omega * self.mass)
        smooth = ~by_mass
        starts = smooth & ~np.concatenate([[False], smooth[:-1]])
        ends = smooth & ~np.concatenate([smooth[1:], [False]])
        variation = self.variation[smooth].sum() + self.at_left[starts].sum() + self.at_right[ends].sum()
        variation += np.abs(self.jump[smooth[:-1] & smooth[1:]]).sum()
        return self.outside + float(self.mass[by_mass].sum()), float(variation)


def decay(pair: ShiftPair, theta: float, log_phi: float) -> Decay:
    """The decay of phi along Re s = theta; `log_phi` is log phi(theta), accurate to a few digits at least."""
    low, high, outside = tail_ends(pair, theta, log_phi)
    edges = _edges(pair, low, high)
    a, b = edges[:-1], edges[1:]
    # values far above 1 can only come from a wrong log_phi; capping them makes the bound useless, not wrong
    log_density = np.minimum(log_tilted(pair, edges, theta) - log_phi, _MOST)
    density = np.exp(log_density)
    tilted = _Range.of(density)
    base = _of_power(pair, edges, lambda z: -pair.beta * np.sign(z) * np.abs(z) ** (pair.beta - 1.0))
    up, up_variation = _pull(pair, edges, pair.up)
    down, down_variation = _pull(pair, edges, pair.down)
    slope = up + down
    steepness = base + up.times(1.0 + theta) + down.times(theta)
    length = b - a
    growth = length * np.maximum(np.abs(steepness.low), np.abs(steepness.high))
    monotone = (steepness.low >= 0.0) | (steepness.high <= 0.0)
    # a peak inside of a cell may be far above both of its ends, which may underflow
    log_top = np.maximum(log_density[:-1], log_density[1:]) + np.where(monotone, 0.0, 0.5 * growth)
    top = np.exp(np.minimum(log_top, _MOST))
    fall = np.where(monotone, length * np.minimum(np.abs(steepness.low), np.abs(steepness.high)), 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        travel = np.where(monotone, tilted.high - tilted.low, growth * top)
        variation = travel / slope.low + top * (up_variation + down_variation) / slope.low**2
        at_left, at_right = density[:-1] / slope.low, density[1:] / slope.low
        # mean over the cell of an exponential that falls at least that fast, over its largest value
        mean = np.where(fall > 1e-8, -np.expm1(-fall) / fall, 1.0)
        mass = np.minimum(top * length * mean, 1.0)
        mass = np.where(log_top < _MOST, mass, 1.0)
    variation = np.where(np.isfinite(variation) & (log_top < _MOST), variation, np.inf)
    # g/L' jumps at a kink for Laplace noise only, since only its L' does
    jump = np.zeros(len(a) - 1) if pair.beta != 1.0 else at_right[:-1] + at_left[1:]
    jump = np.where(np.isin(b[:-1], pair.kinks), jump, 0.0)
    return Decay(mass, variation, at_left, at_right, jump, outside)


@dataclass(frozen=True)
class _Range:
    """Lowest and highest value on each cell."""

    low: Array
    high: Array

    @staticmethod
    def of(at_edges: Array) -> "_Range":
        """Range of a function monotone on each cell, from its values at the edges."""
        return _Range(np.minimum(at_edges[:-1], at_edges[1:]), np.maximum(at_edges[:-1], at_edges[1:]))

    def __add__(self, other: "_Range") -> "_Range":
        return _Range(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> "_Range":
        """Scale by a non-negative factor."""
        return _Range(self.low * factor, self.high * factor)


def _pull(pair: ShiftPair, edges: Array, shift: float) -> tuple[_Range, Array]:
    """Range and total variation, per cell, of share * |log-odds slope| of one shift."""
    if shift == 0.0:
        nothing = np.zeros(len(edges) - 1)
        return _Range(nothing, nothing), nothing
    share = _Range.of(pair.share(edges, shift))
    slope = _of_power(pair, edges, lambda z: np.abs(pair.log_odds_slope(z, shift)))
    variation = share.high * (slope.high - slope.low) + slope.high * (share.high - share.low)
    return _Range(share.low * slope.low, share.high * slope.high), variation


def _of_power(pair: ShiftPair, edges: Array, function: Callable[[Array], Array]) -> _Range:
    """Range of a difference of powers |z|^(beta-1), monotone on each cell; for Laplace noise constant, and
    jumping between them.
    """
    if pair.beta == 1.0:
        inside = function(0.5 * (edges[1:] + edges[:-1]))
        return _Range(inside, inside)
    return _Range.of(function(edges))


def _edges(pair: ShiftPair, low: float, high: float) -> Array:
    marks = sorted({low, high, *pair.kinks, 0.5 * pair.up, 0.5 * pair.down})
    pieces = [np.linspace(a, b, _CELLS_PER_PIECE + 1) for a, b in pairwise(marks)]
    return np.unique(np.concatenate(pieces))
