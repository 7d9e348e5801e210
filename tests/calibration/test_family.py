# SPDX-License-Identifier: Apache-2.0
"""Calibration of a mechanism with one parameter: on the private side, and at what closed forms say."""

import math

import pytest

from ggdp import (
    AdditiveNoise,
    Composed,
    EpsilonTooLargeError,
    Gaussian,
    GaussianMixtureNoise,
    GeneralizedGaussian,
    Laplace,
    OutcomeProbabilities,
    calibrate_family,
    calibrate_scale,
    epsilon,
)


def response(flip):
    return OutcomeProbabilities((1.0 - flip, flip), (flip, 1.0 - flip))


def test_randomized_response_is_calibrated_to_its_closed_form():
    found = calibrate_family(response, epsilon=1.0, delta=1e-6, between=(1e-3, 0.5))
    exact = (1.0 - 1e-6) / (1.0 + math.e)  # (1 - f - delta) = e^epsilon f
    assert exact * (1 - 1e-9) <= found.value <= exact * (1 + 2e-4)
    assert found.achieved.upper <= 1.0
    assert found.mechanism == response(found.value)
    assert epsilon(response(found.value / 1.0002), delta=1e-6).upper > 1.0


def test_known_noise_as_a_family_has_the_scale_of_its_own_calibration():
    found = calibrate_family(
        lambda std: Composed(AdditiveNoise(Gaussian(std)), times=10),
        epsilon=2.0,
        delta=1e-6,
        between=(0.5, 50.0),
    )
    own = calibrate_scale(beta=2.0, steps=10, epsilon=2.0, delta=1e-6)
    assert found.value == pytest.approx(own.scale / math.sqrt(2.0), rel=2e-4)


def test_a_described_mixture_is_calibrated_to_the_private_side():
    def mixture(scale):
        return GaussianMixtureNoise((0.9, 0.1), (0.0, 0.0), (scale, 3.0 * scale), shift=1.0)

    found = calibrate_family(mixture, epsilon=1.0, delta=1e-5, between=(0.5, 20.0), relative=0.05)
    assert found.achieved.upper <= 1.0
    assert epsilon(mixture(found.value / 1.06), delta=1e-5).upper > 1.0


def test_a_member_whose_epsilon_is_too_large_to_compute_is_one_with_too_little_noise():
    def steps(scale):
        return Composed(AdditiveNoise(GeneralizedGaussian(1.5, scale)), times=1000)

    with pytest.raises(EpsilonTooLargeError):
        epsilon(steps(0.1), delta=1e-6)
    found = calibrate_family(steps, epsilon=2.0, delta=1e-6, between=(0.1, 1000.0))
    own = calibrate_scale(beta=1.5, steps=1000, epsilon=2.0, delta=1e-6)
    assert found.value == pytest.approx(own.scale, rel=2e-4)


def test_an_end_that_is_good_enough_is_the_answer_and_one_that_is_not_is_refused():
    assert calibrate_family(response, epsilon=3.0, delta=1e-6, between=(0.3, 0.5)).value == 0.3
    with pytest.raises(ValueError, match=r"is not met by the parameter 0\.2, the larger end"):
        calibrate_family(response, epsilon=0.5, delta=1e-6, between=(0.1, 0.2))
    with pytest.raises(ValueError, match="between must be an interval"):
        calibrate_family(response, epsilon=0.5, delta=1e-6, between=(0.2, 0.1))
    with pytest.raises(ValueError, match="noise_multiplier must be"):
        calibrate_family(
            lambda scale: AdditiveNoise(Laplace(scale)), epsilon=0.5, delta=1e-6, between=(1e-9, 100.0)
        )
