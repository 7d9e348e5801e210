# SPDX-License-Identifier: Apache-2.0
"""A query's value plus noise: one number, or a vector with independent noise on every coordinate."""

import math
from dataclasses import dataclass
from typing import Any, Self, cast

from ggdp import arguments
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms.known_shift import Shift, compressed

MOST_DIMENSION = 10**9
MATCHED = "matched"


def matched_exponent(beta: float) -> float:
    """The norm p meant by norm="matched" for noise of 1 < beta < 2."""
    return beta - (beta - 1.0) * (2.0 - beta) / 6.0


@dataclass(frozen=True)
class AdditiveNoise:
    """Release f(D) + noise, where one record moves f by at most `sensitivity` in the l_`norm` norm.

    Attributes:
        noise: of every coordinate, independent.
        sensitivity: the most one record moves f.
        norm: p in [1, inf]; beta of the noise if left out; or "matched", for 1 < beta < 2, a norm slightly
            below beta in which one coordinate is the worst case. For a single number every norm is the same.
        dimension: how many numbers f has: 1, the default, up to 10^9, or infinity for an answer that holds
            for any.
        shift: what one record does to f where that is known: f moves by exactly sensitivity * shift, for
            whichever neighbours are asked about. A sequence of numbers, or of pairs (value, count) for long
            ones; kept as pairs in order. `dimension` follows from it.

    >>> from ggdp import Laplace
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

    def __post_init__(self) -> None:
        hint = "SphericalNoise takes noise that depends on a vector's length alone"
        arguments.instance("noise", self.noise, GeneralizedGaussian, hint=hint)
        sensitivity = arguments.real("sensitivity", self.sensitivity, above=0.0)
        object.__setattr__(self, "sensitivity", sensitivity)
        object.__setattr__(self, "norm", self._checked_norm())
        if self.shift is not None:
            object.__setattr__(self, "shift", compressed(self.shift))
        object.__setattr__(self, "dimension", self._checked_dimension())

    @property
    def p(self) -> float:
        """The norm as a number."""
        if isinstance(self.norm, str):
            return matched_exponent(self.noise.beta)
        return self.noise.beta if self.norm is None else self.norm

    def _checked_norm(self) -> float | str:
        beta = self.noise.beta
        if isinstance(self.norm, str):
            arguments.one_of("norm", self.norm, (MATCHED,), hint="or give a number p in [1, inf]")
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

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; see `ggdp.mechanisms.serialization`."""
        from ggdp.mechanisms import serialization

        return serialization.to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The mechanism that `to_dict` described."""
        from ggdp.mechanisms import serialization

        return serialization.from_dict_as(cls, data)
