# SPDX-License-Identifier: Apache-2.0
"""Accounting inverted: the noise, the steps or the rate that a privacy target allows."""

from ggdp.calibration.calibrated import Calibrated
from ggdp.calibration.estimated import EstimatedScale
from ggdp.calibration.outliers import (
    LeastOutliers,
    best_beta_for_outliers,
    log_tail_weight_at,
    tail_weight_at,
)
from ggdp.calibration.rate import calibrate_rate
from ggdp.calibration.scale import calibrate_scale
from ggdp.calibration.steps import calibrate_steps

__all__ = [
    "Calibrated",
    "EstimatedScale",
    "LeastOutliers",
    "best_beta_for_outliers",
    "calibrate_rate",
    "calibrate_scale",
    "calibrate_steps",
    "log_tail_weight_at",
    "tail_weight_at",
]
