# SPDX-License-Identifier: Apache-2.0
"""calibrate_steps and calibrate_rate: exact where certified, and consistent with calibrate_scale."""

import math

import pytest

from calibration.analytic_gaussian import delta as gaussian_delta
from ggdp import (
    AdditiveNoise,
    Composed,
    Gaussian,
    GeneralizedGaussian,
    PoissonSampled,
    calibrate_rate,
    calibrate_scale,
    calibrate_steps,
    epsilon,
)


@pytest.mark.parametrize(
    ("std", "target", "target_delta"),
    [(5.0, 2.0, 1e-6), (30.0, 1.0, 1e-10), (300.0, 3.0, 1e-5), (4.0, 1.2, 1e-5)],
)
def test_steps_of_gaussian_noise_are_exactly_those_of_the_closed_form(std, target, target_delta):
    found = calibrate_steps(AdditiveNoise(Gaussian(std)), epsilon=target, delta=target_delta)
    assert found.sharp
    assert gaussian_delta(std, target, steps=found.steps) <= target_delta
    assert gaussian_delta(std, target, steps=found.steps + 1) > target_delta


def test_one_step_more_certifiably_exceeds_the_target():
    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(1.5, 2.0)), 0.02)
    found = calibrate_steps(step, epsilon=1.5, delta=1e-6)
    assert found.sharp
    assert found.achieved.upper <= 1.5
    assert found.mechanism == Composed(step, times=found.steps)
    assert epsilon(Composed(step, times=found.steps + 1), delta=1e-6).lower > 1.5


def test_steps_from_numbers_and_from_a_mechanism_agree():
    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(1.5, 6.0), sensitivity=3.0), 0.02)
    one = calibrate_steps(step, epsilon=1.5, delta=1e-6)
    two = calibrate_steps(beta=1.5, scale=6.0, sensitivity=3.0, rate=0.02, epsilon=1.5, delta=1e-6)
    assert one == two


def test_a_run_calibrated_in_scale_fits_its_own_steps_and_no_more():
    found = calibrate_scale(beta=1.3, epsilon=2.0, delta=1e-6, rate=0.02, steps=700)
    assert calibrate_steps(PoissonSampled(found.step, 0.02), epsilon=2.0, delta=1e-6).steps == 700


def test_a_run_calibrated_in_scale_fits_its_own_rate_and_hardly_more():
    found = calibrate_scale(beta=1.3, epsilon=2.0, delta=1e-6, rate=0.02, steps=700)
    rate = calibrate_rate(found.step, epsilon=2.0, delta=1e-6, steps=700)
    assert rate.sharp
    assert rate.rate == pytest.approx(0.02, rel=3e-6)
    assert rate.achieved.upper <= 2.0


def test_the_rate_of_one_release_is_that_of_the_closed_form():
    found = calibrate_rate(AdditiveNoise(Gaussian(1.0)), epsilon=1.0, delta=1e-3)
    assert found.sharp
    assert gaussian_delta(1.0, 1.0, rate=found.rate) <= 1e-3
    assert gaussian_delta(1.0, 1.0, rate=found.rate * (1 + 1e-8)) > 1e-3


def test_noise_that_needs_no_sampling_is_given_rate_one():
    found = calibrate_rate(beta=2, scale=100.0, epsilon=1.0, delta=1e-6)
    assert found.rate == 1.0
    assert found.mechanism == AdditiveNoise(GeneralizedGaussian(2, 100.0))
    assert not found.sharp


def test_steps_of_laplace_noise_are_at_least_those_of_pure_composition():
    found = calibrate_steps(beta=1, scale=10.0, epsilon=0.55, delta=1e-9)
    assert found.steps >= 5
    assert found.achieved.upper <= 0.55


def test_the_norm_of_the_step_is_kept():
    step = AdditiveNoise(GeneralizedGaussian(1.5, 20.0), norm=1.0)
    assert calibrate_steps(step, epsilon=1.0, delta=1e-6).step == step


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"beta": 2, "scale": 1.0, "epsilon": 0.1, "delta": 1e-6},
            "exceeded by one step already; take more noise",
        ),
        (
            {"beta": 2, "scale": 1400.0, "epsilon": 50.0, "delta": 1e-3},
            "is met by 10000000 steps.*ask for a smaller",
        ),
        ({"beta": 2, "epsilon": 1.0, "delta": 1e-6}, "give mechanism, or beta and scale"),
        (
            {"mechanism": AdditiveNoise(Gaussian(1.0)), "rate": 0.1, "epsilon": 1.0, "delta": 1e-6},
            "give mechanism alone",
        ),
        (
            {"mechanism": Composed(AdditiveNoise(Gaussian(1.0))), "epsilon": 1.0, "delta": 1e-6},
            "give one step of Generalized Gaussian noise",
        ),
        ({"beta": 2, "scale": 1.0, "epsilon": math.nan, "delta": 1e-6}, "epsilon must be a number"),
    ],
)
def test_steps_that_cannot_be_found_are_refused_with_a_way_out(asked, message):
    with pytest.raises(ValueError, match=message):
        calibrate_steps(**asked)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"beta": 2, "scale": 0.5, "epsilon": 0.0, "delta": 1e-12},
            "exceeded even at rate 1e-07.*take more noise",
        ),
        (
            {"mechanism": PoissonSampled(AdditiveNoise(Gaussian(1.0)), 0.1), "epsilon": 1.0, "delta": 1e-6},
            "is what is asked",
        ),
        (
            {"beta": 2, "scale": 1.0, "steps": 0, "epsilon": 1.0, "delta": 1e-6},
            "steps must be a whole number",
        ),
    ],
)
def test_rates_that_cannot_be_found_are_refused_with_a_way_out(asked, message):
    with pytest.raises(ValueError, match=message):
        calibrate_rate(**asked)
