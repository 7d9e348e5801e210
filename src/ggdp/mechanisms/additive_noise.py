# SPDX-License-Identifier: Apache-2.0
"""A query's value plus noise."""

from dataclasses import dataclass
from typing import Any, Self

from ggdp import arguments
from ggdp.distributions import GeneralizedGaussian


@dataclass(frozen=True)
class AdditiveNoise:
    """Release f(D) + noise, where one record moves f by at most `sensitivity` in the l_`norm` norm.

    `norm` defaults to the noise's beta; for a single number every norm is the same.
    """

    noise: GeneralizedGaussian
    sensitivity: float = 1.0
    norm: float | None = None

    def __post_init__(self) -> None:
        arguments.instance("noise", self.noise, GeneralizedGaussian)
        sensitivity = arguments.real("sensitivity", self.sensitivity, above=0.0)
        norm = arguments.extended_real("norm", self.noise.beta if self.norm is None else self.norm, least=1.0)
        object.__setattr__(self, "sensitivity", sensitivity)
        object.__setattr__(self, "norm", norm)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; see `ggdp.mechanisms.serialization`."""
        from ggdp.mechanisms import serialization

        return serialization.to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The mechanism that `to_dict` described."""
        from ggdp.mechanisms import serialization

        return serialization.from_dict_as(cls, data)
