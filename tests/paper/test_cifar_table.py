# SPDX-License-Identifier: Apache-2.0
"""Table 1: what is read off its runs, with made-up accuracies; one cell for real; the pages that quote it."""

import re
from pathlib import Path

import pytest

from ggdp_paper.experiment import Agreement
from ggdp_paper.figures import cifar_table
from ggdp_paper.record import measured
from ggdp_paper.reproduce import Place, Skipped, folder_digest, reproduce
from ggdp_paper.sweep import CellStore
from ggdp_paper.workers import Workers

TABLE = {
    "epsilons": [1.0],
    "paper": {"beta-DP-SGD": [0.637], "beta-DP-SGD std": [0.001], "runs": 3, "DP-SGD, RDP": [0.603]},
}
RUNS = {
    "epsilons": [1.0, 2.0],
    "training": {
        "device": "cpu",
        "standardisation_noise": 32.0,
        "shared": {
            "delta": 1e-6,
            "batch_size": 64,
            "momentum": 0.9,
            "averages": [0.9],
            "order_weights": [1.0, 1.0, 0.5],
            "clip_norm": 0.1,
            "learning_rate": 1.0,
            "norm": 2.0,
        },
        "epochs": {"1": 1, "2": 1},
        "settings": {"beta2": {"beta": 2.0}, "beta3": {"beta": 3.0, "repeats": 1}},
        "repeats": 2,
        "tried at epsilon": 2.0,
        "tried": {"beta2": {"slower": {"learning_rate": 0.5}}},
    },
}
README = Path(__file__).parents[2] / "papers" / "generalized_gaussian" / "README.md"


def verdicts(gaussian, other):
    shared = {"epsilon": 1.0, "std": 0.001, "runs": 3, "certified_epsilon": 1.0, "norm": 2.0}
    rows = [
        {"setting": "beta2", "beta": 2.0, "accuracy": gaussian, **shared},
        {"setting": "beta1.33-norm2", "beta": 1.33, "accuracy": other, **shared},
    ]
    numbers = {"rows": rows, "notes": []}
    found = cifar_table.EXPERIMENT.findings(TABLE, numbers)
    return numbers, {key: finding.agreement for key, finding in found.items()}


def test_the_verdicts_follow_the_accuracies():
    numbers, agreements = verdicts(0.64, 0.60)
    assert set(agreements.values()) == {Agreement.AGREES}
    assert cifar_table.EXPERIMENT.headline(numbers)["beta2, epsilon = 1"] == 0.64
    (picture,) = cifar_table.EXPERIMENT.pictures(TABLE, numbers).values()
    assert [axes.get_title(loc="left") for axes in picture.axes] == ["clipped in l_2"]
    assert set(verdicts(0.60, 0.65)[1].values()) == {Agreement.DIFFERS}
    assert verdicts(0.6345, 0.60)[1]["accuracy"] == Agreement.DIFFERS
    assert verdicts(0.6365, 0.60)[1]["accuracy"] == Agreement.AGREES
    assert verdicts(0.64, 0.642)[1]["gaussian"] == Agreement.DIFFERS


def made_up():
    """Accuracies of the six runs of the table, then of the two that were tried."""
    values = (0.6, 0.7, 0.5, 0.55, 0.62, 0.72, 0.71, 0.69)
    shared = {"epsilon": 0.9, "lower_epsilon": 0.8, "norm": 2.0, "noise_multiplier": 5.0, "method": "made up"}
    return [
        {"accuracy": value, "best_accuracy": value + 0.01, "mirrored_accuracy": value + 0.02, **shared}
        for value in values
    ]


def test_the_runs_ask_for_a_gpu_and_are_averaged():
    cells = cifar_table.training_cells(RUNS)
    assert all(cell.needs_gpu for cell in cells)
    assert [cell.config["repeat"] for cell in cells] == [1, 1, 1, 1, 2, 2, 0, 0]
    assert len({cell.digest for cell in cells}) == len(cells)
    first, second, third, fourth = cifar_table.rows_of(RUNS, made_up())
    assert (first["epsilon"], first["accuracy"], first["runs"]) == (1.0, pytest.approx(0.61), 2)
    assert (second["epsilon"], second["accuracy"]) == (2.0, pytest.approx(0.71))
    assert first["std"] == pytest.approx(0.02 / 2**0.5)
    assert (first["best_accuracy"], first["mirrored_accuracy"]) == pytest.approx((0.62, 0.63))
    assert [row["runs"] for row in (third, fourth)] == [1, 1]
    assert cifar_table.training_cells(RUNS | {"training": None}) == []


def test_what_was_tried_is_told_against_the_choice():
    numbers = cifar_table.EXPERIMENT.numbers(RUNS, made_up())
    assert [(row["change"], row["accuracy"]) for row in numbers["tried"]] == [("", 0.71), ("slower", 0.69)]
    assert "beta2: slower -2.0" in numbers["notes"][1]
    assert "no less than 89% of it (beta2)" in numbers["notes"][2]


def test_settings_with_views_are_tried_on_images_that_were_held_out():
    training = RUNS["training"]
    mirror = {"beta": 2.0, "views": 2, "repeats": 3}
    settings = RUNS | {
        "training": training
        | {
            "settings": training["settings"] | {"mirror": mirror},
            "tried": {"mirror": {"one view": {"views": 1}}},
            "held_out": 50,
        }
    }
    cells = [cell for cell in cifar_table.training_cells(settings) if "views" in cell.config["settings"]]
    assert [cell.config["held_out"] for cell in cells] == 6 * [0] + 2 * [50]
    plain = cifar_table.training_cells(RUNS)[0]
    assert "held_out" not in plain.config
    results = (made_up() * 2)[:12] + [made_up()[0]] * 2
    numbers = cifar_table.EXPERIMENT.numbers(settings, results)
    assert "the accuracy on 50 images held out of the training set" in numbers["notes"][1]
    gaussian = cifar_table.EXPERIMENT.findings(TABLE, numbers)["accuracy"].found
    (row,) = [each for each in numbers["rows"] if each["setting"] == "mirror" and each["epsilon"] == 1.0]
    assert f"{100 * row['accuracy']:.2f}" in gaussian


def test_a_score_that_some_run_lacks_is_not_averaged():
    results = made_up()
    del results[0]["mirrored_accuracy"]
    assert cifar_table.rows_of(RUNS, results)[0]["mirrored_accuracy"] is None
    assert cifar_table.rows_of(RUNS, results)[1]["mirrored_accuracy"] == pytest.approx(0.73)


def test_a_cell_trains_within_its_budget(monkeypatch):
    import torch

    from ggdp_paper import tasks

    # Another task in its place: features of images take seconds.
    made_up = tasks.load_task("digits", synthetic=True, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(tasks, "load_task", lambda name, **asked: made_up)
    cifar_table._features.cache_clear()
    found = cifar_table.training_cells(RUNS)[0].result()
    cifar_table._features.cache_clear()
    assert 0.0 < found["epsilon"] <= 1.0
    assert 0.0 <= found["accuracy"] <= 1.0


def test_without_a_record_the_table_is_skipped_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr("ggdp_paper.reproduce.measured", lambda name: None)
    monkeypatch.setattr("ggdp_paper.workers._cuda_is_here", lambda: False)
    found = reproduce(cifar_table.EXPERIMENT, Place(tmp_path), workers=Workers("sequential"))
    assert isinstance(found, Skipped)
    assert "no record table1_cifar10 of a GPU run" in found.why


def kept_elsewhere(tmp_path, number):
    """A data folder, and the first runs of the table as another machine has left them."""
    experiment, place = cifar_table.EXPERIMENT, Place(tmp_path, tmp_path)
    data = tmp_path / experiment.folders[0]
    data.mkdir()
    (data / "images").write_text("made up")
    store = CellStore(place.cells(experiment, folder_digest(data)))
    for cell in experiment.cells(experiment.config.chosen(False))[:number]:
        store.write(cell, made_up()[0], 1.0)
    return place


def test_a_part_of_the_runs_is_no_table(tmp_path, monkeypatch):
    monkeypatch.setattr("ggdp_paper.workers._cuda_is_here", lambda: False)
    place = kept_elsewhere(tmp_path, 1)
    found = reproduce(cifar_table.EXPERIMENT, place, workers=Workers("sequential"))
    assert found["numbers"]["rows"] == measured("table1_cifar10")["numbers"]["rows"]
    assert "this command trained nothing" in found["numbers"]["notes"][0]


def test_all_runs_from_elsewhere_make_the_table_without_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr("ggdp_paper.workers._cuda_is_here", lambda: False)
    place = kept_elsewhere(tmp_path, None)
    found = reproduce(cifar_table.EXPERIMENT, place, workers=Workers("sequential"))
    assert {row["accuracy"] for row in found["numbers"]["rows"]} == {0.6}


def test_the_readme_quotes_the_record():
    rows = measured("table1_cifar10")["numbers"]["rows"]
    titles = {
        "ours, beta = 2, mirror images in training, five runs": "beta2-mirror",
        "ours, beta = 1.66, mirror images in training, five runs": "beta1.66-mirror",
        "ours, beta = 1.33, mirror images in training, five runs": "beta1.33-mirror",
        "ours, beta = 2": "beta2",
        "ours, beta = 1.66, clipped in l_2": "beta1.66-norm2",
        "ours, beta = 1.33, clipped in l_2": "beta1.33-norm2",
        "ours, beta = 3, clipped in l_2, one run": "beta3-norm2",
        "ours, beta = 1.66, clipped in l_1.66, one run": "beta1.66",
        "ours, beta = 1.33, clipped in l_1.33, one run": "beta1.33",
    }
    for title, setting in titles.items():
        (line,) = re.findall(rf"^\| {re.escape(title)} \| (.*) \|$", README.read_text(), re.MULTILINE)
        told = [float(entry.split()[0].strip("*")) for entry in line.split(" | ")]
        assert told == [round(100.0 * row["accuracy"], 1) for row in rows if row["setting"] == setting]
