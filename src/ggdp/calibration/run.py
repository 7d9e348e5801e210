# SPDX-License-Identifier: Apache-2.0
"""A run of noisy steps: what is released, on which batches, how often; and one that meets a target."""

import math
from dataclasses import dataclass

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.distributions import GeneralizedGaussian, SphericalGeneralizedGaussian
from ggdp.mechanisms import (
    AdditiveNoise,
    Batched,
    Composed,
    Mechanism,
    PoissonSampled,
    Sampling,
    SphericalNoise,
)
from ggdp.mechanisms.composed import Part

Step = AdditiveNoise | SphericalNoise


class NoisyRun:
    """A run of noisy steps, given by its step, sampling rate, number of steps and other releases."""

    step: Step
    rate: float
    steps: int
    alongside: tuple[Part, ...]
    sampling: Sampling | None = None

    @property
    def beta(self) -> float:
        """Exponent of the noise."""
        return self.step.noise.beta

    @property
    def scale(self) -> float:
        """Scale of the noise."""
        return self.step.noise.scale

    @property
    def noise_multiplier(self) -> float:
        """scale / (sqrt(2) * sensitivity); at beta = 2 the standard deviation over the sensitivity."""
        return self.scale / (math.sqrt(2.0) * self.step.sensitivity)

    @property
    def mechanism(self) -> Mechanism:
        """Everything released that the target is about, as one mechanism."""
        return run_of(self.step, self.rate, self.steps, self.alongside, self.sampling)


@dataclass(frozen=True)
class Calibrated(NoisyRun):
    """The result of a calibration: a run of noisy steps on Poisson samples that meets a target.

    Attributes:
        step: the noisy step, before sampling.
        rate: the probability of each record to take part in a step.
        steps: how many.
        delta: the target's.
        achieved: certified bounds of epsilon at `delta`; `achieved.upper` is at most the target.
        sharp: whether the next less private setting (one step more, or less scale or more rate by the
            tolerance, 4e-7 unless another was asked for) certifiably misses the target. False where the
            accountant's own bounds lie on both sides of the target there, where there is no next setting, or
            where it was not tried, as by `best_noise`.
        alongside: other releases on the same data that the target covers too, as pairs (mechanism, times).
        sampling: how batches are drawn, where they are not Poisson samples at `rate`.
    """

    step: AdditiveNoise
    rate: float
    steps: int
    delta: float
    achieved: Bounds
    sharp: bool
    alongside: tuple[Part, ...] = ()
    sampling: Sampling | None = None

    @property
    def noise(self) -> GeneralizedGaussian:
        """The noise of each coordinate."""
        return self.step.noise


@dataclass(frozen=True)
class CalibratedSpherical(NoisyRun):
    """The result of a calibration of spherical noise: a run of noisy steps that meets a target.

    It is as `Calibrated`, and `sharp` is about a scale smaller by 1e-5.
    """

    step: SphericalNoise
    rate: float
    steps: int
    delta: float
    achieved: Bounds
    sharp: bool
    alongside: tuple[Part, ...] = ()
    sampling: Sampling | None = None

    @property
    def noise(self) -> SphericalGeneralizedGaussian:
        """The noise of the whole vector."""
        return self.step.noise


AnyCalibrated = Calibrated | CalibratedSpherical


def check_sampling(sampling: Sampling | None) -> None:
    """Raise an error for anything but a `Sampling`, such as its name."""
    if sampling is not None:
        arguments.instance("sampling", sampling, Sampling, hint="Sampling.parse reads one from text")


def run_of(
    step: Step,
    rate: float,
    steps: int,
    alongside: tuple[Part, ...] = (),
    sampling: Sampling | None = None,
) -> Mechanism:
    """The simplest mechanism for a run: no sampling if the rate is 1, no `Composed` if there is one step.

    With a `sampling`, batches are drawn in that way and the rate must be 1.
    """
    sampled: Step | PoissonSampled | Batched
    if sampling is None:
        sampled = step if rate == 1.0 else PoissonSampled(step, rate)
    elif rate != 1.0:
        raise ValueError(f"rate must be left out where sampling says how batches are drawn, got {rate:g}")
    else:
        sampled, steps = sampling.of(step), sampling.draws(steps)
    if alongside:
        return Composed([(sampled, steps), *alongside])
    return sampled if steps == 1 else Composed(sampled, times=steps)
