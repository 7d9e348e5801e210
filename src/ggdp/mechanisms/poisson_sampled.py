# SPDX-License-Identifier: Apache-2.0
"""A mechanism run on a Poisson sample of the records."""

from dataclasses import dataclass
from typing import Any, Self

from ggdp import arguments
from ggdp.mechanisms.additive_noise import AdditiveNoise
from ggdp.mechanisms.custom import CustomMechanism


@dataclass(frozen=True)
class PoissonSampled:
    """Keep every record independently with probability `rate`, then run `mechanism` on those kept."""

    mechanism: AdditiveNoise | CustomMechanism
    rate: float

    def __post_init__(self) -> None:
        arguments.instance(
            "mechanism",
            self.mechanism,
            (AdditiveNoise, CustomMechanism),
            hint="sample each step, then compose: Composed(PoissonSampled(step, rate), times)",
        )
        object.__setattr__(self, "rate", arguments.real("rate", self.rate, above=0.0, most=1.0))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; see `ggdp.mechanisms.serialization`."""
        from ggdp.mechanisms import serialization

        return serialization.to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The mechanism that `to_dict` described."""
        from ggdp.mechanisms import serialization

        return serialization.from_dict_as(cls, data)
