# SPDX-License-Identifier: Apache-2.0
"""A query's value plus noise: one number, or a vector with independent noise on every coordinate."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np

from ggdp import arguments
from ggdp.distributions import GeneralizedGaussian, SphericalGeneralizedGaussian, exact_sampler
from ggdp.mechanisms.custom import PlainData
from ggdp.mechanisms.grid_noise import power_of_two

Shift = tuple[tuple[float, int], ...]
MOST_COORDINATES = 10**9


def compressed(shift: Any) -> Shift:
    """Pairs (value, count) in order of value, from numbers or from such pairs.

    >>> compressed([1, -1, 1])
    ((-1.0, 1), (1.0, 2))
    >>> compressed([(0.5, 1_000_000), (0.5, 1)])
    ((0.5, 1000001),)

    Raises:
        ValueError: Not a sequence of finite numbers or pairs, all of them zero, or more than 10^9 of them.
    """
    arguments.instance(
        "shift", shift, (Iterable,), hint="give a tuple such as (1, -1), or pairs (value, count)"
    )
    listed = list(shift)
    if any(isinstance(entry, (tuple, list)) for entry in listed):
        counts = _counted(listed)
    else:
        values, numbers = np.unique(arguments.finite_array("shift", listed), return_counts=True)
        counts = dict(zip((values + 0.0).tolist(), numbers.tolist(), strict=True))  # + 0.0: no negative zero
    if not any(counts):
        raise ValueError(f"shift must move at least one coordinate, got {arguments.shown(shift)}")
    total = sum(counts.values())
    arguments.whole("number of coordinates of shift", total, most=MOST_COORDINATES)
    return tuple(sorted(counts.items()))


def _counted(entries: list[Any]) -> dict[float, int]:
    counts: dict[float, int] = {}
    for entry in entries:
        if not (isinstance(entry, (tuple, list)) and len(entry) == 2):
            raise ValueError(
                f"shift must hold numbers, or pairs (value, count) throughout, got {arguments.shown(entry)}"
            )
        value = arguments.real("value in shift", entry[0]) + 0.0
        counts[value] = counts.get(value, 0) + arguments.whole("count in shift", entry[1])
    return counts


MOST_DIMENSION = 10**9
MATCHED = "matched"
_COARSEST = 8.0  # steps of a grid are at most this many scales long


def matched_exponent(beta: float) -> float:
    """The norm p meant by norm="matched" for noise of 1 < beta < 2."""
    return beta - (beta - 1.0) * (2.0 - beta) / 6.0


@dataclass(frozen=True)
class AdditiveNoise(PlainData):
    """A mechanism that adds noise: it releases the value f of a query plus independent noise on every number.

    It is a description and holds no data. `epsilon` and `account` say what it costs, `release` runs it.

    Given `SphericalGeneralizedGaussian` noise, which is one draw for the whole vector, it makes a
    `SphericalNoise`.

    Attributes:
        noise: the law of the noise on every number.
        sensitivity: the largest change of f, measured in `norm`, when one record is added or removed.
        norm: p in [1, inf]; beta of the noise if left out; or "matched", for 1 < beta < 2, a norm slightly
            below beta in which one coordinate is the worst case. For a single number every norm is the same.
        dimension: how many numbers f has: 1, the default, up to 10^9, or infinity for an answer that holds
            for any.
        shift: what one record does to f where that is known: f moves by exactly sensitivity * shift, for
            whichever neighbours are asked about. A sequence of numbers, or of pairs (value, count) for long
            ones; kept as pairs in order. `dimension` follows from it.
        grid: released numbers are rounded to a multiple of this power of two; 1 gives whole numbers. It lies
            between 2^-34 and 8 scales of the noise. If left out, `release` takes one of 2^-10 of the scale or
            finer. It must not depend on the data. Rounding costs no privacy.

    Raises:
        ValueError: an argument is out of range, or `shift` contradicts `dimension` or `norm`.

    >>> from ggdp import Laplace, epsilon
    >>> epsilon(AdditiveNoise(Laplace(scale=2.0), sensitivity=1.0), delta=0).upper
    0.5
    >>> AdditiveNoise(Laplace(scale=2.0), shift=(1, -1, 1)).shift
    ((-1.0, 1), (1.0, 2))
    >>> AdditiveNoise(GeneralizedGaussian(1.5, 2.0), norm="matched", dimension=1000).p
    1.4583333333333333
    """

    noise: GeneralizedGaussian
    sensitivity: float = 1.0
    norm: float | str | None = None
    dimension: int | float = 1
    shift: Shift | None = None
    grid: float | None = None

    def __new__(
        cls,
        noise: GeneralizedGaussian | SphericalGeneralizedGaussian,
        sensitivity: float = 1.0,
        norm: float | str | None = None,
        dimension: int | float = 1,
        shift: Shift | None = None,
        grid: float | None = None,
    ) -> Any:
        """A description of noise on every number, or of noise on the whole vector."""
        if not isinstance(noise, SphericalGeneralizedGaussian):
            return super().__new__(cls)
        from ggdp.mechanisms.spherical_noise import SphericalNoise

        if dimension not in (1, noise.dimension):
            hint = f"dimension must be {noise.dimension}, that of the noise, or be left out"
            raise ValueError(f"{hint}, got {dimension!r}")
        for name, value in (("shift", shift), ("grid", grid)):
            if value is not None:
                raise ValueError(
                    f"{name} must be left out for spherical noise, got {value!r}: only the length of a shift "
                    "matters, and numbers are released without a grid"
                )
        return SphericalNoise(noise, sensitivity, cast(float, 2.0 if norm is None else norm))

    def __getnewargs__(self) -> tuple[GeneralizedGaussian]:
        return (self.noise,)

    def __post_init__(self) -> None:
        arguments.instance("noise", self.noise, GeneralizedGaussian)
        sensitivity = arguments.real("sensitivity", self.sensitivity, above=0.0)
        object.__setattr__(self, "sensitivity", sensitivity)
        object.__setattr__(self, "norm", self._checked_norm())
        if self.shift is not None:
            object.__setattr__(self, "shift", compressed(self.shift))
        object.__setattr__(self, "dimension", self._checked_dimension())
        if self.grid is not None:
            hint = "a coarser grid would swallow the noise, a finer one gains nothing"
            least, most = self.noise.scale / exact_sampler.MOST_STEPS, _COARSEST * self.noise.scale
            grid = arguments.real("grid", self.grid, least=least, most=most, hint=hint)
            object.__setattr__(self, "grid", power_of_two("grid", grid))

    @classmethod
    def histogram(
        cls, noise: GeneralizedGaussian, sensitivity: float = 1.0, *, grid: float | None = None
    ) -> Self:
        """Noise on a table of counts in which one record changes one count by one (a histogram).

        There may be any number of counts: epsilon is that of a single one, because one record touches only
        one of them. If a record can be counted k times, pass sensitivity=k.
        """
        return cls(noise, sensitivity, norm=1.0, dimension=math.inf, grid=grid)

    @property
    def p(self) -> float:
        """The norm as a number."""
        if isinstance(self.norm, str):
            return matched_exponent(self.noise.beta)
        return self.noise.beta if self.norm is None else self.norm

    def _checked_norm(self) -> float | str:
        beta = self.noise.beta
        if isinstance(self.norm, str):
            arguments.one_of("norm", self.norm, (MATCHED,), hint="or give a number p in [1, inf], such as 2")
            arguments.real(
                "beta", beta, above=1.0, below=2.0, hint='norm="matched" is only for such noise; give norm=p'
            )
            return MATCHED
        return arguments.extended_real("norm", beta if self.norm is None else self.norm, least=1.0)

    def _checked_dimension(self) -> int | float:
        if (
            isinstance(self.dimension, float)
            and math.isinf(self.dimension)
            and self.dimension > 0.0
            and self.shift is None
        ):
            return math.inf
        hint = "or math.inf for a guarantee that holds in every dimension"
        given = arguments.whole("dimension", cast(int, self.dimension), most=MOST_DIMENSION, hint=hint)
        if self.shift is None:
            return given
        known = sum(count for _, count in self.shift)
        if given not in (1, known):
            raise ValueError(f"dimension must be {known}, the length of shift, or be left out, got {given}")
        return known
