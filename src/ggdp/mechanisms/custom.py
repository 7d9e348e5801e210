# SPDX-License-Identifier: Apache-2.0
"""Mechanisms known by their output laws: the base class, and the two kinds that are plain data."""

import math
from abc import ABC
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np

from ggdp import arguments

_TOLERANCE = 1e-9  # by how much a total may miss one: an honest normalising constant is that good


class PlainData:
    """What every mechanism that is plain data has: a form for JSON, and the way back."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; see `ggdp.mechanisms.serialization`."""
        from ggdp.mechanisms import serialization

        return serialization.to_dict(cast(Any, self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The mechanism that `to_dict` described."""
        from ggdp.mechanisms import serialization

        return serialization.from_dict_as(cls, data)


class CustomMechanism(ABC):  # noqa: B024  (a marker: what an accountant needs is registered in privacy_loss)
    """One release whose output laws the user describes.

    A subclass is plain data: frozen, hashable, equal when it means the same. It may stand wherever one
    release may: alone, in `Composed`, in `PoissonSampled`. What it costs is said by registering a function
    with `ggdp.privacy_loss.custom.cells_of`; docs/custom-noise.md has examples. A class that cannot
    inherit is let in by `CustomMechanism.register(TheClass)`.
    """


@dataclass(frozen=True)
class OutcomeProbabilities(PlainData, CustomMechanism):
    """Finitely many outcomes, with their probabilities with and without the record. Zeros are allowed.

    >>> response = OutcomeProbabilities((0.75, 0.25), (0.25, 0.75))
    """

    with_record: tuple[float, ...]
    without_record: tuple[float, ...]

    def __post_init__(self) -> None:
        sizes = set()
        for name in ("with_record", "without_record"):
            vector = arguments.finite_array(name, getattr(self, name)).ravel()
            total = math.fsum(vector)
            if np.any(vector < 0.0) or abs(total - 1.0) > _TOLERANCE:
                raise ValueError(
                    f"{name} must hold probabilities that sum to 1, got least {vector.min():g}, sum {total!r}"
                )
            object.__setattr__(self, name, tuple(vector.tolist()))
            sizes.add(len(vector))
        if len(sizes) != 1:
            raise ValueError(f"with_record and without_record must be of one length, got {sorted(sizes)}")


@dataclass(frozen=True)
class GaussianMixtureNoise(PlainData, CustomMechanism):
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
