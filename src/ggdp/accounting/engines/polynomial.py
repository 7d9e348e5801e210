# SPDX-License-Identifier: Apache-2.0
"""Polynomials in a variable z whose coefficients are functions on a line, with bounds on their errors.

`engines.jumps` multiplies them: the coefficient of z^k belongs to compositions in which k losses are large.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ggdp.numerics import Array

Complex = NDArray[np.complex128]
Numbers = TypeVar("Numbers", Array, NDArray[np.complex128])


@dataclass(frozen=True)
class Polynomial:
    """A polynomial, by its coefficients of 1, z, z^2, ... (rows) at the points of a line (columns).

    Attributes:
        value: the coefficients as computed.
        size: what they are if every factor's coefficients are replaced by their moduli.
        larger: the same with the modulus plus the bound of the error. `value` is off by at most
            larger - size.
    """

    value: Complex
    size: Array
    larger: Array

    @staticmethod
    def one(points: int, most: int) -> "Polynomial":
        """The polynomial 1, with room for coefficients up to that of z^most."""
        first = np.zeros((most + 1, points))
        first[0] = 1.0
        return Polynomial(first.astype(np.complex128), first, first)

    def times(
        self, bulk: Complex, error: Array, jump: Complex | None, slip: Array | None, count: int
    ) -> "Polynomial":
        """This polynomial times (bulk + z jump)^count.

        Args:
            bulk: its values at the points of the line.
            error: bounds on the errors of these.
            jump: likewise; None for the factor bulk^count.
            slip: bounds on the errors of `jump`.
            count: the exponent.
        """
        size = np.abs(bulk)
        sizes = (None, None) if jump is None or slip is None else (np.abs(jump), np.abs(jump) + slip)
        return Polynomial(
            multiplied(self.value, power(bulk, jump, count, len(self.value) - 1)),
            multiplied(self.size, power(size, sizes[0], count, len(self.value) - 1)),
            multiplied(self.larger, power(size + error, sizes[1], count, len(self.value) - 1)),
        )


def power(bulk: Numbers, jump: Numbers | None, count: int, most: int) -> list[Numbers]:
    """The coefficients of (bulk + z jump)^count up to that of z^most."""
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        log_bulk = np.log(bulk)
        found: list[Numbers] = []
        factor = np.ones_like(bulk)
        for turn in range(min(most if jump is not None else 0, count) + 1):
            left = count - turn
            found.append(np.where(bulk != 0.0, factor * np.exp(left * log_bulk), 0.0) if left else factor)
            if jump is not None:
                factor = factor * jump * (left / (turn + 1.0))
    return found


def multiplied(one: Numbers, other: Sequence[Numbers]) -> Numbers:
    """The product of two polynomials in z, without powers beyond the highest one of the first."""
    found = np.zeros_like(one)
    for turn, factor in enumerate(other):
        found[turn:] += one[: len(one) - turn] * factor
    return found


def product(factors: Array) -> Array:
    """The product of many polynomials, without powers beyond their own highest one.

    The last axis of `factors` holds the coefficients of one polynomial, the axis before it the polynomials.
    """
    length = factors.shape[-1]
    while (count := factors.shape[-2]) > 1:
        one, other = factors[..., : count // 2, :], factors[..., count // 2 : 2 * (count // 2), :]
        found = np.zeros_like(one)
        for turn in range(length):
            found[..., turn:] += one[..., turn : turn + 1] * other[..., : length - turn]
        factors = np.concatenate([found, factors[..., 2 * (count // 2) :, :]], axis=-2)
    return np.asarray(factors[..., 0, :])
