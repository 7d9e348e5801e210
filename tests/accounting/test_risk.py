# SPDX-License-Identifier: Apache-2.0
"""Certified risks against closed forms, brute force over tests, and another library's profile."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from cases import CUSTOM, MECHANISMS, VOTES
from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    OutcomeProbabilities,
    PoissonSampled,
    Risk,
    account,
    attack_success,
    gdp_mu,
    trade_off,
)
from ggdp.accounting import gdp
from ggdp.accounting import risk as risk_module
from ggdp.privacy_loss.custom import LossCdf

RATES = (1e-9, 1e-4, 0.01, 0.05, 0.3, 0.5, 0.9, 0.999)
STEP = PoissonSampled(AdditiveNoise(Gaussian(std=1.0)), rate=0.01)
TRAINING = {
    "one epoch": Composed(PoissonSampled(AdditiveNoise(Gaussian(std=0.8)), rate=0.02), times=50),
    "many epochs": Composed(STEP, times=10_000),
    "other noise": Composed(
        PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta=1.5, scale=2.0)), rate=0.01), times=1000
    ),
}


def holds(bounds, truth):
    return bounds.lower <= truth <= bounds.upper


@pytest.mark.parametrize("std", [0.3, 1.0, 7.0])
def test_gaussian_trade_off_is_the_closed_form(std):
    risk = Risk(account(AdditiveNoise(Gaussian(std=std))))
    with mpmath.workdps(40):
        for rate in RATES:
            quantile = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(rate))
            detected = 1 - mpmath.ncdf(quantile - 1 / mpmath.mpf(std))
            found = risk.true_positive_rate(false_positive_rate=rate)
            assert found.lower <= detected <= found.upper
            assert found.width <= 1e-7 * found.upper
            missed = risk.trade_off(false_positive_rate=rate)
            assert missed.lower <= 1 - detected <= missed.upper


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_laplace_trade_off_is_the_closed_form(scale):
    risk, size = Risk(account(AdditiveNoise(Laplace(scale=scale)))), 1.0 / scale
    for rate in RATES:
        if rate <= math.exp(-size) / 2.0:
            missed = 1.0 - math.exp(size) * rate
        elif rate <= 0.5:
            missed = math.exp(-size) / (4.0 * rate)
        else:
            missed = math.exp(-size) * (1.0 - rate)
        found = risk.trade_off(false_positive_rate=rate)
        assert found.lower - 1e-14 <= missed <= found.upper + 1e-14
        assert found.width <= 1e-7


def sampled_gaussian_errors(rate, std, threshold):
    """False and true positives of the test "output above the threshold", which is optimal."""
    true = (1.0 - rate) * ndtr(-threshold / std) + rate * ndtr((1.0 - threshold) / std)
    return ndtr(-threshold / std), true


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.7, 2.0, 4.0])
def test_a_positive_with_the_record_is_told_apart_from_one_without_it(threshold):
    step = PoissonSampled(AdditiveNoise(Gaussian(std=0.8)), rate=0.2)
    alarms, detected = sampled_gaussian_errors(0.2, 0.8, threshold)
    found = Risk(account(step, adjacency=Adjacency.REMOVE)).true_positive_rate(false_positive_rate=alarms)
    assert found.lower * (1 - 1e-12) <= detected <= found.upper * (1 + 1e-12)
    assert found.width <= 1e-7 * detected
    # The other order: the same threshold, "below it" for the positive without the record.
    found = Risk(account(step, adjacency=Adjacency.ADD)).true_positive_rate(
        false_positive_rate=1.0 - detected
    )
    assert found.lower * (1 - 1e-12) <= 1.0 - alarms <= found.upper * (1 + 1e-12)
    # Where the attacker may choose, it does no worse than with either.
    both = Risk(account(step))
    assert both.true_positive_rate(false_positive_rate=alarms).upper >= detected * (1 - 1e-12)
    assert both.true_positive_rate(false_positive_rate=1.0 - detected).upper >= (1.0 - alarms) * (1 - 1e-12)


@pytest.mark.parametrize("rate", [1e-6, 3e-4])
def test_rates_so_small_that_all_losses_are_near_zero_leave_both_ends_close(rate):
    step = PoissonSampled(AdditiveNoise(Gaussian(std=4.0)), rate=rate)
    risk = Risk(account(step, adjacency=Adjacency.REMOVE))
    for threshold in (-3.0, 0.0, 4.0, 12.0):
        alarms, detected = sampled_gaussian_errors(rate, 4.0, threshold)
        found = risk.true_positive_rate(false_positive_rate=alarms)
        assert found.lower * (1 - 1e-13) <= detected <= found.upper * (1 + 1e-13)
        assert found.width <= 1e-6 * detected


def test_outcomes_agree_with_all_tests_enumerated():
    with_record, without = (0.5, 0.3, 0.15, 0.05), (0.1, 0.3, 0.2, 0.4)
    corners = []
    for size in range(5):
        for chosen in itertools.combinations(range(4), size):
            corners.append((sum(without[i] for i in chosen), sum(with_record[i] for i in chosen)))
    risk = Risk(account(OutcomeProbabilities(with_record, without), adjacency=Adjacency.REMOVE))
    for rate in (0.02, 0.1, 0.25, 0.5, 0.77):
        # A randomised test mixes two deterministic ones.
        best = max(
            one[1] + (rate - one[0]) / (two[0] - one[0]) * (two[1] - one[1])
            for one in corners
            for two in corners
            if one[0] <= rate < two[0]
        )
        found = risk.true_positive_rate(false_positive_rate=rate)
        assert found.lower - 1e-12 <= best <= found.upper + 1e-12
        assert found.width <= 1e-5


@pytest.mark.parametrize("name", TRAINING)
def test_both_ends_meet_for_training_runs_and_a_curve_costs_few_questions(name, monkeypatch):
    profile, asked = account(TRAINING[name]), []
    monkeypatch.setattr(
        profile, "delta", lambda *, epsilon, ask=profile.delta: asked.append(epsilon) or ask(epsilon=epsilon)
    )
    curve = Risk(profile).trade_off_curve(np.linspace(0.001, 0.999, 50))
    assert max(found.width for found in curve) <= 1e-6
    assert len(asked) <= 50 * 20


def test_detections_agree_with_another_librarys_profile():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    grid = pld.from_gaussian_mechanism(
        standard_deviation=1.0, sampling_prob=0.01, value_discretization_interval=1e-3
    ).self_compose(1000)
    epsilons = np.linspace(0.0, 6.0, 3001)
    deltas = np.array([grid.get_delta_for_epsilon(epsilon) for epsilon in epsilons])
    risk = Risk(account(Composed(STEP, times=1000)))
    for rate in (1e-4, 0.01, 0.1):
        theirs = float(np.min(deltas + np.exp(epsilons) * rate))
        found = risk.true_positive_rate(false_positive_rate=rate)
        assert found.lower <= theirs  # theirs is an upper bound
        assert theirs <= found.upper * (1.0 + 2e-3)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    beta=st.floats(1.0, 4.0),
    scale=st.floats(0.5, 5.0),
    rate=st.sampled_from([0.01, 0.3, 1.0]),
    points=st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3, unique=True),
)
def test_trade_off_falls_and_is_convex_and_symmetric(beta, scale, rate, points):
    step = AdditiveNoise(GeneralizedGaussian(beta=beta, scale=scale))
    risk = Risk(account(PoissonSampled(step, rate=rate) if rate < 1.0 else step))
    low, middle, high = sorted(points)
    one, two, three = risk.trade_off_curve([low, middle, high])
    for rate_, found in zip((low, middle, high), (one, two, three), strict=True):
        assert 0.0 <= found.lower <= found.estimate <= found.upper <= min(1.0, 1.0 - rate_ + 1e-15)
        # It is its own inverse, for the attacker may choose the positive.
        back = risk.trade_off(false_positive_rate=found.estimate)
        if found.estimate > 1e-6:
            assert back.lower <= rate_ + 1e-6
    assert two.lower <= one.upper
    assert three.lower <= two.upper
    share = (high - middle) / (high - low)
    assert two.lower <= share * one.upper + (1.0 - share) * three.upper + 1e-12


@pytest.mark.parametrize(
    "name",
    [name for name in {**MECHANISMS, **CUSTOM, **VOTES} if name not in ("vector", "largest-coordinate")],
)
def test_every_mechanism_has_a_trade_off_in_agreement_with_its_delta(name):
    profile = account({**MECHANISMS, **CUSTOM, **VOTES}[name])
    risk = Risk(profile)
    for rate in (0.01, 0.3):
        found = risk.true_positive_rate(false_positive_rate=rate)
        assert rate <= found.lower <= found.estimate <= found.upper <= 1.0
        for epsilon in (0.0, 0.3, 1.0):
            spent = profile.delta(epsilon=epsilon)
            assert found.lower <= spent.upper + math.exp(epsilon) * rate + 1e-12
        assert found.upper <= rate + risk.advantage().upper + 1e-12


def test_the_lower_bound_needs_no_luck_where_delta_is_known_roughly():
    # Bounds of delta widened by a share: both ends must move outwards, and hold the sharp answer.
    class Wide:
        def __init__(self, share):
            self.share, self.profile = share, account(AdditiveNoise(Gaussian(std=1.0)))

        def delta(self, *, epsilon):
            found = self.profile.delta(epsilon=epsilon)
            sized = type(found)
            factor = 1.0 + self.share
            return sized(found.lower / factor, found.estimate, min(found.upper * factor, 1.0), "wide")

        def exchanged(self):
            return self

        def largest_loss(self):
            return math.inf, math.inf

    for share in (1e-6, 1e-3, 0.1):
        risk = Risk(Wide(share))
        for rate in (1e-6, 0.01, 0.5, 0.99):
            truth = ndtr(ndtri(rate) + 1.0)
            found = risk.true_positive_rate(false_positive_rate=rate)
            assert found.lower <= truth <= found.upper
            assert found.width <= (4.0 * share + 1e-6) * truth


def test_advantage_posterior_and_accuracy_are_those_of_the_gaussian():
    found = attack_success(AdditiveNoise(Gaussian(std=1.0)), false_positive_rate=0.05, prior=0.2)
    assert holds(found.advantage, 2.0 * ndtr(0.5) - 1.0)
    detected = ndtr(ndtri(0.05) + 1.0)
    assert holds(found.posterior, 0.2 * detected / (0.2 * detected + 0.8 * 0.05))
    threshold = 0.5 + math.log(4.0)  # where the posterior is one half
    assert holds(found.bayes_accuracy, 0.8 * ndtr(threshold) + 0.2 * ndtr(1.0 - threshold))
    assert max(one.width for one in (found.posterior, found.bayes_accuracy)) <= 1e-7
    assert (
        attack_success(AdditiveNoise(Laplace(scale=100.0)), prior=0.01).bayes_accuracy.upper <= 0.99 + 1e-12
    )


@pytest.mark.parametrize("prior", [0.35, 0.06, 0.0023, 1e-5, 2e-13])
def test_a_guess_that_the_output_cannot_change_is_right_as_often_as_the_prior_says(prior):
    """1 - prior rounds, sometimes upwards; the certified lower end was this double."""
    found = attack_success(AdditiveNoise(Laplace(scale=100.0)), prior=prior).bayes_accuracy
    assert found.lower <= 1 - Fraction(prior) <= found.upper
    assert found.width <= 1e-12


@pytest.mark.parametrize("times", [1, 7])
def test_gaussian_releases_have_their_own_mu(times):
    found = gdp_mu(Composed(AdditiveNoise(Gaussian(std=3.0)), times=times))
    assert holds(found.mu, math.sqrt(times) / 3.0)
    assert found.mu.width <= 1e-14
    assert found.regret.upper <= 1e-14
    assert gdp_mu(AdditiveNoise(Gaussian(std=3.0)), adjacency=Adjacency.REPLACE).mu.upper == pytest.approx(
        2 / 3
    )


def test_mu_of_laplace_noise_is_the_largest_over_all_false_positive_rates():
    found = gdp_mu(AdditiveNoise(Laplace(scale=1.0)), least_delta=0.0)

    def missed(rate):
        return np.where(
            rate <= math.exp(-1.0) / 2.0,
            1.0 - math.e * rate,
            np.where(rate <= 0.5, math.exp(-1.0) / (4.0 * rate), math.exp(-1.0) * (1.0 - rate)),
        )

    rates = np.concatenate([np.geomspace(1e-12, 1e-3, 20_000), np.linspace(1e-3, 0.999, 200_000)])
    mu = float(np.max(ndtri(1.0 - rates) - ndtri(missed(rates))))
    assert found.mu.lower <= mu * (1.0 + 1e-6)
    assert mu <= found.mu.upper
    assert found.mu.width <= 1e-6
    # The regret moves the trade-off of the mechanism left and down until it lies below the Gaussian one.
    gaussian = ndtr(ndtri(1.0 - rates) - found.mu.upper)

    def is_below(shift):
        return bool(np.all(missed(np.minimum(rates + shift, 1.0)) - shift <= gaussian + 1e-12))

    assert is_below(found.regret.upper)
    assert not is_below(found.regret.lower - 1e-5)
    assert found.regret.width <= 1e-6


def test_mu_of_a_training_run_covers_its_profile_and_no_smaller_one_does():
    profile = account(Composed(STEP, times=1000))
    found = Risk(profile).gdp(least_delta=1e-9)
    assert found.mu.width <= 1e-6 * found.mu.upper

    def gaussian(mu, epsilon):
        return ndtr(-epsilon / mu + mu / 2.0) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2.0)

    epsilons = np.linspace(0.0, profile.epsilon(delta=1e-9).upper, 300)
    deltas = [profile.delta(epsilon=epsilon).lower for epsilon in epsilons]
    assert all(
        one <= max(gaussian(found.mu.upper, epsilon) * (1.0 + 1e-10), 1e-9)
        for epsilon, one in zip(epsilons, deltas, strict=True)
    )
    less = 0.99 * found.mu.lower
    assert any(
        one > max(gaussian(less, epsilon), 1e-9) for epsilon, one in zip(epsilons, deltas, strict=True)
    )
    over = max(
        (gaussian(found.mu.upper, epsilon) - one) / (1.0 + math.exp(epsilon))
        for epsilon, one in zip(epsilons, deltas, strict=True)
    )
    assert over <= found.regret.upper + 1e-12
    assert found.regret.lower <= over + 1e-6


def test_a_mechanism_that_loses_next_to_nothing_has_mu_zero():
    found = gdp_mu(AdditiveNoise(Laplace(scale=1000.0)), least_delta=0.01)
    assert (found.mu.lower, found.mu.upper, found.regret.upper) == (0.0, 0.0, 0.0)


def test_the_ends_of_the_range_are_answered():
    risk = Risk(account(AdditiveNoise(Gaussian(std=1.0))))
    assert risk.true_positive_rate(false_positive_rate=0.0).upper <= 1e-15
    assert risk.trade_off(false_positive_rate=0.0).lower >= 1.0 - 1e-15
    assert risk.trade_off(false_positive_rate=1.0).upper == 0.0


def test_what_cannot_be_answered_is_refused_by_name():
    step = AdditiveNoise(Gaussian(std=1.0))
    with pytest.raises(ValueError, match=r"false_positive_rate must be a number in \[0, 1\], got 1.5"):
        trade_off(step, false_positive_rate=1.5)
    with pytest.raises(ValueError, match=r"prior must be a number in \(0, 1\), got 0"):
        attack_success(step, prior=0.0)
    with pytest.raises(ValueError, match="least_delta must be a delta that some epsilon up to 700 has"):
        gdp_mu(PoissonSampled(step, rate=0.5), least_delta=0.0)
    one_sided = LossCdf(lambda t: ndtr(t - 0.5), infinite=0.0, cells=100)
    with pytest.raises(ValueError, match="adjacency must be 'remove'"):
        trade_off(one_sided, false_positive_rate=0.1, adjacency=Adjacency.REMOVE)


def test_no_delta_is_asked_twice_and_a_drawn_curve_asks_less(monkeypatch):
    profile = account(Composed(AdditiveNoise(Gaussian(std=2.0)), times=4))
    asked, delta = [], profile.delta
    monkeypatch.setattr(profile, "delta", lambda *, epsilon: asked.append(epsilon) or delta(epsilon=epsilon))
    rates, counts = [0.001, 0.01, 0.1, 0.5, 0.9], []
    for tolerance in (5e-8, 1e-5):
        asked.clear()
        risk = Risk(profile)
        risk.advantage()
        risk.attack_success(false_positive_rate=0.01)
        for bounds in risk.trade_off_curve(rates, tolerance=tolerance):
            assert bounds.width <= 1.1 * tolerance
        assert len(asked) == len(set(asked))
        counts.append(len(asked))
    assert counts[1] < counts[0]


def test_mu_is_looked_for_in_the_time_that_the_first_questions_have_left(monkeypatch):
    asked = []

    def counted(delta, last, least_delta, seconds):
        asked.append(seconds)
        return gdp.gaussian_privacy(delta, last, least_delta, 0.0)

    risk = Risk(account(TRAINING["one epoch"]))
    monkeypatch.setattr(risk_module, "gaussian_privacy", counted)
    monkeypatch.setattr(risk, "_first_took", 3.0)
    hurried = risk.gdp()
    monkeypatch.undo()
    assert 0.5 <= asked[0] <= 1.0
    full = risk.gdp()
    assert hurried.mu.lower <= full.mu.lower * (1.0 + 1e-12)
    assert full.mu.upper < hurried.mu.upper
