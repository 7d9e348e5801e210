# SPDX-License-Identifier: Apache-2.0
"""Figures 1, 2, 5 and the accountants: numbers against closed forms, verdicts that follow them both ways."""

import copy
import math

import numpy as np
import pytest
from scipy import stats

from ggdp import AdditiveNoise, Composed, GeneralizedGaussian, PoissonSampled, epsilon, renyi_divergence
from ggdp_paper.experiment import Agreement
from ggdp_paper.figures import densities, epsilon_by_sigma, experiment_named, tail_weight
from ggdp_paper.figures.accountants import (
    mean_loss,
    order_one_epsilon,
    probabilistic_epsilon,
    published_upper,
)

FIG1 = {"epsilon": 1.0, "delta": 1e-5, "betas": [1.0, 2.0, 4.0]}
FIG2 = {
    "delta": 1e-5,
    "line": 4.0,
    "betas": [1.0, 2.0, 3.0],
    "sigmas": {"from": 0.4, "to": 4.0, "points": 4},
    "compositions": {"epsilon": 1.0, "releases": [1, 100]},
}
FIG5 = {
    "epsilon": 1.5,
    "delta": 1e-5,
    "thresholds": [1.0, 4.0],
    "betas": {"from": 1.0, "to": 3.0, "points": 5},
    "runs": [{"name": "once", "rate": 1.0, "steps": 1}],
}


def numbers_of(module, settings):
    results = [cell.result() for cell in module.EXPERIMENT.cells(settings)]
    return module.EXPERIMENT.numbers(settings, results)


@pytest.fixture(scope="module")
def fig1():
    return numbers_of(densities, FIG1)


@pytest.fixture(scope="module")
def fig2():
    return numbers_of(epsilon_by_sigma, FIG2)


@pytest.fixture(scope="module")
def fig5():
    return numbers_of(tail_weight, FIG5)


def agreement(module, settings, numbers, key):
    return module.EXPERIMENT.findings(settings, numbers)[key].agreement


def test_the_scales_of_figure_1_are_those_of_laplace_and_the_analytic_gaussian(fig1):
    laplace, gaussian, _ = fig1["noises"]
    # delta = 1 - exp((epsilon - 1/scale) / 2), solved for the scale.
    assert laplace["scale"] == pytest.approx(1.0 / (1.0 - 2.0 * math.log1p(-1e-5)), rel=1e-8)
    std = gaussian["scale"] / math.sqrt(2.0)
    normal = stats.norm()
    delta = normal.cdf(0.5 / std - std) - math.e * normal.cdf(-0.5 / std - std)
    assert delta == pytest.approx(1e-5, rel=1e-6)
    assert gaussian["mass within one sensitivity"] == pytest.approx(1 - 2 * normal.sf(1 / std))


def test_figure_1_differs_from_the_paper_on_concentration_and_on_nothing_else(fig1):
    verdicts = {key: found.agreement for key, found in densities.EXPERIMENT.findings(FIG1, fig1).items()}
    assert verdicts == {"equal privacy": "agrees", "scale": "agrees", "concentration": "differs"}


def test_figure_1_would_say_so_if_a_noise_were_less_private(fig1):
    spoiled = copy.deepcopy(fig1)
    spoiled["noises"][1]["epsilon"] = 1.001
    assert agreement(densities, FIG1, spoiled, "equal privacy") is Agreement.DIFFERS
    spoiled["noises"][1]["noise_multiplier"] = 0.1
    assert agreement(densities, FIG1, spoiled, "scale") is Agreement.DIFFERS


def test_figure_2_meets_the_closed_forms(fig2):
    assert set(fig2["from the closed form"]) == {"1", "2"}
    assert max(fig2["from the closed form"].values()) < 1e-10
    sigma = fig2["curves"][1]["sigma at the line"]
    assert epsilon_by_sigma.known_epsilon(2.0, sigma, 1e-5) == pytest.approx(4.0, abs=1e-7)


def test_the_differences_of_figure_2_change_with_the_number_of_releases(fig2):
    laplace = fig2["sigma relative to beta = 2"][0]["ratios"]
    assert laplace == pytest.approx([0.190, 0.697], abs=1e-3)
    assert agreement(epsilon_by_sigma, FIG2, fig2, "compositions") is Agreement.AGREES
    constant = {**fig2, "sigma relative to beta = 2": [{"beta": 1.0, "ratios": [0.7, 0.72]}]}
    assert agreement(epsilon_by_sigma, FIG2, constant, "compositions") is Agreement.DIFFERS


def test_figure_2_would_notice_a_curve_out_of_order(fig2):
    assert agreement(epsilon_by_sigma, FIG2, fig2, "more noise") is Agreement.AGREES
    assert agreement(epsilon_by_sigma, FIG2, fig2, "line") is Agreement.AGREES
    turned = copy.deepcopy(fig2)
    turned["curves"].reverse()
    assert agreement(epsilon_by_sigma, FIG2, turned, "more noise") is Agreement.DIFFERS
    assert agreement(epsilon_by_sigma, FIG2, turned, "line") is Agreement.DIFFERS
    turned["curves"][0]["epsilons"].reverse()
    assert agreement(epsilon_by_sigma, FIG2, turned, "form") is Agreement.DIFFERS


def test_figure_5_weighs_tails_as_scipy_does(fig5):
    for curve in fig5["runs"][0]["results"]:
        for row in curve["weights"]:
            tail = 2.0 * stats.gennorm.sf(curve["threshold"], row["beta"], scale=row["scale"])
            assert row["tail_weight"] == pytest.approx(tail, rel=1e-9)


def test_figure_5_would_notice_a_jagged_curve(fig5):
    assert agreement(tail_weight, FIG5, fig5, "jaggedness") is Agreement.AGREES
    jagged = copy.deepcopy(fig5)
    for place, row in enumerate(jagged["runs"][0]["results"][0]["weights"]):
        row["log_tail_weight"] += 3.0 * (-1.0) ** place
    found = tail_weight.EXPERIMENT.findings(FIG5, jagged)["jaggedness"]
    assert found.agreement is Agreement.DIFFERS
    assert "no jaggedness" not in found.found


def tails(*log_weights, steps=1):
    """Made-up weights at beta = 1, 1.5, 2, 2.5, 3, one curve for each."""
    curves = [
        {
            "threshold": float(number),
            "weights": [
                {"beta": beta, "log_tail_weight": weight}
                for beta, weight in zip((1.0, 1.5, 2.0, 2.5, 3.0), values, strict=True)
            ],
            "best": {"beta": 1.5, "tail_weight": 0.1},
        }
        for number, values in enumerate(log_weights)
    ]
    return {"runs": [{"name": "made up", "rate": 1.0, "steps": steps, "results": curves}]}


RISING, DIPPING = (-5.0, -4.0, -3.0, -2.0, -1.0), (-5.0, -6.0, -3.0, -2.0, -1.0)
FALLING, LEVEL = (-1.0, -2.0, -3.0, -2.9, -2.8), (-5.0, -5.0, -5.0, -5.0, -5.0)


@pytest.mark.parametrize(
    ("curves", "verdict"),
    [
        ([RISING, RISING], Agreement.AGREES),
        ([RISING, DIPPING], Agreement.PARTLY),
        ([FALLING, DIPPING], Agreement.DIFFERS),
        ([LEVEL], Agreement.UNDECIDED),
    ],
)
def test_laplace_is_optimal_for_one_release_only_if_its_tail_is_the_lightest(curves, verdict):
    assert agreement(tail_weight, FIG5, tails(*curves), "laplace") is verdict
    assert agreement(tail_weight, FIG5, tails(*curves, steps=100), "laplace") is Agreement.UNDECIDED


@pytest.mark.parametrize(
    ("curves", "verdict"),
    [
        ([RISING, DIPPING], Agreement.AGREES),  # the paper says that there are such regimes: one is enough
        ([RISING, FALLING], Agreement.DIFFERS),
        ([LEVEL], Agreement.UNDECIDED),
    ],
)
def test_another_exponent_must_beat_laplace_and_gaussian_somewhere(curves, verdict):
    assert agreement(tail_weight, FIG5, tails(*curves), "others") is verdict


def test_exponents_that_were_not_tried_leave_figure_5_undecided():
    numbers = tails(DIPPING)
    del numbers["runs"][0]["results"][0]["weights"][0]
    for key in ("laplace", "others"):
        assert agreement(tail_weight, FIG5, numbers, key) is Agreement.UNDECIDED


@pytest.mark.parametrize(
    ("module", "settings", "numbers"),
    [(densities, FIG1, "fig1"), (epsilon_by_sigma, FIG2, "fig2"), (tail_weight, FIG5, "fig5")],
)
def test_every_axis_is_labelled_and_the_gaussian_is_named(module, settings, numbers, request):
    pictures = module.EXPERIMENT.pictures(settings, request.getfixturevalue(numbers))
    for figure in pictures.values():
        texts = [text.get_text() for axes in figure.axes for text in axes.texts]
        legends = [axes.get_legend() for axes in figure.axes] + figure.legends
        texts += [text.get_text() for legend in legends if legend for text in legend.get_texts()]
        assert any("Gaussian" in text for text in texts)
        for axes in figure.axes:
            assert axes.get_xlabel()
            assert axes.get_ylabel()


def test_the_published_accountant_is_right_where_its_bins_are_narrow_and_short_where_they_are_wide():
    """The same sampled losses, in bins so narrow that half of one does not count, and as they come."""
    settings = experiment_named("accountants").config.settings
    run = {"beta": 1.0, "sigma": 3.0, "steps": 640, "delta": 1e-4, "num_samples": 1_000_000}
    run |= {"rate": 512 / 32561, **settings["published"]}
    noise = GeneralizedGaussian.from_noise_multiplier(1.0, 3.0)
    truth = epsilon(Composed(PoissonSampled(AdditiveNoise(noise), run["rate"]), times=640), delta=1e-4)
    wide, width = published_upper(**run, rng=np.random.default_rng(1))
    narrow, less = published_upper(
        **{**run, "tail": 0.5, "least_reach": 0.5, "samples_per_bin": 4}, rng=np.random.default_rng(1)
    )
    assert less < 0.01 * width
    assert wide < truth.lower < narrow < truth.upper + 0.03


def test_a_bound_of_order_one_alone_says_next_to_nothing_and_is_reached_by_two_outcomes():
    found = order_one_epsilon(0.05, 1e-3)
    assert 30.0 < found < 60.0
    p, log_q = np.meshgrid(np.geomspace(1.001e-3, 0.9, 400), np.linspace(-60.0, -1e-3, 4000))
    divergence = p * (np.log(p) - log_q) + (1.0 - p) * (np.log1p(-p) - np.log1p(-np.exp(log_q)))
    allowed = (divergence <= 0.05) & (log_q < np.log(p))

    def most(claimed):
        return float(np.max((p - np.exp(claimed + log_q))[allowed]))

    assert most(found) <= 1e-3
    assert most(0.97 * found) > 1e-3


def test_probabilistic_privacy_is_met_by_the_noise_it_speaks_of_and_exceeds_the_exact_epsilon():
    for beta in (1.0, 2.0, 3.0):
        noise = GeneralizedGaussian(beta, 3.0)
        bound = probabilistic_epsilon(noise, 1, 1e-3)
        z = stats.gennorm(beta, scale=3.0).rvs(200_000, random_state=3)
        losses = (np.abs(z + 1.0) ** beta - np.abs(z) ** beta) / 3.0**beta
        assert np.mean(losses > bound * (1.0 + 1e-12)) <= 1e-3
        assert bound >= epsilon(AdditiveNoise(noise), delta=1e-3).lower
    assert mean_loss(GeneralizedGaussian(3.0, 2.0)) == pytest.approx(
        renyi_divergence(AdditiveNoise(GeneralizedGaussian(3.0, 2.0)), 1.0).upper, rel=1e-4
    )
