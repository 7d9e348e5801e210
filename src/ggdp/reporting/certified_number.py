# SPDX-License-Identifier: Apache-2.0
"""Certified bounds of epsilon or of delta, read back from a record, and their words."""

import math
from dataclasses import dataclass

from ggdp.reporting.record_fields import Fields
from ggdp.reporting.rounding import rounded_down, rounded_up

_MOST = {"epsilon": math.inf, "delta": 1.0}


@dataclass(frozen=True)
class CertifiedNumber:
    """The truth lies in [lower, upper].

    Attributes:
        name: epsilon or delta.
        upper: None where no upper bound could be certified; the others then say nothing.
        lower: no more than the truth.
        estimate: the best single value, where the record has one.
    """

    name: str
    upper: float | None
    lower: float = 0.0
    estimate: float | None = None

    def sentences(self, method: str) -> tuple[str, ...]:
        """What is proved."""
        if self.upper is None:
            return (f"No upper bound of {self.name} could be certified (method: {method}).",)
        return (
            f"The true {self.name} is at most {rounded_up(self.upper, 8)} and at least "
            f"{rounded_down(self.lower, 8)}: certified, all numerical error included (method: {method}).",
        )

    def best_value(self) -> tuple[str, ...]:
        """What is not."""
        if self.estimate is None:
            return ()
        return (f"The best single value of {self.name} is {self.estimate:.8g}; publish the upper bound.",)


def certified_number(name: str, bounds: Fields) -> CertifiedNumber:
    """Read the bounds of epsilon or delta as `bounds_record` wrote them."""
    if "upper" in bounds and not bounds.holds("upper"):  # an infinite bound is written as null
        return CertifiedNumber(name, None)
    upper = bounds.real("upper", least=0.0, most=_MOST[name])
    lower = bounds.real("lower", most=upper)
    estimate = bounds.real("estimate", least=lower, most=upper) if bounds.holds("estimate") else None
    return CertifiedNumber(name, upper, lower, estimate)
