# SPDX-License-Identifier: Apache-2.0
"""Norms in which one coordinate is the worst case in every dimension, verified for the beta at hand.

**Theorem** (docs/vector-releases.md, "Score order"). Let s, s_1, s_2, ... be independent scores
(`score_law`). If E(v.s - t)_+ <= E(c s - t)_+ for all t, that is v.s <= c s in convex order, then a shift v
is dominated by a shift c of one coordinate at every epsilon, sampled or not.

Convex order survives independent sums, so coordinates may be merged one by one, the largest first: if

    s_1 + r s_2  <=  (1 + w r^p)^(1/p) s   in convex order, for all 0 <= r <= 1,                           (1)

then c^p = |v_1|^p + w sum of the other |v_i|^p will do, and c = w^(1/p) |v|_p if w >= 1. The size of the
shift and the dimension have gone: the ratio and the threshold are left, two numbers, and `score_cover`
verifies (1) for all of them but thresholds where the noise has less than e^-160. What those may add is a
number too small to see, which `Domination` carries. With w = 1 it holds for a norm slightly below beta, the
matched one; in the l_beta norm itself, for a w slightly above one.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ggdp import arguments
from ggdp.mechanisms.additive_noise import matched_exponent
from ggdp.privacy_loss.score_cover import Cover
from ggdp.privacy_loss.score_law import ScoreLaw

LEAST_BETA, MOST_BETA = 1.03, 1.95
"""Where (1) is verified within seconds."""

_DEPTH = 160.0  # -log of the density of the noise at the largest threshold
_MOST_STRIPS = 300
_STRETCH = 1e-13  # of the one coordinate, which pays for the thresholds left out
_MOST_MERGED = 1e30  # coordinates; further ones are taken together
_MOST_REST = 0.05  # of the length, beyond which taking them together is of no use


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
    return MatchedNormReport(beta, norm, stretch, True, cover.smallest_ratio, strips, cells)
