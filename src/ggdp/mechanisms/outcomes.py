# SPDX-License-Identifier: Apache-2.0
"""A release with finitely many outcomes, described by their probabilities."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ggdp import arguments
from ggdp.mechanisms.custom import CustomMechanism

_TOLERANCE = 1e-9  # by how much a total may miss one: an honest normalising constant is that good


@dataclass(frozen=True)
class OutcomeProbabilities(CustomMechanism):
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

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; see `ggdp.mechanisms.serialization`."""
        from ggdp.mechanisms import serialization

        return serialization.to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The mechanism that `to_dict` described."""
        from ggdp.mechanisms import serialization

        return serialization.from_dict_as(cls, data)
