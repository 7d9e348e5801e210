# SPDX-License-Identifier: Apache-2.0
"""What an attacker can achieve, certified: error rates, advantage, posterior, Gaussian differential privacy.

An attacker sees the output and tests which of two neighbouring datasets it came from: one is the null, the
other the positive. A false positive is to say "positive" of the null. With P the law of the output on the
positive and Q its law on the null, let

    D(a) = sup over all sets S of P(S) - a Q(S), for a >= 0.

D is convex and does not rise, D(0) = 1, and D(a) >= 1 - a. At a = e^epsilon >= 1 it is delta(epsilon); at
a < 1 it is 1 - a + a delta'(-log a), where delta' is the profile with P and Q exchanged. All risks are read
off D:

| risk | is |
|---|---|
| largest true positive rate at the false positive rate r | t(r), the least of D(a) + a r over all a |
| smallest false negative rate there, the trade-off | 1 - t(r) |
| advantage, the most by which true exceed false positives | D(1) |
| how often the best guess is right if the positive has the prior p | 1 - p + p D((1 - p)/p) |
| smallest mu of Gaussian differential privacy | the least mu whose D is nowhere below this one |

Every a gives an upper bound of t(r). The lower bound needs all a at once: between two places at which D was
computed, a convex function is above the prolonged chords of the neighbouring intervals. docs/risk.md has the
proofs, and says what "neighbouring" and "positive" mean for each adjacency.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ggdp import arguments
from ggdp.accounting.bounds import Bounds
from ggdp.accounting.gdp import GaussianPrivacy, gaussian_privacy, of_shift
from ggdp.accounting.profile import PrivacyProfile, account
from ggdp.accounting.steps import Vote
from ggdp.errors import CannotCertifyError, EpsilonTooLargeError
from ggdp.mechanisms import Adjacency, Mechanism
from ggdp.numerics import UNIT_ROUNDOFF, Array

# relative rounding error of a sum of two positive terms, one with an exponential
_ROUNDING = 16.0 * UNIT_ROUNDOFF
_SLOPE = 1e-12  # relative error allowed to the slope of a line, and to a distance; both have less than 1e-14
_LEAST_GAP = 1e-12  # smallest distance of two log a
_MOST_LOG = 700.0  # e^710 exceeds the range of doubles
_CHORDS = (1, 2, 4, 8, 16)  # how many places apart the ends of a chord are
_TOLERANCE = 5e-8  # relative width of a true positive rate that is narrow enough
_LEAST_RATE = 1e-18  # below this rate the width is compared with the least rate, and not with the rate itself
_NEAR = 0.1  # distance of two neighbouring log a below which D is well known between them
_MOST_QUESTIONS = 80  # computed values of D for one false positive rate
_GDP_SECONDS = 3.5  # of a thread's time in which mu is looked for, less what the first questions took
_LEAST_GDP_SECONDS = 0.7  # but no less


@dataclass(frozen=True)
class AttackSuccess:
    """What the best attacker achieves; every number is certified `Bounds`, and `upper` is the one to quote.

    Attributes:
        false_positive_rate: how often the attacker raises a false alarm.
        true_positive_rate: how often it is right about a positive, at that false positive rate.
        advantage: the most by which true positives exceed false ones, at any false positive rate.
        prior: the attacker's probability of the positive before it sees the output.
        posterior: the probability that an alarm is true, of an attacker with that false positive rate.
        bayes_accuracy: how often the best guess is right, given the prior; without the output it is right
            with probability max(prior, 1 - prior).
    """

    false_positive_rate: float
    true_positive_rate: Bounds
    advantage: Bounds
    prior: float
    posterior: Bounds
    bayes_accuracy: Bounds


class Risk:
    """What attackers can achieve against one mechanism, computed from its privacy profile.

    The attacker sees the output and says from which of two neighbouring datasets, the *null* and the
    *positive*, it came. A false positive is the answer "positive" on the null. For ADD_REMOVE and REPLACE
    either dataset may be the positive; for REMOVE it is the one with the record, for ADD the one without it.

    Args:
        profile: made by `account`.

    Guarantees:
        lower <= truth <= upper in every answer, rounding included. tests/accounting/test_risk.py

    >>> from ggdp import AdditiveNoise, Composed, Gaussian, PoissonSampled, account
    >>> step = PoissonSampled(AdditiveNoise(Gaussian(std=1.0)), rate=0.01)
    >>> risk = Risk(account(Composed(step, times=1000)))
    >>> round(risk.true_positive_rate(false_positive_rate=0.01).upper, 4)
    0.0291
    """

    def __init__(self, profile: PrivacyProfile) -> None:
        self._forward, self._backward = profile, profile.exchanged()
        self._points = _ConvexPoints()
        self._known: dict[tuple[PrivacyProfile, float], Bounds] = {}
        begun = time.thread_time()
        self._ask(0.0)
        largest = max(side.largest_loss()[1] for side in (self._forward, self._backward))
        if _LEAST_GAP < largest < _MOST_LOG:
            self._ask(largest)  # D has a corner where it becomes 0, or nearly so
            self._ask(-largest)
        self._first_took = time.thread_time() - begun

    def trade_off(self, *, false_positive_rate: float) -> Bounds:
        """The smallest false negative rate of any attacker with this false positive rate.

        Args:
            false_positive_rate: in [0, 1].
        """
        return self._trade_off(false_positive_rate, _TOLERANCE)

    def _trade_off(self, false_positive_rate: float, tolerance: float) -> Bounds:
        found = self._true_positive_rate(false_positive_rate, tolerance)
        lower = max(math.nextafter(1.0 - found.upper, -1.0), 0.0) if found.upper < 1.0 else 0.0
        upper = min(math.nextafter(1.0 - found.lower, 2.0), 1.0) if found.lower < 1.0 else 0.0
        return Bounds.clipped(lower, 1.0 - found.estimate, upper, found.method)

    def true_positive_rate(self, *, false_positive_rate: float) -> Bounds:
        """The largest true positive rate of any attacker with this false positive rate.

        Args:
            false_positive_rate: in [0, 1].
        """
        return self._true_positive_rate(false_positive_rate, _TOLERANCE)

    def _true_positive_rate(self, false_positive_rate: float, tolerance: float) -> Bounds:
        rate = arguments.real("false_positive_rate", false_positive_rate, least=0.0, most=1.0)
        for _ in range(_MOST_QUESTIONS):
            found = self._points.least(rate)
            gap = found.upper - found.lower
            if gap <= tolerance * found.upper + _LEAST_RATE or gap <= 1.5 * found.unknown:
                break
            if not self._ask(found.place):
                break
        lower = min(max(found.lower, rate), 1.0)
        upper = min(max(found.upper, lower), 1.0)
        return Bounds.clipped(lower, found.estimate, upper, found.method)

    def trade_off_curve(
        self, false_positive_rates: Sequence[float], *, tolerance: float = _TOLERANCE
    ) -> list[Bounds]:
        """The smallest false negative rate at each false positive rate.

        Args:
            false_positive_rates: each in [0, 1].
            tolerance: how wide the bounds of a true positive rate may be, relative to it, in [5e-8, 1]; a
                curve that is only drawn is faster at 1e-5.
        """
        tolerance = arguments.real("tolerance", tolerance, least=_TOLERANCE, most=1.0)
        return [self._trade_off(rate, tolerance) for rate in false_positive_rates]

    def advantage(self) -> Bounds:
        """The most by which any attacker's true positive rate exceeds its false positive rate.

        It is the distance of the two laws in total variation, which is delta at epsilon = 0.
        """
        return self._delta_of(self._forward, 0.0)

    def posterior(self, *, prior: float, false_positive_rate: float) -> Bounds:
        """The largest probability that an alarm is true, over all attackers with this false positive rate.

        By Bayes' rule it is p t / (p t + (1 - p) r), with p the prior of the positive, r the false positive
        rate and t the largest true positive rate. Attackers with fewer false positives may reach more.

        Args:
            prior: probability of the positive before the output is seen, in [1e-300, 1).
            false_positive_rate: in (0, 1].
        """
        prior = arguments.real("prior", prior, least=1e-300, below=1.0)
        rate = arguments.real("false_positive_rate", false_positive_rate, above=0.0, most=1.0)
        found = self.true_positive_rate(false_positive_rate=rate)

        def share(true_positives: float, rounding: float) -> float:
            against = (
                (1.0 - prior) / prior * (rate / true_positives)
            )  # at least the rate, so neither underflows
            return min(1.0 / (1.0 + against) * (1.0 + rounding), 1.0)

        lower, upper = share(found.lower, -_ROUNDING), share(found.upper, _ROUNDING)
        return Bounds.clipped(lower, share(found.estimate, 0.0), upper, found.method)

    def bayes_accuracy(self, *, prior: float) -> Bounds:
        """How often the best guess is right, if the positive has this prior.

        Args:
            prior: probability of the positive before the output is seen, in (0, 1).
        """
        prior = arguments.real("prior", prior, above=0.0, below=1.0)
        place = math.log1p(-prior) - math.log(prior)
        if not abs(place) < _MOST_LOG:
            raise ValueError(f"prior must be a number in [1e-300, 1 - 1e-16], got {prior!r}")
        low, value, high, method = self._at(place)
        slack = _ROUNDING * (2.0 + abs(place))  # a dD/da is a probability: an error of log a counts as it is
        least = prior if prior >= 0.5 else math.nextafter(1.0 - prior, 0.0)  # the difference rounds
        lower = min(max(1.0 - prior + prior * low - slack, least), 1.0)
        upper = min(max(1.0 - prior + prior * high + slack, lower), 1.0)
        return Bounds.clipped(lower, 1.0 - prior + prior * value, upper, method)

    def attack_success(self, *, false_positive_rate: float = 0.01, prior: float = 0.5) -> AttackSuccess:
        """All numbers of a membership attack at one false positive rate and one prior."""
        prior = arguments.real("prior", prior, above=0.0, below=1.0)
        false_positive_rate = arguments.real("false_positive_rate", false_positive_rate, above=0.0, most=1.0)
        return AttackSuccess(
            false_positive_rate=false_positive_rate,
            true_positive_rate=self.true_positive_rate(false_positive_rate=false_positive_rate),
            advantage=self.advantage(),
            prior=prior,
            posterior=self.posterior(prior=prior, false_positive_rate=false_positive_rate),
            bayes_accuracy=self.bayes_accuracy(prior=prior),
        )

    def gdp(self, *, least_delta: float = 1e-10) -> GaussianPrivacy:
        """The smallest mu for which the mechanism is as private as a Gaussian release, and the regret.

        Args:
            least_delta: where the comparison ends, in [1e-100, 1); 0 where losses are bounded, for mu-GDP.

        Raises:
            ValueError: no epsilon up to 700 has so small a delta, or mu would exceed 1000.
        """
        least_delta = arguments.real("least_delta", least_delta, least=0.0, below=1.0)
        known = self._forward.gaussian_shift()
        if known is not None:
            return of_shift(known)
        sides = (self._forward, self._backward)
        last = max(side.epsilon_or_infinity(delta=least_delta).upper for side in sides)
        if last > _MOST_LOG:
            raise ValueError(
                f"least_delta must be a delta that some epsilon up to {_MOST_LOG:g} has, got "
                f"{least_delta:g}; give a larger one, or more noise"
            )
        seconds = max(_GDP_SECONDS - self._first_took, _LEAST_GDP_SECONDS)
        return gaussian_privacy(self._delta, last, least_delta, seconds)

    # --- what is known of D

    def _delta(self, epsilon: float) -> tuple[float, float]:
        """Bounds of delta at epsilon; of (P, Q) and (Q, P) the larger one."""
        bounds = [self._delta_of(side, epsilon) for side in dict.fromkeys((self._forward, self._backward))]
        return max(one.lower for one in bounds), max(one.upper for one in bounds)

    def _delta_of(self, side: PrivacyProfile, epsilon: float) -> Bounds:
        """Bounds of delta of (P, Q) or of (Q, P), computed once; [0, 1] if nothing is certified."""
        if (known := self._known.get((side, epsilon))) is None:
            try:
                known = side.delta(epsilon=epsilon)
            except (CannotCertifyError, EpsilonTooLargeError):
                known = Bounds(0.0, 0.5, 1.0, "no bound")
            self._known[side, epsilon] = known
        return known

    def _at(self, place: float) -> tuple[float, float, float, str]:
        """Lower bound, value and upper bound of D at a = exp(place), and the method."""
        if place >= 0.0:
            found = self._delta_of(self._forward, place)
            return found.lower, found.estimate, found.upper, found.method
        found = self._delta_of(self._backward, -place)
        a = math.exp(place)
        low, value, high = (1.0 - a * (1.0 - one) for one in (found.lower, found.estimate, found.upper))
        return max(low - _ROUNDING, 0.0), value, min(high + _ROUNDING, 1.0), found.method

    def _ask(self, place: float) -> bool:
        """Compute D at a = exp(place), unless it is known very close by; returns whether it was computed."""
        if not abs(place) <= _MOST_LOG or self._points.distance(place) < _LEAST_GAP:
            return False
        self._points.add(place, *self._at(place))
        return True


@dataclass(frozen=True)
class _Least:
    """Bounds of the least of D(a) + a r over a, and where to compute D next.

    Attributes:
        unknown: the width of D beside `place`, if D is known at two points close to it: the bounds cannot
            become much narrower than that.
        place: the log a where the lower bound is smallest.
        method: of the answer that gave the upper bound.
    """

    lower: float
    estimate: float
    upper: float
    unknown: float
    place: float
    method: str


class _ConvexPoints:
    """Bounds of D at some places, and the lines below D that follow from its being convex.

    Place 0 is a = 0, where D = 1. To the right of place i, D(a) >= low_i + after_i (a - a_i), where after_i
    is the steepest rise from an earlier place that is certain. To its left, D(a) >= low_i + before_i
    (a - a_i) likewise.
    """

    def __init__(self) -> None:
        self._log = np.array([-math.inf])
        self._low, self._value, self._high = np.ones(1), np.ones(1), np.ones(1)
        self._methods = ["trivial"]
        self._a = np.zeros(1)
        self._after, self._before = -np.ones(1), np.zeros(1)

    def distance(self, place: float) -> float:
        """How far log a is from the nearest place."""
        return float(np.min(np.abs(self._log - place)))

    def add(self, place: float, low: float, value: float, high: float, method: str) -> None:
        """Bounds of D at a = exp(place)."""
        where = int(np.searchsorted(self._log, place))
        self._log = np.insert(self._log, where, place)
        self._low, self._value, self._high = (
            np.insert(old, where, new)
            for old, new in ((self._low, low), (self._value, value), (self._high, high))
        )
        self._methods.insert(where, method)
        self._a = np.exp(self._log)
        self._after, self._before = np.full(len(self._a), -1.0), np.zeros(len(self._a))
        # D is convex: right of a place it rises at least as fast as on any chord to an earlier one, and by
        # -1 at least; left of it at most as fast as on any chord to a later one, and by 0 at most.
        for offset in _CHORDS:
            if offset < len(self._a):
                distance = self._distances(offset)
                least = (self._low[offset:] - self._high[:-offset]) / distance * (1.0 + _SLOPE)
                most = (self._high[offset:] - self._low[:-offset]) / distance * (1.0 - _SLOPE)
                self._after[offset:] = np.maximum(self._after[offset:], least)
                self._before[:-offset] = np.minimum(self._before[:-offset], most)

    def _distances(self, offset: int) -> Array:
        """By how much each a exceeds the one `offset` places before; near ones to all their digits too."""
        gaps = self._log[offset:] - self._log[:-offset]
        with np.errstate(over="ignore", invalid="ignore"):
            return np.where(np.isinf(gaps), self._a[offset:], self._a[:-offset] * np.expm1(gaps))

    def least(self, rate: float) -> _Least:
        """Bounds of the least of D(a) + a rate over all a >= 0."""
        a, low = self._a, (self._low + self._a * rate) * (1.0 - _ROUNDING)
        high = (self._high + a * rate) * (1.0 + _ROUNDING)
        best = int(np.argmin(high))
        # Between neighbours: a line that falls from the left and one that falls from the right. Whatever
        # the point at which they are compared, the lower of the two is a bound.
        width = self._distances(1)
        falls, rises = np.minimum(self._after[:-1] + rate, 0.0), np.maximum(self._before[1:] + rate, 0.0)
        steep = np.maximum(rises - falls, 1e-300)
        with np.errstate(over="ignore"):  # if neither line falls
            step = np.clip((low[:-1] - low[1:] + rises * width) / steep, 0.0, width)
        left = low[:-1] + falls * step - _SLOPE * steep * width
        right = low[1:] - rises * (width - step) - _SLOPE * steep * width
        bound = np.where(step <= 0.0, right, np.where(step >= width, left, np.minimum(left, right)))
        bound = np.maximum(bound, (self._low[1:] + a[:-1] * rate) * (1.0 - _ROUNDING))  # D does not rise
        # Beyond the last place D is at least 0, and the line that comes from the left.
        fall = min(float(self._after[-1]) + rate, 0.0)
        beyond = float(low[-1] - a[-1] * rate) / (rate - fall) if rate > fall else 0.0
        beyond = max(beyond, 0.0)
        end = min(float(low[-1]) + fall * beyond, (float(a[-1]) + beyond) * rate) * (1.0 - _SLOPE)
        if rate <= fall:  # both are 0: D is constant from here on
            end = float(low[-1])
        worst = int(np.argmin(bound)) if len(bound) else 0
        unknown = 0.0
        if len(bound) and bound[worst] <= end:
            smallest, place = float(bound[worst]), self._beside(worst, float(step[worst]))
            if self._log[worst + 1] - self._log[worst] < _NEAR:
                unknown = float(max(self._high[worst + k] - self._low[worst + k] for k in (0, 1)))
        else:
            smallest, place = end, self._beside(len(a) - 1, beyond)
        estimate = float(np.min(self._value + a * rate))
        upper = float(high[best])
        return _Least(min(smallest, upper), estimate, upper, unknown, place, self._methods[best])

    def _beside(self, place: int, step: float) -> float:
        """log(a + step) after a place, not too close to the places on both sides, where D is known."""
        left = float(self._log[place])
        if place == 0:
            log = math.log(step) if step > 0.0 else -math.inf
        else:
            log = left + math.log1p(step / float(self._a[place]))
        if place + 1 == len(self._log):
            return max(log, left + _LEAST_GAP)
        right = float(self._log[place + 1])
        if math.isinf(left):
            return min(max(log, right - 2.0), right - 0.1)
        edge = 0.01 * (right - left)
        return min(max(log, left + edge), right - edge)


# --- the same questions of a mechanism


def trade_off(
    mechanism: Mechanism | Vote, *, false_positive_rate: float, adjacency: Adjacency | None = None
) -> Bounds:
    """The smallest false negative rate of any attacker with this false positive rate.

    The attacker sees the output and says from which of two neighbouring datasets, the null and the positive,
    it came. A false negative is the answer "null" on the positive. For several rates make one
    `Risk(account(mechanism))`.

    Args:
        mechanism: what is released.
        false_positive_rate: how often the attacker takes the null for the positive, in [0, 1].
        adjacency: which datasets are neighbours. For ADD_REMOVE, which is meant if it is left out, and for
            REPLACE either of the two may be the positive; for REMOVE it is the dataset with the record, for
            ADD the one without it.

    Guarantees:
        lower <= truth <= upper, rounding included. tests/accounting/test_risk.py

    >>> from ggdp import AdditiveNoise, Laplace
    >>> round(trade_off(AdditiveNoise(Laplace(scale=1.0)), false_positive_rate=0.05).lower, 6)  # 1 - 0.05 e
    0.864086
    """
    return Risk(account(mechanism, adjacency=adjacency)).trade_off(false_positive_rate=false_positive_rate)


def attack_success(
    mechanism: Mechanism | Vote,
    *,
    false_positive_rate: float = 0.01,
    prior: float = 0.5,
    adjacency: Adjacency | None = None,
) -> AttackSuccess:
    """What the best membership attack achieves: detections, advantage, posterior, accuracy.

    Args:
        mechanism: what is released.
        false_positive_rate: of the attacker, in (0, 1].
        prior: the attacker's probability of the positive before it sees the output, in (0, 1).
        adjacency: which datasets are neighbours, as for `trade_off`.

    >>> from ggdp import AdditiveNoise, Gaussian
    >>> found = attack_success(AdditiveNoise(Gaussian(std=2.0)), false_positive_rate=0.01)
    >>> round(found.true_positive_rate.upper, 5), round(found.advantage.upper, 5)
    (0.0339, 0.19741)
    """
    found = Risk(account(mechanism, adjacency=adjacency))
    return found.attack_success(false_positive_rate=false_positive_rate, prior=prior)


def gdp_mu(
    mechanism: Mechanism | Vote, *, least_delta: float = 1e-10, adjacency: Adjacency | None = None
) -> GaussianPrivacy:
    """The smallest mu for which the mechanism is as private as a Gaussian release, and the regret.

    Args:
        mechanism: what is released.
        least_delta: where the comparison ends; see `GaussianPrivacy`.
        adjacency: which datasets are neighbours; both orders of the two laws count, whichever it is.

    >>> from ggdp import AdditiveNoise, Composed, Gaussian
    >>> found = gdp_mu(Composed(AdditiveNoise(Gaussian(std=4.0)), times=16))
    >>> round(found.mu.upper, 9), found.regret.upper < 1e-12
    (1.0, True)
    """
    return Risk(account(mechanism, adjacency=adjacency)).gdp(least_delta=least_delta)
