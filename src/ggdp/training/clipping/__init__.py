# SPDX-License-Identifier: Apache-2.0
"""Per-example gradients, clipped in any l_p norm and summed, without ever holding examples x parameters."""

from ggdp.errors import NonFiniteGradientError, SelfCheckError, UnsupportedModelError
from ggdp.training.clipping.bounds import ClippedSum, Clipping
from ggdp.training.clipping.example_gradients import ExampleGradients

__all__ = [
    "ClippedSum",
    "Clipping",
    "ExampleGradients",
    "NonFiniteGradientError",
    "SelfCheckError",
    "UnsupportedModelError",
]
