# SPDX-License-Identifier: Apache-2.0
"""One release with a discrete loss: delta is a sum over its atoms."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ggdp.accounting.bounds import ErrorLedger
from ggdp.accounting.curve import LogDelta
from ggdp.privacy_loss.cells import Atoms
from ggdp.privacy_loss.shift_pair import Array

_UNIT_ROUNDOFF = 2.0**-53
_LARGE = 600.0


@dataclass(frozen=True)
class AtomCurve:
    """delta(eps) = sum of mass (1 - e^(eps - loss)) over finite losses above eps; others are added later."""

    atoms: Atoms

    @cached_property
    def _sums(self) -> tuple[Array, Array, Array]:
        """Positive losses, and for each the masses from it on under P and under Q."""
        kept = self.atoms.loss > 0.0
        loss, mass = self.atoms.loss[kept], self.atoms.mass[kept]
        with np.errstate(under="ignore"):
            scaled = mass * np.exp(-loss)
        return loss, np.cumsum(mass[::-1])[::-1], np.cumsum(scaled[::-1])[::-1]

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon, minus infinity from the largest loss on."""
        loss, p, q = self._sums
        start = int(np.searchsorted(loss, epsilon, side="right"))
        if start == len(loss):
            return LogDelta(-math.inf, -math.inf, -math.inf, 0.0, ErrorLedger())
        far = float(q[start]) * math.exp(min(epsilon, _LARGE)) if epsilon <= _LARGE else 0.0
        value = max(float(p[start]) - far, 5e-324)
        # two running sums of positive terms, e^eps, and the rounding of each e^-loss
        ulps = len(loss) - start + 16.0 + abs(epsilon) + float(loss[-1])
        error = 2.0 * ulps * _UNIT_ROUNDOFF * float(p[start]) + 5e-324
        # beyond e^600 the Q-masses underflow: above, they are left out; below, nothing is claimed
        known = value > error and epsilon <= _LARGE
        return LogDelta(
            lower=math.log(value - error) if known else -math.inf,
            estimate=math.log(value),
            upper=math.log(value + error),
            slope=-far / value,
            ledger=ErrorLedger(roundoff=error / value),
        )
