# SPDX-License-Identifier: Apache-2.0
"""Figures 3 and 5: accuracies and areas against closed forms, verdicts that follow the numbers both ways."""

import copy
import math

import numpy as np
import pytest
from scipy import stats

from ggdp.reproduction import hardmax, pate_accuracy
from ggdp.reproduction.experiment import Agreement

FIG3 = {
    "betas": {"from": 1.0, "to": 4.0, "points": 4},
    "delta": 1e-5,
    "budgets": [
        {"epsilon": 0.5, "votes": 1, "adjacency": "add-remove"},
        {"epsilon": 2.0, "votes": 20, "adjacency": "add-remove"},
    ],
    "queries": {"mnist": 30},
    "trials": {"budget": 0, "count": 10},
    "data": {},
}
FIG5 = {
    "classes": [2, 25],
    "budgets": [{"votes": 1, "epsilons": [1.0], "betas": {"from": 1.0, "to": 2.0, "points": 2}}],
    "delta": 1e-5,
    "gaps": {"from": 0.001, "to": 0.1, "points": 30},
    "histogram_seeds": [1, 2],
}


@pytest.fixture(scope="module")
def votes(tmp_path_factory):
    """250 teachers, two classes, the first always right: wins have a closed form."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "pate").mkdir()
    first = np.random.default_rng(4).integers(120, 160, size=40)
    np.savez(folder / "pate" / "mnist_250_teachers.npz", votes=np.stack([first, 250 - first], axis=1))
    np.save(folder / "pate" / "mnist_test_labels.npy", np.zeros(40, dtype=np.int64))
    return folder, first[:30]


@pytest.fixture(scope="module")
def fig3(votes):
    results = [cell.result(votes[0]) for cell in pate_accuracy.EXPERIMENT.cells(FIG3)]
    return results, pate_accuracy.EXPERIMENT.numbers(FIG3, results)


@pytest.fixture(scope="module")
def fig5():
    results = [cell.result() for cell in hardmax.EXPERIMENT.cells(FIG5)]
    return hardmax.EXPERIMENT.numbers(FIG5, results)


def test_the_accuracy_of_gaussian_noise_is_its_closed_form(fig3, votes):
    results, numbers = fig3
    gaps = 2.0 * votes[1] - 250.0
    for place, curve in enumerate(numbers["curves"]):
        beta, result = numbers["betas"][1], results[4 * place + 1]
        assert beta == 2.0
        exact = stats.norm.cdf(gaps / result["scale"]).mean()  # sqrt(2) std = scale, for a difference of two
        assert curve["accuracy"][1] == pytest.approx(exact, abs=1e-9)


def test_figure_3_needs_the_published_files_by_name():
    assert pate_accuracy.EXPERIMENT.files(FIG3) == (
        "pate/mnist_250_teachers.npz",
        "pate/mnist_test_labels.npy",
    )


def test_figure_3_would_notice_a_slope_a_dip_and_wrong_trials(fig3):
    def verdict(key, numbers):
        return pate_accuracy.EXPERIMENT.findings(FIG3, numbers)[key].agreement

    spoiled = copy.deepcopy(fig3[1])
    curve = spoiled["curves"][0]
    curve |= {"accuracy": [0.9, 0.899, 0.898, 0.897], "trials": [0.9001, 0.899, 0.898, 0.897]}
    curve["standard_error"] = [1e-4] * 4
    assert [verdict(key, spoiled) for key in ("flat", "falling", "dip", "trials")] == [Agreement.AGREES] * 4
    curve["accuracy"] = [0.9, 0.85, 0.8, 0.85]
    assert [verdict(key, spoiled) for key in ("flat", "falling", "dip", "trials")] == [Agreement.DIFFERS] * 4


def test_figure_3_notes_what_many_votes_do(fig3):
    (note,) = fig3[1]["notes"]
    assert "20 votes in one budget, MNIST" in note


def test_the_area_of_gaussian_noise_and_two_classes_is_its_closed_form(fig5):
    curve = fig5["curves"][0]
    gaps = np.linspace(0.001, 0.1, 30)
    first = 1000.0 / (2.0 - gaps)
    utility = stats.norm.cdf(gaps * first / curve["scales"][1])
    area = np.trapezoid(utility, gaps) / np.ptp(gaps)
    assert curve["areas"][1] == pytest.approx(area, abs=1e-9)
    assert curve["standard errors"] == [0.0, 0.0]  # nothing is left to chance


def test_histograms_of_many_classes_have_error_bars(fig5):
    assert min(fig5["curves"][1]["standard errors"]) > 0.0


def test_figure_5_agrees_in_part_where_budgets_disagree(fig5):
    def verdicts(numbers):
        return {key: found.agreement for key, found in hardmax.EXPERIMENT.findings(FIG5, numbers).items()}

    assert verdicts(fig5)["laplace"] is Agreement.DIFFERS
    mixed = copy.deepcopy(fig5)
    mixed["curves"][1]["areas"] = [0.1, 0.9]
    mixed["curves"].append({**mixed["curves"][0], "areas": [0.1, 0.9], "best beta": 1.75})
    found = verdicts(mixed)
    assert found["laplace"] is Agreement.PARTLY
    assert found["two classes"] is Agreement.PARTLY


@pytest.mark.parametrize("number", [3, 5])
def test_pictures_have_labels_error_bars_and_the_gaussian(number, fig3, fig5):
    module, settings, numbers = (pate_accuracy, FIG3, fig3[1]) if number == 3 else (hardmax, FIG5, fig5)
    for figure in module.EXPERIMENT.pictures(settings, numbers).values():
        for axes in figure.axes:
            assert axes.get_xlabel()
            assert axes.get_ylabel()
        assert any("Gaussian" in text.get_text() for axes in figure.axes for text in axes.texts)
        assert any(axes.containers for axes in figure.axes)


def test_trials_are_the_same_every_time(votes):
    cell = pate_accuracy.EXPERIMENT.cells(FIG3)[2]
    assert cell.result(votes[0]) == cell.result(votes[0])
    assert not math.isclose(cell.result(votes[0])["datasets"]["mnist"]["standard_error"], 0.0)
