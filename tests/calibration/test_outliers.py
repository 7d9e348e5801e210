# SPDX-License-Identifier: Apache-2.0
import math

import pytest

from ggdp import calibrate_scale, tail_weight_at
from ggdp.calibration import best_beta_for_outliers, log_tail_weight_at
from ggdp.calibration.outliers import lowest
from oracle import exact, relative_error


@pytest.mark.parametrize("beta", [1.0, 1.7, 2.0, 3.0])
def test_the_weight_is_that_of_the_calibrated_noise(beta):
    weight = tail_weight_at(beta, 1.5, 1e-5, 2.0)
    noise = calibrate_scale(beta=beta, epsilon=1.5, delta=1e-5).noise
    assert relative_error(weight, 2 * exact(noise, 2.0).sf) < 1e-12


def test_laplace_weight_is_its_closed_form():
    # scale = 1 / (eps - 2 log(1 - delta)), weight = exp(-threshold / scale)
    expected = math.exp(-2.0 * (1.5 - 2.0 * math.log1p(-1e-5)))
    assert tail_weight_at(1.0, 1.5, 1e-5, 2.0) == pytest.approx(expected, rel=1e-8)


def test_weights_that_underflow_keep_their_logarithm():
    assert tail_weight_at(2.0, 1.0, 1e-5, 5000.0) == 0.0
    noise = calibrate_scale(beta=2, epsilon=1.0, delta=1e-5).noise
    log_weight = log_tail_weight_at(2.0, 1.0, 1e-5, 5000.0)
    assert log_weight == pytest.approx(-((5000.0 / noise.scale) ** 2), rel=1e-4)


def test_everything_lies_beyond_zero():
    assert tail_weight_at(1.5, 1.0, 1e-5, 0.0) == 1.0


def test_threshold_is_in_the_unit_of_the_sensitivity():
    one = tail_weight_at(1.5, 1.0, 1e-5, 2.0)
    assert tail_weight_at(1.5, 1.0, 1e-5, 6.0, sensitivity=3.0) == pytest.approx(one, rel=1e-12)


def test_sampling_allows_lighter_tails():
    sampled = tail_weight_at(1.5, 0.7, 1e-5, 2.0, rate=0.1)
    assert sampled < tail_weight_at(1.5, 0.7, 1e-5, 2.0)


def test_for_near_thresholds_laplace_noise_is_best():
    assert best_beta_for_outliers(1.5, 1e-5, 1.0, tolerance=0.05).beta == 1.0


def test_for_far_thresholds_the_best_beta_beats_every_other_on_a_finer_grid():
    best = best_beta_for_outliers(1.0, 1e-5, 30.0)
    assert 1.5 < best.beta < 1.9
    others = [log_tail_weight_at(1.0 + 0.1 * number, 1.0, 1e-5, 30.0) for number in range(31)]
    assert best.log_tail_weight <= min(others)
    assert best.log_tail_weight == log_tail_weight_at(best.beta, 1.0, 1e-5, 30.0)
    assert best.tail_weight == math.exp(best.log_tail_weight)
    assert best.noise.achieved.upper <= 1.0


@pytest.mark.parametrize(
    ("function", "least"),
    [
        (lambda x: (x - 2.3) ** 2, 2.3),
        (lambda x: x, 1.0),
        (lambda x: -x, 4.0),
        (lambda x: math.cos(4.0 * x) + 0.1 * x, (3.0 * math.pi - math.asin(0.025)) / 4.0),
        (lambda x: 1.0, 1.0),
    ],
    ids=["valley", "rising", "falling", "two-valleys", "flat"],
)
def test_the_lowest_point_is_found_inside_and_at_the_ends(function, least):
    assert lowest(function, 1.0, 4.0, 1e-4) == pytest.approx(least, abs=2e-4)


def test_an_interval_of_one_point_is_that_point():
    assert best_beta_for_outliers(1.0, 1e-5, 2.0, betas=(1.5, 1.5)).beta == 1.5


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"threshold": 0.0}, "threshold must be a number in"),
        ({"threshold": math.inf}, "threshold must be a number in"),
        ({"betas": (3.0, 2.0)}, "betas must be"),
        ({"betas": (0.5, 2.0)}, "betas must be a number in"),
        ({"tolerance": 0.0}, "tolerance must be a number in"),
        ({"epsilon": -1.0}, "epsilon must be a number in"),
    ],
)
def test_wrong_arguments_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        best_beta_for_outliers(**({"epsilon": 1.0, "delta": 1e-5, "threshold": 1.0} | changed))
