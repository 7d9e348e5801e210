# SPDX-License-Identifier: Apache-2.0
"""Accounting inverted: the noise, the steps or the rate that a privacy target allows."""

from ggdp.calibration.calibrate import (
    Calibrated,
    CalibratedFamily,
    EstimatedScale,
    calibrate_family,
    calibrate_rate,
    calibrate_scale,
    calibrate_steps,
    estimate_scale,
    run_of,
)
from ggdp.calibration.choice import BestNoise, NoiseSearch, WeighedNoise, best_noise

__all__ = [
    "BestNoise",
    "Calibrated",
    "CalibratedFamily",
    "EstimatedScale",
    "NoiseSearch",
    "WeighedNoise",
    "best_noise",
    "calibrate_family",
    "calibrate_rate",
    "calibrate_scale",
    "calibrate_steps",
    "estimate_scale",
    "run_of",
]
