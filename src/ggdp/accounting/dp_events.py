# SPDX-License-Identifier: Apache-2.0
"""To and from the events of Google's `dp_accounting`, in the optional extra `interop`.

| event | mechanism | the same because |
|---|---|---|
| `GaussianDpEvent(sigma)` | `AdditiveNoise(Gaussian(std=sigma))` | l2 sensitivity 1, exact by rotation |
| `LaplaceDpEvent(b)` | `AdditiveNoise(Laplace(scale=b))` | l1 sensitivity 1, one coordinate is worst |
| `PoissonSampledDpEvent(q, ...)` | `PoissonSampled(..., rate=q)` | the same words |
| ... sampled twice, q then p | `rate = q * p` | independent coins multiply |
| ... several Gaussians on one sample | one Gaussian | their sum weighted by 1/sigma^2 is sufficient |
| `ComposedDpEvent`, `SelfComposedDpEvent` | `Composed` | the same words |
| `NoOpDpEvent` in a composition | left out | it releases nothing |

Everything else is refused with the reason. Events carry no adjacency: choose it when asking for epsilon.
"""

import math
from typing import Any

from ggdp import arguments
from ggdp.distributions import Gaussian, Laplace
from ggdp.mechanisms import AdditiveNoise, Composed, Mechanism, PoissonSampled

Steps = list[tuple[AdditiveNoise | PoissonSampled, int]]


def from_dp_event(event: Any) -> Mechanism:
    """The mechanism that a `dp_accounting.DpEvent` describes.

    Raises:
        ValueError: The event has no equal here, or releases nothing.
        ImportError: `dp_accounting` is not installed.

    >>> import dp_accounting
    >>> step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
    >>> mechanism = from_dp_event(dp_accounting.SelfComposedDpEvent(step, 5000))
    >>> mechanism == Composed(PoissonSampled(AdditiveNoise(Gaussian(std=1.0)), rate=0.01), times=5000)
    True
    """
    steps = _steps(_library(), event)
    if not steps:
        raise ValueError("event must release something, got one that releases nothing; leave it out")
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
        case Composed(parts=((step, times),)):
            return google.SelfComposedDpEvent(to_dp_event(step), times)
        case Composed(parts=parts):
            events = [google.SelfComposedDpEvent(to_dp_event(step), times) for step, times in parts]
            return google.ComposedDpEvent(events)
        case _:
            arguments.instance("mechanism", mechanism, (AdditiveNoise, PoissonSampled, Composed))
            raise AssertionError("unreachable")


def _library() -> Any:
    try:
        from dp_accounting import dp_event
    except ImportError as error:
        raise ImportError(
            "events of Google's dp_accounting need that package: pip install 'ggdp[interop]'"
        ) from error
    return dp_event


def _steps(google: Any, event: Any) -> Steps:
    """The releases of an event with their counts; none for an event that releases nothing."""
    match event:
        case google.NoOpDpEvent():
            return []
        case google.GaussianDpEvent():
            std = arguments.real("noise_multiplier", event.noise_multiplier, above=0.0, hint=_NO_NOISE)
            return [(AdditiveNoise(Gaussian(std=std)), 1)]
        case google.LaplaceDpEvent():
            scale = arguments.real("noise_multiplier", event.noise_multiplier, above=0.0, hint=_NO_NOISE)
            return [(AdditiveNoise(Laplace(scale=scale)), 1)]
        case google.PoissonSampledDpEvent():
            rate = arguments.real("sampling_probability", event.sampling_probability, least=0.0, most=1.0)
            return _sampled(_steps(google, event.event), rate)
        case google.SelfComposedDpEvent():
            count = arguments.whole("count", event.count, least=0)
            return [(step, times * count) for step, times in _steps(google, event.event)] if count else []
        case google.ComposedDpEvent():
            return [pair for inner in event.events for pair in _steps(google, inner)]
        case google.NonPrivateDpEvent():
            raise ValueError("event must be private, got NonPrivateDpEvent; no epsilon is finite for it")
        case google.DpEvent():
            raise ValueError(
                f"event must be Gaussian or Laplace noise, Poisson-sampled or not, or composed of these, "
                f"got {type(event).__name__}; no mechanism here means the same"
            )
        case _:
            arguments.instance("event", event, google.DpEvent)
            raise AssertionError("unreachable")


_NO_NOISE = "an event without noise is not private"


def _sampled(steps: Steps, rate: float) -> Steps:
    """What happens to the same Poisson sample: expressible if it is one release, or equals one."""
    if not steps or rate == 0.0:
        return []
    if len(steps) == 1 and steps[0][1] == 1:
        step = steps[0][0]
        if isinstance(step, PoissonSampled):
            return [(PoissonSampled(step.mechanism, step.rate * rate), 1)]
        return [(PoissonSampled(step, rate) if rate < 1.0 else step, 1)]
    if rate == 1.0:
        return steps
    if all(isinstance(step, AdditiveNoise) and step.noise.beta == 2.0 for step, _ in steps):
        # N(sum of v / sigma_i^2) is sufficient for v, and its noise multiplier is the one below
        precision = math.fsum(
            times / step.noise.std**2 for step, times in steps if isinstance(step, AdditiveNoise)
        )
        return [(PoissonSampled(AdditiveNoise(Gaussian(std=precision**-0.5)), rate), 1)]
    raise ValueError(
        "event must draw a sample for each release, got several releases of one Poisson sample that "
        "are not all Gaussian; their joint loss is not a composition"
    )


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
