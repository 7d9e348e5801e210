# SPDX-License-Identifier: Apache-2.0
"""Norms in which one coordinate is the worst case in every dimension, verified for the beta at hand.

**Theorem** (docs/vector-releases.md, "Score order"). Let s, s_1, s_2, ... be independent scores
(`ScoreLaw`). If E(v.s - t)_+ <= E(c s - t)_+ for all t, that is v.s <= c s in convex order, then a shift v
is dominated by a shift c of one coordinate at every epsilon, sampled or not.

Convex order survives independent sums, so coordinates may be merged one by one, the largest first: if

    s_1 + r s_2  <=  (1 + w r^p)^(1/p) s   in convex order, for all 0 <= r <= 1,                           (1)

then c^p = |v_1|^p + w sum of the other |v_i|^p is long enough, and so is c = w^(1/p) |v|_p if w >= 1.
Comparison (1) no longer has the size of the shift and the dimension in it, only two numbers: the ratio r and
the threshold t. `Cover` verifies it for all ratios, and for all thresholds but those at which the noise has a
density below e^-160. What these may add to delta is a very small number, which is part of `Domination`. With
w = 1 it holds for a norm slightly below beta, the matched one; in the l_beta norm itself, for a w slightly
above one.

**The score.** The score of Generalized Gaussian noise: how steeply the loss of a small shift rises.

For unit-scale noise X of density f(x) = e^{-|x|^beta} / Z the score is s = beta sgn(X) |X|^(beta-1), the
derivative of |x|^beta. It is increasing in X, so that for t >= 0 and x(t) = (t/beta)^(1/(beta-1))

    Pr[s > t] = Pr[X > x(t)],      E[s; s > t] = f(x(t)),      E(s - t)_+ = f(x(t)) - t Pr[X > x(t)].

The last, the *stop loss*, is convex and decreasing in t, and E(s + t)_+ = t + E(s - t)_+ by symmetry.

**The cover.** A cover of all ratios and thresholds at which two scores are compared with one.

Wanted, for 0 <= r <= 1, c(r) = (1 + w r^p)^(1/p) and 0 <= t <= c(r) * depth, is

    E(s_1 + r s_2 - t)_+  <=  E(c(r) s - t)_+.                                                             (2)

**r near zero.** With x(t) as above and m(t) = x(t)^(2-beta) / (beta (beta-1)), the density of the
score is f(x(t)) m(t), and f(x(t-y)) <= f(x(t)) e^{|y| h(t)} with h(t) = x(t) / (beta-1), because
|t|^(beta/(beta-1)) is convex. The left side is E of the stop loss at t - r s_2, whose second derivative is
that density; hence

    E(s_1 + r s_2 - t)_+ - E(s - t)_+  <=  f(x(t)) r^2/2 E[s^2 e^{r|s|h(t)} m(t + r|s|)],                  (3)

while E(c s - t)_+ - E(s - t)_+ >= (c-1) f(x(t)) by convexity in c, and c(r) - 1 >= w r^p c(r)^(1-p) / p.
Divided by r^p, (3) grows with r and t and the other falls with r: where the comparison holds at (r, t) it
holds at all smaller ones.

**The rest** is covered by cells: r in [r_1, r_2], t between u_1 k(r) and u_2 k(r), where k is linear and
close to c(r) / c(r_m). The left side of (2) is convex in (r, t), so convex along the lines of both kinds
that bound cells, and inside a cell below the interpolation of its four corners. The right side is convex
too (a perspective, increasing in c, and c(r) is convex), hence above its tangent plane at the middle. Plane
and interpolation are both bilinear in (r, u): if the four corners lie below the plane, the cell is done.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import pairwise

import numpy as np

from ggdp import arguments
from ggdp.distributions.gamma_tail import upper
from ggdp.mechanisms.additive_noise import matched_exponent
from ggdp.numerics import Array
from ggdp.search import arithmetic, halve

_FARTHEST = 690.0  # -log of the density of the noise at which doubles underflow
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
        """The density f of the noise."""
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
        """The score beyond which probabilities underflow."""
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


_STRIP = 1.25  # ratio of the two ends of a strip
_LEAST_RATIO = 1e-25  # from which on strips would be too many
_FIRST_CELLS = 96
_HALVINGS = 6
_MARGIN = 1e-8  # relative, for rounding
_GAMMA_ROUNDING = 1e-12  # relative error of incomplete gamma functions, with a margin of a factor of five
_MOMENT_CELLS = 2000


@dataclass(frozen=True)
class StripReport:
    """Whether all cells of a strip were verified, how many there were, and where (1) failed, if it did."""

    done: bool
    cells: int
    exceeded: tuple[float, float] | None = None


@dataclass(frozen=True)
class Cover:
    """A computer proof of comparison (1) for one norm, by cells that cover all ratios and thresholds.

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
        first = max(self.smallest_ratio, _LEAST_RATIO)
        count = max(math.ceil(math.log(1.0 / first) / math.log(_STRIP)), 1)
        return list(pairwise(np.geomspace(first, 1.0, count + 1).tolist()))

    @cached_property
    def smallest_ratio(self) -> float:
        """A ratio up to which the argument near zero covers every threshold; 0 if there is none."""
        ratio = 1.0
        while not self._near_zero(ratio, self._last(ratio)):
            ratio *= 0.8
            if ratio < _LEAST_RATIO:
                return 0.0
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


LEAST_BETA, MOST_BETA = 1.03, 1.95
"""Where (1) is verified within seconds."""

_DEPTH = 160.0  # -log of the density of the noise at the largest threshold
_MOST_STRIPS = 300
_STRETCH = 1e-13  # relative stretch of the coordinate that makes up for thresholds that are not covered
_MOST_MERGED = 1e30  # number of coordinates that are merged one by one; the others are bounded together
_MOST_REST = 0.05  # relative stretch above which that bound is of no use


@dataclass(frozen=True)
class MatchedNormReport:
    """What was verified about a norm.

    Attributes:
        beta: exponent of the noise.
        norm: p, the norm.
        stretch: how many times |v|_p the one coordinate is moved.
        certified: whether (1) holds for every ratio and every threshold up to the depth.
        smallest_ratio: up to it by the argument for ratios near zero, from there on by cells.
        strips: how many intervals of ratios there were.
        cells: how many cells there were.
        undecided: an interval of ratios where it could not be shown, if any.
        reason: why not; empty if certified.
    """

    beta: float
    norm: float
    stretch: float
    certified: bool
    smallest_ratio: float
    strips: int
    cells: int
    undecided: tuple[float, float] | None = None
    reason: str = ""


@dataclass(frozen=True)
class Domination:
    """One coordinate moved by `stretch` times the l_p norm of a shift dominates it, up to `delta`.

    Attributes:
        stretch: that of the report, and a factor next to one.
        delta: added to delta, per release.
    """

    stretch: float
    delta: float


def verify_matched_norm(beta: float, *, norm: float | None = None, stretch: float = 1.0) -> MatchedNormReport:
    """Verify that in the l_p norm one coordinate is the worst case, in every dimension and at every shift.

    Args:
        beta: exponent of the noise, in [1.03, 1.95].
        norm: p, in (1, 2]; that of norm="matched" if left out.
        stretch: how many times |v|_p the one coordinate is moved, at least 1.

    Guarantees:
        If `certified`, a shift v in any dimension is dominated by one coordinate moved by stretch
        times |v|_p, up to the `Domination`.

    >>> verify_matched_norm(1.5).certified
    True
    >>> verify_matched_norm(1.5, norm=1.5).certified  # in the norm of the noise itself splits cost more,
    False
    >>> verify_matched_norm(1.5, norm=1.5, stretch=1.043).certified  # but not much more
    True
    """
    beta = arguments.real("beta", beta, least=LEAST_BETA, most=MOST_BETA)
    exponent = matched_exponent(beta) if norm is None else arguments.real("norm", norm, above=1.0, most=2.0)
    return _verified(beta, exponent, arguments.real("stretch", stretch, least=1.0, most=10.0))


def own_norm_stretch(beta: float) -> float:
    """A stretch with which (1) is verified in the l_beta norm.

    Equal coordinates need (2^(beta/p) - 1)^(1/beta), p the matched norm, and other ratios somewhat more; near
    beta = 2 a little more than needed makes the verification quick.
    """
    equal = (2.0 ** (beta / matched_exponent(beta)) - 1.0) ** (1.0 / beta)
    return float(max(1.0 + 1.6 * (equal - 1.0), 1.025 if beta > 1.7 else 1.0))


def domination(beta: float, norm: float, stretch: float, shift: float, dimension: float) -> Domination | None:
    """How one coordinate dominates shifts whose l_p norm is `shift` times the scale; None where not verified.

    Merging d coordinates adds at most (d-1) c e to a stop loss, e = E(s - depth)_+. Along the shift the
    power y of a test then grows at a rate of at most c (S(y) + (d-1) e), S(y) = f(F^-1(1-y)), that is at
    most c (1 + 1e-13) S(y) while y and 1 - y exceed the y_0 with S(y_0) = 1e13 (d-1) e. Otherwise it is at
    most the power of level y_0, or at least 1 - y_0: both are added to delta.
    """
    if not (LEAST_BETA <= beta <= MOST_BETA and _verified(beta, norm, stretch).certified):
        return None
    if dimension > _MOST_MERGED:
        dimension, rest = _MOST_MERGED + 1.0, _rest(beta, norm)
        if rest > _MOST_REST:
            return None
        stretch *= 1.0 + rest
    law = ScoreLaw(beta, 1)
    end = float(law.stop_loss(np.array([_depth(beta)]))[0])
    normalizer = math.log(2.0) + math.lgamma(1.0 + 1.0 / beta)
    exponent = -math.log(max(dimension - 1.0, 1.0) * end / _STRETCH) - normalizer
    start = exponent ** (1.0 / beta) if exponent > 0.0 else 0.0
    reached = start - shift * stretch * (1.0 + _STRETCH)
    if reached <= 0.0:
        return None
    both = law.survival(np.array([reached, start]))
    return Domination(stretch * (1.0 + 2.0 * _STRETCH), float(both.sum()) * (1.0 + 1e-9))


def _rest(beta: float, norm: float) -> float:
    """What the coordinates beyond the n largest add to the stretch, however many they are.

    Each is at most n^(-1/p) of the norm, so that their l_2 norm is at most n^(-(2-p)/(2p)). A score is
    below k G in convex order, G standard Gaussian and k = sqrt(pi/2) / Gamma(1 + 1/beta)
    (docs/vector-releases.md), so that together they are below b G. By the inequality for ratios near zero
    of `score_cover`, with b G in place of r s_2 and the largest threshold D everywhere, s + b G is below (1
    + x) s for x = b^2/2 E[G^2 e^{b|G|h(D)} m(D + b|G|)], and m(D + y) <= m(D) e^{y (2-beta) / ((beta-1)
    D)}.
    """
    law, depth = ScoreLaw(beta, 1), 1.1 * _depth(beta)
    size = (
        math.sqrt(0.5 * math.pi)
        / math.gamma(1.0 + 1.0 / beta)
        * _MOST_MERGED ** (-(2.0 - norm) / (2.0 * norm))
    )
    place = float(law.place(np.array(depth)))
    tilt = size * (place / (beta - 1.0) + (2.0 - beta) / ((beta - 1.0) * depth))
    if tilt > 20.0:
        return math.inf
    spread = place ** (2.0 - beta) / (beta * (beta - 1.0))
    # E[G^2 e^{c|G|}] = 2 e^{c^2/2} ((1 + c^2) Pr[G < c] + c phi(c))
    below = 0.5 * math.erfc(-tilt / math.sqrt(2.0))
    bump = math.exp(-0.5 * tilt**2) / math.sqrt(2.0 * math.pi)
    moment = 2.0 * math.exp(0.5 * tilt**2) * ((1.0 + tilt**2) * below + tilt * bump)
    return float(0.5 * size**2 * moment * spread * (1.0 + 1e-9))


def _depth(beta: float) -> float:
    return float(beta * _DEPTH ** (1.0 - 1.0 / beta))


@lru_cache(maxsize=256)
def _verified(beta: float, norm: float, stretch: float) -> MatchedNormReport:
    law = ScoreLaw(beta, 20 + int(55.0 * (2.0 - beta) ** -0.55))
    cover = Cover(law, norm, stretch**norm, _depth(beta))
    todo, strips, cells = cover.strips(), 0, 0
    while todo:
        low, high = todo.pop()
        strip = cover.strip(low, high)
        strips, cells = strips + 1, cells + strip.cells
        if strip.exceeded is not None or strips > _MOST_STRIPS:
            reason = "too many cells"
            if strip.exceeded is not None:
                reason = "at ratio {:.4g} and threshold {:.4g} a split is not below".format(*strip.exceeded)
            first = cover.smallest_ratio
            return MatchedNormReport(beta, norm, stretch, False, first, strips, cells, (low, high), reason)
        if not strip.done:
            middle = 0.5 * (low + high)
            todo += [(low, middle), (middle, high)]
    if cover.smallest_ratio == 0.0:
        reason, rest = "ratios near zero are not covered in a norm so close to 2", (0.0, _LEAST_RATIO)
        return MatchedNormReport(beta, norm, stretch, False, 0.0, strips, cells, rest, reason)
    return MatchedNormReport(beta, norm, stretch, True, cover.smallest_ratio, strips, cells)
