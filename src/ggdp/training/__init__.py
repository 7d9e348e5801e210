# SPDX-License-Identifier: Apache-2.0
"""beta-DP-SGD: train any PyTorch model with Generalized Gaussian noise and l_p clipping."""

from ggdp.errors import (
    CheckpointError,
    NonFiniteGradientError,
    NotPoissonError,
    OtherProcessError,
    ParameterError,
    SelfCheckError,
    UnsupportedModelError,
)
from ggdp.training.audit import AuditResult, audit
from ggdp.training.fit import accuracy_on, fit
from ggdp.training.noise_check import NoiseCheck, check_noise
from ggdp.training.optimizer import PrivateOptimizer
from ggdp.training.plan import Plan, plan_training
from ggdp.training.poisson_batches import PoissonBatches
from ggdp.training.private import Private, make_private
from ggdp.training.report import EpochRow, FitReport

__all__ = [
    "AuditResult",
    "CheckpointError",
    "EpochRow",
    "FitReport",
    "NoiseCheck",
    "NonFiniteGradientError",
    "NotPoissonError",
    "OtherProcessError",
    "ParameterError",
    "Plan",
    "PoissonBatches",
    "Private",
    "PrivateOptimizer",
    "SelfCheckError",
    "UnsupportedModelError",
    "accuracy_on",
    "audit",
    "check_noise",
    "fit",
    "make_private",
    "plan_training",
]
