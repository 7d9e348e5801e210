# SPDX-License-Identifier: Apache-2.0
"""The sampled accountant: epsilon of a composition whose loss can only be sampled. Never a guarantee.

The empirical law of n losses, rounded to a grid of spacing h and moved by the mean residual mu, is composed
`times` times, and delta(eps) = E[(1 - e^(eps - S))_+] read off. Writing k for `times` and p for the
probability of a loss beyond the histogram's b bins, the composed truth Y and the composed estimate Y'
satisfy |Y - Y'| <= tau with probability 1 - eta under a coupling, so that delta'(eps + tau) - eta <=
delta(eps) <= delta'(eps - tau) + eta, where

    eta = k p + 2 e^(-2 s^2 / (k h^2)) + k (t / 2 + sqrt(b / n) / 2),        tau = s + k r,

but for samples of probability e^(-n t^2 / 2) + 2 e^(-2 n r^2 / h^2) + (that of p's own bound). Derived in
docs/sampled-accountant.md, with what it changes in the algorithm as published. The term k sqrt(b / n) makes
it vacuous at most sizes that anyone can draw; the standard error is the useful number.
"""

import math
from dataclasses import dataclass

import numpy as np

from ggdp import arguments
from ggdp.accounting.bounds import Estimate
from ggdp.accounting.empirical_law import EmpiricalLaw
from ggdp.accounting.loss_histogram import LossHistogram, LossSampler, histogram, pilot_grid
from ggdp.accounting.steps import steps_of
from ggdp.mechanisms import AdditiveNoise, Adjacency, PoissonSampled
from ggdp.numerics import Array

FAILURE_PROB = 1e-6
_METHOD = "sampled losses"


@dataclass(frozen=True)
class SampledEstimate(Estimate):
    """An epsilon or a delta from sampled losses.

    Attributes:
        eta: of the theorem: what delta may be off by.
        tau: of the theorem: what epsilon may be off by.
        failure_prob: of drawing samples for which the theorem does not speak.
        printed_eta: eta as published, at least: its two tail probabilities are taken as zero.
        printed_tau: tau as published.
        num_samples: how many losses were drawn.
        mesh: spacing of the histogram.
        half_width: losses beyond this count as infinite.
    """

    eta: float = math.nan
    tau: float = math.nan
    failure_prob: float = math.nan
    printed_eta: float = math.nan
    printed_tau: float = math.nan
    num_samples: int = 0
    mesh: float = math.nan
    half_width: float = math.nan


def loss_sampler(
    mechanism: AdditiveNoise | PoissonSampled, direction: Adjacency = Adjacency.REMOVE
) -> LossSampler:
    """A sampler of the privacy loss of one release that the library knows; to try the sampled accountant on.

    Raises:
        ValueError: `direction` is not one direction, or the mechanism is not one scalar release.
    """
    arguments.one_of("direction", direction, (Adjacency.REMOVE, Adjacency.ADD, Adjacency.REPLACE))
    inner = mechanism.mechanism if isinstance(mechanism, PoissonSampled) else mechanism
    arguments.instance("mechanism", inner, AdditiveNoise)
    parts = steps_of(mechanism, direction).pairs()[0]
    if len(parts) != 1 or parts[0][1] != 1:
        raise ValueError(f"mechanism must be one release of a number, got {mechanism!r}")
    pair = parts[0][0]
    assert isinstance(inner, AdditiveNoise)
    noise, scale = inner.noise, inner.noise.scale

    def sample(count: int, rng: np.random.Generator) -> Array:
        z = np.asarray(noise.sample((count,), rng=rng), dtype=np.float64) / scale
        if pair.up:
            z += pair.up if pair.rate == 1.0 else pair.up * (rng.random(count) < pair.rate)
        return pair.loss(z)

    return sample


def sampled_epsilon(
    sampler: LossSampler,
    times: int,
    delta: float,
    num_samples: int,
    *,
    rng: np.random.Generator,
    mesh: float | None = None,
    half_width: float | None = None,
    progress: bool | None = None,
    workers: int = 2,
) -> SampledEstimate:
    """Estimate the epsilon of `times` releases at a delta, from samples of one release's privacy loss.

    Args:
        sampler: (count, rng) -> losses log P/Q at outcomes drawn from P.
        times: how often it is released.
        delta: in [1e-100, 0.5].
        num_samples: losses to draw; they are streamed.
        rng: a NumPy generator; equal generators give equal answers, whatever the number of workers.
        mesh: spacing of the histogram; by default 1/256 of the loss's standard deviation, from a pilot
            sample.
        half_width: losses beyond count as infinite (or, negative ones, as this low); by default twice the
            largest of the pilot.
        progress: show a bar; by default when standard error is a terminal and the samples are many.
        workers: threads that draw.

    Returns:
        An estimate with its standard error and the theorem's eta and tau. An interrupt from the keyboard ends
        the drawing; the answer is then that of the samples drawn.

    Raises:
        ValueError: an argument is out of range, or delta is below the sampled probability of infinite loss.

    >>> from ggdp import AdditiveNoise, Gaussian
    >>> sampler = loss_sampler(AdditiveNoise(Gaussian(std=5.0)))
    >>> found = sampled_epsilon(sampler, 10, 1e-5, 100_000, rng=np.random.default_rng(1))
    >>> abs(found.value - 2.585) < 4 * found.standard_error
    True
    """
    delta = arguments.real("delta", delta, least=1e-100, most=0.5)
    law = _empirical(sampler, times, num_samples, rng, mesh, half_width, progress, workers)
    infinite = law.infinite
    if infinite >= delta:
        raise ValueError(
            f"delta must exceed the sampled probability {infinite:g} of an infinite loss, got {delta:g}"
        )
    value = law.epsilon(delta)
    slope, error = law.sensitivity(value)
    return _answer(law, value, error / slope if slope > 0.0 else math.nan, delta)


def sampled_delta(
    sampler: LossSampler,
    times: int,
    epsilon: float,
    num_samples: int,
    *,
    rng: np.random.Generator,
    mesh: float | None = None,
    half_width: float | None = None,
    progress: bool | None = None,
    workers: int = 2,
) -> SampledEstimate:
    """Estimate the delta of `times` releases at an epsilon; arguments as for `sampled_epsilon`."""
    epsilon = arguments.real("epsilon", epsilon, least=0.0, most=2000.0)
    law = _empirical(sampler, times, num_samples, rng, mesh, half_width, progress, workers)
    value = law.delta(epsilon)
    return _answer(law, value, law.sensitivity(epsilon)[1], value)


def _empirical(
    sampler: LossSampler,
    times: int,
    num_samples: int,
    rng: np.random.Generator,
    mesh: float | None,
    half_width: float | None,
    progress: bool | None,
    workers: int,
) -> EmpiricalLaw:
    times = arguments.whole("times", times, most=10_000_000)
    num_samples = arguments.whole("num_samples", num_samples, least=1000)
    arguments.instance("rng", rng, np.random.Generator, hint="numpy.random.default_rng(seed)")
    workers = arguments.whole("workers", workers, most=256)
    planned_mesh, planned_width = (
        pilot_grid(sampler, rng) if mesh is None or half_width is None else (0.0, 0.0)
    )
    mesh = arguments.real("mesh", planned_mesh if mesh is None else mesh, above=0.0)
    half_width = arguments.real("half_width", planned_width if half_width is None else half_width, above=mesh)
    counted = histogram(sampler, num_samples, mesh, half_width, rng, progress=progress, workers=workers)
    return EmpiricalLaw(counted, times)


def _answer(law: EmpiricalLaw, value: float, standard_error: float, delta: float) -> SampledEstimate:
    counted = law.counted
    eta, tau = theorem(counted, law.times, delta)
    printed_eta, printed_tau = printed_theorem(counted, law.times, delta)
    if eta >= delta:
        says = f"the error theorem is vacuous here: its eta, {eta:.3g}, is not below delta, {delta:.3g}"
    else:
        sure = f"with probability {1.0 - FAILURE_PROB:g} over the samples"
        says = f"{sure} delta is off by at most {eta:.3g} and epsilon by {tau:.3g}"
    return SampledEstimate(
        value=value,
        method=_METHOD,
        caveat=f"estimated from {counted.num_samples} samples of the loss, not a bound; {says}",
        standard_error=standard_error,
        eta=eta,
        tau=tau,
        failure_prob=FAILURE_PROB,
        printed_eta=printed_eta,
        printed_tau=printed_tau,
        num_samples=counted.num_samples,
        mesh=counted.mesh,
        half_width=counted.half_width,
    )


def theorem(counted: LossHistogram, times: int, delta: float) -> tuple[float, float]:
    """(eta, tau), but for samples of probability `FAILURE_PROB`; rounding takes a hundredth of delta."""
    n, h, k = counted.num_samples, counted.mesh, float(times)
    log_failure = math.log(6.0 / FAILURE_PROB)
    outside = float(counted.above + counted.below)
    # Chernoff: n p <= c + l + sqrt(l^2 + 2 c l) unless c is unlikely small
    beyond = (outside + log_failure + math.sqrt(log_failure**2 + 2.0 * outside * log_failure)) / n
    rounding = 0.01 * max(delta, 1e-300)
    s = h * math.sqrt(0.5 * k * math.log(2.0 / rounding))
    t = math.sqrt(2.0 * log_failure / n)
    r = h * math.sqrt(0.5 * log_failure / n)
    bins = len(counted.counts) + 1
    return k * beyond + rounding + k * (0.5 * t + 0.5 * math.sqrt(bins / n)), s + k * r


def printed_theorem(counted: LossHistogram, times: int, delta: float) -> tuple[float, float]:
    """(eta, tau) as published, with n half of the samples, its tail probabilities taken as zero."""
    n, h, k = 0.5 * counted.num_samples, counted.mesh, float(times)
    half_width = counted.half_width
    rounding = 0.01 * max(delta, 1e-300)
    s = h * math.sqrt(0.5 * k * math.log(4.0 / rounding))
    t = max(half_width, 1.0) * math.sqrt(2.0 * math.log(12.0 * k / FAILURE_PROB) / n)
    learnt = math.sqrt(half_width / (n * h))
    eta = rounding + FAILURE_PROB + 2.0 * k * (t + learnt)
    tau = s + k * (t + 2.0 * half_width * (0.5 * t + learnt)) + 2.0 * k * (0.5 * t + learnt)
    return eta, tau
