# SPDX-License-Identifier: Apache-2.0
"""The questions people ask: epsilon at a delta, delta at an epsilon, and the whole curve."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal, overload

import numpy as np

from ggdp import arguments
from ggdp.accounting import general, vector
from ggdp.accounting.bounds import Bounds, Estimate
from ggdp.accounting.composition import MOST_EPSILON, costs_no_more, delta_of, epsilon_of, too_much
from ggdp.accounting.described import is_described
from ggdp.mechanisms import Adjacency, Mechanism
from ggdp.privacy_loss.dominating import directions
from ggdp.privacy_loss.purity import is_pure

LEAST_LOG_DELTA = math.log(1e-100)

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
        delta: in [1e-100, 0.5]; or
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
        ValueError: an argument is out of range, or epsilon would exceed 2000.

    >>> from ggdp import AdditiveNoise, Composed, Gaussian, PoissonSampled
    >>> step = PoissonSampled(AdditiveNoise(Gaussian(std=1.0)), rate=0.01)
    >>> round(epsilon(Composed(step, times=10_000), delta=1e-6).upper, 6)
    6.907384
    """
    target = _log_delta_argument(delta, log_delta)
    if is_described(mechanism):
        _no_method(method)
        return general.epsilon(mechanism, target, Adjacency(adjacency))
    # --- vector releases without a known worst shift, and estimates: ggdp.accounting.vector
    ask = partial(_epsilon_with_spent, target, Adjacency(adjacency))
    routed = vector.answer(mechanism, Adjacency(adjacency), method, ask, vector.EpsilonAt(target))
    if isinstance(routed, Bounds) and (routed.lower > MOST_EPSILON or not routed.upper < 1e6):
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
    if worst is None or worst.lower > MOST_EPSILON or not worst.upper < 1e6:
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
        epsilon: in [0, 2000].
        adjacency: which datasets are neighbours.
        method: as for `epsilon`.

    Guarantees:
        lower <= truth <= upper; exactly 0 from the epsilon on at which the mechanism is purely private.

    >>> from ggdp import AdditiveNoise, Laplace
    >>> delta(AdditiveNoise(Laplace(scale=2.0)), epsilon=0.5).upper
    0.0
    """
    epsilon = arguments.real("epsilon", epsilon, least=0.0, most=MOST_EPSILON)
    if is_described(mechanism):
        _no_method(method)
        return general.delta(mechanism, epsilon, Adjacency(adjacency))
    # --- vector releases without a known worst shift, and estimates: ggdp.accounting.vector
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
    """A described mechanism has no splits to choose from."""
    if method is not None:
        raise ValueError(
            f"method must be left out for a mechanism that is described, got {method!r}: it is for vectors "
            "of Generalized Gaussian noise"
        )


def _log_delta_argument(delta: float | None, log_delta: float | None) -> float:
    if (delta is None) == (log_delta is None):
        raise ValueError(
            f"give delta or log_delta, one of them, got delta={delta!r}, log_delta={log_delta!r}"
        )
    if delta is not None:
        return math.log(arguments.real("delta", delta, least=1e-100, most=0.5))
    assert log_delta is not None
    return arguments.real("log_delta", log_delta, least=LEAST_LOG_DELTA - 1e-9, most=math.log(0.5))
