# SPDX-License-Identifier: Apache-2.0
"""Numbers on a grid plus noise on the same grid, accounted for by the discrete law of what is published."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ggdp import arguments
from ggdp.distributions import DiscreteGeneralizedGaussian
from ggdp.mechanisms.custom import CustomMechanism, PlainData

MOST_MULTIPLE = 1 << 52
"""Values are at most this many steps of the grid from zero, so that a sum with noise is an exact double."""

_MOST_DIMENSION = 10**9


@dataclass(frozen=True)
class GridNoise(PlainData, CustomMechanism):
    """Release numbers rounded to a grid, plus independent noise of a whole number of steps on each.

    One record moves the numbers by at most `sensitivity` in the l_1 norm; for one number every norm is the
    same. In that norm moving one number is the worst case, in every dimension (docs/exact-release.md).

    Attributes:
        noise: of every number, in steps of the grid.
        sensitivity: the most one record moves the numbers, in their own unit.
        grid: the length of a step, a power of two.
        dimension: how many numbers there are, or infinity for an answer that holds for any; the latter only
            for numbers that lie on the grid, as rounding may move each by a step.
        on_grid: whether the numbers are multiples of the grid by themselves, as counts are. If not they are
            rounded, halves up, and the distance of two neighbours may grow: see `steps`.

    >>> counts = GridNoise(DiscreteGeneralizedGaussian(beta=2, scale=10.0), sensitivity=1)
    >>> counts.steps
    1
    >>> GridNoise(counts.noise, sensitivity=0.3, grid=0.25, dimension=5, on_grid=False).steps
    6
    """

    noise: DiscreteGeneralizedGaussian
    sensitivity: float = 1.0
    grid: float = 1.0
    dimension: int | float = 1
    on_grid: bool = True

    def __post_init__(self) -> None:
        arguments.instance("noise", self.noise, DiscreteGeneralizedGaussian)
        arguments.instance("on_grid", self.on_grid, bool)
        object.__setattr__(self, "sensitivity", arguments.real("sensitivity", self.sensitivity, above=0.0))
        object.__setattr__(self, "grid", power_of_two("grid", self.grid))
        if not (self.dimension == math.inf and self.on_grid):
            hint = "or math.inf for numbers that lie on the grid"
            dimension = arguments.whole(
                "dimension", cast(int, self.dimension), most=_MOST_DIMENSION, hint=hint
            )
            object.__setattr__(self, "dimension", dimension)
        if self.steps < 1:
            raise ValueError(
                f"sensitivity must be at least one step of the grid, {self.grid:g}, for numbers that lie on "
                f"it, got {self.sensitivity:g}: such a record moves nothing"
            )

    @property
    def steps(self) -> int:
        """How many steps of the grid one record moves the rounded numbers by, all together, at most.

        Two neighbours on the grid differ by a multiple of it: floor(sensitivity / grid). If numbers a and b
        are rounded, by n(x) = floor(x / grid + 1/2), then |n(a) - n(b)| < |a - b| / grid + 1. Summed over d
        numbers this is a whole number below sensitivity / grid + d: at most ceil(sensitivity / grid) + d - 1.
        """
        ratio = Fraction(self.sensitivity) / Fraction(self.grid)
        return math.floor(ratio) if self.on_grid else math.ceil(ratio) + int(self.dimension) - 1

    def multiples(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """The values as whole numbers of steps.

        Raises:
            ValueError: a value is too large for the grid, or does not lie on it although it should.
        """
        below, rest = multiples_below(values, self.grid)
        if self.on_grid and np.any(rest):
            first = float(values[rest != 0.0].ravel()[0])
            raise ValueError(
                f"value must hold multiples of the grid, {self.grid:g}, got {first!r}; for other numbers say "
                "on_grid=False, which counts what rounding adds to the sensitivity"
            )
        return below + (rest >= 0.5)

    def replaced(self, rate: float) -> "GridNoise | GridReplacement":
        """What replacing a record costs that takes part with probability `rate`: two moves."""
        twice = GridNoise(self.noise, 2.0 * self.sensitivity, self.grid, self.dimension, self.on_grid)
        if rate == 1.0:
            return twice
        return GridReplacement(self.noise, self.steps, arguments.real("rate", rate, above=0.0, below=1.0))


@dataclass(frozen=True)
class GridReplacement(CustomMechanism):
    """One number that a record moves by `steps` upwards, against downwards, with probability `rate` each."""

    noise: DiscreteGeneralizedGaussian
    steps: int
    rate: float


def power_of_two(name: str, value: float) -> float:
    """The value, if it is a power of two that doubles have."""
    number = arguments.real(name, value, least=2.0**-900, most=2.0**900)
    if math.frexp(number)[0] != 0.5:
        exponent = math.floor(math.log2(number))
        raise ValueError(
            f"{name} must be a power of two, so that its multiples are exact doubles, got {number!r}; "
            f"near it lie {2.0**exponent!r} and {2.0 ** (exponent + 1)!r}"
        )
    return number


def multiples_below(
    values: NDArray[np.float64], grid: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """floor(value / grid), and what is left of the quotient, in [0, 1], exact where it is at most a half.

    Raises:
        ValueError: a value is further from zero than 2^52 steps; doubles out there would swallow the noise.
    """
    far = np.abs(values) > grid * MOST_MULTIPLE
    if np.any(far):
        first = float(values[far].ravel()[0])
        raise ValueError(
            f"value must lie within 2^52 steps of the grid, {grid * MOST_MULTIPLE:g} for a grid of {grid:g}, "
            f"got {first!r}: the noise would be lost in its rounding; take a coarser grid and more noise, or "
            "subtract a public number first"
        )
    quotient = values / grid
    below = np.floor(quotient)
    return below.astype(np.int64), quotient - below
