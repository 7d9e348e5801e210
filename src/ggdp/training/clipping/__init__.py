# SPDX-License-Identifier: Apache-2.0
"""Per-example gradients, clipped in any l_p norm and summed, without ever holding examples x parameters."""

from ggdp.training.clipping.bounds import ClippedSum, Clipping
from ggdp.training.clipping.example_gradients import ExampleGradients
from ggdp.training.clipping.refusals import NonFiniteGradientError, UnsupportedModelError
from ggdp.training.clipping.self_check import SelfCheckError

__all__ = [
    "ClippedSum",
    "Clipping",
    "ExampleGradients",
    "NonFiniteGradientError",
    "SelfCheckError",
    "UnsupportedModelError",
]
