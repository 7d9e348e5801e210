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
from ggdp.calibration.outliers import (
    LeastOutliers,
    best_beta_for_outliers,
    log_tail_weight_at,
    tail_weight_at,
)

__all__ = [
    "BestNoise",
    "Calibrated",
    "CalibratedFamily",
    "EstimatedScale",
    "LeastOutliers",
    "NoiseSearch",
    "WeighedNoise",
    "best_beta_for_outliers",
    "best_noise",
    "calibrate_family",
    "calibrate_rate",
    "calibrate_scale",
    "calibrate_steps",
    "estimate_scale",
    "log_tail_weight_at",
    "run_of",
    "tail_weight_at",
]
