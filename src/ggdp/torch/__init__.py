# SPDX-License-Identifier: Apache-2.0
"""Generalized Gaussian noise for PyTorch: `sample`, `add_noise_` and the generator they take by default.

>>> import torch
>>> from ggdp import GeneralizedGaussian
>>> gradients = [torch.zeros(3, 4), torch.zeros(5)]
>>> _ = add_noise_(gradients, GeneralizedGaussian(beta=1.5, scale=2.0))
"""

from ggdp.distributions.pytorch import add_noise_, sample
from ggdp.distributions.secure import SecureGenerator, secure_generator

__all__ = ["SecureGenerator", "add_noise_", "sample", "secure_generator"]
