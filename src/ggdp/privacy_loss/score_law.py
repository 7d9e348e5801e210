# SPDX-License-Identifier: Apache-2.0
"""The score of Generalized Gaussian noise: how steeply the loss of a small shift rises.

For unit-scale noise X of density f(x) = e^{-|x|^beta} / Z the score is s = beta sgn(X) |X|^(beta-1), the
derivative of |x|^beta. It is increasing in X, so that for t >= 0 and x(t) = (t/beta)^(1/(beta-1))

    Pr[s > t] = Pr[X > x(t)],      E[s; s > t] = f(x(t)),      E(s - t)_+ = f(x(t)) - t Pr[X > x(t)].

The last, the *stop loss*, is convex and decreasing in t, and E(s + t)_+ = t + E(s - t)_+ by symmetry.
`matched_norm` says what it is for.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ggdp.distributions.gamma_tail import upper
from ggdp.numerics import Array

_FARTHEST = 690.0  # -log of the density of the noise beyond which a double holds nothing
_DEEP = 220.0  # -log of the density up to which there are small cells
_STEEP_CELLS = 90
_BLOCK = 256
_TABLE = 100_000


@dataclass(frozen=True)
class ScoreLaw:
    """The law of the score at 1 < beta < 2, and an upper bound of it in convex order on finitely many points.

    Attributes:
        beta: exponent of the noise.
        cells: into how many cells scores of either sign are put.
    """

    beta: float
    cells: int

    def place(self, score: Array) -> Array:
        """x(t), where the noise has this score; for t >= 0."""
        return np.asarray((score / self.beta) ** (1.0 / (self.beta - 1.0)))

    def density(self, x: Array) -> Array:
        """Of the noise, f."""
        return np.asarray(np.exp(-(x**self.beta) - math.log(2.0) - math.lgamma(1.0 + 1.0 / self.beta)))

    def survival(self, x: Array) -> Array:
        """Pr[X > x] for x >= 0."""
        return np.asarray(0.5 * upper(1.0 / self.beta, np.asarray(x) ** self.beta))

    def stop_loss(self, score: Array) -> Array:
        """E(s - t)_+ for t >= 0."""
        x = self.place(score)
        return self.density(x) - score * self.survival(x)

    @property
    def largest(self) -> float:
        """The score beyond which a double holds nothing."""
        return float(self.beta * _FARTHEST ** (1.0 - 1.0 / self.beta))

    @cached_property
    def points(self) -> tuple[Array, Array]:
        """Scores and weights of a law above this one in convex order, but for `left_out`.

        The mass of each cell is put on its two ends so that its mean stays: a convex function lies below its
        chord.
        """
        steep = self.beta * np.linspace(0.0, _DEEP, _STEEP_CELLS + 1) ** (1.0 - 1.0 / self.beta)
        even = np.linspace(0.0, float(steep[-1]), self.cells + 1)
        ends = np.unique(np.concatenate([even, steep, [self.largest]]))
        survival, density = self.survival(self.place(ends)), self.density(self.place(ends))
        mass, moment = -np.diff(survival), -np.diff(density)
        right = np.clip((moment - ends[:-1] * mass) / np.diff(ends), 0.0, mass)
        weight = np.append(mass - right, 0.0) + np.append(0.0, right)
        return np.concatenate([-ends[::-1], ends]), np.concatenate([weight[::-1], weight])

    @cached_property
    def left_out(self) -> tuple[float, float]:
        """Pr[s > largest] and E[s; s > largest]."""
        end = self.place(np.array([self.largest]))
        return float(self.survival(end)[0]), float(self.density(end)[0])

    @cached_property
    def _chords(self) -> tuple[Array, Array, float]:
        """Intercepts and slopes of the chords of a table, and how many there are per unit."""
        scores = np.linspace(0.0, 3.0 * self.largest, _TABLE)
        values = self.stop_loss(np.minimum(scores, self.largest))
        slopes = np.diff(values) / np.diff(scores)
        return values[:-1] - slopes * scores[:-1], slopes, 1.0 / float(scores[1])

    def stop_loss_above(self, score: Array) -> Array:
        """An upper bound of E(s - t)_+ for any t: the chords of a convex function, and beyond the table,
        which is constant from the largest score on, its last value.
        """
        intercepts, slopes, per_unit = self._chords
        size = np.abs(score)
        place = np.minimum((size * per_unit).astype(np.intp), len(slopes) - 1)
        return np.asarray(intercepts[place] + slopes[place] * size + np.maximum(-score, 0.0))

    def split_above(self, ratio: float, threshold: Array) -> Array:
        """An upper bound of E(s_1 + ratio s_2 - t)_+ for independent scores, 0 <= ratio <= 1.

        Beyond the largest score, E(s_1 - (t - r s_2))_+ is at most E(s_1 - t)_+ + r s_2.
        """
        scores, weights = self.points
        found = np.empty(len(threshold))
        for start in range(0, len(threshold), _BLOCK):
            some = slice(start, start + _BLOCK)
            found[some] = self.stop_loss_above(threshold[some, None] - ratio * scores) @ weights
        mass, moment = self.left_out
        return found + 2.0 * mass * self.stop_loss_above(threshold) + ratio * moment
