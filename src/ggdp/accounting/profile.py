# SPDX-License-Identifier: Apache-2.0
"""The questions people ask: epsilon at a delta, delta at an epsilon, and the whole curve."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal, overload

import numpy as np

from ggdp import arguments
from ggdp.accounting.bounds import Bounds, Estimate
from ggdp.accounting.engines import cells as general
from ggdp.accounting.engines.pairs import (
    CLOSED_FORM,
    MOST_EPSILON,
    SUPREMUM_ERROR,
    costs_no_more,
    delta_of,
    epsilon_of,
    largest_loss,
    too_much,
)
from ggdp.accounting.steps import described_directions, is_described
from ggdp.accounting.vectors import routes as vector
from ggdp.errors import CannotCertifyError
from ggdp.mechanisms import Adjacency, Mechanism
from ggdp.privacy_loss.dominating import directions
from ggdp.privacy_loss.purity import is_pure

_LEAST_DELTA = 1e-100
LEAST_LOG_DELTA = math.log(_LEAST_DELTA)
_DELTAS = "[1e-100, 1)"

Method = Literal["scanned", "one-coordinate"]


@overload
def epsilon(
    mechanism: Mechanism,
    *,
    delta: float | None = ...,
    log_delta: float | None = ...,
    adjacency: Adjacency = ...,
) -> Bounds: ...
@overload
def epsilon(
    mechanism: Mechanism, *, delta: float, adjacency: Adjacency = ..., method: Method
) -> Estimate: ...
def epsilon(
    mechanism: Mechanism,
    *,
    delta: float | None = None,
    log_delta: float | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    method: Method | None = None,
) -> Bounds | Estimate:
    """The smallest epsilon for which the mechanism is (epsilon, delta)-private.

    Args:
        mechanism: what is released.
        delta: in [1e-100, 1), or 0 for pure privacy, which mechanisms of bounded loss have; or
        log_delta: its natural logarithm.
        adjacency: which datasets are neighbours; ADD_REMOVE is the worse of both directions.
        method: for a vector release, "scanned" (the worst of equal splits) or "one-coordinate", both without
            a guarantee; leave it out for the best certified route.

    Returns:
        Certified bounds; `upper` is the number to publish. With a `method`, an `Estimate`.

    Guarantees:
        lower <= truth <= upper, rounding included. tests/accounting/test_soundness.py holds this against
        closed forms and mpmath.

    Raises:
        ValueError: an argument is out of range, epsilon would exceed 2000 and has no closed form (one
            release, or Gaussian releases without sampling, have one), or delta is 0 and the loss unbounded.

    >>> from ggdp import AdditiveNoise, Composed, Gaussian, PoissonSampled
    >>> step = PoissonSampled(AdditiveNoise(Gaussian(std=1.0)), rate=0.01)
    >>> round(epsilon(Composed(step, times=10_000), delta=1e-6).upper, 6)
    6.907384
    """
    target = _log_delta_argument(delta, log_delta)
    if target == -math.inf:
        _no_method(method)
        return _pure_epsilon(mechanism, Adjacency(adjacency))
    if is_described(mechanism):
        _no_method(method)
        return general.epsilon(mechanism, target, Adjacency(adjacency))
    # --- vector releases without a known worst shift, and estimates: ggdp.accounting.vectors.routes
    ask = partial(_epsilon_with_spent, target, Adjacency(adjacency))
    routed = vector.answer(mechanism, Adjacency(adjacency), method, ask, vector.EpsilonAt(target))
    if isinstance(routed, Bounds) and _is_too_much(routed):
        raise ValueError(too_much("epsilon at this delta", routed))
    if routed is not None:
        return routed
    # ---
    worst: Bounds | None = None
    for parts in directions(mechanism, Adjacency(adjacency)):
        if worst is not None and costs_no_more(parts, target, worst.lower):
            continue  # the other direction is the worse one
        one = epsilon_of(parts, target)
        worst = one if worst is None else Bounds.worst(worst, one)
    if worst is not None:
        worst = vector.named(worst, mechanism, Adjacency(adjacency), vector.EpsilonAt(target))
    if worst is None or _is_too_much(worst):
        raise ValueError(too_much("epsilon at this delta", worst))
    return worst


@overload
def delta(mechanism: Mechanism, *, epsilon: float, adjacency: Adjacency = ...) -> Bounds: ...
@overload
def delta(
    mechanism: Mechanism, *, epsilon: float, adjacency: Adjacency = ..., method: Method
) -> Estimate: ...
def delta(
    mechanism: Mechanism,
    *,
    epsilon: float,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    method: Method | None = None,
) -> Bounds | Estimate:
    """The smallest delta for which the mechanism is (epsilon, delta)-private.

    Args:
        mechanism: what is released.
        epsilon: at least 0; beyond 2000 bounds are wide, unless there is a closed form.
        adjacency: which datasets are neighbours.
        method: as for `epsilon`.

    Guarantees:
        lower <= truth <= upper; exactly 0 from the epsilon on at which the mechanism is purely private.

    >>> from ggdp import AdditiveNoise, Laplace
    >>> delta(AdditiveNoise(Laplace(scale=2.0)), epsilon=0.5).upper
    0.0
    """
    epsilon = arguments.real("epsilon", epsilon, least=0.0)
    if is_described(mechanism):
        _no_method(method)
        return general.delta(mechanism, epsilon, Adjacency(adjacency))
    # --- vector releases without a known worst shift, and estimates: ggdp.accounting.vectors.routes
    ask = partial(_delta_with_spent, epsilon, Adjacency(adjacency))
    routed = vector.answer(mechanism, Adjacency(adjacency), method, ask, vector.DeltaAt(epsilon))
    if routed is not None:
        return routed
    # ---
    if is_pure(mechanism, epsilon, Adjacency(adjacency)):
        return Bounds(0.0, 0.0, 0.0, "pure")
    worst: Bounds | None = None
    for parts in directions(mechanism, Adjacency(adjacency)):
        one = delta_of(parts, epsilon)
        worst = one if worst is None else Bounds.worst(worst, one)
    if worst is None:
        raise ValueError("mechanism must hold at least one step")
    return vector.named(worst, mechanism, Adjacency(adjacency), vector.DeltaAt(epsilon))


def privacy_curve(
    mechanism: Mechanism,
    *,
    epsilons: Sequence[float] | None = None,
    deltas: Sequence[float] | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> list[Bounds]:
    """delta at each epsilon, or epsilon at each delta."""
    if (epsilons is None) == (deltas is None):
        raise ValueError(
            f"give epsilons or deltas, one of them, got epsilons={epsilons!r}, deltas={deltas!r}"
        )
    if epsilons is not None:
        return [delta(mechanism, epsilon=float(e), adjacency=adjacency) for e in epsilons]
    return [epsilon(mechanism, delta=float(d), adjacency=adjacency) for d in np.asarray(deltas)]


def epsilon_at(mechanism: Mechanism, *, delta: float, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> Bounds:
    """`epsilon` for every delta in [0, 1], as other libraries ask for it.

    At 0 it is the largest loss there is. It is infinite where no epsilon is large enough, and the upper bound
    is infinite where epsilon is more than is computed.

    >>> from ggdp import AdditiveNoise, Gaussian, Laplace
    >>> epsilon_at(AdditiveNoise(Gaussian(std=1.0)), delta=0.0).upper
    inf
    >>> round(epsilon_at(AdditiveNoise(Laplace(scale=2.0)), delta=0.0).upper, 9)
    0.5
    >>> epsilon_at(AdditiveNoise(Laplace(scale=2.0)), delta=0.6).upper
    0.0
    """
    delta, adjacency = arguments.real("delta", delta, least=0.0, most=1.0), Adjacency(adjacency)
    check(mechanism, adjacency)
    if delta == 1.0:
        return Bounds(0.0, 0.0, 0.0, "everything is (0, 1)-private")
    try:
        found = epsilon(mechanism, delta=max(delta, _LEAST_DELTA), adjacency=adjacency)
    except (CannotCertifyError, ValueError):  # the arguments are checked: epsilon exceeds what is computed
        found = _beyond(mechanism, max(delta, _LEAST_DELTA), adjacency)
    if delta >= _LEAST_DELTA:
        return found
    largest = largest_loss_of(mechanism, adjacency) * (1.0 + 1e-14)  # sums of losses round
    return Bounds(min(found.lower, largest), largest, largest, "largest loss")


def _beyond(mechanism: Mechanism, target: float, adjacency: Adjacency) -> Bounds:
    there = delta(mechanism, epsilon=MOST_EPSILON, adjacency=adjacency)
    return Bounds(
        MOST_EPSILON if there.lower > target else 0.0, math.inf, math.inf, "beyond what is computed"
    )


def largest_loss_of(mechanism: Mechanism, adjacency: Adjacency) -> float:
    """The epsilon of pure privacy, to rounding: no loss exceeds it; infinite where losses have no bound."""
    if is_described(mechanism):
        return general.largest_losses(mechanism, adjacency)[1]
    return vector.largest_loss(mechanism, adjacency)


def check(mechanism: Mechanism, adjacency: Adjacency) -> None:
    """Refuse what the accountant does not cover."""
    if is_described(mechanism):
        described_directions(mechanism, adjacency)
    else:
        vector.check(mechanism, adjacency)


def _is_too_much(bounds: Bounds) -> bool:
    """Whether epsilon is beyond what is computed; one release has a closed form for all of them."""
    if bounds.method.endswith(CLOSED_FORM):
        return False
    return bounds.lower > MOST_EPSILON or not bounds.upper < 1e6


def _pure_epsilon(mechanism: Mechanism, adjacency: Adjacency) -> Bounds:
    """Epsilon at delta = 0: the largest loss there is."""
    if is_described(mechanism):
        lower, upper = general.largest_losses(mechanism, adjacency)
    else:
        upper = max(largest_loss(parts) for parts in directions(mechanism, adjacency))
        lower = upper * (1.0 - 4.0 * SUPREMUM_ERROR)
    if not math.isfinite(upper):
        raise ValueError(
            "delta must be positive for this mechanism, got 0: its privacy loss has no upper bound, and no "
            "epsilon is enough; pure privacy takes Laplace noise (beta = 1) or outcomes whose probabilities "
            f"have bounded ratios; give a delta in {_DELTAS}"
        )
    return Bounds(lower, min(max(upper / (1.0 + SUPREMUM_ERROR), lower), upper), upper, "largest loss")


def _epsilon_with_spent(log_delta: float, adjacency: Adjacency, mechanism: Mechanism, spent: float) -> Bounds:
    """Epsilon at the rest of a delta of which some is spent elsewhere."""
    rest = log_delta + math.log1p(-spent * math.exp(-log_delta))
    return epsilon(mechanism, log_delta=rest, adjacency=adjacency)


def _delta_with_spent(epsilon: float, adjacency: Adjacency, mechanism: Mechanism, spent: float) -> Bounds:
    """delta, raised by what is spent elsewhere."""
    found = delta(mechanism, epsilon=epsilon, adjacency=adjacency)
    upper = min(found.upper + spent, 1.0)
    return Bounds(found.lower, min(found.estimate, upper), upper, found.method)


def _no_method(method: str | None) -> None:
    """Described mechanisms and pure privacy have no splits to choose from."""
    if method is not None:
        raise ValueError(
            f"method must be left out for a mechanism that is described, and at delta = 0, got {method!r}: "
            "it is for vectors of Generalized Gaussian noise"
        )


def _log_delta_argument(delta: float | None, log_delta: float | None) -> float:
    if (delta is None) == (log_delta is None):
        raise ValueError(
            f"give delta or log_delta, one of them, got delta={delta!r}, log_delta={log_delta!r}"
        )
    if delta is not None:
        if not isinstance(delta, bool) and delta == 0.0:
            return -math.inf
        return math.log(arguments.real("delta", delta, least=1e-100, below=1.0, hint="or 0"))
    assert log_delta is not None
    return arguments.real("log_delta", log_delta, least=LEAST_LOG_DELTA - 1e-9, below=0.0)
