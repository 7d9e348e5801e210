# SPDX-License-Identifier: Apache-2.0
"""`ggdp report`: every record of the command line becomes a page; private numbers stay in their box."""

import json
import os
import re
import stat

import pytest

from ggdp.reporting.records import record_of
from ggdp.reporting.training_report import CHOICE_CAVEAT

NASTY = "<script>alert('x')</script>"

RUN = ("--noise-multiplier", "2", "--rate", "0.01", "--steps", "100")
TRAINED = {
    "task": "adult",
    "synthetic": False,
    "seeded": False,
    "adjacency": "add-remove",
    "delta": 1e-6,
    "target_epsilon": 2.0,
    "epsilon": {"lower": 0.7, "estimate": 0.72, "upper": 0.75},
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
        {
            "epoch": 1,
            "steps": 100,
            "epsilon": {"lower": 0.5, "estimate": None, "upper": 0.55},
            "score": 0.78,
            "seconds": 1.0,
        },
        {
            "epoch": 2,
            "steps": 200,
            "epsilon": {"lower": 0.7, "estimate": None, "upper": 0.75},
            "score": 0.8,
            "seconds": 2.0,
        },
    ],
    "stopped_by": "budget",
    "method": "certified renyi",
    "caveats": [f"the words {NASTY}", CHOICE_CAVEAT],
}


def trained(**changed):
    """The record of a training run with other fields."""
    return record_of("train", [TRAINED | changed])


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
        ggdp, tmp_path, ggdp("epsilon", "--beta", "1.5", "--beta", "2", *RUN, "--delta", "1e-6", "--json").out
    )
    assert page.count("The guarantee") == 2
    headings = re.findall("<h1>(.*?)</h1>", page)
    assert [heading.rpartition(", ")[2] for heading in headings] == ["beta = 1.5", "beta = 2"]
    assert "beta = 1.5, and 1 more</title>" in page


def test_a_page_of_a_vector_tells_its_norm_and_dimension(ggdp, tmp_path):
    noise = ("--beta", "1.5", "--noise-multiplier", "2", "--dimension", "1000", "--norm", "2")
    page = page_of(ggdp, tmp_path, ggdp("epsilon", *noise, "--delta", "1e-6", "--json").out)
    assert "<th>norm of the sensitivity</th><td>l_2</td>" in page
    assert "<th>dimension</th><td>1,000</td>" in page
    assert "that the value is one number" not in page


def test_a_page_of_a_curve_quotes_a_usual_delta_and_says_what_each_number_rests_on(ggdp, tmp_path):
    page = page_of(ggdp, tmp_path, ggdp("curve", "--beta", "2", *RUN, "--points", "5", "--json").out)
    assert "(0.227975, 1e-6)-differentially private" in page
    assert "by this pair alone" in page
    assert page.count("by all 5 pairs together") == 2  # beside the chance, and above the table


def test_a_trained_model_shows_its_caveats_and_its_last_epsilon(ggdp, tmp_path):
    page = page_of(ggdp, tmp_path, trained())
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
    shown = f"{record['results'][0]['private']['data_dependent_epsilon']:.6g}"[:-1]
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
    assert "No guarantee" in page_of(ggdp, tmp_path, trained(seeded=True))


def test_an_upper_bound_that_is_missing_is_no_guarantee(ggdp, tmp_path):
    record = json.loads(ggdp("epsilon", "--beta", "2", *RUN, "--delta", "1e-6", "--json").out)
    record["results"][0]["epsilon"]["upper"] = None
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
        "",
        '{"kind": "epsilon", "results": []}',
        '{"kind": "epsilon", "results": {"epsilon": 1}}',
        '{"kind": "colour", "results": [{"threshold": 1}]}',
        '{"kind": "choose", "results": [{"threshold": 1}]}',
        json.dumps(TRAINED),
        json.dumps(trained(rows=[])),
        json.dumps(trained(plan=3)),
        '{"kind": "epsilon", "results": [{"epsilon": 1, "delta": 2}]}',
        '{"kind": "epsilon", "results": [{"epsilon": {"upper": 1}, "adjacency": "sideways"}]}',
        "[" * 100_000,
        '{"plan": ' + "[" * 100_000,
        json.dumps(trained(task="\ud800")),
        json.dumps(trained(task=r"$\frac$")),
        json.dumps(trained(rows=[TRAINED["rows"][0] | {"score": 10**400}])),
    ],
)
def test_what_is_no_record_is_refused_in_one_line_and_nothing_is_written(ggdp, tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    refused = ggdp("report", tmp_path / "run.json", "--html", tmp_path / "run.html")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "run.json" in refused.err
    assert refused.err.endswith("; give what --json printed\n")
    assert not (tmp_path / "run.html").exists()


def test_a_file_that_is_not_there_is_refused_in_one_line(ggdp, tmp_path):
    refused = ggdp("report", tmp_path / "nowhere.json", "--html", tmp_path / "run.html")
    assert refused.code == 2
    assert "nowhere.json" in refused.err


def test_the_record_itself_is_never_overwritten(ggdp, tmp_path):
    record, link = tmp_path / "run.json", tmp_path / "link.html"
    record.write_text(json.dumps(trained()))
    link.symlink_to(record)
    for html in (record, link, tmp_path / "." / "run.json"):
        refused = ggdp("report", record, "--html", html)
        assert refused.code == 2
        assert f"--html must be another file than the record, got {str(html)!r}" in refused.err
    assert json.loads(record.read_text()) == trained()


def test_behind_a_link_the_page_is_written_and_the_link_stays(ggdp, tmp_path):
    record, link = tmp_path / "run.json", tmp_path / "link.html"
    record.write_text(json.dumps(trained()))
    link.symlink_to("page.html")
    assert ggdp("report", record, "--html", link).code == 0
    assert link.is_symlink()
    assert "The guarantee" in (tmp_path / "page.html").read_text()


def test_a_pipe_or_a_folder_is_refused_by_its_name_and_stays(ggdp, tmp_path):
    record, pipe, folder = tmp_path / "run.json", tmp_path / "pipe", tmp_path / "folder"
    record.write_text(json.dumps(trained()))
    os.mkfifo(pipe)
    folder.mkdir()
    for html, told in ((pipe, "it is not a regular file"), (folder, "it is a folder")):
        refused = ggdp("report", record, "--html", html)
        assert refused.code == 2
        assert refused.err.startswith(
            f"ggdp: --html must be a file that can be written, got {str(html)!r}: {told}"
        )
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [folder, pipe, record]
