# SPDX-License-Identifier: Apache-2.0
"""Accounting inverted: the noise, the steps or the rate that a privacy target allows."""

from ggdp.calibration.calibrate import (
    calibrate_rate,
    calibrate_scale,
    calibrate_steps,
)
from ggdp.calibration.choice import BestNoise, NoiseSearch, WeighedNoise, best_noise
from ggdp.calibration.estimate import EstimatedScale, estimate_scale
from ggdp.calibration.family import CalibratedFamily, calibrate_family
from ggdp.calibration.risk import CalibratedToRisk, RiskTarget, calibrate_scale_to_risk
from ggdp.calibration.run import Calibrated, CalibratedSpherical, run_of

__all__ = [
    "BestNoise",
    "Calibrated",
    "CalibratedFamily",
    "CalibratedSpherical",
    "CalibratedToRisk",
    "EstimatedScale",
    "NoiseSearch",
    "RiskTarget",
    "WeighedNoise",
    "best_noise",
    "calibrate_family",
    "calibrate_rate",
    "calibrate_scale",
    "calibrate_scale_to_risk",
    "calibrate_steps",
    "estimate_scale",
    "run_of",
]
