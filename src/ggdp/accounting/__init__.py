# SPDX-License-Identifier: Apache-2.0
"""What many releases cost: two engines that check each other, and the questions asked of them."""

from ggdp.accounting.bounds import Bounds, ErrorLedger, Estimate
from ggdp.accounting.questions import delta, epsilon, privacy_curve

__all__ = ["Bounds", "ErrorLedger", "Estimate", "delta", "epsilon", "privacy_curve"]
