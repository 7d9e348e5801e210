# SPDX-License-Identifier: Apache-2.0
"""Figures 4 and 9 to 16: what is read off a sweep, with made-up accuracies; and real cells."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from ggdp_paper.experiment import Agreement
from ggdp_paper.figures import cifar_table, experiment_named, fixed_settings, training_accuracy
from ggdp_paper.figures.training_sweep import at_budget, best_rows, calibrated_cell, runs_of, sweep_cells
from ggdp_paper.record import measured
from ggdp_paper.reproduce import Place, Skipped, missing_files, reproduce
from ggdp_paper.workers import Workers

RECORDS = Path(__file__).parents[2] / "papers" / "generalized_gaussian" / "records"

SETTINGS = {
    "task": "digits",
    "files": [],
    "norm": 2.0,
    "betas": [1.0, 2.0, 3.0],
    "epsilons": [1.0, 2.0],
    "delta": 1e-6,
    "learning_rates": [0.5, 1.0],
    "clip_norms": [0.1, 0.5],
    "noise_multipliers": [2.0],
    "batch_size": 256,
    "epochs": 3,
    "momentum": 0.0,
    "patience": 3,
    "repeats": 2,
}
FIRST_EPSILON = {1.0: 0.4, 2.0: 0.6, 3.0: 1.4}


def made_up(lead_of_gaussian=0.015, noise=0.001, clip_effect=0.01, settings=SETTINGS):
    """Results of every cell: accuracy rises by 0.01 an epoch, epsilon by 0.5."""
    results = []
    for cell in sweep_cells(settings):
        config = cell.config
        if cell.task.endswith(":spent"):
            epsilons = [FIRST_EPSILON[config["beta"]] + 0.5 * epoch for epoch in range(3)]
            lower = [0.9 * epsilon for epsilon in epsilons]
            results.append({"epsilons": epsilons, "lower": lower, "method": "made up"})
            continue
        level = 0.8 + lead_of_gaussian * (config["beta"] == 2.0) + noise * config["repeat"]
        level += clip_effect * (config["clip_norm"] == 0.5) + 0.002 * (config["learning_rate"] == 1.0)
        results.append({"accuracies": [level + 0.01 * epoch for epoch in range(3)]})
    return results


def findings(module, results, task="adult"):
    settings = SETTINGS | {"task": task}
    numbers = module.EXPERIMENT.numbers(settings, results)
    return {key: found.agreement for key, found in module.EXPERIMENT.findings(settings, numbers).items()}


def test_a_budget_takes_the_best_epoch_inside_it_and_nothing_beyond():
    run = {"epsilons": [0.5, 1.0, 1.5], "repeats": [[0.7, 0.6, 0.9], [0.5, 0.8, 0.9]]}
    assert at_budget(run, 1.2) == [0.7, 0.8]
    assert at_budget(run, 5.0) == [0.9, 0.9]
    assert at_budget(run, 0.4) == []
    stopped = {"epsilons": [0.5, 1.0, 1.5], "repeats": [[0.7], [0.5, 0.8]]}
    assert at_budget(stopped, 1.2) == [0.7, 0.8]


def test_the_best_setting_is_that_of_the_best_mean_and_has_an_error_bar():
    runs = training_accuracy.EXPERIMENT.numbers(SETTINGS, made_up())["budgets"]
    row = next(row for row in runs[1]["rows"] if row["beta"] == 2.0)
    assert (row["clip_norm"], row["learning_rate"], row["runs"]) == (0.5, 1.0, 2)
    assert row["accuracy"] == pytest.approx(0.8 + 0.015 + 0.01 + 0.002 + 0.0005 + 0.02)
    assert row["std"] == pytest.approx(0.001 / 2**0.5)


def test_an_exponent_whose_first_epoch_exceeds_the_budget_is_left_out():
    budgets = training_accuracy.EXPERIMENT.numbers(SETTINGS, made_up())["budgets"]
    assert [row["beta"] for row in budgets[0]["rows"]] == [1.0, 2.0]
    assert [row["beta"] for row in budgets[1]["rows"]] == [1.0, 2.0, 3.0]


def test_the_verdicts_of_figure_4_follow_the_accuracies():
    assert findings(training_accuracy, made_up()) == {
        "gaussian": "agrees",
        "weak": "agrees",
        "deviation": "agrees",
        "missing": "agrees",
    }
    turned = findings(training_accuracy, made_up(lead_of_gaussian=-0.05, noise=0.02))
    assert (turned["gaussian"], turned["deviation"]) == ("differs", "differs")
    assert turned["weak"] == "partly"  # noticeable, and not weak
    tied = findings(training_accuracy, made_up(lead_of_gaussian=0.0, noise=0.02))
    assert tied["gaussian"] == "undecided"
    assert tied["weak"] == "partly"  # weak, and not noticeable


def test_the_verdicts_of_figures_9_to_16_follow_the_accuracies():
    assert set(findings(fixed_settings, made_up()).values()) == {"agrees", "undecided"}
    turned = findings(fixed_settings, made_up(lead_of_gaussian=-0.05, clip_effect=0.0))
    assert (turned["gaussian"], turned["clip"]) == ("differs", "partly")
    assert findings(fixed_settings, made_up(clip_effect=0.05))["clip"] == "partly"  # larger, but not minor


def test_a_task_that_the_paper_has_not_is_not_judged():
    for module in (training_accuracy, fixed_settings):
        assert set(findings(module, made_up(), task="digits").values()) == {Agreement.UNDECIDED}


def test_figure_4_and_figures_9_to_16_share_their_cells():
    for quick in (False, True):
        six, eight = (module.EXPERIMENT for module in (training_accuracy, fixed_settings))
        cells = [[cell.digest for cell in one.cells(one.config.chosen(quick))] for one in (six, eight)]
        assert cells[0] == cells[1]
        assert six.kept_with == eight.kept_with == "training"


def test_pictures_of_a_sweep_have_labels_error_bars_and_the_gaussian():
    for module in (training_accuracy, fixed_settings):
        numbers = module.EXPERIMENT.numbers(SETTINGS, made_up())
        for figure in module.EXPERIMENT.pictures(SETTINGS, numbers).values():
            for axes in figure.axes:
                assert axes.get_xlabel()
                assert axes.get_ylabel()
                assert axes.containers
                assert any(text.get_text() == "Gaussian" for text in axes.texts)


def test_a_real_cell_trains_within_its_epsilon_and_repeats_itself():
    settings = SETTINGS | {"betas": [2.0], "learning_rates": [0.5], "clip_norms": [0.5], "repeats": 1}
    spent, trained = sweep_cells(settings | {"epochs": 2})
    epsilons = spent.result()["epsilons"]
    assert 0.0 < epsilons[0] < epsilons[1]
    accuracies = trained.result()["accuracies"]
    assert len(accuracies) == 2
    assert trained.result()["accuracies"] == accuracies
    runs = [
        {
            "beta": 2.0,
            "epsilons": epsilons,
            "repeats": [accuracies],
            **dict.fromkeys(("learning_rate", "clip_norm", "noise_multiplier"), 1.0),
        }
    ]
    assert best_rows(runs, [2.0], epsilons[0])[0]["accuracy"] == accuracies[0]


@pytest.mark.parametrize(
    ("spreads", "verdict"),
    [((0.05, 0.01), "agrees"), ((0.01, 0.05), "differs"), ((0.02, 0.0201), "undecided")],
)
def test_curves_are_flatter_where_accuracy_moves_less_at_the_largest_multiplier(spreads, verdict):
    def budgets(spread):
        rows = [
            {"beta": beta, "accuracy": 0.6 + spread * (beta - 1.0), "std": 1e-3, "runs": 3}
            for beta in (1.0, 2.0)
        ]
        return [{"epsilon": 1.0, "rows": rows}]

    apart = [
        {"noise_multiplier": 2.0 + place, "budgets": budgets(spread)} for place, spread in enumerate(spreads)
    ]
    assert str(training_accuracy._flatter(apart).agreement) == verdict
    assert str(training_accuracy._flatter(apart[:1]).agreement) == "undecided"
    differ = str(training_accuracy._multiplier_effect(apart).agreement)
    assert differ == ("agrees" if abs(spreads[0] - spreads[1]) < 0.02 else "differs")


def test_one_run_of_each_decides_nothing():
    settings = SETTINGS | {"task": "adult", "repeats": 1}
    results = made_up(settings=settings)
    numbers = training_accuracy.EXPERIMENT.numbers(settings, results)
    verdicts = training_accuracy.EXPERIMENT.findings(settings, numbers)
    undecided = {key for key, found in verdicts.items() if found.agreement is Agreement.UNDECIDED}
    assert undecided == {"gaussian", "weak", "deviation"}


def test_the_reviews_ask_for_a_gpu_and_without_one_are_read_from_their_record(tmp_path, monkeypatch):
    monkeypatch.setattr("ggdp_paper.workers._cuda_is_here", lambda: False)
    experiment = training_accuracy.REVIEWS
    cells = experiment.cells(experiment.config.chosen(False))
    assert cells
    assert all(cell.needs_gpu and cell.config["device"] == "cuda" for cell in cells)
    for data in (None, tmp_path):
        found = reproduce(experiment, Place(tmp_path, data), workers=Workers("sequential"))
        assert "this command trained nothing" in found["numbers"]["notes"][0]
        assert found["numbers"]["budgets"] == measured("fig4_imdb")["numbers"]["budgets"]


def test_without_an_optional_package_a_figure_is_skipped_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = reproduce(training_accuracy.EXPERIMENT, Place(tmp_path), workers=Workers("sequential"))
    assert isinstance(found, Skipped)
    assert found.why.startswith("needs torch and sklearn, not installed here")


CALIBRATED = {
    "beta": 2.0,
    "epsilon": 2.0,
    "clip_norm": 0.5,
    "learning_rate": 0.5,
    "batch_size": 256,
    "steps": 24,
    "delta": 1e-6,
}


def test_a_calibrated_cell_repeats_itself_and_another_repetition_differs():
    first, again, other = (calibrated_cell("digits", CALIBRATED, repeat).result() for repeat in (0, 0, 1))
    assert first == again
    assert first["accuracy"] != other["accuracy"]
    assert first["noise_multiplier"] == other["noise_multiplier"]
    assert 1.99 < first["epsilon"] <= 2.0
    assert first["steps"] == 24


def test_the_panel_of_svhn_runs_from_its_published_files(tmp_path):
    """Twelve made-up images on a CPU: the cells of the figure, from the files to an accuracy."""
    rng = np.random.default_rng(4)
    for name in ("train", "test"):
        images = {"X": rng.integers(256, size=(32, 32, 3, 12), dtype=np.uint8), "y": np.arange(1, 13) % 10}
        savemat(tmp_path / f"{name}_32x32.mat", images)
    panel = experiment_named("fig4_svhn")
    assert missing_files(panel.files(panel.config.settings), tmp_path) is None
    assert "train_32x32.mat" in missing_files(panel.files(panel.config.settings), tmp_path / "elsewhere")
    small = {"device": "cpu", "betas": [2.0], "noise_multipliers": [2.0], "epochs": 1, "batch_size": 4}
    settings = {**panel.config.settings, **small, "repeats": 1}
    results = [cell.result(tmp_path) for cell in panel.cells(settings)]
    (run,) = runs_of(settings, results)
    assert run["epsilons"][0] > 0.0
    assert 0.0 <= run["repeats"][0][0] <= 1.0


def test_noise_by_renyi_divergences_spends_what_its_configuration_says():
    """The budgets of the runs are the epsilons that the accountants' figure computed, rounded."""
    record = json.loads((RECORDS / "accountants.json").read_text())
    rows = {row["epsilon"]: row for row in record["numbers"]["renyi_noise"]}
    asked = experiment_named("table1_rdp").config.settings["calibrated"]
    assert len(asked) == 6
    for run in asked:
        assert run["spends"] == pytest.approx(rows[run["epsilon"]][f"epsilon of {run['by']}"], abs=1e-4)


def test_the_row_by_renyi_divergences_is_compared_with_the_table():
    settings = experiment_named("table1_rdp").config.settings

    def verdict(accuracy):
        row = {"std": 0.001, "runs": 3, "accuracy": accuracy}
        rows = [{**row, "epsilon": run["spends"]} for run in settings["calibrated"]]
        return cifar_table.RENYI.findings(settings, {"rows": rows})["accountant"].agreement

    assert verdict(0.5) == "agrees"
    assert verdict(0.9) == "differs"
