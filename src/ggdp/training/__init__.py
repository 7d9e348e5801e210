# SPDX-License-Identifier: Apache-2.0
"""beta-DP-SGD: train any PyTorch model with Generalized Gaussian noise and l_p clipping."""

from ggdp.training.audit import AuditResult, audit
from ggdp.training.checkpoint import CheckpointError
from ggdp.training.clipping import NonFiniteGradientError, SelfCheckError, UnsupportedModelError
from ggdp.training.fit import accuracy_on, fit
from ggdp.training.noise_check import NoiseCheck, check_noise
from ggdp.training.optimizer import ParameterError, PrivateOptimizer
from ggdp.training.plan import Plan, plan_training
from ggdp.training.poisson_batches import NotPoissonError, PoissonBatches
from ggdp.training.private import Private, make_private
from ggdp.training.process_group import OtherProcessError
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
