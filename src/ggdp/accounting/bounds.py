# SPDX-License-Identifier: Apache-2.0
"""What an accountant may answer: certified `Bounds`, or an `Estimate` that promises nothing.

The two are unrelated types on purpose: a function that needs a guarantee takes `Bounds` and cannot be handed
the other.
"""

import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ErrorLedger:
    """Bounds on the numerical errors of an answer by their source, relative to delta at the answer.

    Attributes:
        truncation: the part of an integral or of a loss distribution that is not computed.
        aliasing: shifted copies of the curve, which a sum in place of an integral adds.
        quadrature: integrals over the noise of one release that are replaced by sums.
        roundoff: floating-point arithmetic.
        discretization: losses moved to the points of a lattice.
    """

    truncation: float = 0.0
    aliasing: float = 0.0
    quadrature: float = 0.0
    roundoff: float = 0.0
    discretization: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all."""
        return self.truncation + self.aliasing + self.quadrature + self.roundoff + self.discretization


@dataclass(frozen=True)
class Bounds:
    """A certified answer: the true number lies between `lower` and `upper`, rounding errors included.

    Functions of the accountant return it. Publish `upper`.

    Attributes:
        lower: no more than the truth.
        estimate: the best single value; it is not a guarantee.
        upper: no less than the truth.
        method: the name of the method that found the answer; docs/what-is-proved.md lists them.
        ledger: the numerical errors whose bounds make up the width, by name.

    >>> from ggdp import AdditiveNoise, Laplace, epsilon
    >>> cost = epsilon(AdditiveNoise(Laplace(scale=2.0)), delta=0)
    >>> cost.lower, cost.upper
    (0.5, 0.5)
    """

    lower: float
    estimate: float
    upper: float
    method: str
    ledger: ErrorLedger = field(default_factory=ErrorLedger, repr=False)

    def __post_init__(self) -> None:
        if not self.lower <= self.estimate <= self.upper:
            raise ValueError(
                f"need lower <= estimate <= upper, got {self.lower}, {self.estimate}, {self.upper}"
            )

    @property
    def width(self) -> float:
        """upper - lower."""
        return 0.0 if self.lower == self.upper else self.upper - self.lower

    @staticmethod
    def clipped(
        lower: float, estimate: float, upper: float, method: str, ledger: ErrorLedger | None = None
    ) -> "Bounds":
        """The bounds with an estimate that is moved to the nearer end if it lies outside of them."""
        return Bounds(lower, min(max(estimate, lower), upper), upper, method, ledger or ErrorLedger())

    @staticmethod
    def intersection(one: "Bounds", other: "Bounds") -> "Bounds":
        """The bounds that hold if two certified answers to the same question both hold."""
        head = one if one.width <= other.width else other
        lower, upper = max(one.lower, other.lower), min(one.upper, other.upper)
        return Bounds.clipped(lower, head.estimate, upper, head.method, head.ledger)

    @staticmethod
    def worst(one: "Bounds", other: "Bounds") -> "Bounds":
        """Bounds of the larger of two quantities."""
        head = one if one.upper >= other.upper else other
        return Bounds(
            max(one.lower, other.lower),
            max(one.estimate, other.estimate),
            head.upper,
            head.method,
            head.ledger,
        )


@dataclass(frozen=True)
class Estimate:
    """A number without a guarantee, such as one from random samples.

    Attributes:
        value: the number.
        method: how it was found.
        caveat: one sentence on why it is not a bound.
        standard_error: Monte-Carlo error where there is one.
    """

    value: float
    method: str
    caveat: str
    standard_error: float = math.nan
