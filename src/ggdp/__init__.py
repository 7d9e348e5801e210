# SPDX-License-Identifier: Apache-2.0
"""Differential privacy with Generalized Gaussian noise."""

from ggdp.accounting import (
    Accountant,
    Bounds,
    Estimate,
    SampledEstimate,
    delta,
    epsilon,
    loss_sampler,
    privacy_curve,
    renyi_divergence,
    sampled_delta,
    sampled_epsilon,
)
from ggdp.calibration import calibrate_rate, calibrate_scale, calibrate_steps, tail_weight_at
from ggdp.distributions import Gaussian, GeneralizedGaussian, Laplace, SecureGenerator, secure_generator
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, CustomMechanism, PoissonSampled, release
from ggdp.privacy_loss.custom import (
    DensityNoise,
    DensityPair,
    LossSurvival,
    OutcomeProbabilities,
    cells_of,
)
from ggdp.privacy_loss.density import Density, Mixture
from ggdp.selection import NoisyArgmax, noisy_argmax

__all__ = [
    "Accountant",
    "AdditiveNoise",
    "Adjacency",
    "Bounds",
    "Composed",
    "CustomMechanism",
    "Density",
    "DensityNoise",
    "DensityPair",
    "Estimate",
    "Gaussian",
    "GeneralizedGaussian",
    "Laplace",
    "LossSurvival",
    "Mixture",
    "NoisyArgmax",
    "OutcomeProbabilities",
    "PoissonSampled",
    "SampledEstimate",
    "SecureGenerator",
    "calibrate_rate",
    "calibrate_scale",
    "calibrate_steps",
    "cells_of",
    "delta",
    "epsilon",
    "loss_sampler",
    "noisy_argmax",
    "privacy_curve",
    "release",
    "renyi_divergence",
    "sampled_delta",
    "sampled_epsilon",
    "secure_generator",
    "tail_weight_at",
    "version",
]


def version() -> str:
    """The installed version, as the package's metadata have it."""
    from importlib import metadata

    try:
        return metadata.version("ggdp")
    except metadata.PackageNotFoundError:
        return "(a source tree that is not installed)"
