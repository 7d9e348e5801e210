# SPDX-License-Identifier: Apache-2.0
"""What many releases cost: `account` builds a privacy profile, which answers epsilon and delta."""

from ggdp.accounting.bounds import Bounds, ErrorLedger, Estimate
from ggdp.accounting.formats.dp_events import from_dp_event, to_dp_event
from ggdp.accounting.formats.opacus_history import from_opacus_state_dict
from ggdp.accounting.gdp import GaussianPrivacy
from ggdp.accounting.ledger.accountant import Accountant, Budget
from ggdp.accounting.loss_law import PrivacyLoss, loss_sampler
from ggdp.accounting.monte_carlo import MonteCarloEstimate, monte_carlo_delta, monte_carlo_epsilon
from ggdp.accounting.profile import PrivacyProfile, account, delta, epsilon, privacy_curve
from ggdp.accounting.risk import AttackSuccess, Risk, attack_success, gdp_mu, trade_off
from ggdp.accounting.vectors.renyi import renyi_divergence
from ggdp.accounting.vectors.renyi_conversion import renyi_epsilon
from ggdp.errors import BudgetExceededError

__all__ = [
    "Accountant",
    "AttackSuccess",
    "Bounds",
    "Budget",
    "BudgetExceededError",
    "ErrorLedger",
    "Estimate",
    "GaussianPrivacy",
    "MonteCarloEstimate",
    "PrivacyLoss",
    "PrivacyProfile",
    "Risk",
    "account",
    "attack_success",
    "delta",
    "epsilon",
    "from_dp_event",
    "from_opacus_state_dict",
    "gdp_mu",
    "loss_sampler",
    "monte_carlo_delta",
    "monte_carlo_epsilon",
    "privacy_curve",
    "renyi_divergence",
    "renyi_epsilon",
    "to_dp_event",
    "trade_off",
]
