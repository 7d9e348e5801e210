# SPDX-License-Identifier: Apache-2.0
"""A number plus noise that is a mixture of Gaussians."""

import math
from dataclasses import dataclass
from typing import Any, Self

from ggdp import arguments
from ggdp.mechanisms.custom import CustomMechanism


@dataclass(frozen=True)
class GaussianMixtureNoise(CustomMechanism):
    """Noise that is Gaussian with mean `means[i]` and deviation `stds[i]` with probability `weights[i]`.

    Unlike noise given by a function it is plain data, so it can be written to JSON.

    Args:
        weights: positive, summing to one.
        means: one for each weight.
        stds: positive, one for each weight.
        shift: the record moves the number by exactly this; mixtures are not log-concave in general, so that a
            smaller distance might cost more.

    >>> GaussianMixtureNoise(weights=(0.9, 0.1), means=(0.0, 0.0), stds=(1.0, 4.0), shift=1.0).stds
    (1.0, 4.0)
    """

    weights: tuple[float, ...]
    means: tuple[float, ...]
    stds: tuple[float, ...]
    shift: float

    def __post_init__(self) -> None:
        weights = tuple(arguments.real("weights", weight, above=0.0, most=1.0) for weight in self.weights)
        means = tuple(arguments.real("means", mean) for mean in self.means)
        stds = tuple(arguments.real("stds", std, above=0.0) for std in self.stds)
        if not len(weights) == len(means) == len(stds) > 0:
            raise ValueError(
                "weights, means and stds must be of one length, at least 1, got "
                f"{len(weights)}, {len(means)} and {len(stds)}"
            )
        if abs(math.fsum(weights) - 1.0) > 1e-12:
            raise ValueError(f"weights must sum to 1, got {math.fsum(weights)!r}")
        if arguments.real("shift", self.shift) == 0.0:
            raise ValueError("shift must not be 0: a record that moves nothing costs nothing")
        for name, value in (("weights", weights), ("means", means), ("stds", stds)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "shift", float(self.shift))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; see `ggdp.mechanisms.serialization`."""
        from ggdp.mechanisms import serialization

        return serialization.to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The mechanism that `to_dict` described."""
        from ggdp.mechanisms import serialization

        return serialization.from_dict_as(cls, data)
