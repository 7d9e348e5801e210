# SPDX-License-Identifier: Apache-2.0
"""What noise: the Generalized Gaussian family and how to draw from it."""

from ggdp.distributions.discrete import DiscreteGeneralizedGaussian
from ggdp.distributions.generalized_gaussian import Gaussian, GeneralizedGaussian, Laplace
from ggdp.distributions.secure import SecureGenerator, secure_generator
from ggdp.distributions.spherical import SphericalGeneralizedGaussian

__all__ = [
    "DiscreteGeneralizedGaussian",
    "Gaussian",
    "GeneralizedGaussian",
    "Laplace",
    "SecureGenerator",
    "SphericalGeneralizedGaussian",
    "secure_generator",
]
