# SPDX-License-Identifier: Apache-2.0
"""Differential privacy with Generalized Gaussian noise."""

from ggdp.distributions import Gaussian, GeneralizedGaussian, Laplace
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, PoissonSampled

__all__ = [
    "AdditiveNoise",
    "Adjacency",
    "Composed",
    "Gaussian",
    "GeneralizedGaussian",
    "Laplace",
    "PoissonSampled",
]
