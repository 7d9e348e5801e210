# SPDX-License-Identifier: Apache-2.0
"""GGNMax and Confident-GGNMax: what they answer, what they charge, and their calibration."""

import math

import numpy as np
import pytest
from scipy import stats

from ggdp import AdditiveNoise, Adjacency, Composed, Gaussian, GeneralizedGaussian, epsilon
from ggdp.selection import (
    ABSTAINED,
    ConfidentGGNMax,
    GGNMax,
    Votes,
    calibrate_confident_ggnmax,
    calibrate_ggnmax,
    hardmax_utility,
)
from shipped_votes import shipped

COUNTS, TRUTH = shipped()
VOTES = Votes(COUNTS)
QUIET = Gaussian(std=0.3)


def rng():
    return np.random.default_rng(2018)


def test_quiet_noise_labels_by_plurality():
    labelling = GGNMax(QUIET).label(Votes([[9, 1], [2, 8]]), rng=rng())
    assert labelling.labels.tolist() == [0, 1]
    assert (labelling.num_answered, labelling.num_abstained) == (2, 0)


def test_a_quiet_threshold_answers_exactly_the_clear_votes():
    labelling = ConfidentGGNMax(QUIET, 199.5, QUIET).label(VOTES, rng=rng())
    clear = COUNTS.max(axis=1)
    np.testing.assert_array_equal(labelling.answered[clear > 203], True)
    np.testing.assert_array_equal(labelling.answered[clear < 197], False)
    assert set(labelling.labels[~labelling.answered]) == {ABSTAINED}


def test_the_number_of_answers_follows_the_probability_of_passing():
    aggregator = ConfidentGGNMax(Gaussian(40.0), 200.0, Gaussian(150.0))
    probs = aggregator.pass_probability(VOTES)
    np.testing.assert_allclose(probs, stats.norm.sf(200 - COUNTS.max(axis=1), scale=150.0), rtol=1e-12)
    generator = rng()
    answered = sum(aggregator.label(VOTES, rng=generator).num_answered for _ in range(50))
    error = math.sqrt(50 * np.sum(probs * (1 - probs)))
    assert abs(answered - 50 * probs.sum()) < 4 * error
    assert abs(answered - 50 * 1.05 * probs.sum()) > 4 * error


def test_labels_are_right_as_often_as_the_exact_utility_says():
    noise, generator = Gaussian(60.0), rng()
    utility = hardmax_utility(COUNTS, noise)
    plurality = VOTES.plurality()
    right = sum(int(np.sum(GGNMax(noise).label(VOTES, rng=generator).labels == plurality)) for _ in range(50))
    error = math.sqrt(50 * np.sum(utility * (1 - utility)))
    assert abs(right - 50 * utility.sum()) < 4 * error
    assert abs(right - 50 * 0.97 * utility.sum()) > 4 * error


def test_labelling_stops_after_the_answers_that_were_allowed():
    for aggregator in (GGNMax(QUIET), ConfidentGGNMax(QUIET, 100.0, QUIET)):
        labelling = aggregator.label(VOTES, most_answers=30, rng=rng())
        assert labelling.num_answered == 30
        last = int(np.flatnonzero(labelling.answered)[-1])
        assert last < 60
        assert not labelling.answered[last + 1 :].any()


def test_every_check_and_every_allowed_answer_is_charged():
    aggregator = ConfidentGGNMax(Gaussian(40.0), 200.0, Gaussian(150.0))
    labelling = aggregator.label(VOTES, most_answers=100, rng=rng())
    check = AdditiveNoise(Gaussian(150.0), 1.0, norm=1.0)
    answer = AdditiveNoise(Gaussian(40.0), 1.0, norm=1.0)
    assert labelling.mechanism == Composed([(check, len(COUNTS)), (answer, 200)])
    # Gaussians compose to one Gaussian: mu^2 = 400 / 150^2 + 200 / 40^2.
    mu = math.sqrt(400 / 150**2 + 200 / 40**2)
    one = epsilon(AdditiveNoise(Gaussian(1.0 / mu)), delta=1e-5)
    found = labelling.epsilon(delta=1e-5)
    assert found.lower <= one.upper
    assert found.upper == pytest.approx(one.upper, rel=1e-6)


def test_adjacency_decides_how_many_counts_move():
    gone = GGNMax(Gaussian(40.0), Adjacency.ADD_REMOVE).label(VOTES, rng=rng())
    replaced = GGNMax(Gaussian(40.0)).label(VOTES, rng=rng())
    assert gone.mechanism.parts[0][1] * 2 == replaced.mechanism.parts[0][1]


def test_accuracy_counts_the_answered_only():
    labelling = ConfidentGGNMax(QUIET, 199.5, QUIET).label(VOTES, rng=rng())
    right = (labelling.labels == TRUTH)[labelling.answered]
    assert labelling.accuracy(TRUTH) == right.mean()
    assert math.isnan(ConfidentGGNMax(QUIET, 900.0, QUIET).label(VOTES, rng=rng()).accuracy(TRUTH))
    with pytest.raises(ValueError, match="truth must hold a label for each of 400 queries"):
        labelling.accuracy(TRUTH[:3])


@pytest.mark.parametrize("beta", [1.5, 2.0, 3.0])
def test_calibrated_noise_is_private_and_a_little_less_is_not(beta):
    aggregator = calibrate_ggnmax(beta=beta, epsilon=2.0, delta=1e-5, times=300)
    assert epsilon(aggregator.mechanism(300, 300), delta=1e-5).upper <= 2.0
    less = GGNMax(GeneralizedGaussian(beta, 0.9999 * aggregator.noise.scale))
    assert epsilon(less.mechanism(300, 300), delta=1e-5).lower > 2.0


def test_a_calibrated_check_keeps_its_ratio_and_its_budget():
    aggregator = calibrate_confident_ggnmax(
        beta=1.5, epsilon=2.0, delta=1e-5, times=300, threshold=200, most_answers=100, noise_ratio=3.0
    )
    assert aggregator.threshold_noise.scale == pytest.approx(3.0 * aggregator.noise.scale)
    assert 1.999 < epsilon(aggregator.mechanism(300, 100), delta=1e-5).upper <= 2.0


def test_allowing_fewer_answers_needs_less_noise():
    def scale(most_answers):
        return calibrate_confident_ggnmax(
            beta=2.0, epsilon=2.0, delta=1e-5, times=300, threshold=200, most_answers=most_answers
        ).noise.scale

    assert scale(50) < scale(150) < scale(None)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"beta": 1.0, "epsilon": 300.0, "times": 1}, "more than so few queries can use"),
        ({"epsilon": 1e-3, "times": 100_000}, "cannot be met for so many queries"),
        ({"times": 0}, "times must be a whole number >= 1"),
        ({"delta": 0.0}, "delta must be"),
    ],
)
def test_budgets_that_cannot_be_met_or_used_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        calibrate_ggnmax(**{"beta": 2.0, "epsilon": 1.0, "delta": 1e-5, "times": 10, **changed})


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="noise must be"):
        GGNMax(3.0)
    with pytest.raises(ValueError, match="threshold must be"):
        ConfidentGGNMax(QUIET, math.nan, QUIET)
    with pytest.raises(ValueError, match="votes must be of type Votes"):
        GGNMax(QUIET).label(COUNTS)
    with pytest.raises(ValueError, match="most_answers must be"):
        GGNMax(QUIET).label(VOTES, most_answers=401)
