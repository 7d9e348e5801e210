# SPDX-License-Identifier: Apache-2.0
"""From Renyi divergences of the steps to epsilon and delta of their composition.

**One order** (Canonne, Kamath, Steinke 2020, Proposition 12). With theta = a - 1, gain the sum of the steps'
and C(theta) the largest value of (1 - e^-x) e^{-theta x} over x > 0,

    delta  <=  E_P[(1 - e^{epsilon - L})_+]  <=  C(theta) e^{gain - theta epsilon}.                        (1)

Several orders at once do no better: the logarithm of the right side before taking the sup is convex in theta
and concave in x, so that sup and inf may be exchanged, and the law that is worst for the best order respects
all other orders too.

**Without rare losses.** At a small sampling rate q a step's loss is rarely enormous, and its high moments
explode before they can bring delta down. Let x = dP/dQ before sampling, r = 1 - q + q x, and E the event that
x > e^c at some step. For REMOVE, whose likelihood ratio is r, and any c,

    delta  <=  P(E) + sup over A of (P - e^epsilon Q)(A without E),                  (2)

and (1) holds for the laws restricted to the complement of E, with moments

    E_Q[x^k; x <= e^c]  <=  min over 1 <= j <= k of e^{g_j + (k - j) c},  g_1 = 0,   (3)

in the binomial formula. With tau a bound on P(x > e^c), for which e^{g_j - (j-1) c} will do with any j > 1,
P(E) is at most the sum over the steps of (q + (1-q) e^-c) tau, because Q(x > e^c) <= e^-c P(x > e^c). For
ADD, whose ratio is 1/r, nothing is cut: E_Q[r^(1-a)] exceeds the restricted moment of REMOVE by at most

    tau ((1-q)^(1-a) - (1-q)^a + e^-c),                                              (4)

which is added to it, so that one number covers both directions (docs/renyi.md). Any c is valid; a few are
tried.

**Last steps known exactly.** Let the last releases be dominated by fixed pairs, and delta_2(x) be the delta
of their composition at epsilon = x, for any real x. Given the loss l of the earlier ones, chosen adaptively,
they add at most delta_2(epsilon - l), so that with the gain of the earlier ones alone

    delta  <=  E[delta_2(epsilon - L)]  <=  e^{gain - theta epsilon} sup over x of e^{theta x} delta_2(x). (5)

Without last releases the supremum is C(theta), and (5) is (1). What (1) loses is the height of a step against
the mean of a bell; last releases that hold a fifth of the variance smooth the step.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from ggdp import arguments
from ggdp.accounting.bounds import Bounds
from ggdp.accounting.engines import contour
from ggdp.accounting.engines.tilt import Parts, TiltPlan, saddle_at
from ggdp.accounting.steps import Vote, steps_of
from ggdp.accounting.vectors.renyi import amplified, sampled_gains, worst_step
from ggdp.mechanisms import Adjacency, Mechanism
from ggdp.numerics import Array
from ggdp.privacy_loss.renyi_divergence import SLACK
from ggdp.privacy_loss.worst_split import ORDERS
from ggdp.search import arithmetic, halve

_BETWEEN = 6  # further orders between two neighbouring ones of `ORDERS`
_LARGEST_RARE_RATE = 0.1  # rate above which losses are not rare enough
_SHARES = (1e-3, 0.01, 0.05, 0.2, 0.5, 0.8)  # shares of delta that are given to the rare event
_TRIED = 2  # orders at which (5) is evaluated
_FALL = 0.02  # change of log delta from one point to the next, near the supremum of (5)
_COARSE = 32.0  # length of the first intervals, in such steps
_WHOLE = ORDERS[(np.mod(ORDERS, 1.0) == 0.0) & (ORDERS <= 600.0)]


@dataclass(frozen=True)
class RenyiSteps:
    """Steps as (upper bounds of the gains at `ORDERS` before sampling, sampling rate, times)."""

    steps: tuple[tuple[Array, float, int], ...]

    def epsilon(self, log_delta: float) -> float:
        """The smallest epsilon that is certified at a delta; infinite if none is."""
        best = _epsilon(ORDERS, self._total, log_delta)
        for share in _SHARES if self._may_be_rare else ():
            cut = self._cut(log_delta + math.log(share))
            rest = math.exp(log_delta) * (1.0 - 1e-12) - math.exp(self._log_rare(cut))
            if rest > 0.0:
                best = min(best, _epsilon(_WHOLE, self._restricted(cut), math.log(rest)))
        return best

    def log_delta(self, epsilon: float) -> float:
        """The smallest log delta certified at an epsilon; at most zero."""
        best = plain = _log_delta(ORDERS, self._total, epsilon)
        for share in (*_SHARES, 1e-5, 1e-4) if self._may_be_rare else ():
            cut = self._cut(plain + math.log(share))
            both = np.logaddexp(self._log_rare(cut), _log_delta(_WHOLE, self._restricted(cut), epsilon))
            best = min(best, float(both) + SLACK)
        return best

    def plain_epsilon(self, log_delta: float) -> float:
        """The epsilon of (1) alone; infinite where none is certified."""
        return _epsilon(ORDERS, self._total, log_delta)

    @property
    def _may_be_rare(self) -> bool:
        return any(rate <= _LARGEST_RARE_RATE for _, rate, _ in self.steps)

    def epsilon_before(self, last: Parts, log_delta: float) -> float:
        """(5): an epsilon certified at a delta, of these steps and, after them, of known ones."""
        found = self._heights(last, lambda theta, log_height: (log_height - log_delta) / theta)
        return max(min(((height - log_delta) / theta for theta, height in found), default=math.inf), 0.0)

    def log_delta_before(self, last: Parts, epsilon: float) -> float:
        """(5): a log delta certified at an epsilon, of these steps and, after them, of known ones."""
        found = self._heights(last, lambda theta, log_height: log_height - theta * epsilon)
        return min(min((height - theta * epsilon for theta, height in found), default=0.0), 0.0)

    def _heights(self, last: Parts, rank: Callable[[float, float], float]) -> list[tuple[float, float]]:
        """theta and log of e^gain times the supremum of (5), at the few orders that rank first by plan."""
        last = _apart(last)
        total, theta, plan = self._total, ORDERS - 1.0, TiltPlan.of(last)
        usable = np.flatnonzero(np.isfinite(total))
        planned = [
            rank(float(theta[i]), float(total[i]) + _planned_height(plan, float(theta[i]))) for i in usable
        ]
        found = []
        for i in usable[np.argsort(planned, kind="stable")[:_TRIED]]:
            log_height = _log_height(last, float(theta[i]))
            if math.isfinite(log_height):
                exponent = float(total[i]) + log_height
                found.append((float(theta[i]), exponent + SLACK * (1.0 + abs(exponent))))
        return found

    @cached_property
    def _total(self) -> Array:
        return np.asarray(
            np.sum([times * sampled_gains(gain, rate) for gain, rate, times in self.steps], axis=0)
        )

    def _log_rare(self, cut: float) -> float:
        """log of a bound on P(E) of (2); only sampled steps are cut."""
        logs = [
            math.log(times) + math.log(rate + (1.0 - rate) * math.exp(-cut)) + _log_tail(gain, cut)
            for gain, rate, times in self.steps
            if rate <= _LARGEST_RARE_RATE
        ]
        return float(np.logaddexp.reduce(logs)) + SLACK

    def _cut(self, log_share: float) -> float:
        """The smallest c, about, for which P(E) is at most e^log_share."""
        low, high = 0.0, 1.0
        while self._log_rare(high) > log_share and high < 1e6:
            low, high = high, 2.0 * high
        return halve(lambda cut: self._log_rare(cut) <= log_share, high, low, middle=arithmetic, halvings=30)[
            0
        ]

    def _restricted(self, cut: float) -> Array:
        """The total gain at `_WHOLE` of the laws without the rare event."""
        total = np.zeros(len(_WHOLE))
        for gain, rate, times in self.steps:
            if rate <= _LARGEST_RARE_RATE:
                moments = _restricted_moments(gain, cut)
                total += times * np.array([amplified(moments, int(order), rate) for order in _WHOLE])
                total += times * _extra_for_add(_log_tail(gain, cut), rate, cut)
            else:
                total += times * sampled_gains(gain, rate)[np.isin(ORDERS, _WHOLE)]
        return total * (1.0 + SLACK)


def renyi_epsilon(mechanism: Mechanism | Vote, *, delta: float, adjacency: Adjacency | None = None) -> Bounds:
    """Epsilon by Renyi divergences alone: what a good RDP accountant says, to compare `epsilon` with.

    Divergences of many orders are summed over the releases and converted (Canonne, Kamath, Steinke 2020,
    Proposition 12), which is sharper than adding log(1/delta) / (order - 1).

    Args:
        mechanism: what is released; no custom mechanism.
        delta: in [1e-100, 1).
        adjacency: which datasets are neighbours; ADD_REMOVE if left out.

    Guarantees:
        `upper` is at least the true epsilon; `lower` is zero. `epsilon` answers with more precision.

    >>> from ggdp import AdditiveNoise, Gaussian, epsilon
    >>> noise = AdditiveNoise(Gaussian(std=5.0))
    >>> round(renyi_epsilon(noise, delta=1e-5).upper, 3), round(epsilon(noise, delta=1e-5).upper, 3)
    (0.795, 0.726)
    """
    delta = arguments.real("delta", delta, least=1e-100, below=1.0)
    steps = steps_of(mechanism, adjacency)
    if steps.custom or steps.below or steps.charge:
        raise ValueError(
            "mechanism must be of type AdditiveNoise here, got a custom mechanism or batches whose Renyi "
            "divergences are not computed; ask `epsilon`"
        )
    direction = steps.directions[0]  # adding a record costs no more than removing it
    gains = tuple((*worst_step(step, direction), step.times) for step in steps.noisy)
    upper = RenyiSteps(gains).plain_epsilon(math.log(delta))
    return Bounds(0.0, upper, upper, "Renyi divergences alone")


def _apart(parts: Parts) -> Parts:
    """The same loss as the sum of several: a Gaussian shift of m is sixteen of m/4.

    Composed Gaussian releases arrive here as one, of which the contour draws no line.
    """
    if len(parts) == 1 and parts[0][1] == 1 and parts[0][0].beta == 2.0 and parts[0][0].rate == 1.0:
        pair = parts[0][0]
        return ((replace(pair, up=pair.up / 4.0, down=pair.down / 4.0), 16),)
    return parts


def _planned_height(plan: TiltPlan, theta: float) -> float:
    saddle = saddle_at(plan, theta)
    return saddle.log_delta + theta * saddle.epsilon


@lru_cache(maxsize=256)  # the result does not depend on epsilon or delta, and is kept
def _log_height(known: Parts, theta: float) -> float:
    """An upper bound of log sup of e^{theta x} delta(x) over real x; infinite where not certified.

    delta falls with x, so that on an interval it is at most its value at the left end times the exponential
    at the right end. Left of the first point delta <= 1, right of the last Chernoff at a larger tilt bounds
    the product, and both ends are moved out until they are lower than what was found between.
    """
    plan = TiltPlan.of(known)
    saddle = saddle_at(plan, theta)
    try:
        curve = contour.draw(known, plan, saddle)
        tilt, log_phi = curve.chernoff
        step = min(_FALL / theta, 0.05 * saddle.deviation)
        search = _Height(curve, theta, step)
        width, point = _COARSE * step, saddle.epsilon
        found = search.above(point, width)
        while theta * point > found:  # to the left
            point -= width
            found = max(found, search.above(point, width))
        point = saddle.epsilon + width
        while log_phi + _chernoff(tilt) - (tilt - theta) * point > found:  # to the right
            found = max(found, search.above(point, width))
            point += width
    except ArithmeticError:
        return math.inf
    return found + SLACK * (1.0 + abs(found))


@dataclass
class _Height:
    """Upper bounds of theta x + log delta(x) on intervals, halved only where they could hold the largest."""

    curve: contour.Line
    theta: float
    step: float  # the smallest interval
    least: float = -math.inf  # what the bound on the smallest interval is at the best point so far

    def above(self, left: float, width: float) -> float:
        """On [left, left + width]: delta is at most its value at the left end."""
        at_left = min(self.curve.log_delta(left).upper, 0.0)
        return self._halved(left, width, at_left)

    def _halved(self, left: float, width: float, at_left: float) -> float:
        self.least = max(self.least, self.theta * (left + self.step) + at_left)
        bound = self.theta * (left + width) + at_left
        if bound <= self.least or width <= self.step:
            return bound
        half = 0.5 * width
        return max(self._halved(left, half, at_left), self.above(left + half, half))


def _chernoff(theta: float) -> float:
    return float(_log_constant(np.array(theta)))


def _restricted_moments(gain: Array, cut: float) -> Array:
    """(3) for k = 2, 3, ... up to the last of `_WHOLE`; at least zero, which only raises the bound."""
    usable = np.isfinite(gain)
    orders = np.concatenate([[1.0], ORDERS[usable]])
    least = np.minimum.accumulate(np.concatenate([[0.0], gain[usable]]) - orders * cut)
    k = np.arange(2.0, _WHOLE[-1] + 1.0)
    return np.maximum(least[np.searchsorted(orders, k, side="right") - 1] + k * cut, 0.0)


def _log_tail(gain: Array, cut: float) -> float:
    """log of tau, a bound on P(x > e^cut)."""
    usable = np.isfinite(gain)
    return float(np.min(gain[usable] - (ORDERS[usable] - 1.0) * cut, initial=0.0))


def _extra_for_add(log_tail: float, rate: float, cut: float) -> Array:
    """(4) at `_WHOLE`; added to the logarithm of a moment that is at least one, it is more than needed."""
    thinned = -math.log1p(-rate)
    log_extra = log_tail + np.logaddexp((_WHOLE - 1.0) * thinned, -cut)
    return np.asarray(np.exp(np.minimum(log_extra, 700.0)))


def _epsilon(orders: Array, total: Array, log_delta: float) -> float:
    theta, gain = _dense(orders, total)
    if not len(theta):
        return math.inf
    return max(float(np.min((gain + _log_constant(theta) - log_delta) / theta)), 0.0) * (1.0 + SLACK)


def _log_delta(orders: Array, total: Array, epsilon: float) -> float:
    theta, gain = _dense(orders, total)
    if not len(theta):
        return 0.0
    best = float(np.min(gain - theta * epsilon + _log_constant(theta)))
    return min(best + SLACK * (1.0 + abs(best)), 0.0)


def _dense(orders: Array, total: Array) -> tuple[Array, Array]:
    """theta = a - 1 and gains, by chords also between the orders given."""
    usable = np.isfinite(total)
    if not np.any(usable):
        return np.empty(0), np.empty(0)
    corners = np.concatenate([[1.0], orders[usable]])
    steps = np.arange(1, _BETWEEN + 1) / _BETWEEN
    fine = (corners[:-1, None] + np.diff(corners)[:, None] * steps).ravel()
    return fine - 1.0, np.interp(fine, corners, np.concatenate([[0.0], total[usable]]))


def _log_constant(theta: Array) -> Array:
    """log C(theta) of (1)."""
    # as `engines.moments.log_chernoff_constant`, and not a difference of two large numbers
    one = np.where(theta > 1.0, np.log1p(1.0 / theta), np.log1p(theta) - np.log(theta))
    return np.asarray(-np.log1p(theta) - theta * one)
