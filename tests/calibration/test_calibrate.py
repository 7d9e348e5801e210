# SPDX-License-Identifier: Apache-2.0
"""Calibration: on the private side, no further than promised, and the three questions agree."""

import dataclasses
import inspect
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.analytic_gaussian import delta as gaussian_delta
from calibration.analytic_gaussian import smallest_std
from ggdp import (
    AdditiveNoise,
    Adjacency,
    CannotCertifyError,
    Composed,
    EpsilonTooLargeError,
    Estimate,
    Gaussian,
    GeneralizedGaussian,
    PoissonSampled,
    Sampling,
    account,
    calibrate_rate,
    calibrate_scale,
    calibrate_steps,
    delta,
    epsilon,
    estimate_scale,
)
from ggdp.arguments import Range
from ggdp.calibration import run_of, target
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


@pytest.mark.parametrize("steps", [1, 100])
def test_a_scale_is_within_the_tolerance_asked_for_and_on_the_private_side(steps):
    best = calibrate_scale(beta=1.5, epsilon=1.0, delta=1e-6, steps=steps).scale
    for tolerance in (1e-4, 0.05):
        found = calibrate_scale(beta=1.5, epsilon=1.0, delta=1e-6, steps=steps, tolerance=tolerance)
        assert best <= found.scale * (1.0 + 1e-9)
        assert found.scale <= best * (1.0 + 1.1 * tolerance)
        assert found.achieved.upper <= 1.0
        noise = {"beta": 1.5, "scale": found.scale / 2.0, "steps": steps, "epsilon": 1.0, "delta": 1e-6}
        rate, least = calibrate_rate(**noise).rate, calibrate_rate(**noise, tolerance=tolerance).rate
        assert least <= rate * (1.0 + 1e-9)
        assert rate <= least * (1.0 + 1.1 * tolerance)
    with pytest.raises(ValueError, match="tolerance must be a number in"):
        calibrate_scale(beta=1.5, epsilon=1.0, delta=1e-6, tolerance=0.5)


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


@pytest.mark.parametrize("parameter", [EPSILON, BETA, RATE], ids=lambda parameter: parameter.name)
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


@pytest.mark.parametrize("delta", [-1e-9, 1e-101, 1.0, math.nan, math.inf])
def test_a_delta_outside_its_range_is_refused(delta):
    with pytest.raises(ValueError, match="delta must be"):
        calibrate_scale(beta=1.5, epsilon=1.0, delta=delta)


@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_pure_privacy_takes_laplace_noise_of_the_known_scale(rate):
    found = calibrate_scale(beta=1, epsilon=1.0, delta=0.0, rate=rate, steps=10)
    exact = 1.0 / math.log1p(math.expm1(0.1) / rate)  # steps * log(1 + rate (e^(1/scale) - 1)) = epsilon
    assert exact <= found.scale <= exact * (1.0 + 1e-6)
    assert found.achieved.upper <= 1.0
    with pytest.raises(ValueError, match="delta must be positive for this mechanism"):
        calibrate_scale(beta=1.5, epsilon=1.0, delta=0.0)
    with pytest.raises(ValueError, match="epsilon must be positive when delta is 0"):
        calibrate_scale(beta=1, epsilon=0.0, delta=0.0)


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


def test_a_known_shift_is_calibrated_for_what_it_is():
    # Two coordinates of Gaussian noise that move by 1 and -1 cost what one does that moves by sqrt(2).
    found = calibrate_scale(beta=2, epsilon=1.0, delta=1e-6, shift=(1, -1))
    assert found.noise.std == pytest.approx(math.sqrt(2.0) * float(smallest_std(1.0, 1e-6)), rel=1e-6)
    far = calibrate_scale(beta=1.5, epsilon=1.0, delta=1e-6, shift=(0.0, 5000.0))
    assert far.scale == pytest.approx(5000.0 * calibrate_scale(beta=1.5, epsilon=1.0, delta=1e-6).scale)


def test_what_cannot_be_certified_is_not_taken_for_private(monkeypatch):
    def refused(*_, **__):
        raise CannotCertifyError("nothing is known")

    def too_large(*_, **__):
        raise EpsilonTooLargeError("too large")

    asked = target.Target(1.0, 1e-6)
    release = AdditiveNoise(Gaussian(std=100.0))
    assert asked.judge(release).at_most <= 0.0
    monkeypatch.setattr(target, "delta_of", refused)
    for failing in (refused, too_large):
        monkeypatch.setattr(target, "epsilon_of", failing)
        for mechanism in (release, Composed(release, times=2)):
            assert asked.judge(mechanism).at_most > 0.0
            assert asked.met_by(mechanism) is None


def test_the_three_questions_take_the_same_arguments_in_the_same_order_and_one_finds_spherical_noise():
    taken = [
        list(inspect.signature(question).parameters)
        for question in (calibrate_scale, calibrate_rate, calibrate_steps)
    ]
    every = ["beta", "scale", "epsilon", "delta", "rate", "steps", "sensitivity", "norm", "dimension"]
    every += ["shift", "adjacency", "alongside", "tolerance", "spherical", "power", "sampling"]
    only = {"spherical", "power"}
    unneeded = ({"scale"}, {"rate", *only}, {"steps", "tolerance", *only})
    for names, left_out in zip(taken, unneeded, strict=True):
        assert names == [name for name in every if name not in left_out]


def test_batches_of_fixed_size_are_calibrated_to_the_private_side_and_no_rate_goes_with_them():
    sampling = Sampling.fixed_size(sample_size=100, population=10_000)
    found = calibrate_scale(beta=2, epsilon=2.0, delta=1e-6, steps=500, sampling=sampling)
    assert found.achieved.upper <= 2.0
    assert found.mechanism == Composed(sampling.of(found.step), times=500)
    doubled = calibrate_scale(beta=2, epsilon=2.0, delta=1e-6, steps=500, rate=0.01, sensitivity=2.0)
    assert found.scale == pytest.approx(doubled.scale, rel=1e-6)
    with pytest.raises(ValueError, match="rate must be left out"):
        calibrate_scale(beta=2, epsilon=2.0, delta=1e-6, rate=0.1, sampling=sampling)
    with pytest.raises(ValueError, match="steps must be a multiple of 20"):
        calibrate_scale(beta=2, epsilon=2.0, delta=1e-6, steps=30, sampling=Sampling.shuffled(20))


@pytest.mark.parametrize("sampling", [Sampling.fixed_size(50, 5000), Sampling.random_allocation(4)])
def test_the_most_steps_on_such_batches_meet_the_target_and_one_epoch_more_does_not(sampling):
    found = calibrate_steps(beta=2, scale=8.0, epsilon=1.0, delta=1e-6, sampling=sampling)
    one = sampling.steps_per_draw
    assert found.steps % one == 0
    assert found.mechanism == Composed(sampling.of(found.step), times=found.steps // one)
    cost = [
        epsilon(Composed(sampling.of(found.step), times=found.steps // one + more), delta=1e-6)
        for more in (0, 1)
    ]
    assert cost[0].upper <= 1.0 < cost[1].upper


@pytest.mark.parametrize(
    "sampling", [Sampling.fixed_size(1, 5000), Sampling.truncated_poisson(1e-3, 400, 5000)]
)
def test_the_largest_batches_meet_the_target_and_larger_ones_do_not(sampling):
    found = calibrate_rate(beta=2, scale=8.0, epsilon=1.0, delta=1e-6, steps=100, sampling=sampling)
    first, *rest = found.sampling.numbers
    assert tuple(rest) == sampling.numbers[1:]
    larger = Sampling(sampling.kind, (first + 1 if sampling.kind == "fixed-size" else first * 1.00001, *rest))
    cost = [
        account(Composed(one.of(found.step), times=100)).epsilon_above(delta=1e-6)
        for one in (found.sampling, larger)
    ]
    assert cost[0] <= 1.0 < cost[1]


def test_a_rate_is_not_looked_for_where_an_epoch_has_a_number_of_steps():
    with pytest.raises(ValueError, match="sampling must be one with a rate or a batch size to find"):
        calibrate_rate(beta=2, scale=8.0, epsilon=1.0, delta=1e-6, sampling=Sampling.shuffled(20))


def test_an_estimate_has_a_type_of_its_own_and_says_that_it_is_one():
    asked = {"beta": 1.5, "epsilon": 2.0, "delta": 1e-6}
    scanned = estimate_scale(**(asked | {"beta": 2}), dimension=2, method="scanned")
    assert isinstance(scanned.achieved, Estimate)
    assert scanned.achieved.value == pytest.approx(2.0, rel=1e-6)
    with pytest.raises(ValueError, match="method must be one of"):
        estimate_scale(**asked, method="guessed")
    with pytest.raises(ValueError, match="dimension"):
        estimate_scale(**asked, dimension=0, method="scanned")
    with pytest.raises(ValueError, match="is not met by noise_multiplier=1000; take fewer steps"):
        estimate_scale(**(asked | {"epsilon": 1e-5}), method="one-coordinate")


@pytest.mark.parametrize(
    ("std", "target", "target_delta"),
    [(5.0, 2.0, 1e-6), (30.0, 1.0, 1e-10), (300.0, 3.0, 1e-5), (4.0, 1.2, 1e-5)],
)
def test_steps_of_gaussian_noise_are_exactly_those_of_the_closed_form(std, target, target_delta):
    found = calibrate_steps(beta=2, scale=Gaussian(std).scale, epsilon=target, delta=target_delta)
    assert found.sharp
    assert gaussian_delta(std, target, steps=found.steps) <= target_delta
    assert gaussian_delta(std, target, steps=found.steps + 1) > target_delta


def test_one_step_more_certifiably_exceeds_the_target():
    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(1.5, 2.0)), 0.02)
    found = calibrate_steps(beta=1.5, scale=2.0, rate=0.02, epsilon=1.5, delta=1e-6)
    assert found.sharp
    assert found.achieved.upper <= 1.5
    assert found.mechanism == Composed(step, times=found.steps)
    assert epsilon(Composed(step, times=found.steps + 1), delta=1e-6).lower > 1.5


def test_steps_are_the_same_in_every_unit_of_the_sensitivity():
    one = calibrate_steps(beta=1.5, scale=2.0, rate=0.02, epsilon=1.5, delta=1e-6)
    three = calibrate_steps(beta=1.5, scale=6.0, sensitivity=3.0, rate=0.02, epsilon=1.5, delta=1e-6)
    assert (one.steps, one.achieved) == (three.steps, three.achieved)


def test_a_run_calibrated_in_scale_fits_its_own_steps_and_no_more():
    found = calibrate_scale(beta=1.3, epsilon=2.0, delta=1e-6, rate=0.02, steps=700)
    assert calibrate_steps(beta=1.3, scale=found.scale, epsilon=2.0, delta=1e-6, rate=0.02).steps == 700


def test_a_run_calibrated_in_scale_fits_its_own_rate_and_hardly_more():
    found = calibrate_scale(beta=1.3, epsilon=2.0, delta=1e-6, rate=0.02, steps=700)
    rate = calibrate_rate(beta=1.3, scale=found.scale, epsilon=2.0, delta=1e-6, steps=700)
    assert rate.sharp
    assert rate.rate == pytest.approx(0.02, rel=3e-6)
    assert rate.achieved.upper <= 2.0


def test_the_rate_of_one_release_is_that_of_the_closed_form():
    found = calibrate_rate(beta=2, scale=Gaussian(1.0).scale, epsilon=1.0, delta=1e-3)
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


def test_the_norm_dimension_and_shift_of_the_step_are_kept():
    run = {"beta": 1.5, "scale": 20.0, "epsilon": 1.0, "delta": 1e-6}
    for described in ({"norm": 1.0, "dimension": 7}, {"sensitivity": 2.0, "shift": (1, -1)}):
        step = AdditiveNoise(GeneralizedGaussian(1.5, 20.0), **described)
        assert calibrate_steps(**run, **described).step == step
        assert calibrate_rate(**run, **described).step == step


def test_what_runs_alongside_leaves_fewer_steps_and_a_smaller_rate():
    # Gaussian precisions add up: 36 other releases of the same noise leave room for 36 steps fewer.
    run = {"beta": 2, "scale": Gaussian(30.0).scale, "epsilon": 1.0, "delta": 1e-6}
    other = AdditiveNoise(Gaussian(std=30.0))
    alone = calibrate_steps(**run)
    beside = calibrate_steps(**run, alongside=[(Composed(other, times=4), 9)])
    assert beside.steps == alone.steps - 36
    assert epsilon(beside.mechanism, delta=1e-6).upper <= 1.0
    sampled = run | {"scale": Gaussian(2.0).scale, "steps": 50}
    rate = calibrate_rate(**sampled, alongside=[(other, 5)])
    assert rate.rate < calibrate_rate(**sampled).rate
    assert epsilon(rate.mechanism, delta=1e-6).upper <= 1.0


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
        ({"beta": 2, "scale": 0.0, "epsilon": 1.0, "delta": 1e-6}, "scale must be"),
        ({"beta": 2, "scale": 1.0, "rate": 1.5, "epsilon": 1.0, "delta": 1e-6}, "rate must be"),
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
            {"beta": 2, "scale": 1.0, "steps": 0, "epsilon": 1.0, "delta": 1e-6},
            "steps must be a whole number",
        ),
    ],
)
def test_rates_that_cannot_be_found_are_refused_with_a_way_out(asked, message):
    with pytest.raises(ValueError, match=message):
        calibrate_rate(**asked)


def test_next_to_a_large_delta_an_estimate_tells_how_much_noise_is_missing_or_too_much():
    """The least scale is 0.62 at delta = 0.6; a little beyond, an estimate of epsilon was 0."""
    asked, beta = target.Target(1.0, 0.6), 1.2
    excesses = [
        asked.estimated_excess(Composed(AdditiveNoise(GeneralizedGaussian(beta, scale)), times=2))
        for scale in (2.0, 0.63, 0.61, 0.3)
    ]
    assert -4.0 < excesses[0] < excesses[1] < 0.0 < excesses[2] < excesses[3] < 4.0


def test_estimates_leave_three_questions_to_certify(monkeypatch):
    asked, judge = [], target.Target.judge
    monkeypatch.setattr(target.Target, "judge", lambda self, run: asked.append(run) or judge(self, run))
    found = calibrate_scale(beta=1.2, epsilon=1.0, delta=0.3, steps=2)
    assert len(asked) <= 3
    less = Composed(AdditiveNoise(GeneralizedGaussian(1.2, (1.0 - 2e-6) * found.scale)), times=2)
    assert delta(less, epsilon=1.0).lower > 0.3


def test_a_search_without_time_is_wider_and_never_wrong(monkeypatch):
    best = calibrate_scale(beta=1.2, epsilon=1.0, delta=0.3, steps=2)
    monkeypatch.setattr(target, "_SECONDS", 0.0)
    found = calibrate_scale(beta=1.2, epsilon=1.0, delta=0.3, steps=2)
    assert epsilon(found.mechanism, delta=0.3).upper <= 1.0
    assert best.scale <= found.scale < 1.001 * best.scale
    assert not found.sharp


@pytest.mark.parametrize(
    "calibrate",
    [
        lambda sampling: calibrate_scale(beta=2, epsilon=1, delta=1e-6, steps=9, sampling=sampling),
        lambda sampling: calibrate_rate(beta=2, scale=9, epsilon=1, delta=1e-6, steps=9, sampling=sampling),
        lambda sampling: calibrate_steps(beta=2, scale=9, epsilon=1, delta=1e-6, sampling=sampling),
    ],
)
def test_the_text_of_a_sampling_is_refused_with_the_way_out(calibrate):
    with pytest.raises(ValueError, match=r"sampling must be of type Sampling.*Sampling\.parse"):
        calibrate("fixed-size:64/5000")
