# SPDX-License-Identifier: Apache-2.0
"""What a mechanism costs: `account` builds its profile once, and the profile is asked as often as one likes.

mechanism --steps--> releases --privacy_loss--> pairs, cells or Renyi bounds --engines--> profile --> Bounds
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal, overload

from ggdp import arguments
from ggdp.accounting.bounds import Bounds, Estimate
from ggdp.accounting.engines.curve import LEAST_DELTA, MOST_EPSILON
from ggdp.accounting.steps import Vote, steps_of
from ggdp.accounting.two_ends import whole_cost
from ggdp.accounting.vectors.routes import one_coordinate_estimate, scanned_estimate
from ggdp.errors import CannotCertifyError, EpsilonTooLargeError
from ggdp.mechanisms import Adjacency, Mechanism

_LEAST_DELTA = 1e-100
_LEAST_LOG_DELTA = math.log(_LEAST_DELTA)
_DELTAS = "[1e-100, 1)"
_FARTHEST = 1e300
"""Beyond it delta is that of an infinite epsilon, to all digits, and products of epsilon would overflow."""

Method = Literal["scanned", "one-coordinate"]
_METHODS = {"scanned": scanned_estimate, "one-coordinate": one_coordinate_estimate}


def account(mechanism: Mechanism | Vote, *, adjacency: Adjacency | None = None) -> "PrivacyProfile":
    """Account for a mechanism: return its privacy profile, which knows epsilon at any delta.

    Args:
        mechanism: what is released.
        adjacency: which datasets are neighbours. If left out it is ADD_REMOVE, the worse of adding and of
            removing a record; a vote such as `NoisyArgmax` names its own.

    Returns:
        The privacy profile, whose `epsilon(delta=...)` and `delta(epsilon=...)` you may ask many times.

    Raises:
        ValueError: the mechanism, or the adjacency for it, is not covered.

    >>> from ggdp import AdditiveNoise, Composed, Gaussian, PoissonSampled
    >>> step = PoissonSampled(AdditiveNoise(Gaussian(std=1.0)), rate=0.01)
    >>> profile = account(Composed(step, times=10_000))
    >>> round(profile.epsilon(delta=1e-6).upper, 6)
    6.907384
    >>> profile.delta(epsilon=8.0).upper < 1e-7
    True
    """
    return PrivacyProfile(mechanism, adjacency)


class PrivacyProfile:
    """The privacy of one mechanism, made by `account`: certified epsilon at any delta, and the reverse.

    The work of the first question is kept, so that further questions are answered much faster.

    Guarantees:
        lower <= truth <= upper in every answer, rounding included. tests/accounting/test_soundness.py holds
        this against closed forms and mpmath.
    """

    def __init__(self, mechanism: Mechanism | Vote, adjacency: Adjacency | None = None) -> None:
        self._mechanism = mechanism
        self._steps = steps_of(mechanism, adjacency)
        self._cost = whole_cost(self._steps)
        self._pure = self._steps.pure_epsilon()

    def epsilon(self, *, delta: float | None = None, log_delta: float | None = None) -> Bounds:
        """The smallest epsilon for which the mechanism is (epsilon, delta)-private.

        Args:
            delta: in [1e-100, 1), or 0 for pure privacy, which mechanisms of bounded loss have; or
            log_delta: its natural logarithm.

        Raises:
            ValueError: an argument is out of range, or delta is 0 and the loss unbounded.
            EpsilonTooLargeError: epsilon exceeds 2000 and has no closed form (one release, or Gaussian
                releases without sampling, have one).
        """
        target = _log_delta_argument(delta, log_delta)
        return self._pure_epsilon() if target == -math.inf else self._cost.epsilon(target)

    def delta(self, *, epsilon: float) -> Bounds:
        """The smallest delta for which the mechanism is (epsilon, delta)-private.

        Args:
            epsilon: at least 0; beyond 2000 bounds are wide, unless there is a closed form.
        """
        epsilon = min(arguments.real("epsilon", epsilon, least=0.0), _FARTHEST)
        if self._pure is not None and epsilon >= self._pure:
            return Bounds(0.0, 0.0, 0.0, "pure")
        if epsilon > MOST_EPSILON and epsilon >= self.largest_loss()[1]:
            return Bounds(0.0, 0.0, 0.0, "largest loss")
        found = self._cost.delta(epsilon)
        if epsilon > MOST_EPSILON and found.upper > LEAST_DELTA:  # delta at a smaller epsilon bounds it too
            most = self._cost.delta(MOST_EPSILON).upper
            ends = min(found.lower, most), min(found.estimate, most), min(found.upper, most)
            found = replace(found, lower=ends[0], estimate=ends[1], upper=ends[2])
        nearer = epsilon
        # nothing is certified at so large an epsilon
        while found.lower == 0.0 and found.upper == 1.0 and nearer > 1.0:
            nearer *= 0.5
            upper = self._cost.delta(nearer).upper
            found = replace(found, estimate=min(found.estimate, upper), upper=upper)
        return found

    def curve(
        self, *, epsilons: Sequence[float] | None = None, deltas: Sequence[float] | None = None
    ) -> list[Bounds]:
        """delta at each epsilon, or epsilon at each delta."""
        if (epsilons is None) == (deltas is None):
            raise ValueError(
                f"give epsilons or deltas, one of them, got epsilons={epsilons!r}, deltas={deltas!r}"
            )
        if epsilons is not None:
            points = _numbers("epsilons", epsilons)
            return _from_the_middle(points, lambda epsilon: self.delta(epsilon=epsilon))
        return _from_the_middle(_numbers("deltas", deltas), lambda delta: self.epsilon(delta=delta))

    def largest_loss(self) -> tuple[float, float]:
        """Bounds on the largest privacy loss, which is epsilon at delta = 0; infinite where it has none."""
        if self._pure is None:
            return self._cost.largest_loss()
        nearest = float(self._pure)
        if nearest < self._pure:
            return nearest, math.nextafter(nearest, math.inf)
        return min(nearest, math.nextafter(nearest, 0.0)) if nearest > self._pure else nearest, nearest

    def epsilon_above(self, *, delta: float) -> float:
        """The upper bound of `epsilon` alone, at a delta in [0, 1); infinite if none is certified.

        It is faster than `epsilon` for mechanisms whose lower bound is computed separately, such as shuffled
        batches.
        """
        if delta == 0.0:
            return self.largest_loss()[1]
        cost = whole_cost(replace(self._steps, below=())) if self._steps.below else self._cost
        try:
            return cost.epsilon(_log_delta_argument(delta, None)).upper
        except (CannotCertifyError, EpsilonTooLargeError):
            return math.inf

    def exchanged(self) -> "PrivacyProfile":
        """The profile with P and Q exchanged: ADD for REMOVE and the reverse; others stay the same."""
        other = {Adjacency.REMOVE: Adjacency.ADD, Adjacency.ADD: Adjacency.REMOVE}
        first, *more = self._steps.directions
        return self if more or first not in other else PrivacyProfile(self._mechanism, other[first])

    def gaussian_shift(self) -> float | None:
        """The shift in standard deviations of the one Gaussian release that costs as much.

        None for any mechanism but Gaussian releases without sampling.
        """
        if self._steps.custom or self._steps.below or self._steps.charge or not self._steps.have_worst_shifts:
            return None
        shifts = set()
        for parts in self._steps.pairs():
            if any(pair.beta != 2.0 or pair.rate < 1.0 for pair, _ in parts):
                return None
            shifts.add(math.sqrt(math.fsum(times * (pair.up - pair.down) ** 2 for pair, times in parts)))
        return math.sqrt(2.0) * shifts.pop() if len(shifts) == 1 else None

    def _pure_epsilon(self) -> Bounds:
        lower, upper = self.largest_loss()
        if not math.isfinite(upper):
            raise ValueError(
                "delta must be positive for this mechanism, got 0: its privacy loss has no upper bound, and "
                "no epsilon is enough; pure privacy takes Laplace noise (beta = 1) or outcomes whose "
                f"probabilities have bounded ratios; give a delta in {_DELTAS}"
            )
        return Bounds(lower, upper, upper, "largest loss")

    def epsilon_or_infinity(self, *, delta: float) -> Bounds:
        """Epsilon at every delta in [0, 1]; infinite if no epsilon is large enough or none can be computed.

        >>> from ggdp import AdditiveNoise, Gaussian, Laplace
        >>> account(AdditiveNoise(Gaussian(std=1.0))).epsilon_or_infinity(delta=0.0).upper
        inf
        >>> account(AdditiveNoise(Laplace(scale=2.0))).epsilon_or_infinity(delta=0.6).upper
        0.0
        """
        delta = arguments.real("delta", delta, least=0.0, most=1.0)
        if delta == 1.0:
            return Bounds(0.0, 0.0, 0.0, "everything is (0, 1)-private")
        least = max(delta, _LEAST_DELTA)
        try:
            found = self.epsilon(delta=least)
        except (CannotCertifyError, EpsilonTooLargeError):
            beyond = self.delta(epsilon=MOST_EPSILON).lower > least
            found = Bounds(MOST_EPSILON if beyond else 0.0, math.inf, math.inf, "beyond what is computed")
        if delta >= _LEAST_DELTA and math.isfinite(found.upper):
            return found
        largest = self.largest_loss()[1]
        if delta >= _LEAST_DELTA and not math.isfinite(largest):
            return found
        return Bounds(min(found.lower, largest), largest, largest, "largest loss")


@overload
def epsilon(
    mechanism: Mechanism | Vote,
    *,
    delta: float | None = ...,
    log_delta: float | None = ...,
    adjacency: Adjacency | None = ...,
) -> Bounds: ...
@overload
def epsilon(
    mechanism: Mechanism | Vote, *, delta: float, adjacency: Adjacency | None = ..., method: Method
) -> Estimate: ...
def epsilon(
    mechanism: Mechanism | Vote,
    *,
    delta: float | None = None,
    log_delta: float | None = None,
    adjacency: Adjacency | None = None,
    method: Method | None = None,
) -> Bounds | Estimate:
    """The smallest epsilon for which the mechanism is (epsilon, delta)-private.

    Args:
        mechanism: what is released.
        delta: in [1e-100, 1), or 0 for pure privacy, which mechanisms of bounded loss have; or
        log_delta: its natural logarithm.
        adjacency: which datasets are neighbours; ADD_REMOVE, the worse of both directions, if left out. A
            vote such as `NoisyArgmax` names its own.
        method: for a vector release, "scanned" (the worst of equal splits) or "one-coordinate", both without
            a guarantee; leave it out for the best certified route.

    Returns:
        Certified bounds; `upper` is the number to publish. With a `method`, an `Estimate`.

    Guarantees:
        lower <= truth <= upper, rounding included. tests/accounting/test_soundness.py holds this against
        closed forms and mpmath.

    Raises:
        ValueError: an argument is out of range, or delta is 0 and the loss unbounded.
        EpsilonTooLargeError: epsilon exceeds 2000 and has no closed form (one release, or Gaussian releases
            without sampling, have one).

    >>> from ggdp import AdditiveNoise, Composed, Gaussian, PoissonSampled
    >>> step = PoissonSampled(AdditiveNoise(Gaussian(std=1.0)), rate=0.01)
    >>> round(epsilon(Composed(step, times=10_000), delta=1e-6).upper, 6)
    6.907384
    """
    if method is None:
        return account(mechanism, adjacency=adjacency).epsilon(delta=delta, log_delta=log_delta)
    target = _log_delta_argument(delta, log_delta)
    return _estimated(mechanism, adjacency, method, log_delta=target)


@overload
def delta(mechanism: Mechanism | Vote, *, epsilon: float, adjacency: Adjacency | None = ...) -> Bounds: ...
@overload
def delta(
    mechanism: Mechanism | Vote, *, epsilon: float, adjacency: Adjacency | None = ..., method: Method
) -> Estimate: ...
def delta(
    mechanism: Mechanism | Vote,
    *,
    epsilon: float,
    adjacency: Adjacency | None = None,
    method: Method | None = None,
) -> Bounds | Estimate:
    """The smallest delta for which the mechanism is (epsilon, delta)-private.

    Args:
        mechanism: what is released.
        epsilon: at least 0; beyond 2000 bounds are wide, unless there is a closed form.
        adjacency: which datasets are neighbours; ADD_REMOVE if left out.
        method: as for `epsilon`.

    Guarantees:
        lower <= truth <= upper; exactly 0 from the epsilon on at which the mechanism is purely private.

    >>> from ggdp import AdditiveNoise, Laplace
    >>> delta(AdditiveNoise(Laplace(scale=2.0)), epsilon=0.5).upper
    0.0
    """
    if method is None:
        return account(mechanism, adjacency=adjacency).delta(epsilon=epsilon)
    return _estimated(mechanism, adjacency, method, epsilon=arguments.real("epsilon", epsilon, least=0.0))


def privacy_curve(
    mechanism: Mechanism | Vote,
    *,
    epsilons: Sequence[float] | None = None,
    deltas: Sequence[float] | None = None,
    adjacency: Adjacency | None = None,
) -> list[Bounds]:
    """Certified delta at each of several epsilons, or epsilon at each of several deltas.

    Args:
        mechanism: what is released.
        epsilons: where to compute delta; or
        deltas: where to compute epsilon. Give one of the two.
        adjacency: which datasets are neighbours; ADD_REMOVE if left out.

    Returns:
        One `Bounds` for each epsilon or delta, in the order given.

    Raises:
        ValueError: both or none of `epsilons` and `deltas` are given, or a value is out of range.

    >>> from ggdp import AdditiveNoise, Laplace
    >>> [bounds.upper for bounds in privacy_curve(AdditiveNoise(Laplace(scale=2.0)), epsilons=[0.5, 1.0])]
    [0.0, 0.0]
    """
    return account(mechanism, adjacency=adjacency).curve(epsilons=epsilons, deltas=deltas)


def _numbers(name: str, values: object) -> list[float]:
    arguments.instance(name, values, (Iterable,), hint="give a list of numbers")
    assert isinstance(values, Iterable)
    return [arguments.real(name, value) for value in values]


def _from_the_middle(values: Sequence[float], ask: Callable[[float], Bounds]) -> list[Bounds]:
    """The answers at all points; the middle one is asked first, so that what it builds serves both sides."""
    order = sorted(range(len(values)), key=values.__getitem__)
    middle = len(order) // 2
    answers = {index: ask(values[index]) for index in [*order[middle:], *order[:middle][::-1]]}
    return [answers[index] for index in range(len(values))]


def _estimated(
    mechanism: Mechanism | Vote,
    adjacency: Adjacency | None,
    method: str,
    *,
    log_delta: float | None = None,
    epsilon: float | None = None,
) -> Estimate:
    arguments.one_of("method", method, list(_METHODS), hint="or leave it out for the best certified route")
    steps = steps_of(mechanism, adjacency)
    if steps.custom or log_delta == -math.inf:
        raise ValueError(
            f"method must be left out for a custom mechanism, and at delta = 0, got {method!r}: "
            "it is for vectors of Generalized Gaussian noise"
        )
    if epsilon is not None:
        return _METHODS[method](steps, lambda cost: cost.delta(epsilon))
    assert log_delta is not None
    return _METHODS[method](steps, lambda cost: cost.epsilon(log_delta))


def checked_delta(delta: float) -> float:
    """A delta that epsilon can be asked at: 0, or in [1e-100, 1)."""
    delta = arguments.real("delta", delta, least=0.0, below=1.0)
    if delta == 0.0:
        return delta
    return arguments.real("delta", delta, least=_LEAST_DELTA, below=1.0, hint="or 0 for pure privacy")


def _log_delta_argument(delta: float | None, log_delta: float | None) -> float:
    if (delta is None) == (log_delta is None):
        raise ValueError(
            f"give delta or log_delta, one of them, got delta={delta!r}, log_delta={log_delta!r}"
        )
    if delta is not None:
        return math.log(delta) if (delta := checked_delta(delta)) else -math.inf
    assert log_delta is not None
    return arguments.real("log_delta", log_delta, least=_LEAST_LOG_DELTA - 1e-9, below=0.0)
