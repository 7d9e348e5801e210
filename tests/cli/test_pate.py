# SPDX-License-Identifier: Apache-2.0
"""`ggdp pate` and `ggdp simulate-argmax`: files, records, refusals."""

import json
import shlex

import numpy as np
import pytest

from shipped_votes import FILE, shipped

BUDGET = ("--beta", "1.5", "--epsilon", "2", "--delta", "1e-5")


@pytest.fixture
def truth(tmp_path):
    path = tmp_path / "truth.npy"
    np.save(path, shipped()[1])
    return path


def test_labels_and_report_are_written(ggdp, tmp_path, truth):
    out, report = tmp_path / "labels.npy", tmp_path / "report.html"
    done = ggdp(
        "pate", FILE, *BUDGET, "--threshold", "200", "--answers", "100", "--truth", truth,
        "--out", out, "--report", report,
    )  # fmt: skip
    assert done.code == 0, done.err
    labels = np.load(out)
    assert labels.shape == (400,)
    assert np.sum(labels >= 0) == 100
    assert labels.min() == -1
    page = report.read_text()
    assert "May be published" in page
    assert page.index("May be published") < page.index("PRIVATE: do not publish")
    assert page.index("PRIVATE: do not publish") < page.index("data-dependent epsilon")
    assert page.index("data-dependent epsilon") < page.index("turns them round")
    assert page.count("data:image/png") == 2
    assert "itself private data" in page
    assert "may be published" in done.out
    assert "PRIVATE: do not publish" in done.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.npy", "report.html", "truth.npy"]


def test_the_record_keeps_private_numbers_apart(ggdp, truth):
    done = ggdp("pate", FILE, *BUDGET, "--queries", "100", "--truth", truth, "--seed", "1", "--json")
    (record,) = json.loads(done.out)["results"]
    private = record.pop("private")
    assert record["answered"] == record["queries"] == len(record["labels"]) == 100
    assert 1.999 < record["epsilon"]["upper"] <= 2.0
    assert record["noise"]["votes"]["beta"] == 1.5
    assert private["data_dependent_epsilon"] < 2.0
    assert 0.5 < private["accuracy"] <= 1.0
    assert "data_dependent" not in json.dumps(record)
    assert "accuracy" not in record
    assert "private data" in private["caveat"]


def test_seeded_labels_repeat_and_others_differ(ggdp):
    def labels(*more):
        return json.loads(ggdp("pate", FILE, *BUDGET, "--json", *more).out)["results"][0]["labels"]

    assert labels("--seed", "5") == labels("--seed", "5")
    assert labels() != labels()


def test_labels_from_a_seed_are_told_not_to_be_private_wherever_they_are_told(ggdp, tmp_path):
    done = ggdp("pate", FILE, *BUDGET, "--seed", "1", "--report", tmp_path / "report.html")
    assert "NOT private, do not publish" in done.out
    assert "may be published" not in done.out
    assert done.err.startswith("WARNING: the noise is from --seed")
    page = (tmp_path / "report.html").read_text()
    assert "may be published" not in page.lower()
    assert "NOT private" in page
    done = ggdp("pate", FILE, *BUDGET, "--seed", "1", "--json")
    assert done.err.startswith("WARNING: the noise is from --seed")
    (record,) = json.loads(done.out)["results"]
    assert record["seeded"]
    assert "not private" in record["caveats"][0]


def test_csv_votes_make_csv_labels(ggdp, tmp_path):
    votes = tmp_path / "votes.csv"
    np.savetxt(votes, shipped()[0][:50], fmt="%d", delimiter=",")
    done = ggdp("pate", votes, *BUDGET, "--out", tmp_path / "labels.csv")
    assert done.code == 0
    assert len((tmp_path / "labels.csv").read_text().split()) == 50


def bad_csv(tmp_path, text):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3,1\n2,-1\n", "whole numbers >= 0, got -1"),
        ("3.5,0.5\n", "whole numbers, got 3.5"),
        ("3,1\n4,1\n", "same number of teachers"),
        ("3,1\n4\n", "rows of equal length"),
        ("", "at least one number"),
        ("votes\n3\n", "numbers only"),
    ],
)
def test_bad_votes_are_one_line_and_leave_no_file(ggdp, tmp_path, text, message):
    out = tmp_path / "labels.npy"
    done = ggdp("pate", bad_csv(tmp_path, text), *BUDGET, "--out", out, "--report", tmp_path / "r.html")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert message in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--queries 401", "--queries must be at most 400"),
        ("--answers 401", "--answers must be at most 400"),
        ("--epsilon 0.0001", "cannot be met for so many queries"),
        ("--beta 1 --epsilon 1000 --queries 1", "more than so few queries can use"),
        ("--threshold nan", "--threshold must be a number"),
        ("--out labels.txt", "--out must end in .npy or .csv"),
        ("--truth missing.npy", "missing.npy"),
        ("--report no/such/r.html", "--report must be a file in a folder that exists, got"),
        ("--noise-ratio 0", "--noise-ratio must be a number in [0.01, 100]"),
    ],
)
def test_wrong_options_are_one_line_with_status_2(ggdp, tmp_path, line, message):
    words = shlex.split(line)
    usual = [*BUDGET, "--out", tmp_path / "labels.npy"]
    others = [pair for pair in zip(usual[::2], usual[1::2], strict=True) if pair[0] not in words]
    done = ggdp("pate", FILE, *words, *(word for pair in others for word in pair))
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert message in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_one_line(ggdp):
    done = ggdp("pate", "nowhere.npz", *BUDGET)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "nowhere.npz" in done.err


SIMULATION = ("simulate-argmax", "--delta", "1e-5", "--histograms", "20", "--points", "4")


def test_a_simulation_prints_a_table_and_the_best_exponent(ggdp):
    done = ggdp(*SIMULATION, "--epsilon", "1", "--epsilon", "2")
    assert done.code == 0
    assert "best beta" in done.out
    assert "epsilon = 2" in done.out


def test_a_simulation_is_drawn_and_recorded(ggdp, tmp_path):
    picture = tmp_path / "out.png"
    done = ggdp(*SIMULATION, "--epsilon", "1", "--classes", "25", "--seed", "3", "--plot", picture, "--json")
    assert picture.read_bytes().startswith(b"\x89PNG")
    record = json.loads(done.out)
    assert [noise["beta"] for noise in record["results"][0]["noises"]] == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--epsilon 1 --votes " + "9" * 400, "--votes must be a whole number in [2, 1000000000], got 999"),
        ("--epsilon 1 --classes 3", "--classes must be 2 or at least 6"),
        ("--epsilon 1 --from-beta 3 --to-beta 2", "--from-beta must be below --to-beta"),
        ("--epsilon 0", "--epsilon must be a number in (0, inf)"),
        ("--epsilon 1 --most-gap 1", "--most-gap must be a number in [1e-09, 1)"),
    ],
)
def test_a_wrong_simulation_is_refused(ggdp, line, message):
    done = ggdp(*SIMULATION, *shlex.split(line))
    assert done.code == 2
    assert message in done.err


def test_pure_privacy_compares_laplace_noise_alone_and_says_so(ggdp):
    asked = ("simulate-argmax", "--epsilon", "1", "--delta", "0", "--histograms", "5")
    (result,) = json.loads(ggdp(*asked, "--json").out)["results"]
    assert [noise["beta"] for noise in result["noises"]] == [1.0]
    assert result["noises"][0]["scale"] == pytest.approx(1.0)
    refused = ggdp(*asked, "--from-beta", "1.5")
    assert refused.code == 2
    assert "--from-beta must be 1 with --delta 0, got 1.5" in refused.err


def test_a_table_is_not_taken_for_labels(ggdp, tmp_path):
    votes = np.tile([70, 20, 10], (5, 1))
    np.save(tmp_path / "votes.npy", votes)
    file = tmp_path / "votes.npy"
    done = ggdp("pate", file, "--beta", "2", "--epsilon", "2", "--delta", "1e-5", "--truth", file)
    assert (done.code, done.out) == (2, "")
    assert "must hold one label for each query, got an array of shape (5, 3)" in done.err
