# SPDX-License-Identifier: Apache-2.0
"""The words and the picture of a guarantee: a bound on every test, attained by randomized response."""

import math

import numpy as np
import pytest
from scipy import stats

from ggdp import AdditiveNoise, Adjacency, Gaussian, Risk, account, delta
from ggdp.reporting.figures import detection_figure
from ggdp.reporting.guarantee import Guarantee

RATES = np.linspace(0.0, 1.0, 101)


def most(points, adjacency, rates=RATES):
    promise = Guarantee(points, adjacency)
    return np.array([promise.most_detection(float(rate)) for rate in rates])


def test_no_test_of_a_gaussian_output_detects_more_and_a_smaller_delta_would_be_exceeded():
    std, epsilons = 1.3, (0.2, 0.5, 1.0, 2.0)
    roc = stats.norm.sf(stats.norm.isf(RATES) - 1.0 / std)  # Neyman and Pearson: the best test there is
    mechanism = AdditiveNoise(Gaussian(std))
    points = [(epsilon, delta(mechanism, epsilon=epsilon).upper) for epsilon in epsilons]
    for point in points:
        assert np.all(roc <= most([point], Adjacency.ADD_REMOVE) + 1e-12)
        assert np.any(roc > most([(point[0], 0.9 * point[1])], Adjacency.ADD_REMOVE))
    assert np.all(roc <= most(points, Adjacency.ADD_REMOVE) + 1e-12)


def test_randomized_response_attains_the_bound_of_pure_privacy():
    epsilon = 1.2
    truth = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    assert Guarantee([(epsilon, 0.0)], Adjacency.REPLACE).most_detection(1.0 - truth) == pytest.approx(truth)


def test_one_direction_alone_bounds_only_what_it_proves():
    # With the record the output is 1 with probability 1/2; without it, never: REMOVE at epsilon = 0 costs
    # delta = 1/2, and ADD costs epsilon = log 2 without any delta.
    with_record, without = 0.5, 0.0
    assert Guarantee([(0.0, 0.5)], Adjacency.REMOVE).most_detection(without) == with_record
    assert Guarantee([(math.log(2.0), 0.0)], Adjacency.ADD).most_detection(without) == pytest.approx(
        with_record
    )
    # Read as REMOVE, the pair of ADD would deny what is possible.
    assert Guarantee([(math.log(2.0), 0.0)], Adjacency.REMOVE).most_detection(without) < with_record


def test_a_bound_is_a_probability_even_where_epsilon_is_huge():
    values = most([(1e4, 1e-6)], Adjacency.ADD_REMOVE)
    assert values.min() >= 0.0
    assert values.max() == 1.0


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_words_name_epsilon_delta_neighbours_and_a_chance_rounded_up(adjacency):
    promise = Guarantee([(1.0000001, 1e-6)], adjacency, unit="patient")
    words = " ".join(promise.sentences())
    assert "(1.00001, 1e-6)-differentially private" in words
    assert promise.neighbours in words
    assert "patient" in words
    assert "record" not in words
    exact = 100.0 * promise.most_detection(0.01)
    told = float(words.split("detection is at most ")[1].split("%")[0])
    assert exact <= told <= 1.01 * exact


def test_of_several_pairs_each_number_says_which_pairs_it_rests_on():
    pairs = [(0.228, 1e-6), (0.357, 1e-10), (0.147, 1e-4)]
    promise = Guarantee(pairs, Adjacency.ADD_REMOVE)
    chance, first, formula, _ = promise.sentences()
    assert "(0.228, 1e-6)-differentially private. This is one of 3 pairs that hold at once." in first
    assert "1.257 a + 1e-6" in formula
    assert formula.endswith(", by this pair alone.")
    # The third pair is the best at one false alarm in a hundred: the words must not be read as the first's.
    assert promise.most_detection(0.01) < Guarantee(pairs[:1], Adjacency.ADD_REMOVE).most_detection(0.01)
    assert "%, by all 3 pairs together;" in chance
    assert "pair" not in " ".join(Guarantee(pairs[:1], Adjacency.ADD_REMOVE).sentences())


def test_a_factor_too_large_for_a_double_is_written_as_a_power():
    formula = Guarantee([(1e4, 1e-6)], Adjacency.REMOVE).sentences()[2]
    assert "at most e^10000 a + 1e-6" in formula


@pytest.mark.parametrize("points", [[], [(-1.0, 0.1)], [(math.nan, 0.1)], [(math.inf, 0.1)]])
def test_an_epsilon_that_no_guarantee_has_is_refused(points):
    with pytest.raises(ValueError, match=r"epsilon must be a number in \[0, inf\)|points must hold"):
        Guarantee(points, Adjacency.ADD_REMOVE)


@pytest.mark.parametrize("delta_value", [-1e-9, 3.0, math.nan, math.inf])
def test_a_delta_that_is_no_probability_is_refused(delta_value):
    with pytest.raises(ValueError, match=r"delta must be a number in \[0, 1\], got"):
        Guarantee([(1.0, 1e-5), (0.5, delta_value)], Adjacency.ADD_REMOVE)


def test_the_picture_shows_the_bound_and_blind_guessing():
    promise = Guarantee([(1.0, 1e-5)], Adjacency.ADD_REMOVE)
    figure = detection_figure(promise)
    for axes in figure.axes:
        assert "rate" in axes.get_xlabel()
        assert "rate" in axes.get_ylabel()
        bound, guess = axes.get_lines()
        for rate, value in zip(bound.get_xdata(), bound.get_ydata(), strict=True):
            assert value == promise.most_detection(float(rate))
        assert np.all(bound.get_ydata() >= guess.get_ydata() - 1e-12)


def test_certified_detections_hold_between_their_rates_and_sharpen_the_guarantee():
    mechanism, std = AdditiveNoise(Gaussian(1.3)), 1.3
    risk = Risk(account(mechanism))
    known = [(rate, risk.true_positive_rate(false_positive_rate=rate).upper) for rate in (0.01, 0.1, 0.5)]
    pair = (1.0, delta(mechanism, epsilon=1.0).upper)
    promise = Guarantee([pair], Adjacency.ADD_REMOVE, detections=known)
    roc = stats.norm.sf(stats.norm.isf(RATES) - 1.0 / std)
    found = np.array([promise.most_detection(float(rate)) for rate in RATES])
    assert np.all(roc <= found + 1e-12)
    assert np.all(found <= most([pair], Adjacency.ADD_REMOVE))
    assert found[[1, 10, 50]] == pytest.approx(roc[[1, 10, 50]], rel=1e-6)
    assert "by the whole privacy profile" in promise.sentences()[0]
