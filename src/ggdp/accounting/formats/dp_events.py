# SPDX-License-Identifier: Apache-2.0
"""To and from the events of Google's `dp_accounting`, in the optional extra `interop`.

`ggdp.dp_accounting.GGAccountant` is an accountant of that library, which answers for these events.

| event | mechanism | the same because |
|---|---|---|
| `GaussianDpEvent(sigma)` | `AdditiveNoise(Gaussian(std=sigma))` | l2 sensitivity 1, exact by rotation |
| `LaplaceDpEvent(b)` | `AdditiveNoise(Laplace(scale=b))` | l1 sensitivity 1, one coordinate is worst |
| `DiscreteLaplaceDpEvent(a, C)` | `DiscreteLaplaceNoise(a, C)` | l1 sensitivity C, one coordinate is worst |
| `DiscreteGaussianDpEvent(sigma, C)` | `DiscreteGaussianNoise(sigma, C)` | one integer moves by C: below |
| `MixtureOfGaussiansDpEvent` | `GaussianMixtureShift` | the same words |
| `EpsilonDeltaDpEvent` | `PrivacyGuarantee` | the same words |
| `ExponentialMechanismDpEvent(epsilon)` | `BoundedRange(epsilon)` | its losses are of bounded range |
| `PermuteAndFlipDpEvent(epsilon)` | Laplace noise of scale 1, moved by epsilon | see below |
| `RandomizedResponseDpEvent` | `RandomizedResponse` | the same words, for records that are replaced |
| `PoissonSampledDpEvent(q, ...)` | `PoissonSampled(..., rate=q)` | the same words |
| `SampledWithoutReplacementDpEvent(n, m, ...)` | `FixedSizeSampled(..., m, n)` | the same words; see below |
| `SampledWithReplacementDpEvent(n, m, ...)` | the same with `replacement=True` | likewise |
| `TruncatedSubsampledGaussianDpEvent` | `RandomlyTruncatedPoisson` | the same words; see below |
| ... sampled twice, q then p | `rate = q * p` | independent coins multiply |
| ... several Gaussians on one sample or batch | one Gaussian | a sum weighted by 1/sigma^2 is sufficient |
| `ComposedDpEvent`, `SelfComposedDpEvent` | `Composed` | the same words |
| `NoOpDpEvent` in a composition | left out | it releases nothing |

Everything else is refused with the reason.

*Discrete Gaussian.* Of a vector of integers, an l2 sensitivity below sqrt(2) moves one integer, by 1. With
a larger one a vector may move in several directions, of which none is known to be the worst; that is
refused.

*Batches of a fixed size.* The n records are those of either neighbour: where one of them has n + 1, a record
is in the batch less often than where n is the larger size, which is what is accounted for. What happens on
them is one release of Gaussian or Laplace noise. A noise multiplier is over what one record adds to a sum, as
in `PLDAccountant`, so that a replacement moves the sum by two; `RdpAccountant` takes it for what a
replacement does.

*Truncated batches.* The n records are those of the larger neighbour, as for batches of a fixed size. With
Google's relation `REPLACE_SPECIAL` the mechanism is `TruncatedPoisson` instead, which may cost more: an empty
record that is drawn takes the place of another in a full batch, and the proof for a random choice has not
been made for it. So it is for a noise multiplier above 1000.

*Permute and flip.* Its law depends on utilities, each of which one record moves by at most a known
distance. By the theorem of McKenna and Sheldon (2020) it is (epsilon h)-private for utilities that differ
by at most h times that distance, for every h. Let the utilities move along a straight line from those of
one dataset to those of its neighbour, h from 0 to 1, and let g(h) be the probability of a set of outcomes
on the way. Neither log g nor log(1 - g) changes faster than epsilon per unit of h. So g(1) <= e^epsilon
g(0), and 1 - g(1) >= e^-epsilon (1 - g(0)); and if g(h) = 1/2 for some h, then g(0) >= e^(-epsilon h) / 2
and 1 - g(1) >= e^(-epsilon (1 - h)) / 2, hence g(0) (1 - g(1)) >= e^-epsilon / 4. The best tests between
Laplace noise of scale 1 and the same moved by epsilon attain these three bounds, so that this pair
dominates.
"""

import math
from typing import Any, cast

from ggdp import arguments
from ggdp.distributions import Gaussian, Laplace
from ggdp.errors import RefusedEventError
from ggdp.mechanisms import (
    AdditiveNoise,
    Adjacency,
    Composed,
    FixedSizeSampled,
    Mechanism,
    PoissonSampled,
    RandomlyTruncatedPoisson,
    TruncatedPoisson,
)
from ggdp.mechanisms.composed import Step
from ggdp.privacy_loss.classical import (
    BoundedRange,
    DiscreteGaussianNoise,
    DiscreteLaplaceNoise,
    GaussianMixtureShift,
    PrivacyGuarantee,
    RandomizedResponse,
)
from ggdp.privacy_loss.dominating import NOISE_MULTIPLIER

Steps = list[tuple[Step, int]]

SPECIAL = "replace-special"
"""Neighbours replace a record by a special one that adds nothing to a sum: Google's third relation."""

Relation = Adjacency | str

NOT_PRIVATE = PrivacyGuarantee(epsilon=0.0, delta=math.nextafter(1.0, 0.0))
"""Stands in a list of steps for one that keeps nothing private."""


def from_dp_event(event: Any, *, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> Mechanism:
    """The mechanism that a `dp_accounting.DpEvent` describes.

    Args:
        event: what was released.
        adjacency: which neighbours the mechanism will be asked about; some events speak of certain ones only.

    Raises:
        ValueError: The event has no equal here, keeps nothing private, or releases nothing.
        ImportError: `dp_accounting` is not installed.

    >>> import dp_accounting
    >>> step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
    >>> mechanism = from_dp_event(dp_accounting.SelfComposedDpEvent(step, 5000))
    >>> mechanism == Composed(PoissonSampled(AdditiveNoise(Gaussian(std=1.0)), rate=0.01), times=5000)
    True
    """
    replaced = Adjacency(adjacency) is Adjacency.REPLACE
    steps = steps_of(event, Adjacency.REPLACE if replaced else Adjacency.ADD_REMOVE)
    if not steps:
        raise ValueError("event must release something, got one that releases nothing; leave it out")
    if any(step is NOT_PRIVATE for step, _ in steps):
        raise ValueError(
            "event must be private, got one that is not: an event without noise is not private, and no "
            "epsilon is finite for it"
        )
    if len(steps) == 1 and steps[0][1] == 1:
        return steps[0][0]
    return Composed(steps)


def to_dp_event(mechanism: Mechanism) -> Any:
    """The `dp_accounting.DpEvent` that describes a mechanism.

    Raises:
        ValueError: Google has no event for it: noise other than Gaussian or Laplace, or a sensitivity in a
            norm that says too little about the one Google's event is about.
        ImportError: `dp_accounting` is not installed.

    >>> to_dp_event(AdditiveNoise(Laplace(scale=3.0), sensitivity=2.0))
    LaplaceDpEvent(noise_multiplier=1.5)
    """
    google = _library()
    match mechanism:
        case AdditiveNoise():
            return _noise_event(google, mechanism)
        case PoissonSampled(mechanism=AdditiveNoise() as inner, rate=rate):
            return google.PoissonSampledDpEvent(rate, _noise_event(google, inner))
        case RandomlyTruncatedPoisson(mechanism=AdditiveNoise() as inner):
            return _truncated_event(google, mechanism, _noise_event(google, inner))
        case Composed(parts=((step, times),)):
            return google.SelfComposedDpEvent(to_dp_event(step), times)
        case Composed(parts=parts):
            events = [google.SelfComposedDpEvent(to_dp_event(step), times) for step, times in parts]
            return google.ComposedDpEvent(events)
        case _:
            known = (AdditiveNoise, PoissonSampled, RandomlyTruncatedPoisson, Composed)
            arguments.instance("mechanism", mechanism, known)
            raise AssertionError("unreachable")


def _truncated_event(google: Any, batches: RandomlyTruncatedPoisson, inner: Any) -> Any:
    if not isinstance(inner, google.GaussianDpEvent):
        raise ValueError(f"noise must be Gaussian on batches of a largest size, got {type(inner).__name__}")
    sizes = batches.population, batches.rate, batches.largest_batch
    return google.TruncatedSubsampledGaussianDpEvent(*sizes, inner.noise_multiplier)


def _library() -> Any:
    try:
        from dp_accounting import dp_event
    except ImportError as error:
        raise ImportError(
            "events of Google's dp_accounting need that package: pip install 'ggdp[interop]'"
        ) from error
    return dp_event


def steps_of(event: Any, relation: Relation) -> Steps:
    """The releases of an event with their counts; none for an event that releases nothing.

    Raises:
        RefusedEventError: an event has no equal here.
        ValueError: `event` is no event at all.
    """
    arguments.instance("event", event, _library().DpEvent)
    return _steps(event, relation, sampled=False)


def _steps(event: Any, relation: Relation, *, sampled: bool) -> Steps:
    """`sampled`: whether the event happens to a Poisson sample."""
    kind = _kind(event)
    try:
        match kind:
            case "ComposedDpEvent":
                return [pair for inner in event.events for pair in _steps(inner, relation, sampled=sampled)]
            case "NoOpDpEvent":
                return []
            case "NonPrivateDpEvent":
                return [(NOT_PRIVATE, 1)]
            case "SelfComposedDpEvent":
                count = arguments.whole("count", event.count, least=0)
                inner = _steps(event.event, relation, sampled=sampled)
                return [(step, times * count) for step, times in inner] if count else []
            case "PoissonSampledDpEvent":
                rate = arguments.real("sampling_probability", event.sampling_probability, least=0.0, most=1.0)
                return _sampled(_steps(event.event, relation, sampled=sampled or rate < 1.0), rate)
            case _:
                _check_sampling(kind, relation, sampled)
                step = _release(kind, event, relation, sampled)
                return [] if step is None else [(step, 1)]
    except RefusedEventError:
        raise
    except ValueError as error:
        raise RefusedEventError(event, str(error)) from error


def _kind(event: Any) -> str:
    """The name of the library's own class that an event is of (newer versions have more of them), or with its
    module that of a class from elsewhere."""
    library = _library()
    owned = (kind.__name__ for kind in type(event).__mro__ if getattr(library, kind.__name__, None) is kind)
    return next(
        (name for name in owned if name != "DpEvent"), f"{type(event).__module__}.{type(event).__name__}"
    )


def _check_sampling(kind: str, relation: Relation, sampled: bool) -> None:
    """A sum over a sample without the record is a sum without it; of other releases that is not known."""
    if not sampled or kind in _SUMS or (kind in _GUARANTEES and relation is Adjacency.ADD_REMOVE):
        return
    if kind in _GUARANTEES:
        raise ValueError(
            f"neighboring_relation must be `ADD_OR_REMOVE_ONE` for a sampled {kind}: what it releases on a "
            "sample without either record is a third law, which is not known"
        )
    raise ValueError(f"event must be one that says what it releases about a sample, got a sampled {kind}")


_SUMS = ("GaussianDpEvent", "LaplaceDpEvent", "DiscreteLaplaceDpEvent", "DiscreteGaussianDpEvent")
_GUARANTEES = ("EpsilonDeltaDpEvent", "ExponentialMechanismDpEvent", "PermuteAndFlipDpEvent")


def _release(kind: str, event: Any, relation: Relation, sampled: bool) -> Step | None:
    """What one event releases, None for nothing."""
    match kind:
        case "GaussianDpEvent":
            return _additive(Gaussian, event.noise_multiplier, relation, sampled)
        case "LaplaceDpEvent":
            return _additive(Laplace, event.noise_multiplier, relation, sampled)
        case "DiscreteLaplaceDpEvent":
            decay = arguments.real("noise_parameter", event.noise_parameter, least=0.0)
            distance = arguments.whole("sensitivity", event.sensitivity, least=0)
            if not distance:
                return None
            return DiscreteLaplaceNoise(decay, distance) if decay else NOT_PRIVATE
        case "DiscreteGaussianDpEvent":
            return _discrete_gaussian(event, relation)
        case "MixtureOfGaussiansDpEvent":
            return _mixture(event, relation)
        case "RandomizedResponseDpEvent":
            return _response(event, relation)
        case "EpsilonDeltaDpEvent":
            delta = arguments.real("delta", event.delta, least=0.0, most=1.0)
            guarantee = PrivacyGuarantee(event.epsilon, delta) if delta < 1.0 else NOT_PRIVATE
            return guarantee if guarantee != PrivacyGuarantee(0.0, 0.0) else None
        case "ExponentialMechanismDpEvent":
            epsilon = arguments.real("epsilon", event.epsilon, least=0.0)
            return BoundedRange(epsilon) if epsilon else None
        case "SampledWithoutReplacementDpEvent" | "SampledWithReplacementDpEvent":
            return _fixed_size(event, relation, kind == "SampledWithReplacementDpEvent")
        case "TruncatedSubsampledGaussianDpEvent":
            step = _additive(Gaussian, event.noise_multiplier, relation, sampled=True)
            rate = arguments.real("sampling_probability", event.sampling_probability, least=0.0, most=1.0)
            if step is NOT_PRIVATE or rate == 0.0:
                return step if rate else None
            largest = arguments.whole("truncated_batch_size", event.truncated_batch_size, least=0)
            size = arguments.whole("dataset_size", event.dataset_size, least=0)
            if not (largest and size):
                return None  # nothing but noise
            step = cast(AdditiveNoise, step)
            if relation == SPECIAL or step.shift is not None:
                return TruncatedPoisson(step, rate, largest, size)
            return RandomlyTruncatedPoisson(step, rate, largest, size)
        case "PermuteAndFlipDpEvent":
            epsilon = arguments.real("epsilon", event.epsilon, least=0.0)
            return (
                AdditiveNoise(Laplace(scale=1.0), sensitivity=epsilon, shift=((1.0, 1),)) if epsilon else None
            )
        case _:
            reason = _REFUSED.get(kind, "no mechanism here means the same")
            raise RefusedEventError(
                event, f"event must be one of those that have an equal here: {reason}, {kind}"
            )


_REFUSED = {
    "SingleEpochTreeAggregationDpEvent": "trees are not known here; RdpAccountant knows them",
    "ZCDpEvent": "a bound on Renyi divergences does not name a worst pair; RdpAccountant is made for it",
    "RepeatAndSelectDpEvent": "a random number of repetitions has no worst pair; RdpAccountant has a bound",
}


def _additive(noise: Any, multiplier: float, relation: Relation, sampled: bool) -> Step:
    """Noise on a sum that one record moves by at most 1, in the norm in which one coordinate is the worst."""
    multiplier = arguments.real("noise_multiplier", multiplier, least=0.0)
    if multiplier == 0.0:
        return NOT_PRIVATE
    released, replaced = noise(multiplier), relation is Adjacency.REPLACE
    if released.scale <= NOISE_MULTIPLIER.most * math.sqrt(2.0) or (replaced and sampled):
        return AdditiveNoise(released)
    # the same, named: shifts may be as small as one likes; a record in place of another moves the sum by two
    return AdditiveNoise(released, sensitivity=2.0 if replaced else 1.0, shift=((1.0, 1),))


def _fixed_size(event: Any, relation: Relation, replacement: bool) -> Step | None:
    if relation == SPECIAL:
        raise ValueError(
            "neighboring_relation must be `ADD_OR_REMOVE_ONE` or `REPLACE_ONE` for batches of a fixed size"
        )
    steps = _steps(event.event, relation, sampled=True)
    size = arguments.whole("sample_size", event.sample_size, least=0)
    if not steps or size == 0 or steps[0][0] is NOT_PRIVATE:
        return NOT_PRIVATE if steps and size else None
    step, times = steps[0]
    if all(_is_gaussian(one) for one, _ in steps) and (len(steps) > 1 or times > 1):
        step, times, steps = AdditiveNoise(Gaussian(std=_joint_std(steps))), 1, steps[:1]
    if len(steps) > 1 or times > 1 or not isinstance(step, AdditiveNoise):
        raise ValueError("event must be one release of Gaussian or Laplace noise on a batch of a fixed size")
    return FixedSizeSampled(step, size, event.source_dataset_size, replacement)


def _discrete_gaussian(event: Any, relation: Relation) -> Step | None:
    sigma = arguments.real("sigma", event.sigma, least=0.0)
    sensitivity = arguments.real("sensitivity", event.sensitivity, least=0.0)
    dimension = getattr(event, "dimension", None)
    if sensitivity < 1.0:
        return None  # integers that move at all move by 1
    if dimension != 1 and (sensitivity >= math.sqrt(2.0) or relation is Adjacency.REPLACE):
        raise ValueError(
            f"dimension must be 1, or sensitivity below sqrt(2) for records that are added or removed, got "
            f"dimension={dimension} and sensitivity={sensitivity:g}: no pair is known to be the worst when "
            "several integers move"
        )
    return DiscreteGaussianNoise(sigma, math.floor(sensitivity)) if sigma else NOT_PRIVATE


def _mixture(event: Any, relation: Relation) -> Step | None:
    if relation is Adjacency.REPLACE:
        raise ValueError(
            "neighboring_relation must be `ADD_OR_REMOVE_ONE` or `REPLACE_SPECIAL` for a Gaussian mixture, "
            "which says what it releases with a record and without it"
        )
    if len(event.sensitivities) != len(event.sampling_probs):
        raise ValueError("sensitivities and sampling_probs must be of one length")
    kept = [(s, p) for s, p in zip(event.sensitivities, event.sampling_probs, strict=True) if p != 0.0]
    if all(shift == 0.0 for shift, _ in kept):
        return None
    std = arguments.real("standard_deviation", event.standard_deviation, least=0.0)
    if std == 0.0:
        return NOT_PRIVATE
    return GaussianMixtureShift(std, tuple(shift for shift, _ in kept), tuple(prob for _, prob in kept))


def _response(event: Any, relation: Relation) -> Step | None:
    if relation is not Adjacency.REPLACE and relation != SPECIAL:
        raise ValueError(
            "neighboring_relation must be `REPLACE_ONE` or `REPLACE_SPECIAL` (adjacency='replace') for "
            "randomized response, which does not say what an absent record answers"
        )
    buckets = arguments.whole("num_buckets", event.num_buckets)
    noise = arguments.real("noise_parameter", event.noise_parameter, least=0.0, most=1.0)
    if buckets == 1 or noise == 1.0:
        return None
    return RandomizedResponse(noise, buckets) if noise else NOT_PRIVATE


def _sampled(steps: Steps, rate: float) -> Steps:
    """What happens to the same Poisson sample: expressible if it is one release, or equals one."""
    if not steps or rate == 0.0:
        return []
    if rate == 1.0 or any(step is NOT_PRIVATE for step, _ in steps):
        return steps
    if len(steps) == 1 and steps[0][1] == 1:
        step = steps[0][0]
        if isinstance(step, PoissonSampled):
            return [(PoissonSampled(step.mechanism, step.rate * rate), 1)]
        return [(PoissonSampled(cast(Any, step), rate), 1)]
    if not all(_is_gaussian(step) for step, _ in steps):
        raise ValueError(
            "event must draw a sample for each release, got several releases of one Poisson sample that "
            "are not all Gaussian; their joint loss is not a composition"
        )
    return [(PoissonSampled(AdditiveNoise(Gaussian(std=_joint_std(steps))), rate), 1)]


def _is_gaussian(step: Step) -> bool:
    return isinstance(step, AdditiveNoise) and step.noise.beta == 2.0


def _joint_std(steps: Steps) -> float:
    """The noise of several Gaussian releases of v as one: N(sum of v / sigma_i^2) is sufficient for v. It is
    rounded to the private side."""
    precisions = (times / step.noise.std**2 for step, times in steps if isinstance(step, AdditiveNoise))
    return (1.0 - 1e-15) / math.sqrt(math.fsum(precisions))


def with_one_gaussian(steps: Steps) -> Steps:
    """The same releases, those with Gaussian noise and without sampling as one, where it has noise enough."""
    gaussian = [(step, times) for step, times in steps if _is_gaussian(step)]
    if not gaussian or sum(times for _, times in gaussian) == 1:
        return steps
    std = _joint_std(gaussian)
    multiplier = Gaussian(std=std).scale / math.sqrt(2.0)
    if not NOISE_MULTIPLIER.least <= multiplier <= NOISE_MULTIPLIER.most:
        return steps
    others = [(step, times) for step, times in steps if not _is_gaussian(step)]
    return [*others, (AdditiveNoise(Gaussian(std=std)), 1)]


def _noise_event(google: Any, mechanism: AdditiveNoise) -> Any:
    noise, norm = mechanism.noise, mechanism.p
    if mechanism.shift is not None:
        raise ValueError("mechanism must not have a known shift, for which dp_accounting has no event")
    if noise.beta == 2.0:
        _known_norm(norm, 2.0, "GaussianDpEvent")
        return google.GaussianDpEvent(noise.scale / math.sqrt(2.0) / mechanism.sensitivity)
    if noise.beta == 1.0:
        _known_norm(norm, 1.0, "LaplaceDpEvent")
        return google.LaplaceDpEvent(noise.scale / mechanism.sensitivity)
    raise ValueError(
        f"beta must be 1 or 2 for an event of dp_accounting, got {noise.beta:g}; it has no event for other "
        "Generalized Gaussian noise"
    )


def _known_norm(norm: float | None, wanted: float, event: str) -> None:
    """A bound in a smaller norm bounds the larger norm too; not the other way round."""
    if norm is None or norm > wanted:
        raise ValueError(
            f"norm must be at most {wanted:g} for a {event}, which is about that norm, got {norm}; "
            "give the sensitivity in that norm"
        )
