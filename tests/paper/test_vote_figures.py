# SPDX-License-Identifier: Apache-2.0
"""Figures 3, 7 and 8: accuracies and areas against closed forms, verdicts that follow the numbers."""

import copy
import math

import numpy as np
import pytest
from scipy import stats

from ggdp import calibrate_scale
from ggdp_paper.experiment import Agreement
from ggdp_paper.figures import hardmax, pate_accuracy

FIG3 = {
    "betas": {"from": 1.0, "to": 4.0, "points": 4},
    "delta": 1e-5,
    "budgets": [
        {"epsilon": 0.5, "votes": 1, "adjacency": "add-remove"},
        {"epsilon": 2.0, "votes": 20, "adjacency": "add-remove"},
    ],
    "queries": {"mnist": 30},
    "trials": {"budget": 0, "count": 10, "others": [5]},
    "grid": {"from": 0.01, "to": 7.0, "points": 50, "epsilons": [1.0, 4.0]},
    "data": {},
}
FIG7 = {
    "classes": [2, 25],
    "budgets": [{"votes": 1, "epsilons": [1.0], "betas": {"from": 1.0, "to": 2.0, "points": 2}}],
    "delta": 1e-5,
    "gaps": {"from": 0.001, "to": 0.1, "points": 30},
    "area_to": 0.1,
    "histogram_seeds": [1, 2],
    "grid": {
        "epsilons": [4.0],
        "betas": {"from": 1.0, "to": 3.0, "points": 3},
        "sigmas": {"from": 0.01, "to": 7.0, "points": 50},
    },
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
def fig7():
    results = [cell.result() for cell in hardmax.EXPERIMENT.cells(FIG7)]
    return hardmax.EXPERIMENT.numbers(FIG7, results)


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


def verdict(key, numbers):
    return pate_accuracy.EXPERIMENT.findings(FIG3, numbers)[key].agreement


def test_figure_3_would_notice_a_slope(fig3):
    spoiled = copy.deepcopy(fig3[1])
    curve = spoiled["curves"][0]
    curve["accuracy"] = [0.9, 0.899, 0.898, 0.897]
    assert [verdict(key, spoiled) for key in ("flat", "falling")] == [Agreement.AGREES] * 2
    curve["accuracy"] = [0.9, 0.85, 0.8, 0.85]
    assert [verdict(key, spoiled) for key in ("flat", "falling")] == [Agreement.DIFFERS] * 2


def smooth():
    """Accuracies that fall ever faster, at the paper's 20 exponents."""
    betas = np.linspace(1.0, 4.0, 20)
    return betas, 0.9 - 0.001 * betas**2


def with_curves(*curves):
    budget = {"votes": 1}
    return {
        "betas": smooth()[0].tolist(),
        "curves": [{"dataset": "mnist", "budget": budget, "accuracy": list(curve)} for curve in curves],
        "grid": [{"dataset": "mnist", "epsilon": 1.0, "accuracy": list(curve)} for curve in curves],
    }


def test_the_drop_near_2_6_is_the_papers_only_where_it_is_there():
    betas, values = smooth()
    near, far = np.argmin(np.abs(betas - 2.6)), np.argmin(np.abs(betas - 3.5))
    dip, step, elsewhere = values.copy(), values.copy(), values.copy()
    dip[near] -= 0.005
    step[near:] -= 0.005
    elsewhere[far] -= 0.005
    assert verdict("dip", with_curves(values, elsewhere)) is Agreement.DIFFERS
    assert verdict("dip", with_curves(dip, step)) is Agreement.AGREES
    assert verdict("dip", with_curves(dip, values)) is Agreement.PARTLY
    assert verdict("grid", with_curves(values, elsewhere)) is Agreement.DIFFERS
    assert verdict("grid", with_curves(dip, step)) is Agreement.AGREES
    ended = with_curves(dip, values)
    ended["grid"][0]["accuracy"][-2:] = [None, None]
    assert verdict("grid", ended) is Agreement.DIFFERS  # a curve with holes shows no drop
    found = pate_accuracy.EXPERIMENT.findings(FIG3, ended)["grid"].found
    assert "No sigma of the grid meets the budget from beta = 3.84 on" in found


def test_noise_from_the_grid_is_the_next_one_up_and_missing_where_the_grid_ends(fig3):
    loose, tight = fig3[1]["grid"][1], fig3[1]["grid"][0]
    assert (loose["epsilon"], tight["epsilon"]) == (4.0, 1.0)
    for beta, sigma in zip(fig3[1]["betas"], loose["sigmas"], strict=True):
        exact = calibrate_scale(beta=beta, epsilon=4.0, delta=1e-5).noise_multiplier
        assert exact <= sigma < exact + 6.99 / 49.0 + 1e-9
    assert tight["sigmas"][-1] is tight["accuracy"][-1] is None  # 11.2 at beta = 4
    assert tight["sigmas"][0] == pytest.approx(0.71, abs=6.99 / 49.0)


def test_a_coarse_grid_cannot_tell_a_drop(fig3):
    assert len(fig3[1]["betas"]) == 4
    assert verdict("dip", fig3[1]) is Agreement.UNDECIDED


def test_another_number_of_trials_has_an_effect_only_if_it_moves_mean_or_deviation():
    numbers = with_curves(smooth()[1])
    few = {"trials": 10, "means": [0.9005] * 20, "stds": [0.0105] * 20}
    many = {"trials": 25, "means": [0.9] * 20, "stds": [0.01] * 20}
    numbers["curves"][0]["by trials"] = [many, few]
    assert verdict("trials", numbers) is Agreement.AGREES
    few["stds"][3] = 0.02
    assert verdict("trials", numbers) is Agreement.PARTLY
    few["means"][7] = 0.91
    assert verdict("trials", numbers) is Agreement.DIFFERS
    numbers["curves"][0]["by trials"] = [many]
    assert verdict("trials", numbers) is Agreement.UNDECIDED


def test_means_and_deviations_are_of_the_first_trials(fig3):
    results, numbers = fig3
    shares = [result["datasets"]["mnist"]["shares"] for result in results[:4]]
    assert [len(row) for row in shares] == [10] * 4
    for tried, count in zip(numbers["curves"][0]["by trials"], (10, 5), strict=True):
        assert tried["trials"] == count
        assert tried["means"] == pytest.approx([np.mean(row[:count]) for row in shares])
        assert tried["stds"] == pytest.approx([np.std(row[:count], ddof=1) for row in shares])


def test_figure_3_notes_what_many_votes_do_and_how_far_trials_are_off(fig3):
    many, trials = fig3[1]["notes"]
    assert "20 votes in one budget, MNIST" in many
    assert "mean of 10 trials on MNIST is off by at most" in trials
    off = fig3[1]["curves"][0]
    apart = np.abs(np.subtract(off["accuracy"], off["by trials"][0]["means"]))
    assert np.max(apart / (np.array(off["by trials"][0]["stds"]) / math.sqrt(10))) < 4.5


def test_the_area_of_gaussian_noise_and_two_classes_is_its_closed_form(fig7):
    curve = fig7["curves"][0]
    gaps = np.linspace(0.001, 0.1, 30)
    first = 1000.0 / (2.0 - gaps)
    utility = stats.norm.cdf(gaps * first / curve["scales"][1])
    area = np.trapezoid(utility, gaps) / np.ptp(gaps)
    assert curve["areas"][1] == pytest.approx(area, abs=1e-9)
    assert curve["standard errors"] == [0.0, 0.0]  # nothing is left to chance


def test_histograms_of_many_classes_have_error_bars(fig7):
    assert min(fig7["curves"][1]["standard errors"]) > 0.0


def area_curve(classes, *sets, bests, epsilon=1.0, betas=(1.0, 2.0, 3.0), utilities=None):
    """Made-up areas of some sets of histograms, their best exponents, and utilities [beta, gap]."""
    return {
        "name": "made up",
        "utilities": utilities or [[0.5, 0.6], [0.5, 0.7], [0.5, 0.6]],
        "classes": classes,
        "votes": 1,
        "epsilon": epsilon,
        "betas": list(betas),
        "areas by histograms": [list(areas) for areas in sets],
        "best exponents": bests,
    }


def rounded_areas(early, late):
    """Areas that rounding sigma has moved by so much at small and at large exponents."""
    exact = [0.5, 0.5, 0.5, 0.5]
    moved = [0.5 - early, 0.5 - early, 0.5 - late, None]
    return {"classes": 2, "epsilon": 1.0, "betas": [1.0, 2.0, 3.0, 4.0], "exact": exact, "grid": moved}


def verdicts_on(*curves, grid=(0.1, 0.2)):
    numbers = {"curves": list(curves), "grid": [rounded_areas(*grid)]}
    found = hardmax.EXPERIMENT.findings(FIG7, numbers)
    return {key: finding.agreement for key, finding in found.items()}


def two_classes(best=1.75):
    return area_curve(2, (0.6, 0.7, 0.6), bests=[best])


@pytest.mark.parametrize(
    ("bests", "verdict"),
    [
        ([2.1, 1.95], Agreement.AGREES),
        ([1.75, 1.75], Agreement.DIFFERS),  # as far from 2 as with two classes
        ([2.5, 2.5], Agreement.DIFFERS),  # farther
        ([2.0, 2.5], Agreement.UNDECIDED),  # the histograms disagree
        ([2.125, 2.125], Agreement.UNDECIDED),  # just half as far: not known that well
    ],
)
def test_much_closer_to_2_is_measured_by_two_classes_at_the_same_budget(bests, verdict):
    many = area_curve(25, *[(0.1, 0.3, 0.1)] * 2, bests=bests)
    assert verdicts_on(two_classes(), many)["many classes"] is verdict


def test_figure_7_agrees_in_part_where_budgets_disagree():
    many = area_curve(25, *[(0.1, 0.3, 0.1)] * 2, bests=[2.0, 2.0])
    single = area_curve(2, (0.9, 0.7, 0.6), bests=[1.0], epsilon=2.0)
    far = area_curve(25, *[(0.9, 0.3, 0.1)] * 2, bests=[1.0, 1.0], epsilon=2.0)
    assert verdicts_on(two_classes(), single, many, far) == {
        "two classes": Agreement.PARTLY,
        "many classes": Agreement.PARTLY,
        "laplace": Agreement.PARTLY,
        "more classes": Agreement.AGREES,
        "fixed gap": Agreement.DIFFERS,
        "same beta": Agreement.AGREES,
        "jagged": Agreement.AGREES,
    }


def test_verdicts_at_fixed_gaps_follow_the_utilities():
    flat = area_curve(2, (0.6, 0.7, 0.6), bests=[2.0], utilities=[[0.5, 0.62], [0.52, 0.64], [0.51, 0.63]])
    moving = area_curve(2, (0.6, 0.7, 0.6), bests=[2.0], utilities=[[0.5, 0.9], [0.7, 0.8], [0.8, 0.7]])
    many = area_curve(25, (0.1, 0.3, 0.1), bests=[2.0])
    agrees = verdicts_on(flat, many, grid=(0.2, 0.1))
    assert [agrees[key] for key in ("fixed gap", "same beta", "jagged")] == ["agrees", "agrees", "differs"]
    other = verdicts_on(moving, many)
    assert [other[key] for key in ("fixed gap", "same beta")] == ["differs", "partly"]


def test_areas_from_the_grid_are_those_of_more_noise(fig7):
    for row in fig7["grid"]:
        assert all(grid <= exact for grid, exact in zip(row["grid"], row["exact"], strict=True))
        assert max(np.subtract(row["exact"], row["grid"])) > 0.0


@pytest.mark.parametrize(
    ("areas", "betas", "verdict"),
    [
        ((0.6, 0.7, 0.8), (1.0, 2.0, 3.0), Agreement.AGREES),
        ((0.8, 0.7, 0.6), (1.0, 2.0, 3.0), Agreement.DIFFERS),
        ((0.6, 0.7, 0.8), (1.25, 2.0, 3.0), Agreement.UNDECIDED),  # 1.25 is not Laplace
    ],
)
def test_the_gaussian_is_compared_with_laplace_noise_and_no_other(areas, betas, verdict):
    curves = [area_curve(classes, areas, bests=[2.0], betas=betas) for classes in (2, 25)]
    assert verdicts_on(*curves)["laplace"] is verdict


def test_the_full_and_the_quick_grid_have_laplace_and_gaussian():
    for quick in (False, True):
        cells = hardmax.EXPERIMENT.cells(hardmax.EXPERIMENT.config.chosen(quick))
        for grid in (cell.config["betas"] for cell in cells if "votes" in cell.config):
            assert {1.0, 2.0} <= set(np.linspace(grid["from"], grid["to"], grid["points"]).tolist())


def test_more_classes_must_move_the_area_by_more():
    few = area_curve(2, (0.5, 0.7, 0.5), bests=[2.0])
    same = area_curve(25, (0.1, 0.2, 0.1), (0.1, 0.19, 0.1), bests=[2.0, 2.0])
    mixed = area_curve(25, (0.1, 0.4, 0.1), (0.1, 0.2, 0.1), bests=[2.0, 2.0])
    assert verdicts_on(few, same)["more classes"] is Agreement.DIFFERS
    assert verdicts_on(few, mixed)["more classes"] is Agreement.UNDECIDED


def test_the_best_exponent_is_found_between_those_tried():
    betas = [1.0 + 0.25 * place for place in range(13)]
    areas = [math.exp(-((math.log(beta) - math.log(1.83)) ** 2)) for beta in betas]
    assert hardmax.best_exponent(betas, areas) == pytest.approx(1.83, abs=0.005)
    assert hardmax.best_exponent([1.0, 2.0], [0.9, 0.1]) == 1.0


@pytest.mark.parametrize("number", [3, 5])
def test_pictures_have_labels_error_bars_and_the_gaussian(number, fig3, fig7):
    module, settings, numbers = (pate_accuracy, FIG3, fig3[1]) if number == 3 else (hardmax, FIG7, fig7)
    for figure in module.EXPERIMENT.pictures(settings, numbers).values():
        for axes in figure.axes:
            assert axes.get_xlabel()
            assert axes.get_ylabel()
        assert any("Gaussian" in text.get_text() for axes in figure.axes for text in axes.texts)
        assert any(axes.containers for axes in figure.axes)


def test_trials_are_the_same_every_time(votes):
    cell = pate_accuracy.EXPERIMENT.cells(FIG3)[2]
    assert cell.result(votes[0]) == cell.result(votes[0])
    assert np.std(cell.result(votes[0])["datasets"]["mnist"]["shares"]) > 0.0
