# SPDX-License-Identifier: Apache-2.0
"""Simulated votes and the exponent that suits them."""

import numpy as np
import pytest
from scipy import stats

from ggdp import Adjacency, best_noise, epsilon
from ggdp.selection import (
    NoisyArgmax,
    calibrated_noise,
    hardmax_utility,
    runner_up_histograms,
    simulate_argmax,
    wrong_winner,
)

GAPS = np.linspace(0.005, 0.1, 20)


def rng():
    return np.random.default_rng(25)


def test_two_classes_have_the_gap_and_the_votes_asked_for():
    histograms = runner_up_histograms(2, GAPS)
    np.testing.assert_allclose(histograms.sum(axis=1), 1000.0, rtol=1e-12)
    np.testing.assert_allclose(histograms[:, 1] / histograms[:, 0], 1.0 - GAPS, rtol=1e-12)


@pytest.mark.parametrize("num_classes", [6, 25])
def test_many_classes_follow_the_recipe(num_classes):
    histograms = runner_up_histograms(num_classes, GAPS, rng=rng())
    first, second, third = histograms[:, :3].T
    np.testing.assert_allclose(histograms.sum(axis=1), 1000.0, rtol=1e-12)
    np.testing.assert_allclose(second / first, 1.0 - GAPS, rtol=1e-12)
    np.testing.assert_allclose(third / second, 0.95, rtol=1e-12)
    np.testing.assert_allclose(first + second + (num_classes - 3) * third / 2.0, 1000.0, rtol=1e-12)
    middle, last = histograms[:, 3:-1], histograms[:, -1]
    np.testing.assert_array_equal(middle, np.floor(middle))
    assert np.all((middle >= 0.0) & (middle <= third[:, None]))
    assert np.all((last >= 0.0) & (last <= second))


def test_middle_counts_are_uniform_given_that_the_last_one_fits():
    # With 6 classes two middle counts are uniform on the pairs whose sum leaves room: their sum is s in
    # proportion to s + 1.
    histograms = runner_up_histograms(6, np.full(4000, 0.05), rng=rng())
    room = 1000.0 - histograms[0, :3].sum()
    assert room < histograms[0, 2]
    sums = histograms[:, 3] + histograms[:, 4]

    def pvalue(most):
        return stats.ks_1samp(sums, lambda s: (s + 1.0) * (s + 2.0) / ((most + 1.0) * (most + 2.0))).pvalue

    assert pvalue(np.floor(room)) > 1e-4
    assert pvalue(np.floor(room) + 10.0) < 1e-4


def test_one_vote_is_won_most_often_with_laplace_noise_and_many_votes_below_the_gaussian():
    # At equal privacy of a single vote Laplace noise has the smallest deviation by far; composition rewards
    # light tails. The paper's "a little under 2" is what many votes show.
    settings = {"num_classes": 2, "delta": 1e-5, "gaps": GAPS, "epsilons": [1.0]}
    one = simulate_argmax(**settings, betas=(1.0, 1.5, 2.0, 3.0))
    many = simulate_argmax(**settings, betas=(1.25, 1.5, 1.75, 2.0, 2.5), times=300)
    assert one.best_betas == (1.0,)
    assert many.best_betas[0] in (1.5, 1.75)


def test_areas_and_utilities_rise_with_epsilon_and_gap():
    found = simulate_argmax(
        num_classes=25, epsilons=[0.5, 2.0], delta=1e-5, betas=(1.0, 2.0), gaps=GAPS, rng=rng()
    )
    assert np.all(np.diff(found.areas, axis=0) > 0.0)
    assert np.all((found.areas > 0.0) & (found.areas <= 1.0))
    two = simulate_argmax(num_classes=2, epsilons=[1.0], delta=1e-5, betas=(1.0, 2.0), gaps=GAPS)
    assert np.all(np.diff(two.utilities, axis=2) >= -1e-14)
    # Two classes with Gaussian noise: a normal distribution function of the gap.
    counts = runner_up_histograms(2, GAPS)
    truth = stats.norm.cdf((counts[:, 0] - counts[:, 1]) / two.noises[0][1].scale)
    np.testing.assert_allclose(two.utilities[0, 1], truth, rtol=1e-10)
    np.testing.assert_allclose(two.areas[0, 1], np.trapezoid(truth, GAPS) / (GAPS[-1] - GAPS[0]), rtol=1e-10)


def test_the_record_of_a_simulation_is_plain_data():
    record = simulate_argmax(num_classes=2, epsilons=[1.0], delta=1e-5, betas=(1.0, 2.0), gaps=GAPS).to_dict()
    assert record["results"][0]["best_beta"] == 1.0
    assert len(record["results"][0]["noises"][1]["utility"]) == len(GAPS)


def test_progress_is_told_for_each_noise():
    seen = []
    simulate_argmax(
        num_classes=2, epsilons=[1.0, 2.0], delta=1e-5, betas=(1.0, 2.0), gaps=GAPS, on_progress=seen.append
    )
    assert len(seen) == 4


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_the_best_noise_of_a_vote_meets_the_target_and_no_exponent_of_a_grid_is_wrong_less_often(adjacency):
    shift = (1, -1) if adjacency is Adjacency.REPLACE else (1,)
    found = best_noise(epsilon=2.0, delta=1e-5, steps=100, shift=shift, loss=wrong_winner([[60, 40]]))
    spent = epsilon(NoisyArgmax(found.noise, adjacency).as_mechanism(100), delta=1e-5).upper
    assert 1.999 < spent <= 2.0
    assert found.loss == pytest.approx(1.0 - hardmax_utility([[60, 40]], found.noise)[0], rel=1e-9)
    others = [calibrated_noise(beta, 2.0, 1e-5, 100, adjacency) for beta in (1.0, 1.25, 1.5, 1.75, 2.0, 3.0)]
    assert found.loss <= min(1.0 - hardmax_utility([[60, 40]], noise)[0] for noise in others) * 1.001
    assert found.laplace_loss == pytest.approx(1.0 - hardmax_utility([[60, 40]], others[0])[0], rel=1e-4)
    assert found.gaussian_loss == pytest.approx(1.0 - hardmax_utility([[60, 40]], others[4])[0], rel=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: runner_up_histograms(25, GAPS), "rng must be given"),
        (lambda: runner_up_histograms(4, GAPS, rng=rng()), "num_classes must be a whole number >= 6"),
        (lambda: runner_up_histograms(2, [1.5]), "gaps must be a number in"),
        (lambda: wrong_winner([[1, float("nan")]]), "histograms must hold finite"),
        (
            lambda: simulate_argmax(num_classes=2, epsilons=[1.0], delta=1e-5, betas=[1.0], gaps=[0.1, 0.1]),
            "gaps must be at least two rising numbers",
        ),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_comparison_that_would_take_hours_is_refused_at_once():
    settings = {"epsilons": [1.0], "delta": 1e-5, "betas": (1.0, 2.0)}
    with pytest.raises(ValueError, match="take fewer histograms"):
        simulate_argmax(num_classes=2, gaps=np.linspace(1e-8, 0.1, 3 * 10**7), **settings)
    with pytest.raises(ValueError, match="num_votes must be enough for 1000 classes"):
        simulate_argmax(num_classes=1000, gaps=GAPS, rng=rng(), **settings)


def test_ten_million_votes_are_as_quick_as_a_thousand():
    found = simulate_argmax(
        num_classes=25, num_votes=10**7, epsilons=[1.0], delta=1e-5, betas=(1.0, 2.0), gaps=GAPS, rng=rng()
    )
    assert np.all(found.utilities > 1.0 - 1e-9)  # the gaps are thousands of votes, the noise a few
