# SPDX-License-Identifier: Apache-2.0
"""A mechanism run on a Poisson sample of the records."""

from dataclasses import dataclass

from ggdp import arguments
from ggdp.mechanisms.additive_noise import AdditiveNoise


@dataclass(frozen=True)
class PoissonSampled:
    """Keep every record independently with probability `rate`, then run `mechanism` on those kept."""

    mechanism: AdditiveNoise
    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", arguments.real("rate", self.rate, above=0.0, most=1.0))
