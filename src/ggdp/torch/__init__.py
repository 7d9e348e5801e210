# SPDX-License-Identifier: Apache-2.0
"""For users of PyTorch: noise for tensors, and training with it.

>>> import torch
>>> from ggdp import GeneralizedGaussian
>>> gradients = [torch.zeros(3, 4), torch.zeros(5)]
>>> _ = add_noise_(gradients, GeneralizedGaussian(beta=1.5, scale=2.0))
"""

from ggdp.distributions.pytorch import add_noise_, sample
from ggdp.distributions.secure import SecureGenerator, secure_generator
from ggdp.errors import (
    CheckpointError,
    NonFiniteGradientError,
    NotPoissonError,
    OtherProcessError,
    ParameterError,
    SelfCheckError,
    UnsupportedModelError,
)
from ggdp.training import (
    AuditResult,
    NoiseCheck,
    Private,
    PrivateOptimizer,
    accuracy_on,
    audit,
    check_noise,
    fit,
    make_private,
)

__all__ = [
    "AuditResult",
    "CheckpointError",
    "NoiseCheck",
    "NonFiniteGradientError",
    "NotPoissonError",
    "OtherProcessError",
    "ParameterError",
    "Private",
    "PrivateOptimizer",
    "SecureGenerator",
    "SelfCheckError",
    "UnsupportedModelError",
    "accuracy_on",
    "add_noise_",
    "audit",
    "check_noise",
    "fit",
    "make_private",
    "sample",
    "secure_generator",
]
