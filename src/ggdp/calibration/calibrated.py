# SPDX-License-Identifier: Apache-2.0
"""The answer of a calibration: a run of noisy steps, and the privacy it certifiably has."""

import math
from dataclasses import dataclass

from ggdp.accounting import Bounds
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise, Composed, Mechanism, PoissonSampled
from ggdp.mechanisms.composed import Part


@dataclass(frozen=True)
class Calibrated:
    """A run of `steps` noisy steps, each on a Poisson sample with `rate`, that meets a target.

    Attributes:
        step: the noisy step, before sampling.
        rate: Poisson sampling probability of each step.
        steps: how many.
        delta: the target's.
        achieved: certified bounds of epsilon at `delta`; `achieved.upper` is at most the target.
        sharp: whether the next less private setting (one step more, or 4e-7 less scale or more rate)
            certifiably misses the target. False where the accountant's own bounds straddle the target there,
            or where there is no next one.
        alongside: other releases on the same data that the target covers too, as pairs (mechanism, times).
    """

    step: AdditiveNoise
    rate: float
    steps: int
    delta: float
    achieved: Bounds
    sharp: bool
    alongside: tuple[Part, ...] = ()

    @property
    def noise(self) -> GeneralizedGaussian:
        """The noise of each step."""
        return self.step.noise

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
        """All that the target covers, as an accountant reads it."""
        return run_of(self.step, self.rate, self.steps, self.alongside)


def run_of(step: AdditiveNoise, rate: float, steps: int, alongside: tuple[Part, ...] = ()) -> Mechanism:
    """The plainest description of a run: no sampling at rate 1, no composition of one step alone."""
    sampled = step if rate == 1.0 else PoissonSampled(step, rate)
    if alongside:
        return Composed([(sampled, steps), *alongside])
    return sampled if steps == 1 else Composed(sampled, times=steps)
