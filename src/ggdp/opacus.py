# SPDX-License-Identifier: Apache-2.0
"""For users of Opacus: a drop-in `GGPrivacyEngine`, and the accountant "ggdp", registered by this import.

>>> from opacus.accountants import create_accountant
>>> create_accountant("ggdp").get_epsilon(delta=1e-5)
0.0
"""

from ggdp.training.opacus import DistributedGGOptimizer, GGAccountant, GGOptimizer, GGPrivacyEngine

__all__ = ["DistributedGGOptimizer", "GGAccountant", "GGOptimizer", "GGPrivacyEngine"]
