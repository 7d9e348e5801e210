# SPDX-License-Identifier: Apache-2.0
"""Data-dependent epsilons: Theorem 6 against outcomes, the published analysis redone in mpmath, and the Renyi
divergences behind them."""

import itertools
import math

import mpmath
import numpy as np
import pytest

from ggdp import Adjacency, Bounds, Estimate, Gaussian, GeneralizedGaussian, Laplace, epsilon
from ggdp.selection import (
    Analysis,
    ConfidentGGNMax,
    DataDependentEpsilon,
    Votes,
    data_dependent_epsilon,
    win_probabilities,
)
from ggdp.selection.data_dependent import ORDERS, shift_divergence, theorem6
from shipped_votes import shipped

VOTES, _ = shipped()
GOLDEN = {"answered": 210.468414, "published": 1.167371, "exact": 0.943757}
SETTING = {"threshold": 200, "threshold_noise": Gaussian(150.0), "delta": 1e-5}


def published_by_mpmath(votes, threshold, check_std, std, delta, order):
    """The analysis of Papernot et al. 2018 at one order, written down again from the paper, at 30 digits."""
    with mpmath.workdps(30):
        a, total, answered = mpmath.mpf(order), mpmath.mpf(0), mpmath.mpf(0)

        def normal_sf(x, deviation):
            return mpmath.erfc(mpmath.mpf(x) / deviation / mpmath.sqrt(2)) / 2

        def charged(q, sigma):  # Theorem 6 with Proposition 10, or order / sigma^2
            plain = a / sigma**2
            m2 = sigma * mpmath.sqrt(mpmath.log(1 / q))
            m1 = m2 + 1
            e1, e2 = m1 / sigma**2, m2 / sigma**2
            if not (m1 > a and m2 > 1 and q * mpmath.exp(e2) < 1):
                return plain
            if q > mpmath.exp((m2 - 1) * e2) / ((m1 / (m1 - 1)) * (m2 / (m2 - 1))) ** m2:
                return plain
            first = (1 - q) / (1 - (q * mpmath.exp(e2)) ** (1 - 1 / m2))
            second = mpmath.exp(e1) / q ** (1 / (m1 - 1))
            return min(plain, mpmath.log((1 - q) * first ** (a - 1) + q * second ** (a - 1)) / (a - 1))

        for row in votes.tolist():
            top = max(row)
            passing = normal_sf(threshold - top, check_std)
            total += charged(min(passing, 1 - passing), mpmath.sqrt(2) * check_std)
            others = sorted(row, reverse=True)[1:]
            union = sum(normal_sf(top - other, mpmath.sqrt(2) * std) for other in others)
            total += passing * charged(min(union, 1 - mpmath.mpf(1) / len(row)), mpmath.mpf(std))
            answered += passing
        return float(total + mpmath.log(1 / mpmath.mpf(delta)) / (a - 1)), float(answered)


def test_the_published_analysis_is_reproduced_on_the_shipped_votes():
    votes = VOTES[:80]
    found = data_dependent_epsilon(votes, Gaussian(40.0), analysis=Analysis.PUBLISHED, **SETTING)
    truth, answered = published_by_mpmath(votes, 200, 150, 40, 1e-5, found.order)
    assert found.value == pytest.approx(truth, rel=1e-10)
    assert found.answered == pytest.approx(answered, rel=1e-10)


def test_golden_numbers_of_the_shipped_votes():
    # All 400 shipped queries; the published analysis at each of these orders agrees with mpmath as above.
    published = data_dependent_epsilon(VOTES, Gaussian(40.0), analysis=Analysis.PUBLISHED, **SETTING)
    exact = data_dependent_epsilon(VOTES, Gaussian(40.0), **SETTING)
    assert published.answered == pytest.approx(GOLDEN["answered"], abs=1e-6)
    assert published.value == pytest.approx(GOLDEN["published"], abs=1e-6)
    assert exact.value == pytest.approx(GOLDEN["exact"], abs=1e-6)


@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0, 3.0])
def test_theorem6_bounds_the_divergence_of_the_outcomes_themselves(beta):
    # For three classes every neighbour can be tried, and the divergence of the argmax computed exactly.
    noise = GeneralizedGaussian(beta, 3.0)
    counts = np.array([30.0, 6.0, 4.0])
    here = win_probabilities(counts, noise)
    log_q = np.log([here[1:].sum()])
    high = np.array([2.5, 4.0, 8.0, 20.0])
    divergences = 2.0 * shift_divergence(noise, high)
    orders = np.array([1.5, 2.0])
    worst = np.zeros(2)
    for up, down in itertools.permutations(range(3), 2):
        there = counts.copy()
        there[up] += 1.0
        there[down] -= 1.0
        other = win_probabilities(there, noise)
        for place, order in enumerate(orders):
            divergence = np.log(np.sum(here**order * other ** (1.0 - order))) / (order - 1.0)
            worst[place] = max(worst[place], divergence)
    tried = 0
    for (m1, e1), (m2, e2) in itertools.product(zip(high, divergences, strict=True), repeat=2):
        bound = theorem6(log_q, orders, *(np.array([value]) for value in (m1, e1, m2, e2)))[0]
        tried += int(np.isfinite(bound).sum())
        assert np.all(bound >= worst - 1e-12)
    assert tried > 0


def test_the_exact_analysis_is_never_worse_than_the_published_one():
    for std in (20.0, 40.0, 80.0):
        published = data_dependent_epsilon(VOTES, Gaussian(std), analysis=Analysis.PUBLISHED, **SETTING)
        assert data_dependent_epsilon(VOTES, Gaussian(std), **SETTING).value < published.value


def test_unanimous_votes_cost_almost_nothing_and_split_votes_the_full_price():
    noise = Gaussian(20.0)
    unanimous = np.tile([250, 0, 0], (100, 1))
    split = np.tile([84, 83, 83], (100, 1))
    quiet = data_dependent_epsilon(unanimous, noise, delta=1e-5).value
    loud = data_dependent_epsilon(split, noise, delta=1e-5).value
    order = ORDERS
    full = 100 * order / 20.0**2 + np.log1p(-1 / order) - (np.log(1e-5) + np.log(order)) / (order - 1)
    assert quiet < 0.1 * loud
    assert loud == pytest.approx(full.min(), rel=1e-12)


@pytest.mark.parametrize("beta", [1.0, 1.5, 3.0])
def test_other_exponents_are_charged_at_most_their_data_independent_renyi_price(beta):
    noise = GeneralizedGaussian.from_std(beta, 40.0)
    order = ORDERS
    full = len(VOTES) * 2.0 * shift_divergence(noise, order)
    full = full + np.log1p(-1 / order) - (np.log(1e-5) + np.log(order)) / (order - 1)
    assert 0.0 < data_dependent_epsilon(VOTES, noise, delta=1e-5).value < full.min()


def test_threshold_checks_are_charged_even_when_nothing_is_answered():
    none = np.zeros(len(VOTES), dtype=bool)
    found = data_dependent_epsilon(VOTES, Gaussian(40.0), answered=none, **SETTING)
    more = data_dependent_epsilon(VOTES, Gaussian(40.0), answered=~none, **SETTING)
    assert found.answered == 0.0
    assert 0.0 < found.value < more.value


def test_a_voter_who_comes_or_goes_costs_less_than_one_who_changes_its_vote():
    replaced = data_dependent_epsilon(VOTES, Gaussian(40.0), delta=1e-5).value
    gone = data_dependent_epsilon(VOTES, Gaussian(40.0), delta=1e-5, adjacency=Adjacency.ADD_REMOVE).value
    assert gone < replaced


def test_the_answer_says_that_it_is_private_and_is_no_bound():
    found = data_dependent_epsilon(VOTES[:5], Gaussian(40.0), delta=1e-5)
    assert isinstance(found, DataDependentEpsilon)
    assert not isinstance(found, Bounds | Estimate)
    assert "private data" in found.caveat
    assert "PRIVATE DATA" in DataDependentEpsilon.__doc__


def test_a_run_is_charged_for_what_it_answered():
    votes = Votes(VOTES)
    aggregator = ConfidentGGNMax(Gaussian(40.0), 200.0, Gaussian(150.0))
    labelling = aggregator.label(votes, rng=np.random.default_rng(1))
    found = labelling.data_dependent_epsilon(votes, delta=1e-5)
    assert found.answered == labelling.num_answered
    plain = epsilon(aggregator.mechanism(votes.num_queries, labelling.num_answered), delta=1e-5)
    assert found.value < plain.upper


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"threshold": 5.0}, "given together"),
        ({"delta": 0.0}, "delta must be"),
        ({"answered": np.ones(3, dtype=bool)}, "answered must be one truth value"),
        ({"answered": np.ones(len(VOTES))}, "answered must be one truth value"),
        ({"analysis": "published", "noise": GeneralizedGaussian(1.5, 9.0)}, "analysis must be 'exact'"),
        ({"analysis": "guessed"}, "not a valid Analysis"),
    ],
    ids=["half-a-check", "delta", "short-mask", "float-mask", "not-gaussian", "unknown"],
)
def test_wrong_arguments_are_refused(changed, message):
    arguments = {"noise": Gaussian(40.0), "delta": 1e-5, **changed}
    with pytest.raises(ValueError, match=message):
        data_dependent_epsilon(VOTES, arguments.pop("noise"), **arguments)


def orders_up_to(most, count):
    return 1.0 + np.geomspace(0.1, most - 1.0, count)


def exact_divergence(beta, distance_over_scale, order):
    with mpmath.workdps(30):
        b, s, m = mpmath.mpf(beta), mpmath.mpf(distance_over_scale), mpmath.mpf(order)
        ratio = (1 - 1 / m) ** (1 / (b - 1))
        peak = s * ratio / (1 - ratio)

        def exponent(u):
            return -m * abs(u) ** b + (m - 1) * abs(u - s) ** b

        top = exponent(-peak)
        ends = sorted(
            [-peak - 40 ** (1 / b) * 2, -peak - 1, -peak, mpmath.mpf(0), s, s + 1, s + 60 ** (1 / b)]
        )
        mass = mpmath.quad(lambda u: mpmath.exp(exponent(u) - top), ends)
        return float((mpmath.log(mass / (2 * mpmath.gamma(1 + 1 / b))) + top) / (m - 1))


@pytest.mark.parametrize("beta", [1.05, 1.5, 3.0])
@pytest.mark.parametrize(("distance", "order"), [(1.0, 1.1), (1.0, 30.0), (0.02, 3.0), (0.02, 1000.0)])
def test_the_divergence_is_that_of_mpmath(beta, distance, order):
    found = shift_divergence(GeneralizedGaussian(beta, 1.0 / distance), np.array([order]))[0]
    assert found == pytest.approx(exact_divergence(beta, distance, order), rel=1e-9)


@pytest.mark.parametrize("std", [0.5, 7.0, 150.0])
def test_quadrature_meets_the_closed_form_of_the_gaussian(std):
    orders = orders_up_to(60.0 * std, 60)
    nearly = GeneralizedGaussian(math.nextafter(2.0, 3.0), Gaussian(std).scale)
    np.testing.assert_allclose(shift_divergence(nearly, orders), orders / (2.0 * std**2), rtol=1e-8)


def test_quadrature_meets_the_closed_form_of_laplace():
    orders = orders_up_to(500.0, 40)
    nearly = shift_divergence(GeneralizedGaussian(1.0 + 1e-7, 3.0), orders)
    np.testing.assert_allclose(nearly, shift_divergence(Laplace(3.0), orders), rtol=1e-5)


def test_the_divergence_of_laplace_stays_below_its_pure_epsilon():
    found = shift_divergence(Laplace(3.0), orders_up_to(1e6, 100))
    assert np.all(found <= 1.0 / 3.0)
    assert found[-1] == pytest.approx(1.0 / 3.0, rel=1e-5)


@pytest.mark.parametrize("beta", [1.0, 1.2, 2.0, 5.0])
def test_the_divergence_rises_with_order_and_distance(beta):
    orders = orders_up_to(30.0, 80)
    near, far = (shift_divergence(GeneralizedGaussian(beta, scale), orders) for scale in (10.0, 5.0))
    assert np.all(np.diff(near) > 0.0)
    assert np.all(far > near)


def test_an_order_too_high_to_compute_is_infinite_rather_than_wrong():
    assert shift_divergence(GeneralizedGaussian(8.0, 1.0), np.array([1000.0]))[0] == np.inf
