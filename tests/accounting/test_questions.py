"""What a user may ask, and what is refused."""

import math

import mpmath
import numpy as np
import pytest

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Bounds,
    Composed,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    OutcomeProbabilities,
    PoissonSampled,
    delta,
    epsilon,
    privacy_curve,
)
from ggdp.accounting.profile import account
from ggdp.privacy_loss.classical import DiscreteGaussianNoise

STEP = PoissonSampled(AdditiveNoise(GeneralizedGaussian(1.5, 2.0)), rate=0.05)


def test_a_thousand_different_gaussians_compose_to_one():
    """Unsampled Gaussians add their squared ratios, whatever their number; the closed form is exact."""
    stds = [20.0 + 0.1 * k for k in range(1000)]
    answer = epsilon(Composed([(AdditiveNoise(Gaussian(std)), 1) for std in stds]), delta=1e-6)
    with mpmath.workdps(40):
        mu = mpmath.sqrt(sum(mpmath.mpf(std) ** -2 for std in stds))

        def closed_form(eps):
            return mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)

        assert closed_form(mpmath.mpf(answer.upper)) <= 1e-6 * (1 + 1e-12)
        assert closed_form(mpmath.mpf(answer.lower)) >= 1e-6 * (1 - 1e-12)
    assert answer.width <= 1e-6 * answer.upper


def test_different_mechanisms_cost_more_than_either_and_order_does_not_matter():
    laplace = AdditiveNoise(Laplace(scale=5.0))
    both = epsilon(Composed([(STEP, 200), (laplace, 3)]), delta=1e-6)
    swapped = epsilon(Composed([(laplace, 3), (STEP, 200)]), delta=1e-6)
    alone = epsilon(Composed(STEP, times=200), delta=1e-6)
    assert both.lower > alone.upper
    assert swapped.estimate == pytest.approx(both.estimate, rel=1e-9)


def test_adjacencies_stand_in_their_order():
    mechanism = Composed(STEP, times=50)
    answers = {kind: epsilon(mechanism, delta=1e-5, adjacency=kind) for kind in Adjacency}
    both = answers[Adjacency.ADD_REMOVE]
    assert both.upper == max(answers[Adjacency.ADD].upper, answers[Adjacency.REMOVE].upper)
    assert answers[Adjacency.REPLACE].lower >= both.lower


def test_epsilon_is_zero_where_delta_covers_the_total_variation():
    mechanism = AdditiveNoise(Gaussian(std=100.0))
    assert epsilon(mechanism, delta=0.1) == Bounds(0.0, 0.0, 0.0, "closed form")
    assert epsilon(Composed(mechanism, times=3), delta=0.1).upper == 0.0


def test_log_delta_is_delta_in_another_form():
    mechanism = Composed(STEP, times=50)
    by_log = epsilon(mechanism, log_delta=math.log(1e-8))
    assert by_log.estimate == pytest.approx(epsilon(mechanism, delta=1e-8).estimate, rel=1e-12)


def test_curve_falls_and_agrees_with_single_questions():
    mechanism = Composed(STEP, times=50)
    curve = privacy_curve(mechanism, epsilons=[0.1, 0.3, 0.6])
    assert [point.upper for point in curve] == sorted((point.upper for point in curve), reverse=True)
    assert curve[1].estimate == pytest.approx(delta(mechanism, epsilon=0.3).estimate, rel=1e-12)
    (there,) = privacy_curve(mechanism, deltas=[curve[1].estimate])
    assert there.estimate == pytest.approx(0.3, rel=1e-6)


@pytest.mark.parametrize("points", [5.0, "12", [10**400], [None], [True], np.ones((2, 2))])
def test_points_of_a_curve_that_are_no_numbers_are_refused_by_name(points):
    with pytest.raises(ValueError, match="epsilons must"):
        privacy_curve(STEP, epsilons=points)


def test_delta_far_below_any_double_is_bounded_and_not_zero():
    answer = delta(Composed(AdditiveNoise(Gaussian(std=100.0)), times=4), epsilon=3.0)
    assert 0.0 < answer.upper < 1e-200
    assert answer.lower >= 0.0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"delta": 1e-101}, "delta"),
        ({"log_delta": -300.0}, "log_delta"),
        ({}, "delta"),
        ({"delta": 1e-5, "log_delta": -5.0}, "delta"),
    ],
)
def test_impossible_deltas_are_refused_by_name(arguments, name):
    with pytest.raises(ValueError, match=name):
        epsilon(Composed(STEP, times=5), **arguments)


def test_an_epsilon_beyond_reach_is_refused_with_a_way_out():
    mechanism = Composed(AdditiveNoise(GeneralizedGaussian(1.5, 0.5)), times=10_000)
    with pytest.raises(ValueError, match="more noise"):
        epsilon(mechanism, delta=1e-5)
    for point in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="epsilon"):
            delta(mechanism, epsilon=point)


def test_bounds_out_of_order_cannot_be_made():
    with pytest.raises(ValueError, match="lower <= estimate <= upper"):
        Bounds(2.0, 1.0, 3.0, "by hand")


@pytest.mark.parametrize("target", [0.5, 0.500001, 0.7, 0.95, 0.9999])
def test_epsilon_at_a_delta_above_a_half_is_where_the_closed_form_says(target):
    answer = account(AdditiveNoise(Gaussian(std=0.1))).epsilon_or_infinity(delta=target)
    with mpmath.workdps(40):
        mu = 1 / mpmath.mpf(Gaussian(std=0.1).std)

        def closed_form(eps):
            return mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)

        assert closed_form(mpmath.mpf(answer.upper)) <= target * (1 + 1e-12)
        assert closed_form(mpmath.mpf(answer.lower)) >= target * (1 - 1e-12)
    assert answer.width <= 1e-7 * answer.upper


def test_epsilon_at_the_ends_of_delta_is_the_largest_loss_and_nothing():
    laplace = Composed(AdditiveNoise(Laplace(scale=4.0)), times=3)
    assert account(laplace).epsilon_or_infinity(delta=0.0).upper == pytest.approx(0.75, rel=1e-13)
    assert account(laplace).epsilon_or_infinity(delta=1e-200).upper == pytest.approx(0.75, rel=1e-13)
    assert (
        account(laplace).epsilon_or_infinity(delta=1.0).upper
        == account(laplace).epsilon_or_infinity(delta=0.6).upper
        == 0.0
    )
    assert account(STEP).epsilon_or_infinity(delta=0.0).upper == math.inf
    assert account(laplace).epsilon_or_infinity(delta=1e-6) == epsilon(laplace, delta=1e-6)


def test_epsilon_at_is_infinite_above_and_finite_below_where_it_is_more_than_is_computed():
    much = Composed(AdditiveNoise(GeneralizedGaussian.from_noise_multiplier(3.0, 0.02, 1.0)), times=100)
    answer = account(much).epsilon_or_infinity(delta=1e-6)
    assert answer.lower <= 2000.0 < answer.upper == math.inf
    lost = Composed(OutcomeProbabilities((0.6, 0.4), (0.0, 1.0)), times=2)  # 0.84 of the losses are infinite
    assert account(lost).epsilon_or_infinity(delta=0.8).upper == math.inf
    assert account(lost).epsilon_or_infinity(delta=0.85).upper < 2.0


def test_delta_just_below_the_largest_loss_is_next_to_nothing():
    """Two described releases, whose largest losses round: delta is at most 1 - e^(epsilon - largest)."""
    first = OutcomeProbabilities((0.75, 0.25), (0.25, 0.75))
    second = OutcomeProbabilities((0.6, 0.4), (0.4, 0.6))
    largest = math.log(3.0) + math.log(1.5)
    assert delta(Composed([(first, 1), (second, 1)]), epsilon=largest * (1 - 1e-15)).upper < 1e-13


def test_delta_where_epsilon_is_beyond_what_the_engines_resolve_is_bounded_by_delta_nearer_by():
    parts = [(DiscreteGaussianNoise(1.3), 1), (PoissonSampled(AdditiveNoise(Laplace(scale=9.5)), 0.0005), 12)]
    profile = account(Composed([*parts, (AdditiveNoise(Gaussian(std=1.0)), 1)]))
    assert all(profile.delta(epsilon=at).upper < 1e-80 for at in (30.0, 50.0, 100.0, 2000.0, 5000.0))


def test_next_to_no_noise_on_rare_samples_costs_the_chance_of_being_sampled():
    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(6.0, 0.054)), rate=0.01)
    found = delta(Composed(step, times=5), epsilon=5.0)
    assert found.lower <= -math.expm1(5.0 * math.log1p(-0.01)) <= found.upper
    assert found.width < 1e-6


@pytest.mark.parametrize("times", [50, 100, 400, 10**4, 10**7])
def test_delta_next_to_one_is_certified_at_once(times):
    found = delta(
        Composed(AdditiveNoise(GeneralizedGaussian(2.0000001, math.sqrt(2.0))), times=times), epsilon=9.0
    )
    with mpmath.workdps(60):  # the Gaussian's, whose shift the other's nearly is
        shift = mpmath.sqrt(times)
        truth = mpmath.ncdf(shift / 2 - 9 / shift) - mpmath.exp(9) * mpmath.ncdf(-shift / 2 - 9 / shift)
        assert found.lower * (1.0 - 1e-6) <= truth <= found.upper * (1.0 + 1e-6)
    assert found.lower < 1.0
    assert found.lower > 1.0 - 1e-11 or times < 10**4
