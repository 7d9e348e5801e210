# SPDX-License-Identifier: Apache-2.0
"""The Generalized Gaussian distribution, density proportional to exp(-(|x|/scale)^beta)."""

import math
from dataclasses import dataclass

from ggdp import arguments

BETA_RANGE = (1.0, 64.0)


@dataclass(frozen=True)
class GeneralizedGaussian:
    """Noise with density beta / (2 scale Gamma(1/beta)) * exp(-(|x|/scale)^beta)."""

    beta: float
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", arguments.real("beta", self.beta, least=BETA_RANGE[0], most=BETA_RANGE[1]))
        object.__setattr__(self, "scale", arguments.real("scale", self.scale, above=0.0))


def Laplace(scale: float) -> GeneralizedGaussian:
    """Laplace noise: beta = 1, density exp(-|x|/scale) / (2 scale)."""
    return GeneralizedGaussian(beta=1.0, scale=scale)


def Gaussian(std: float) -> GeneralizedGaussian:
    """Gaussian noise: beta = 2, scale = sqrt(2) * std."""
    return GeneralizedGaussian(beta=2.0, scale=math.sqrt(2.0) * arguments.real("std", std, above=0.0))
