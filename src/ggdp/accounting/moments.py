# SPDX-License-Identifier: Apache-2.0
"""The wide answer that always exists: Chernoff above, one release below.

Used only where no engine certifies its own error. Above, delta(eps) <= e^{K(theta) - theta eps} sup_x (1 -
e^-x) e^{-theta x} for any theta > 0, with K certified by quadrature. Below, a composition is at least as
revealing as any one of its releases.
"""

import math

import numpy as np

from ggdp.accounting.closed_form import ClosedForm
from ggdp.accounting.tilt import Parts, TiltPlan
from ggdp.privacy_loss.hockey_stick import hockey_stick
from ggdp.privacy_loss.quadrature import certified_nodes


def log_chernoff_constant(theta: float) -> float:
    """log of sup over x > 0 of (1 - e^-x) e^{-theta x}."""
    return theta * math.log(theta) - (1.0 + theta) * math.log1p(theta) if theta > 0.0 else 0.0


def log_delta_above(parts: Parts, plan: TiltPlan, theta: float, epsilon: float) -> float:
    """A certified upper bound of log delta at epsilon, from one tilt."""
    return min(_certified_cumulant(parts, plan, theta) - theta * epsilon + log_chernoff_constant(theta), 0.0)


def epsilon_above(parts: Parts, plan: TiltPlan, theta: float, log_delta: float) -> float:
    """A certified upper bound of the epsilon at a delta, from one tilt."""
    bound = _certified_cumulant(parts, plan, theta) + log_chernoff_constant(theta) - log_delta
    return max(bound / theta, 0.0)


def _certified_cumulant(parts: Parts, plan: TiltPlan, theta: float) -> float:
    total = 0.0
    for (pair, times), log_phi in zip(parts, plan.log_phis(theta), strict=True):
        nodes = certified_nodes(pair, (theta,), 0.0, (float(log_phi),))
        total += times * (nodes.log_phi[0] + nodes.quadrature[0] + nodes.roundoff[0])
    return total


def epsilon_below(parts: Parts, log_delta: float) -> float:
    """A certified lower bound of the epsilon at a delta: the best single release."""
    best = 0.0
    for pair, _ in parts:
        curve = ClosedForm(pair)
        point = curve.start(log_delta) * (1.0 - 1e-9)
        if point > best and curve.log_delta(point).lower >= log_delta:
            best = point
    return best


def log_delta_below(parts: Parts, epsilon: float) -> float:
    """A certified lower bound of log delta at epsilon: the best single release."""
    return max(ClosedForm(pair).log_delta(epsilon).lower for pair, _ in parts)


def log_total_variation_above(parts: Parts) -> float:
    """log of the sum of every release's total variation, which that of the composition cannot exceed."""
    total = 0.0
    for pair, times in parts:
        stick = hockey_stick(pair, np.zeros(1))
        total += times * float(stick.value[0] + stick.error[0])
    return math.log(total)
