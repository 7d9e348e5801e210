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


@dataclass(frozen=True)
class AtomCurve:
    """delta(eps) = sum of mass (1 - e^(eps - loss)) over finite losses above eps; others are added later."""

    atoms: Atoms

    @cached_property
    def _positive(self) -> tuple[Array, Array]:
        """Positive losses and their masses."""
        kept = self.atoms.loss > 0.0
        return self.atoms.loss[kept], self.atoms.mass[kept]

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon, minus infinity from the largest loss on."""
        loss, mass = self._positive
        start = int(np.searchsorted(loss, epsilon, side="right"))
        if start == len(loss):
            return LogDelta(-math.inf, -math.inf, -math.inf, 0.0, ErrorLedger())
        # every term is positive, and no large number meets a small one
        loss, mass = loss[start:], mass[start:]
        value = max(float(mass @ -np.expm1(epsilon - loss)), 5e-324)
        error = (len(loss) + 16.0) * _UNIT_ROUNDOFF * value + len(loss) * 5e-324
        known = value > error
        slip = 4.0 * _UNIT_ROUNDOFF * (1.0 + abs(math.log(value)))  # of the logarithm itself
        far = float(mass @ np.exp(epsilon - loss))
        return LogDelta(
            lower=math.log(value - error) - slip if known else -math.inf,
            estimate=math.log(value),
            upper=math.log(value + error) + slip,
            slope=-far / value,
            ledger=ErrorLedger(roundoff=error / value),
        )
