# SPDX-License-Identifier: Apache-2.0
"""A vector plus spherical noise."""

from dataclasses import dataclass, replace
from typing import Any, Self

from ggdp import arguments
from ggdp.distributions.spherical import SphericalGeneralizedGaussian
from ggdp.mechanisms.custom import CustomMechanism


@dataclass(frozen=True)
class SphericalNoise(CustomMechanism):
    """Release f(D) + noise, where one record moves the vector f by at most `sensitivity` in the l_2 norm.

    Attributes:
        noise: of the whole vector; its dimension is that of f, its power lies in [1 - dimension, 0].
        sensitivity: the most one record moves f.
        norm: 2, the only norm that this noise knows.

    >>> noise = SphericalGeneralizedGaussian(beta=1.0, scale=2.0, dimension=10)
    >>> SphericalNoise(noise, sensitivity=0.5).replaced(rate=1.0).sensitivity
    1.0
    """

    noise: SphericalGeneralizedGaussian
    sensitivity: float = 1.0
    norm: float = 2.0

    def __post_init__(self) -> None:
        arguments.instance(
            "noise",
            self.noise,
            SphericalGeneralizedGaussian,
            hint="AdditiveNoise takes noise that is independent on every coordinate",
        )
        _check_power(self.noise)
        object.__setattr__(self, "sensitivity", arguments.real("sensitivity", self.sensitivity, above=0.0))
        if self.norm != 2.0:
            raise ValueError(
                f"norm must be 2 for spherical noise, got {self.norm!r}: it depends on the Euclidean length "
                "alone; bound the l_2 norm of what a record does, or take independent noise"
            )
        object.__setattr__(self, "norm", 2.0)

    def replaced(self, rate: float) -> "SphericalNoise | SphericalReplacement":
        """What replacing a record costs: twice the distance, if it always takes part."""
        if rate == 1.0:
            return replace(self, sensitivity=2.0 * self.sensitivity)
        return SphericalReplacement(self, arguments.real("rate", rate, above=0.0, below=1.0))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; see `ggdp.mechanisms.serialization`."""
        from ggdp.mechanisms import serialization

        return serialization.to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The mechanism that `to_dict` described."""
        from ggdp.mechanisms import serialization

        return serialization.from_dict_as(cls, data)


@dataclass(frozen=True)
class SphericalReplacement(CustomMechanism):
    """A record of a Poisson sample is replaced by another one, before spherical noise is added."""

    release: SphericalNoise
    rate: float


def _check_power(noise: SphericalGeneralizedGaussian) -> None:
    """Refuse a power for which it is not known that the longest shift is the worst, or how to bound it."""
    if noise.power > 0.0:
        raise ValueError(
            f"power must be at most 0 to release with spherical noise, got {noise.power:g}: the density then "
            "falls towards the centre, and a shorter shift can be worse than the longest; take power=0"
        )
    if noise.power < 1.0 - noise.dimension:
        raise ValueError(
            f"power must be at least 1 - dimension, {1 - noise.dimension}, to release with spherical noise, "
            f"got {noise.power:g}: no bounds are known for a density so steep at its centre; take power=0"
        )
