# SPDX-License-Identifier: Apache-2.0
"""`ggdp report`: every record of the command line becomes a page; private numbers stay in their box."""

import json
import re

import pytest

from ggdp.reporting.run_report import reports_of
from ggdp.reporting.training_record import CHOICE_CAVEAT

NASTY = "<script>alert('x')</script>"

RUN = ("--noise-multiplier", "2", "--rate", "0.01", "--steps", "100")
TRAINED = {
    "task": "adult",
    "synthetic": False,
    "seeded": False,
    "adjacency": "add-remove",
    "delta": 1e-6,
    "target_epsilon": 2.0,
    "beta": 1.33,
    "clip_norm": 0.1,
    "norm": 1.33,
    "rate": 0.01,
    "best": {"epoch": 2, "accuracy": 0.8},
    "plan": {
        "noise": {"beta": 1.33, "scale": 0.3},
        "clip_norm": 0.1,
        "norm": 1.33,
        "rate": 0.01,
        "steps": 300,
        "num_examples": 32561,
        "dimension": 4034,
        "delta": 1e-6,
        "max_epsilon": 2.0,
        "alongside": None,
    },
    "rows": [
        {"epoch": 1, "steps": 100, "epsilon_lower": 0.5, "epsilon": 0.55, "score": 0.78, "seconds": 1.0},
        {"epoch": 2, "steps": 200, "epsilon_lower": 0.7, "epsilon": 0.75, "score": 0.8, "seconds": 2.0},
    ],
    "stopped_by": "budget",
    "method": "certified renyi",
    "caveats": [f"the words {NASTY}", CHOICE_CAVEAT],
}


def page_of(ggdp, tmp_path, record):
    path = tmp_path / "run.json"
    path.write_text(record if isinstance(record, str) else json.dumps(record))
    done = ggdp("report", path, "--html", tmp_path / "run.html")
    assert (done.code, done.err) == (0, "")
    return (tmp_path / "run.html").read_text()


@pytest.mark.parametrize(
    ("command", "title"),
    [
        (("epsilon", "--beta", "1.5", *RUN, "--delta", "1e-6"), "Epsilon of a run"),
        (("delta", "--beta", "1.5", *RUN, "--epsilon", "1"), "Delta of a run"),
        (("curve", "--beta", "2", *RUN, "--points", "3"), "Privacy curve"),
        (("calibrate", "--beta", "2", "--epsilon", "1", "--delta", "1e-5"), "Noise calibrated to"),
    ],
)
def test_every_answer_becomes_a_page_with_guarantee_settings_proof_and_pictures(
    ggdp, tmp_path, command, title
):
    page = page_of(ggdp, tmp_path, ggdp(*command, "--json").out)
    assert title in page
    for part in ("The guarantee", "differentially private", "Neighbours:", "What is proved", "certified"):
        assert part in page
    assert page.count("data:image/png;base64,") == 2
    assert not re.findall(r'(?:src|href)="(?!data:)', page)  # nothing is fetched


def test_several_exponents_become_several_parts_of_one_page(ggdp, tmp_path, monkeypatch):
    monkeypatch.setattr("ggdp.reporting.canvas.png", lambda figure: b"drawn elsewhere")
    page = page_of(
        ggdp, tmp_path, ggdp("epsilon", "--beta", "1", "--beta", "2", *RUN, "--delta", "1e-6", "--json").out
    )
    assert page.count("The guarantee") == 2


def test_a_trained_model_shows_its_caveats_and_its_last_epsilon(ggdp, tmp_path):
    page = page_of(ggdp, tmp_path, TRAINED)
    assert "(0.75, 1e-6)-differentially private" in page
    assert "Not covered: the words &lt;script&gt;" in page
    assert NASTY not in page
    assert "stopped by the budget" in page


def test_private_numbers_of_a_vote_are_in_their_box_and_nowhere_else(ggdp, tmp_path):
    votes = tmp_path / "votes.csv"
    votes.write_text("40,5,5\n20,20,10\n45,3,2\n")
    record = json.loads(ggdp("pate", votes, "--beta", "2", "--epsilon", "8", "--delta", "1e-5", "--json").out)
    page = page_of(ggdp, tmp_path, record)
    public, box = page.split('<section class="private">')
    shown = f"{record['private']['data_dependent_epsilon']:.6g}"
    assert shown in box
    assert shown not in public
    assert "data dependent" not in public
    assert "The guarantee" in public


def test_noise_from_a_seed_is_no_guarantee(ggdp, tmp_path):
    votes = tmp_path / "votes.csv"
    votes.write_text("40,5,5\n20,20,10\n")
    record = ggdp(
        "pate", votes, "--beta", "2", "--epsilon", "8", "--delta", "1e-5", "--seed", "1", "--json"
    ).out
    page = page_of(ggdp, tmp_path, record)
    assert "No guarantee" in page
    assert "NOT private" in page
    assert "The guarantee" not in page
    assert "No guarantee" in page_of(ggdp, tmp_path, TRAINED | {"seeded": True})


def test_an_upper_bound_that_is_missing_is_no_guarantee(ggdp, tmp_path):
    record = json.loads(ggdp("epsilon", "--beta", "2", *RUN, "--delta", "1e-6", "--json").out)
    record["epsilon"]["upper"] = None
    page = page_of(ggdp, tmp_path, record)
    assert "No guarantee" in page
    assert "differentially private" not in page


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        "3",
        "{}",
        '{"results": []}',
        '{"results": [{"threshold": 1}]}',
        json.dumps(TRAINED | {"rows": []}),
        json.dumps(TRAINED | {"plan": 3}),
        '{"epsilon": 1, "delta": 2, "method": "x", "adjacency": "add-remove"}',
        '{"epsilon": {"upper": 1}, "delta": 0.1, "method": "x", "adjacency": "sideways"}',
    ],
)
def test_what_is_no_record_is_refused_in_one_line_and_nothing_is_written(ggdp, tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    refused = ggdp("report", tmp_path / "run.json", "--html", tmp_path / "run.html")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert not (tmp_path / "run.html").exists()


def test_a_file_that_is_not_there_is_refused_in_one_line(ggdp, tmp_path):
    refused = ggdp("report", tmp_path / "nowhere.json", "--html", tmp_path / "run.html")
    assert refused.code == 2
    assert "nowhere.json" in refused.err


def test_an_unknown_record_is_told_what_is_known():
    with pytest.raises(ValueError, match=r"the --json output of epsilon, .* got an object with colour, size"):
        reports_of({"size": 1, "colour": 2})
