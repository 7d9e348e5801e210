# SPDX-License-Identifier: Apache-2.0
"""calibrate_scale: on the private side, and no further than promised."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.analytic_gaussian import smallest_std
from ggdp import Adjacency, Gaussian, calibrate_scale, delta, epsilon
from ggdp.arguments import Range
from ggdp.calibration.calibrated import run_of
from ggdp.mechanisms import AdditiveNoise, Composed, PoissonSampled
from ggdp.privacy_loss.dominating import BETA, NOISE_MULTIPLIER, RATE
from parameters import outside

EPSILON = Range("epsilon", least=0.0, most=2000.0, typical=(0.2, 6.0))
DELTA = Range("delta", least=1e-100, most=0.5, typical=(1e-10, 1e-4))

# Each with the largest epsilon for which even Laplace noise stays inside the range of noise multipliers.
RUNS = {
    "one release": (2.3, {"rate": 1.0, "steps": 1}),
    "one sample": (0.6, {"rate": 0.1, "steps": 1}),
    "many releases": (6.0, {"rate": 1.0, "steps": 40}),
    "training": (3.0, {"rate": 0.02, "steps": 1000}),
}


def with_scale(found, factor):
    """The calibrated run with its scale multiplied."""
    noise = dataclasses.replace(found.noise, scale=found.scale * factor)
    return run_of(dataclasses.replace(found.step, noise=noise), found.rate, found.steps)


def assert_private_and_tight(found, target, adjacency=Adjacency.ADD_REMOVE):
    """Guarantees 1 and 2: the accountant, asked again, agrees; 2e-6 less noise certifiably misses."""
    assert found.achieved.upper <= target
    assert delta(found.mechanism, epsilon=target, adjacency=adjacency).upper <= found.delta * (1 + 1e-6)
    assert epsilon(with_scale(found, 1 - 2e-6), delta=found.delta, adjacency=adjacency).lower > target


@pytest.mark.parametrize(("largest", "run"), RUNS.values(), ids=RUNS)
@given(
    beta=st.floats(1.1, 2.5),  # Laplace noise has closed forms of its own below
    share=st.floats(0.05, 1.0),
    log_delta=st.floats(math.log(DELTA.typical[0]), math.log(DELTA.typical[1])),
)
@settings(max_examples=6)
def test_the_answer_is_private_and_a_little_less_noise_is_not(largest, run, beta, share, log_delta):
    target = share * largest
    found = calibrate_scale(beta=beta, epsilon=target, delta=math.exp(log_delta), **run)
    assert_private_and_tight(found, target)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_every_adjacency_is_calibrated_for_itself(adjacency):
    found = calibrate_scale(beta=1.5, epsilon=1.0, delta=1e-6, steps=20, adjacency=adjacency)
    assert_private_and_tight(found, 1.0, adjacency)


@pytest.mark.parametrize(
    ("target", "target_delta", "run"),
    [
        (1.0, 1e-6, {}),
        (0.0, 1e-3, {}),
        (0.01, 1e-12, {"steps": 1}),
        (4.0, 0.1, {}),
        (0.3, 1e-60, {}),
        (1.0, 1e-5, {"steps": 100}),
        (8.0, 1e-9, {"steps": 10_000}),
        (0.0, 1e-2, {"steps": 30}),
        (0.5, 1e-6, {"rate": 0.05}),
    ],
)
def test_gaussian_noise_is_that_of_balle_and_wang(target, target_delta, run):
    found = calibrate_scale(beta=2, epsilon=target, delta=target_delta, **run)
    truth = smallest_std(target, target_delta, **run)
    assert truth * (1 - 1e-15) <= found.noise.std <= truth * (1 + 1e-6)


@pytest.mark.parametrize("target_delta", [0.1, 1e-3, 1e-9, 1e-30, 1e-100])
@pytest.mark.parametrize("target", [0.05, 1.0, 2.0])
def test_laplace_noise_is_that_of_its_closed_form(target, target_delta):
    # delta(eps) = 1 - exp((eps - 1/scale) / 2), so that scale -> 1/eps as delta -> 0.
    found = calibrate_scale(beta=1, epsilon=target, delta=target_delta)
    truth = 1.0 / (target - 2.0 * math.log1p(-target_delta))
    assert truth * (1 - 1e-14) <= found.scale <= truth * (1 + 1e-6)
    assert found.achieved.upper <= target


def test_a_single_release_is_sharp_to_nine_digits():
    found = calibrate_scale(beta=2, epsilon=1.0, delta=1e-6)
    assert found.noise.std == pytest.approx(float(smallest_std(1.0, 1e-6)), rel=2e-9)


def test_a_training_run_returns_to_the_scale_it_was_accounted_for():
    step = PoissonSampled(AdditiveNoise(calibrate_scale(beta=1.5, epsilon=1, delta=1e-5).noise), 0.01)
    cost = epsilon(Composed(step, times=3000), delta=1e-6).estimate
    found = calibrate_scale(beta=1.5, epsilon=cost, delta=1e-6, rate=0.01, steps=3000)
    assert found.scale == pytest.approx(step.mechanism.noise.scale, rel=1e-6)


def test_scale_is_in_the_unit_of_the_sensitivity():
    one = calibrate_scale(beta=1.5, epsilon=1, delta=1e-6)
    seven = calibrate_scale(beta=1.5, epsilon=1, delta=1e-6, sensitivity=7.0)
    assert seven.scale == pytest.approx(7.0 * one.scale, rel=1e-14)
    assert seven.noise_multiplier == pytest.approx(one.noise_multiplier, rel=1e-14)


def test_more_privacy_takes_more_noise():
    def scale(**changed):
        asked = {"beta": 1.5, "epsilon": 1.0, "delta": 1e-6, "rate": 0.02, "steps": 500}
        return calibrate_scale(**(asked | changed)).scale

    assert scale(epsilon=0.5) > scale() < scale(delta=1e-8)
    assert scale(steps=1000) > scale() < scale(rate=0.04)


def test_where_bounds_are_wide_the_answer_stays_private():
    # Laplace noise composed a few times has losses with atoms: the accountant's answers may be wide there.
    found = calibrate_scale(beta=1, epsilon=0.5, delta=1e-6, steps=3)
    assert found.achieved.upper <= 0.5
    assert found.scale <= 3.0 / 0.5 * (1 + 1e-6)  # pure privacy composes to this


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"epsilon": 1900.0},
            r"is met by all of the noise multipliers covered, \[0\.?\d*, 1000\].*smaller epsilon",
        ),
        ({"epsilon": 1e-6, "delta": 1e-9}, "cannot be met by the noise multipliers covered.*fewer steps"),
        (
            {"epsilon": 1e-4, "delta": 1e-9, "steps": 1000},
            r"not even by the largest \(epsilon there is 0\.\d+\)",
        ),
    ],
)
def test_a_target_out_of_reach_is_refused_with_a_way_out(asked, message):
    with pytest.raises(ValueError, match=message):
        calibrate_scale(**({"beta": 2, "delta": 1e-6} | asked))


@pytest.mark.parametrize("parameter", [EPSILON, DELTA, BETA, RATE], ids=lambda parameter: parameter.name)
def test_values_outside_their_range_are_refused_by_name(parameter):
    good = {"beta": 1.5, "epsilon": 1.0, "delta": 1e-6}
    for value in outside(parameter):
        if parameter.least == value == 0.0:
            continue
        with pytest.raises(ValueError, match=parameter.name):
            calibrate_scale(**(good | {parameter.name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 0), ("steps", 2.5), ("steps", 10**8), ("sensitivity", 0.0), ("adjacency", "near")],
)
def test_other_wrong_arguments_are_refused(name, value):
    with pytest.raises(ValueError, match="times" if value == 10**8 else "near" if value == "near" else name):
        calibrate_scale(**{"beta": 1.5, "epsilon": 1.0, "delta": 1e-6, name: value})


def test_no_delta_at_all_is_told_about_pure_privacy():
    with pytest.raises(ValueError, match="beta = 1 with scale = sensitivity"):
        calibrate_scale(beta=1, epsilon=1.0, delta=0)


def test_the_range_of_noise_is_the_accountants():
    found = calibrate_scale(
        beta=1, epsilon=1.0 / (math.sqrt(2.0) * NOISE_MULTIPLIER.least) * 0.999, delta=1e-12
    )
    assert NOISE_MULTIPLIER.least < found.noise_multiplier < NOISE_MULTIPLIER.least * 1.01


def test_what_runs_alongside_takes_its_share_of_the_target():
    # Gaussian precisions add up: 1/alone^2 = 1/found^2 + 1/other^2 at equal epsilon and delta.
    other = AdditiveNoise(Gaussian(std=30.0))
    found = calibrate_scale(beta=2, epsilon=1.0, delta=1e-6, alongside=[(other, 2)])
    alone = smallest_std(1.0, 1e-6)
    assert found.noise_multiplier == pytest.approx((alone**-2 - 2 / 30.0**2) ** -0.5, rel=2e-6)
    assert epsilon(found.mechanism, delta=1e-6).upper <= 1.0


def test_an_estimate_is_not_calibrated_with_anything_alongside():
    other = AdditiveNoise(Gaussian(std=30.0))
    with pytest.raises(ValueError, match="alongside"):
        calibrate_scale(
            beta=1.5,
            epsilon=1,
            delta=1e-6,
            dimension=3,
            method="scanned",
            allow_estimate=True,
            alongside=[(other, 1)],
        )
