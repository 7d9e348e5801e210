# SPDX-License-Identifier: Apache-2.0
"""The table of cases: every noise and mechanism that the contract tests run over. A new one is a row."""

import math

from ggdp import (
    AdditiveNoise,
    Composed,
    DiscreteGeneralizedGaussian,
    Gaussian,
    GeneralizedGaussian,
    GridNoise,
    Laplace,
    PoissonSampled,
)

NOISES = {
    "laplace": Laplace(scale=0.7),
    "nearly-laplace": GeneralizedGaussian(beta=1.0 + 1e-9, scale=1.0),
    "between": GeneralizedGaussian(beta=1.5, scale=2.83),
    "gaussian": Gaussian(std=3.3),
    "flat": GeneralizedGaussian(beta=4.0, scale=0.1),
    "flatter": GeneralizedGaussian(beta=17.3, scale=12345.678),
    "nearly-uniform": GeneralizedGaussian(beta=64.0, scale=1e-3),
    "tiny": GeneralizedGaussian(beta=1.25, scale=1e-100),
    "huge": GeneralizedGaussian(beta=2.5, scale=1e100),
}

_STEP = PoissonSampled(AdditiveNoise(NOISES["between"]), rate=0.01)

MECHANISMS = {
    "scalar": AdditiveNoise(NOISES["laplace"]),
    "sensitive": AdditiveNoise(NOISES["gaussian"], sensitivity=0.25, norm=2.0),
    "largest-coordinate": AdditiveNoise(NOISES["between"], norm=math.inf),
    "vector": AdditiveNoise(NOISES["between"], norm=2.0, dimension=100),
    "any-dimension": AdditiveNoise(NOISES["laplace"], norm=1.0, dimension=math.inf),
    "matched-norm": AdditiveNoise(NOISES["between"], norm="matched", dimension=10),
    "known-shift": AdditiveNoise(NOISES["flat"], shift=(1, -1)),
    "rounded": AdditiveNoise(NOISES["between"], grid=0.25),
    "rounded-vector": AdditiveNoise(NOISES["between"], norm=1.0, dimension=7, grid=2),
    "grid": GridNoise(DiscreteGeneralizedGaussian(1.5, 12.5), sensitivity=2.0, dimension=math.inf),
    "fine-grid": GridNoise(DiscreteGeneralizedGaussian(2.0, 900.0), 0.7, 2.0**-8, 3, on_grid=False),
    "sampled": _STEP,
    "sampled-always": PoissonSampled(AdditiveNoise(NOISES["flat"]), rate=1.0),
    "repeated": Composed(_STEP, times=5000),
    "mixed": Composed([(_STEP, 5000), (AdditiveNoise(NOISES["gaussian"]), 3)]),
}
