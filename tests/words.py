# SPDX-License-Identifier: Apache-2.0
"""Words of the quantile table made on purpose, and the probability they stand for."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TAIL, CENTER = 1, 0


@dataclass(frozen=True)
class Place:
    """An end and the 95-bit number w 2^95 of a draw; u = w at the tail and 1 - w at the center."""

    end: int
    number: int

    @property
    def words(self) -> tuple[int, int, int]:
        """The words a, b, c with the sign bit clear."""
        q, rest = divmod(self.number, 1 << 64)
        return self.end << 30 | q, rest >> 32, rest & 0xFFFFFFFF

    @property
    def w(self) -> tuple[int, int]:
        """The probability as numerator and denominator: the middle of its cell of the lattice."""
        return 2 * self.number + 1, 1 << 96

    @property
    def coarse_w(self) -> tuple[int, int]:
        """What arithmetic that reads only the first word takes for w."""
        return 2 * (self.number >> 64) + 1, 1 << 32


def places(end: int, deepest: int) -> list[Place]:
    """Three places in every octave of w down to 2^-deepest."""
    significands = (1.0, 1.37, 1.93)
    return [
        Place(end, int(m * 2**40) * 2**95 // 2 ** (40 + exponent))
        for exponent in range(2, deepest + 1)
        for m in significands
    ]


def stacked(chosen: list[Place]) -> NDArray[np.uint32]:
    """The words as an array of shape (3, number of places)."""
    return np.array([place.words for place in chosen], dtype=np.uint32).T.copy()


def tail_words(rng: np.random.Generator, count: int, first_bits: int = 14) -> NDArray[np.uint32]:
    """Random words with random sign, held to the tail with u < 2^-first_bits."""
    words = rng.integers(0, 2**32, size=(3, count), dtype=np.uint32)
    words[0] &= np.uint32(0x80000000 | (2 ** (31 - first_bits) - 1))
    words[0] |= np.uint32(1 << 30)
    return words
