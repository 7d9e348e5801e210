# SPDX-License-Identifier: Apache-2.0
"""Laplace noise at the edge of pure privacy: the event that every release shows its largest loss.

A Laplace loss equals its supremum with positive probability. With p the probability that all releases do,
and s the sum of the suprema, delta(eps) >= p (1 - e^(eps - s)) and delta(s) = 0. So for a delta far below p,
epsilon lies in [s + log(1 - delta/p), s], an interval no wider than about delta/p.
"""

import math

from ggdp.accounting.bounds import Bounds
from ggdp.accounting.engines.tilt import Parts
from ggdp.privacy_loss.hockey_stick import survivals


def epsilon_bounds(parts: Parts, log_delta: float) -> Bounds | None:
    """Certified epsilon at a delta, if every release has a top atom and delta is below their joint mass."""
    if any(pair.beta != 1.0 or math.isfinite(pair.cut) for pair, _ in parts):
        return None
    log_mass = 0.0
    for pair, times in parts:
        up, _, still = survivals(pair, pair.up)
        log_mass += times * math.log((1.0 - pair.rate) * still + pair.rate * up)
    share = log_delta - log_mass * (1.0 + 1e-12) + 1e-12
    if share >= 0.0:
        return None
    total = sum(times * pair.supremum for pair, times in parts)
    slack = 4.0 * 2.0**-53 * total  # of the sum itself
    lower = max(total + math.log1p(-math.exp(share)) - slack, 0.0)
    return Bounds(lower, max(lower, total), total + slack, "top atom")
