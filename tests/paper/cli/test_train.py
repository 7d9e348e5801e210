# SPDX-License-Identifier: Apache-2.0
"""`ggdp train`: runs, records, pictures, resumption, refusals."""

import json
import sys

import pytest

ADULT = ("train", "--task", "adult", "--synthetic", "--seed", "1")
BUDGET = ("--beta", "2", "--epsilon", "2")
NOISE = ("--beta", "2", "--noise-multiplier", "4")


def test_the_embedded_task_learns_and_leaves_record_and_picture(ggdp, tmp_path):
    record, plot = tmp_path / "run.json", tmp_path / "run.png"
    options = ("--beta", "2", "--epsilon", "8", "--seed", "1", "--epochs", "12", "--learning-rate", "0.5")
    done = ggdp("train", *options, "--record", record, "--plot", plot)
    assert done.code == 0, done.err
    assert plot.read_bytes().startswith(b"\x89PNG")
    whole = json.loads(record.read_text())
    assert whole["kind"] == "train"
    (found,) = whole["results"]
    assert found["task"] == "digits"
    assert found["accuracy"] > 0.6
    assert found["plan"]["dimension"] == 6090
    assert found["epsilon"]["lower"] <= found["epsilon"]["estimate"] <= found["epsilon"]["upper"] <= 8.0
    assert found["epsilon"]["upper"] == found["rows"][-1]["epsilon"]["upper"]
    assert len(found["rows"]) == found["rows"][-1]["epoch"] >= 12
    assert found["seeded"]
    assert any("not private" in caveat for caveat in found["caveats"])
    assert {"ggdp", "python", "numpy", "torch"} <= set(found["versions"])
    assert "test accuracy" in done.out
    assert "epoch 12: epsilon" in done.err
    assert "WARNING: the noise is from --seed" in done.err


def test_the_record_makes_a_report_without_the_package_that_made_it(ggdp, monkeypatch, tmp_path):
    record, page = tmp_path / "run.json", tmp_path / "run.html"
    assert ggdp(*ADULT[:-2], *NOISE, "--epochs", "2", "--record", record).code == 0
    for name in [name for name in sys.modules if name.split(".")[0] == "ggdp_paper"]:
        monkeypatch.setitem(sys.modules, name, None)
    done = ggdp("report", record, "--html", page)
    assert done.code == 0, done.err
    assert "trained by beta-DP-SGD" in page.read_text()


def test_record_table_and_page_say_which_training_sets_are_neighbours(ggdp, tmp_path):
    record, page = tmp_path / "run.json", tmp_path / "run.html"
    run = (*ADULT[:-2], *NOISE, "--steps", "4", "--adjacency", "replace", "--record", record)
    done = ggdp(*run)
    assert "one example in place of another" in done.out
    whole = json.loads(record.read_text())
    assert whole["results"][0]["adjacency"] == whole["results"][0]["plan"]["adjacency"] == "replace"
    assert ggdp("report", record, "--html", page).code == 0
    assert "one record has different values" in page.read_text()
    whole["results"][0]["adjacency"] = "add-remove"  # which would promise too much
    record.write_text(json.dumps(whole))
    done = ggdp("report", record, "--html", page)
    assert (done.code, "adjacency must be 'replace', as in plan" in done.err) == (2, True)


def test_gradients_that_overflow_end_the_run_in_one_line(ggdp):
    done = ggdp(*ADULT, *NOISE, "--epochs", "2", "--learning-rate", "1e38", "--json")
    assert done.code == 2
    assert "NaN or infinite" in done.err


def test_a_missing_package_is_named_with_what_brings_it(ggdp, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    done = ggdp("train", *NOISE)
    assert done.code == 2
    assert 'needs sklearn.datasets, not installed here; try pip install "ggdp[pate]"' in done.err


def test_json_prints_one_object_and_nothing_else(ggdp):
    done = ggdp(*ADULT[:-2], *BUDGET, "--epochs", "2", "--json")
    assert done.code == 0, done.err
    assert done.err == ""
    (found,) = json.loads(done.out)["results"]
    assert found["synthetic"]
    assert found["target_epsilon"] == 2.0
    assert found["norm"] == 2.0


def test_a_seed_repeats_the_run_and_without_one_it_differs(ggdp):
    def accuracies(*more):
        options = ("--task", "adult", "--synthetic", *NOISE, "--epochs", "2", "--json", *more)
        return [row["score"] for row in json.loads(ggdp("train", *options).out)["results"][0]["rows"]]

    assert accuracies("--seed", "3") == accuracies("--seed", "3")
    assert accuracies() != accuracies()


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_seeded_run_is_told_not_to_be_private(ggdp, more):
    told = "WARNING: the noise is from --seed: whoever knows or guesses the seed can remove it"
    line = (*ADULT[:-2], *NOISE, "--steps", "2", *more)
    assert told in ggdp(*line, "--seed", "3").err
    assert told not in ggdp(*line).err


def test_physical_batches_change_nothing_that_is_published(ggdp):
    whole, parts = (
        json.loads(ggdp(*ADULT, *NOISE, "--epochs", "1", "--json", *more).out)["results"][0]
        for more in ((), ("--physical-batch-size", "7"))
    )
    assert whole["epsilon"] == parts["epsilon"]
    assert whole["scale"] == parts["scale"]
    assert whole["accuracy"] == pytest.approx(parts["accuracy"], abs=0.02)


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        (("--beta", "1.33", "--noise-multiplier", "4", "--norm", "1.33"), "norm", 1.33),
        (("--beta", "3", "--noise-multiplier", "3", "--norm", "2"), "norm", 2.0),
        (("--beta", "2", "--noise-multiplier", "1.25"), "noise_multiplier", 1.25),
        ((*NOISE, "--norm", "inf"), "norm", "inf"),
        ((*NOISE, "--clip-norm", "0.5"), "clip_norm", 0.5),
        ((*NOISE, "--rate", "0.25"), "rate", 0.25),
        ((*NOISE, "--batch-size", "256"), "rate", 0.5),
        ((*NOISE, "--delta", "1e-5"), "delta", 1e-5),
    ],
)
def test_options_reach_the_run(ggdp, more, field, value):
    done = ggdp(*ADULT, "--steps", "8", "--json", *more)
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)["results"]
    assert found[field] == (value if isinstance(value, str) else pytest.approx(value))
    assert found["steps"] == 8


def test_views_reach_the_run_where_a_mirror_changes_no_label(ggdp):
    done = ggdp("train", "--task", "cifar10", "--synthetic", *NOISE, "--steps", "2", "--views", "2", "--json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)["results"]
    assert (found["steps"], found["asked"]["views"]) == (2, 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ((*ADULT, "--views", "2"), "--views must be 1 for adult, got 2"),
        ((*ADULT, "--vocabulary", "unlabelled"), "--vocabulary must be left out for adult"),
        (("train", "--data", "."), "--data must be left out for digits"),
        (
            ("train", "--task", "svhn"),
            "--data must be given for svhn, a folder that holds train_32x32.mat and test_32x32.mat",
        ),
        (("train", "--task", "adult", "--data", __file__), "test_train.py', which is no folder"),
    ],
)
def test_an_option_that_does_not_go_with_the_task_is_refused(ggdp, line, message):
    done = ggdp(*line, *NOISE)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_private_preprocessing_is_in_the_record_and_released_once(ggdp, tmp_path):
    done = ggdp(
        "train",
        "--task",
        "cifar10",
        "--synthetic",
        "--seed",
        "1",
        *NOISE,
        "--steps",
        "8",
        "--json",
        "--checkpoint",
        tmp_path,
    )
    (charged,) = json.loads(done.out)["results"][0]["plan"]["alongside"]["parts"]
    assert (charged["mechanism"]["dimension"], charged["times"]) == (486, 1)
    assert len(json.loads((tmp_path / "preprocessing.json").read_text())["mean"]) == 243


def test_an_interrupted_run_goes_on_from_its_folder(ggdp, tmp_path, monkeypatch):
    options = (*ADULT, *NOISE, "--epochs", "2")
    (whole,) = json.loads(ggdp(*options, "--json").out)["results"]
    kept = (*options, "--checkpoint", tmp_path / "run")

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("ggdp.cli.output.typer.echo", interrupt)  # as the first epoch is told
        assert ggdp(*kept).code == 130
    refused = ggdp(*kept, "--json")
    assert refused.code == 2
    assert "holds a run already; pass --resume to go on with it" in refused.err
    again = ggdp(*kept, "--resume", "--json")
    assert again.code == 0, again.err
    (found,) = json.loads(again.out)["results"]
    assert [row["steps"] for row in found["rows"]] == [row["steps"] for row in whole["rows"]]
    assert found["epsilon"] == whole["epsilon"]  # the epoch that was told was saved: no step is lost
    assert found["steps_lost"] == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--epsilon", "1"), "Missing option '--beta'"),
        (("--beta", "2"), "exactly one of --epsilon and --noise-multiplier must be given, got none"),
        ((*BUDGET, "--noise-multiplier", "1"), "got both"),
        (("--beta", "0.5", "--epsilon", "1"), "--beta must be a number in [1, 64], got 0.5"),
        (("--beta", "2", "--epsilon", "0"), "--epsilon must be a number in (0, inf), got 0"),
        ((*BUDGET, "--norm", "0.5"), "--norm must be a number in [1, inf], or matched, got '0.5'"),
        ((*BUDGET, "--norm", "matched"), "--norm matched is only for such noise; give --norm p"),
        (
            (*BUDGET, "--rate", "0.1", "--batch-size", "3"),
            "--rate and --batch-size say the same thing; give one of them",
        ),
        (
            (*BUDGET, "--steps", "3", "--epochs", "3"),
            "--steps and --epochs say the same thing; give one of them",
        ),
        ((*BUDGET, "--batch-size", "1e6"), "the expected batch cannot be larger than the training set"),
        ((*BUDGET, "--task", "mnist"), "task must be one of digits, adult, imdb, cifar10, svhn, got 'mnist'"),
        (
            (*BUDGET, "--task", "adult"),
            "adult.data and adult.test, as published at https://archive.ics.uci.edu",
        ),
        ((*BUDGET, "--task", "imdb", "--data", "nowhere"), "expected aclImdb"),
        ((*BUDGET, "--data", ".", "--synthetic"), "exclude each other"),
        ((*BUDGET, "--resume"), "--resume needs --checkpoint"),
        ((*BUDGET, "--device", "abacus"), "--device must be one that PyTorch can use, got 'abacus'"),
        ((*BUDGET, "--record", "no/such/run.json"), "--record must be a file in a folder that exists"),
        ((*BUDGET, "--plot", "no/such/run.png"), "--plot must be a file in a folder that exists"),
        ((*BUDGET, "--checkpoint", __file__), "--checkpoint must be a folder, or the name of a new one"),
        ((*BUDGET, "--device", "meta"), "--device must be one that PyTorch can use, got 'meta'"),
        ((*BUDGET, "--epochs", "1e308"), "--epochs must be a number in (0, 1e+06], got 1e+308"),
        ((*BUDGET, "--learning-rate", "1e308"), "--learning-rate must be a number in (0, 1e+38], got 1e+308"),
        ((*BUDGET, "--batch-size", "1e-290"), "--batch-size must be a number in [0.001, inf), got 1e-290"),
        ((*BUDGET, "--rate", "1e-290"), "--rate must be a number in [1e-09, 1], got 1e-290"),
        ((*BUDGET, "--steps", "9" * 400), "--steps must be a whole number in [1, 1000000000], got 999"),
        ((*BUDGET, "--seed", "9" * 400), "--seed must be a whole number in [0, 9223372036854775807]"),
        ((*BUDGET, "--momentum", "1"), "--momentum must be a number in [0, 1), got 1"),
        (("--beta", "2", "--epsilon", "1e-9", "--synthetic"), "epsilon"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(ggdp, wrong, message):
    done = ggdp("train", *wrong)
    assert done.code == 2
    assert message in done.err
    assert done.err.startswith("ggdp: ")
    assert len(done.err.splitlines()) == 1
    assert done.out == ""
