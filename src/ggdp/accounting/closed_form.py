# SPDX-License-Identifier: Apache-2.0
"""One release: delta is the hockey-stick divergence itself."""

import math
from dataclasses import dataclass

import numpy as np

from ggdp.accounting.bounds import ErrorLedger
from ggdp.accounting.engines.curve import LogDelta
from ggdp.numerics import UNIT_ROUNDOFF
from ggdp.privacy_loss.hockey_stick import hockey_stick
from ggdp.privacy_loss.shift_pair import ShiftPair


@dataclass(frozen=True)
class ClosedForm:
    """The exact curve of one release, with its rounding error."""

    pair: ShiftPair

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon."""
        stick = hockey_stick(self.pair, np.array([epsilon]))
        value, error = max(float(stick.value[0]), 5e-324), float(stick.error[0]) + 5e-324
        slip = 4.0 * UNIT_ROUNDOFF * (1.0 + abs(math.log(value)))  # of the logarithm itself
        return LogDelta(
            lower=math.log(value - error) - slip if value > error else -math.inf,
            estimate=math.log(value),
            upper=math.log(value + error) + slip,
            slope=-float(stick.slope[0]) / value,
            ledger=ErrorLedger(roundoff=error / value),
        )

    def start(self, log_delta: float) -> float:
        """An epsilon close to the one asked for, by halving."""
        low, high = 0.0, min(self.pair.supremum, 4.0)
        while high < self.pair.supremum and self._is_above(high, log_delta):
            low, high = high, 4.0 * high
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._is_above(middle, log_delta) else (low, middle)
        return low

    def _is_above(self, epsilon: float, log_delta: float) -> bool:
        value = float(hockey_stick(self.pair, np.array([epsilon])).value[0])
        return value > 0.0 and math.log(value) > log_delta
