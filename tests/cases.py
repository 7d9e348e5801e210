# SPDX-License-Identifier: Apache-2.0
"""The table of cases: every noise and mechanism that the contract tests run over. A new one is a row."""

import math

import numpy as np

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    Density,
    DensityNoise,
    DiscreteGeneralizedGaussian,
    FixedSizeSampled,
    Gaussian,
    GaussianMixtureNoise,
    GeneralizedGaussian,
    GridNoise,
    Laplace,
    NoisyArgmax,
    OutcomeProbabilities,
    PoissonSampled,
    RandomAllocation,
    RandomlyTruncatedPoisson,
    Shuffled,
    SphericalGeneralizedGaussian,
    SphericalNoise,
    TruncatedPoisson,
)
from ggdp.privacy_loss.classical import (
    BoundedRange,
    DiscreteGaussianNoise,
    DiscreteLaplaceNoise,
    PrivacyGuarantee,
    RandomizedResponse,
)
from ggdp.selection import NoisyThreshold

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
    "known-shift": AdditiveNoise(GeneralizedGaussian(beta=4.0, scale=3.0), shift=(1, -1)),
    "rounded": AdditiveNoise(NOISES["between"], grid=0.25),
    "rounded-vector": AdditiveNoise(NOISES["between"], norm=1.0, dimension=7, grid=2),
    "grid": GridNoise(DiscreteGeneralizedGaussian(1.5, 12.5), sensitivity=2.0, dimension=math.inf),
    "fine-grid": GridNoise(DiscreteGeneralizedGaussian(2.0, 900.0), 0.7, 2.0**-8, 3, on_grid=False),
    "sampled": _STEP,
    "sampled-always": PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta=4.0, scale=3.0)), rate=1.0),
    "repeated": Composed(_STEP, times=5000),
    "fixed-size": Composed(FixedSizeSampled(AdditiveNoise(NOISES["between"]), 20, 1000), times=10),
    "with-replacement": FixedSizeSampled(AdditiveNoise(NOISES["between"]), 3, 50, replacement=True),
    "truncated": Composed(TruncatedPoisson(AdditiveNoise(NOISES["gaussian"]), 0.01, 60, 1000), times=100),
    "cut at random": RandomlyTruncatedPoisson(AdditiveNoise(NOISES["between"]), 0.2, 10, 50),
    "allocated": RandomAllocation(AdditiveNoise(NOISES["between"]), steps=30),
    "shuffled": Shuffled(AdditiveNoise(NOISES["between"]), steps=30),
    "mixed": Composed([(_STEP, 5000), (AdditiveNoise(NOISES["gaussian"]), 3)]),
}

CUSTOM = {
    "outcomes": OutcomeProbabilities((0.75, 0.25), (0.25, 0.75)),
    "gaussian-mixture": GaussianMixtureNoise((0.9, 0.1), (0.0, 0.0), (4.0, 8.0), shift=1.0),
    "guarantee": PrivacyGuarantee(epsilon=0.5, delta=1e-8),
    "bounded-range": BoundedRange(epsilon=0.5),
    "randomized-response": RandomizedResponse(noise=0.4, buckets=5),
    "discrete-laplace": DiscreteLaplaceNoise(decay=0.5, sensitivity=2),
    "discrete-gaussian": DiscreteGaussianNoise(sigma=3.0),
    "spherical": SphericalNoise(SphericalGeneralizedGaussian(beta=1.5, scale=4.0, dimension=50)),
    "spherical with a power": AdditiveNoise(SphericalGeneralizedGaussian(1.5, 4.0, 50, power=-2.0)),
    "density": DensityNoise(
        Density(lambda x: -np.abs(x) / 2.0 - math.log(4.0), breaks=(0.0,)), sensitivity=1.0
    ),
}
"""Mechanisms known by their laws, or by a description of them, and not by Generalized Gaussian noise."""

VOTES = {
    "argmax": NoisyArgmax(GeneralizedGaussian(beta=1.5, scale=4.0)),
    "argmax-add-remove": NoisyArgmax(Laplace(scale=4.0), adjacency=Adjacency.ADD_REMOVE),
    "threshold": NoisyThreshold(Gaussian(std=4.0)),
}
