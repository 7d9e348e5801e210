# SPDX-License-Identifier: Apache-2.0
"""Differential privacy with Generalized Gaussian noise."""

from ggdp.distributions import Gaussian, GeneralizedGaussian, Laplace
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, PoissonSampled, release
from ggdp.selection import noisy_argmax

__all__ = [
    "AdditiveNoise",
    "Adjacency",
    "Composed",
    "Gaussian",
    "GeneralizedGaussian",
    "Laplace",
    "PoissonSampled",
    "noisy_argmax",
    "release",
    "version",
]


def version() -> str:
    """The installed version, as the package's metadata have it."""
    from importlib import metadata

    try:
        return metadata.version("ggdp")
    except metadata.PackageNotFoundError:
        return "(a source tree that is not installed)"
