# SPDX-License-Identifier: Apache-2.0
"""Polynomials in z at every point of a line, with bounds on their errors, and products of their powers."""

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
    """Coefficients of 1, z, z^2, ... at every point of a line, one row each.

    Attributes:
        value: as computed.
        size: the same of moduli.
        larger: the same of moduli and their errors: the value is off by no more than the difference.
    """

    value: Complex
    size: Array
    larger: Array

    @staticmethod
    def one(points: int, most: int) -> "Polynomial":
        """The polynomial 1."""
        first = np.zeros((most + 1, points))
        first[0] = 1.0
        return Polynomial(first.astype(np.complex128), first, first)

    def times(
        self, bulk: Complex, error: Array, jump: Complex | None, slip: Array | None, count: int
    ) -> "Polynomial":
        """This times (bulk + z jump)^count."""
        size = np.abs(bulk)
        sizes = (None, None) if jump is None or slip is None else (np.abs(jump), np.abs(jump) + slip)
        return Polynomial(
            multiplied(self.value, power(bulk, jump, count, len(self.value) - 1)),
            multiplied(self.size, power(size, sizes[0], count, len(self.value) - 1)),
            multiplied(self.larger, power(size + error, sizes[1], count, len(self.value) - 1)),
        )


def power(bulk: Numbers, jump: Numbers | None, count: int, most: int) -> list[Numbers]:
    """Coefficients of (bulk + z jump)^count."""
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
    """The product of two polynomials in z, cut off where the first one ends."""
    found = np.zeros_like(one)
    for turn, factor in enumerate(other):
        found[turn:] += one[: len(one) - turn] * factor
    return found


def product(factors: Array) -> Array:
    """The product over the last axis but one of polynomials, the last axis, cut off where they end."""
    length = factors.shape[-1]
    while (count := factors.shape[-2]) > 1:
        one, other = factors[..., : count // 2, :], factors[..., count // 2 : 2 * (count // 2), :]
        found = np.zeros_like(one)
        for turn in range(length):
            found[..., turn:] += one[..., turn : turn + 1] * other[..., : length - turn]
        factors = np.concatenate([found, factors[..., 2 * (count // 2) :, :]], axis=-2)
    return np.asarray(factors[..., 0, :])
