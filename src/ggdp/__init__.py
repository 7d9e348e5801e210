# SPDX-License-Identifier: Apache-2.0
"""Differential privacy with Generalized Gaussian noise."""

from ggdp.accounting import Accountant, Bounds, Estimate, delta, epsilon, privacy_curve, renyi_divergence
from ggdp.calibration import calibrate_rate, calibrate_scale, calibrate_steps, tail_weight_at
from ggdp.distributions import Gaussian, GeneralizedGaussian, Laplace, SecureGenerator, secure_generator
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, PoissonSampled, release
from ggdp.selection import noisy_argmax

__all__ = [
    "Accountant",
    "AdditiveNoise",
    "Adjacency",
    "Bounds",
    "Composed",
    "Estimate",
    "Gaussian",
    "GeneralizedGaussian",
    "Laplace",
    "PoissonSampled",
    "SecureGenerator",
    "calibrate_rate",
    "calibrate_scale",
    "calibrate_steps",
    "delta",
    "epsilon",
    "noisy_argmax",
    "privacy_curve",
    "release",
    "renyi_divergence",
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
