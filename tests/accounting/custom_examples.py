# SPDX-License-Identifier: Apache-2.0
"""Described mechanisms that several tests ask about, and what it means that an answer holds."""

import math

import numpy as np

from ggdp import (
    AdditiveNoise,
    Gaussian,
)
from ggdp.privacy_loss.custom import (
    DensityNoise,
    OutcomeProbabilities,
)
from ggdp.privacy_loss.density import Density

KNOWN_GAUSSIAN = AdditiveNoise(Gaussian(std=1.0))
RESPONSE = OutcomeProbabilities((0.75, 0.25), (0.25, 0.75))

WIDTH, SHIFT = 2.0, 0.5
LOG_TOTAL = math.log(-2.0 * math.expm1(-WIDTH))
TRUNCATED = DensityNoise(
    Density(lambda x: -np.abs(x) - LOG_TOTAL, breaks=(0.0,), support=(-WIDTH, WIDTH)), sensitivity=SHIFT
)


def holds(bounds, truth, width):
    """The truth is inside, and the interval is no wider than `width` of it."""
    assert bounds.lower <= float(truth) * (1.0 + 1e-14) + 1e-300
    assert bounds.upper >= float(truth) * (1.0 - 1e-14)
    assert bounds.width <= width * float(truth)
