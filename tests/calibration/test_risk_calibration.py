# SPDX-License-Identifier: Apache-2.0
"""Calibration to a risk: the target is met, the next smaller scale misses it, closed forms agree."""

import math

import pytest
from scipy.special import ndtri

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Gaussian,
    GeneralizedGaussian,
    Risk,
    RiskTarget,
    account,
    calibrate_scale_to_risk,
)


@pytest.mark.parametrize(
    ("target", "mu"),
    [
        (RiskTarget(true_positive_rate=0.05, false_positive_rate=0.01), ndtri(0.05) - ndtri(0.01)),
        (RiskTarget(advantage=0.1), 2.0 * ndtri(0.55)),
        (RiskTarget(posterior=0.9, prior=0.5, false_positive_rate=0.01), ndtri(0.09) - ndtri(0.01)),
        (RiskTarget(mu=0.7), 0.7),
    ],
)
def test_gaussian_noise_for_each_risk_is_the_closed_form(target, mu):
    found = calibrate_scale_to_risk(target, beta=2.0, sensitivity=3.0)
    assert found.achieved.upper <= target.most
    assert found.noise_multiplier == pytest.approx(1.0 / mu, rel=2e-6)
    assert found.noise_multiplier >= (1.0 - 1e-9) / mu
    assert found.sharp


def test_laplace_noise_for_a_true_positive_rate_is_the_closed_form():
    found = calibrate_scale_to_risk(RiskTarget(true_positive_rate=0.05), beta=1.0)
    assert found.scale == pytest.approx(1.0 / math.log(5.0), rel=2e-6)  # 0.01 e^(1/scale) = 0.05


def test_a_training_run_meets_its_target_beside_another_release():
    target = RiskTarget(true_positive_rate=0.05, false_positive_rate=0.01)
    before = (AdditiveNoise(Gaussian(std=8.0)), 1)
    found = calibrate_scale_to_risk(target, beta=1.5, rate=0.01, steps=500, alongside=[before])
    risk = Risk(account(found.mechanism, adjacency=Adjacency.ADD_REMOVE))
    assert risk.true_positive_rate(false_positive_rate=0.01).upper <= 0.05
    alone = calibrate_scale_to_risk(target, beta=1.5, rate=0.01, steps=500)
    assert alone.scale < found.scale
    assert alone.step.noise == GeneralizedGaussian(1.5, alone.scale)


def test_targets_that_nobody_can_meet_or_miss_are_refused():
    with pytest.raises(
        ValueError, match="give one of true_positive_rate, advantage, posterior, mu, got none"
    ):
        RiskTarget()
    with pytest.raises(ValueError, match=r"true_positive_rate must be a number in \(0.1, 1\), got 0.05"):
        RiskTarget(true_positive_rate=0.05, false_positive_rate=0.1)
    with pytest.raises(ValueError, match=r"posterior must be a number in \(0.5, 1\), got 0.4"):
        RiskTarget(posterior=0.4)
    with pytest.raises(ValueError, match=r"advantage = 1e-06 cannot be met by the noise multipliers covered"):
        calibrate_scale_to_risk(RiskTarget(advantage=1e-6), beta=2.0, steps=100)
    with pytest.raises(ValueError, match="is met by all of the noise multipliers covered"):
        calibrate_scale_to_risk(RiskTarget(mu=900.0), beta=2.0)
