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
from ggdp.calibration.outliers import (
    LeastOutliers,
    best_beta_for_outliers,
    log_tail_weight_at,
    tail_weight_at,
)
from ggdp.calibration.risk import CalibratedToRisk, RiskTarget, calibrate_scale_to_risk

__all__ = [
    "Calibrated",
    "CalibratedFamily",
    "CalibratedToRisk",
    "EstimatedScale",
    "LeastOutliers",
    "RiskTarget",
    "best_beta_for_outliers",
    "calibrate_family",
    "calibrate_rate",
    "calibrate_scale",
    "calibrate_scale_to_risk",
    "calibrate_steps",
    "estimate_scale",
    "log_tail_weight_at",
    "run_of",
    "tail_weight_at",
]
