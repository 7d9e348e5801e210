# SPDX-License-Identifier: Apache-2.0
"""Opacus with Generalized Gaussian noise: the engine, its optimizer and the accountant "ggdp"."""

from ggdp.training.opacus.accountant import Entry, GGAccountant, registered
from ggdp.training.opacus.engine import GGPrivacyEngine
from ggdp.training.opacus.optimizer import DistributedGGOptimizer, GGOptimizer

registered()

__all__ = ["DistributedGGOptimizer", "Entry", "GGAccountant", "GGOptimizer", "GGPrivacyEngine"]
