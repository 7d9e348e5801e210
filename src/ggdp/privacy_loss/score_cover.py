# SPDX-License-Identifier: Apache-2.0
"""A cover of all ratios and thresholds at which two scores are compared with one.

Wanted, for 0 <= r <= 1, c(r) = (1 + w r^p)^(1/p) and 0 <= t <= c(r) * depth, is

    E(s_1 + r s_2 - t)_+  <=  E(c(r) s - t)_+.                                                             (1)

**r near zero.** With x(t) as in `score_law` and m(t) = x(t)^(2-beta) / (beta (beta-1)), the density of the
score is f(x(t)) m(t), and f(x(t-y)) <= f(x(t)) e^{|y| h(t)} with h(t) = x(t) / (beta-1), because
|t|^(beta/(beta-1)) is convex. The left side is E of the stop loss at t - r s_2, whose second derivative is
that density; hence

    E(s_1 + r s_2 - t)_+ - E(s - t)_+  <=  f(x(t)) r^2/2 E[s^2 e^{r|s|h(t)} m(t + r|s|)],                  (2)

while E(c s - t)_+ - E(s - t)_+ >= (c-1) f(x(t)) by convexity in c, and c(r) - 1 >= w r^p c(r)^(1-p) / p.
Divided by r^p, (2) grows with r and t and the other falls with r: where the comparison holds at (r, t) it
holds at all smaller ones.

**The rest** is covered by cells: r in [r_1, r_2], t between u_1 k(r) and u_2 k(r), where k is linear and
close to c(r) / c(r_m). The left side of (1) is convex in (r, t), so convex along the lines of both kinds
that bound cells, and inside a cell below the interpolation of its four corners. The right side is convex
too (a perspective, increasing in c, and c(r) is convex), hence above its tangent plane at the middle. Plane
and interpolation are both bilinear in (r, u): if the four corners lie below the plane, the cell is done.
"""

import math
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from ggdp.numerics import Array
from ggdp.privacy_loss.score_law import ScoreLaw
from ggdp.search import arithmetic, halve

_STRIP = 1.25  # ratio of the two ends of a strip
_FIRST_CELLS = 96
_HALVINGS = 6
_MARGIN = 1e-8  # relative, for rounding
_GAMMA_ROUNDING = 1e-12  # of incomplete gamma functions, with a factor of five to spare
_MOMENT_CELLS = 2000


@dataclass(frozen=True)
class StripReport:
    """Whether all cells of a strip are done, how many there were, and where (1) failed, if it did."""

    done: bool
    cells: int
    exceeded: tuple[float, float] | None = None


@dataclass(frozen=True)
class Cover:
    """The comparison (1) for one norm.

    Attributes:
        law: of the score.
        norm: p.
        weight: w.
        depth: largest threshold, over c(r).
    """

    law: ScoreLaw
    norm: float
    weight: float
    depth: float

    def length(self, ratio: Array | float) -> Array:
        """c(r)."""
        return np.asarray((1.0 + self.weight * np.asarray(ratio) ** self.norm) ** (1.0 / self.norm))

    def _growth(self, ratio: float) -> float:
        """c'(r)."""
        return float(self.weight * ratio ** (self.norm - 1.0) * self.length(ratio) ** (1.0 - self.norm))

    def strips(self) -> list[tuple[float, float]]:
        """The ratios that the argument near zero leaves, cut into intervals."""
        first = self.smallest_ratio
        count = max(math.ceil(math.log(1.0 / first) / math.log(_STRIP)), 1)
        return list(pairwise(np.geomspace(first, 1.0, count + 1).tolist()))

    @cached_property
    def smallest_ratio(self) -> float:
        """A ratio up to which the argument near zero covers every threshold."""
        ratio = 1.0
        while not self._near_zero(ratio, self._last(ratio)):
            ratio *= 0.8
        return ratio

    def _last(self, ratio: float) -> float:
        return self.depth * float(self.length(ratio))

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        """|s| at the right end of cells, and their masses: means of increasing functions come out larger."""
        x = np.linspace(0.0, float(self.law.place(np.array(self.law.largest))), _MOMENT_CELLS + 1)
        return self.law.beta * x[1:] ** (self.law.beta - 1.0), -2.0 * np.diff(self.law.survival(x))

    def _near_zero(self, ratio: float, threshold: float) -> bool:
        """Whether (2) is small enough at this ratio and threshold, and so at all smaller ones."""
        beta = self.law.beta
        score, mass = self._moments
        pull = ratio * float(self.law.place(np.array(threshold))) / (beta - 1.0)  # r h(t)
        if pull * self.law.largest > 300.0:  # else beyond the largest score e^300 e^-690 is left, and less
            return False
        spread = self.law.place(threshold + ratio * score) ** (2.0 - beta) / (beta * (beta - 1.0))
        moment = float(np.sum(mass * score**2 * np.exp(pull * score) * spread)) * (1.0 + _MARGIN)
        gained = self.weight * float(self.length(ratio)) ** (1.0 - self.norm) / self.norm
        return bool(0.5 * ratio ** (2.0 - self.norm) * moment <= gained)

    def _reach(self, ratio: float) -> float:
        """A threshold up to which the argument near zero covers this ratio and all smaller ones."""
        if not self._near_zero(ratio, 0.0):
            return 0.0
        covers = partial(self._near_zero, ratio)
        return halve(covers, 0.0, self._last(ratio), middle=arithmetic, halvings=12)[0]

    def _plane(self, ratio: float, threshold: Array) -> tuple[Array, Array, Array]:
        """E(c s - t)_+ with its derivatives in t and in r."""
        length = float(self.length(ratio))
        x = self.law.place(threshold / length)
        survival, density = self.law.survival(x), self.law.density(x)
        return length * density - threshold * survival, -survival, density * self._growth(ratio)

    def _margin(self) -> float:
        beta = self.law.beta
        # f - t Pr[X > x] cancels to a share (beta-1)/(beta x^beta) of f
        exponent = (self.depth / beta) ** (beta / (beta - 1.0))
        return float(_MARGIN + _GAMMA_ROUNDING * beta / (beta - 1.0) * exponent)

    def strip(self, low: float, high: float) -> StripReport:
        """Cover the ratios from `low` to `high`, cutting cells along t as often as is worth it."""
        middle, ends = 0.5 * (low + high), (low, high)
        tilt = self._growth(middle) / float(self.length(middle))
        scale = tuple(1.0 + tilt * (ratio - middle) for ratio in ends)  # k(r) at the two ends
        first = self._reach(high) / scale[1]
        last = max(self._last(r) / k for r, k in zip(ends, scale, strict=True))  # c is convex, k linear
        if first >= last:
            return StripReport(True, 0)

        def left_side(u: Array) -> tuple[Array, ...]:
            raised = 1.0 + self._margin()
            return tuple(self.law.split_above(r, u * k) * raised for r, k in zip(ends, scale, strict=True))

        edges = np.linspace(first, last, _FIRST_CELLS + 1)
        sides = left_side(edges)
        lower, upper = edges[:-1], edges[1:]
        at_lower, at_upper = tuple(v[:-1] for v in sides), tuple(v[1:] for v in sides)
        count = 0
        for _ in range(_HALVINGS):
            count += len(lower)
            centre = 0.5 * (lower + upper)
            base, slope, rise = self._plane(middle, centre)
            done = np.ones(len(lower), dtype=bool)
            for r, k, left, right in zip(ends, scale, at_lower, at_upper, strict=True):
                done &= left <= base + slope * (lower * k - centre) + rise * (r - middle)
                done &= right <= base + slope * (upper * k - centre) + rise * (r - middle)
            rest = ~done
            if not np.any(rest):
                return StripReport(True, count)
            centre = centre[rest]
            between = left_side(centre)
            for r, k, value in zip(ends, scale, between, strict=True):
                above = value > self._plane(r, centre * k)[0]
                if np.any(above):
                    return StripReport(False, count, (r, float(centre[above][0]) * k))
            lower, upper = np.concatenate([lower[rest], centre]), np.concatenate([centre, upper[rest]])
            at_lower = tuple(np.concatenate([v[rest], w]) for v, w in zip(at_lower, between, strict=True))
            at_upper = tuple(np.concatenate([w, v[rest]]) for v, w in zip(at_upper, between, strict=True))
        return StripReport(False, count)
