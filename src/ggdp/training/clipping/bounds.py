# SPDX-License-Identifier: Apache-2.0
"""`Clipping`, the bound on each example's gradient, and `ClippedSum`, the sum over a batch under it."""

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ggdp import arguments


@dataclass(frozen=True)
class Clipping:
    """Every example's gradient is scaled by min(1, clip_norm / its l_norm norm).

    Flat clipping measures the gradient over all trainable parameters at once. Per-layer clipping holds each
    of L layers to clip_norm / L^(1/norm) on its own, so that the whole stays within clip_norm too: (L * (C /
    L^(1/p))^p)^(1/p) = C.

    Args:
        clip_norm: The largest norm C, above 0.
        norm: The exponent p of the norm, in [1, inf].
        per_layer: Whether each layer has its own share of the norm.
        non_finite: What becomes of an example whose gradient is NaN or infinite: "zero" lets it add nothing
            to the sum, "refuse" raises `NonFiniteGradientError`. An exception tells that such an example is
            in the batch; "zero" keeps that to itself.

    >>> Clipping(clip_norm=1.0, norm=1.5)
    Clipping(clip_norm=1.0, norm=1.5, per_layer=False, non_finite='zero')
    >>> Clipping(clip_norm=1.0, norm=2.0, per_layer=True).layer_norm(num_layers=4)
    0.5
    """

    clip_norm: float
    norm: float
    per_layer: bool = False
    non_finite: Literal["zero", "refuse"] = "zero"

    def __post_init__(self) -> None:
        arguments.real("clip_norm", self.clip_norm, above=0.0)
        arguments.extended_real("norm", self.norm, least=1.0, hint="norm=beta matches the noise")
        arguments.instance("per_layer", self.per_layer, bool)
        arguments.one_of("non_finite", self.non_finite, ("zero", "refuse"))

    def layer_norm(self, num_layers: int) -> float:
        """The share of each of `num_layers` layers under per-layer clipping."""
        if math.isinf(self.norm):
            return self.clip_norm
        return float(self.clip_norm / num_layers ** (1.0 / self.norm))


@dataclass(frozen=True)
class ClippedSum:
    """The sum over examples of their clipped gradients.

    Attributes:
        sums: One tensor per trainable parameter, of its shape, in float32 or float64.
        num_examples: How many examples were summed. It is data: do not divide by it.
        norms: The examples' l_p norms before clipping, of shape (num_examples,). They are data as well.
        num_zeroed: How many examples added nothing, their gradients being NaN or infinite. It is data too.
    """

    sums: tuple[Tensor, ...]
    num_examples: int
    norms: Tensor
    num_zeroed: int = 0
