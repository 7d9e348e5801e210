# SPDX-License-Identifier: Apache-2.0
"""Figures 6 and 8 and Table 1: what is read off a sweep, with made-up accuracies; and one real cell."""

import pytest

from ggdp.reproduction import cifar_table, cifar_training, fixed_settings, training_accuracy
from ggdp.reproduction.backends import Workers
from ggdp.reproduction.experiment import Agreement
from ggdp.reproduction.reproduce import Place, Skipped, reproduce
from ggdp.reproduction.training_sweep import at_budget, best_rows, gaussian_is_best, sweep_cells

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


def made_up(lead_of_gaussian=0.015, noise=0.001, clip_effect=0.01):
    """Results of every cell: accuracy rises by 0.01 an epoch, epsilon by 0.5."""
    results = []
    for cell in sweep_cells(SETTINGS):
        config = cell.config
        if cell.task.endswith(":spent"):
            results.append({"epsilons": [FIRST_EPSILON[config["beta"]] + 0.5 * epoch for epoch in range(3)]})
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


def test_a_lead_within_two_standard_errors_is_none():
    def rows(other, error):
        return [
            {"beta": 1.0, "accuracy": other, "standard_error": error},
            {"beta": 2.0, "accuracy": 0.8, "standard_error": error},
        ]

    assert gaussian_is_best(rows(0.79, 0.0))
    assert gaussian_is_best(rows(0.81, 0.01))
    assert not gaussian_is_best(rows(0.81, 0.001))
    assert gaussian_is_best(rows(0.81, 0.001)[1:]) is None


def test_the_verdicts_of_figure_6_follow_the_accuracies():
    assert findings(training_accuracy, made_up()) == {
        "gaussian": "agrees",
        "weak": "agrees",
        "deviation": "agrees",
        "missing": "agrees",
    }
    turned = findings(training_accuracy, made_up(lead_of_gaussian=-0.05, noise=0.02))
    assert (turned["gaussian"], turned["weak"], turned["deviation"]) == ("differs",) * 3


def test_the_verdicts_of_figure_8_follow_the_accuracies():
    assert set(findings(fixed_settings, made_up()).values()) == {"agrees", "undecided"}
    turned = findings(fixed_settings, made_up(lead_of_gaussian=-0.05, clip_effect=0.0))
    assert (turned["gaussian"], turned["clip"]) == ("differs", "partly")
    assert findings(fixed_settings, made_up(clip_effect=0.05))["clip"] == "partly"  # larger, but not minor


def test_a_task_that_the_paper_has_not_is_not_judged():
    for module in (training_accuracy, fixed_settings):
        assert set(findings(module, made_up(), task="digits").values()) == {Agreement.UNDECIDED}


def test_figures_6_and_8_share_their_cells():
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


TABLE = {"epsilons": [1.0], "paper": {"beta-DP-SGD": [0.637], "DP-SGD, RDP": [0.603]}, "measured": "made up"}


def table(gaussian, other, monkeypatch):
    rows = [
        {"setting": "beta2", "beta": 2.0, "accuracy": gaussian},
        {"setting": "beta1.33-norm2", "beta": 1.33, "norm": 2.0, "accuracy": other},
    ]
    shared = {"epsilon": 1.0, "accuracy_std": 0.001, "runs": 3, "certified_epsilon": 1.0}
    record = {"results": [row | shared for row in rows], "versions": {}}
    monkeypatch.setattr(cifar_table, "measured", lambda name: record)
    numbers = cifar_table.EXPERIMENT.numbers(TABLE, [])
    return numbers, {
        key: found.agreement for key, found in cifar_table.EXPERIMENT.findings(TABLE, numbers).items()
    }


def test_the_verdicts_of_table_1_follow_the_record(monkeypatch):
    numbers, verdicts = table(0.64, 0.60, monkeypatch)
    assert set(verdicts.values()) == {Agreement.AGREES}
    assert cifar_table.EXPERIMENT.headline(numbers)["beta2, epsilon = 1"] == 0.64
    (picture,) = cifar_table.EXPERIMENT.pictures(TABLE, numbers).values()
    assert [axes.get_title(loc="left") for axes in picture.axes] == ["clipped in l_2"]
    assert set(table(0.60, 0.65, monkeypatch)[1].values()) == {Agreement.DIFFERS}


RUNS = {
    "epsilons": [1.0, 2.0],
    "training": {
        "device": "cpu",
        "standardisation_noise": 32.0,
        "order_weights": [1.0, 1.0, 0.5],
        "shared": {
            "delta": 1e-6,
            "batch_size": 64,
            "momentum": 0.9,
            "averages": [0.9],
            "clip_norm": 0.1,
            "learning_rate": 1.0,
            "norm": 2.0,
        },
        "epochs": {"1": 1, "2": 1},
        "settings": {"beta2": {"beta": 2.0}},
        "repeats": 2,
    },
}


def test_the_runs_of_table_1_ask_for_a_gpu_and_are_averaged():
    cells = cifar_training.training_cells(RUNS)
    assert [cell.needs_gpu for cell in cells] == [True] * 4
    assert [cell.config["repeat"] for cell in cells] == [1, 1, 2, 2]
    results = [{"accuracy": accuracy, "epsilon": 0.9, "norm": 2.0} for accuracy in (0.6, 0.7, 0.62, 0.72)]
    first, second = cifar_training.rows_of(RUNS, results)
    assert (first["epsilon"], first["accuracy"], first["runs"]) == (1.0, pytest.approx(0.61), 2)
    assert (second["epsilon"], second["accuracy"]) == (2.0, pytest.approx(0.71))
    assert first["accuracy_std"] == pytest.approx(0.02 / 2**0.5)
    assert cifar_training.training_cells(RUNS | {"training": None}) == []


def test_a_cell_of_table_1_trains_within_its_budget(monkeypatch):
    import torch

    from ggdp.training import tasks

    # Another task in its place: features of images take seconds.
    made_up = tasks.load_task("digits", synthetic=True, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(tasks, "load_task", lambda name, **asked: made_up)
    cifar_training._features.cache_clear()
    found = cifar_training.training_cells(RUNS)[0].result()
    cifar_training._features.cache_clear()
    assert 0.0 < found["epsilon"] <= 1.0
    assert 0.0 <= found["accuracy"] <= 1.0


def test_without_a_record_table_1_is_skipped_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr("ggdp.reproduction.reproduce.measured", lambda name: None)
    monkeypatch.setattr("ggdp.reproduction.backends._cuda_is_here", lambda: False)
    found = reproduce(cifar_table.EXPERIMENT, Place(tmp_path), workers=Workers("sequential"))
    assert isinstance(found, Skipped)
    assert "no record table1_cifar10 of a GPU run" in found.why


def test_without_an_optional_package_a_figure_is_skipped_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = reproduce(training_accuracy.EXPERIMENT, Place(tmp_path), workers=Workers("sequential"))
    assert found == Skipped("fig6", "needs torch, sklearn, not installed here")
