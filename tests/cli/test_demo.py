# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from ggdp.cli.demo import READERS_BY_BRANCH, VOTES_BY_NAME


@pytest.fixture
def finished(ggdp, tmp_path):
    return ggdp("demo", "--out", tmp_path / "report"), tmp_path / "report"


def test_the_demo_writes_a_report_and_prints_a_table(finished):
    done, folder = finished
    assert done.code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json"]
    assert "Noise of equal privacy" in done.out
    assert str(folder) in "".join(done.out.split("\n"))


def test_the_noises_of_the_demo_meet_their_target_on_the_private_side(finished):
    record = json.loads((finished[1] / "report.json").read_text())
    cases = record["results"]
    assert [case["beta"] for case in cases] == [1.0, 1.5, 2.0]
    for case in cases:
        assert 0.999 <= case["epsilon"]["upper"] <= record["target"]["target_epsilon"]
        spent = [row["epsilon"]["upper"] for row in case["training"]]
        assert spent == sorted(spent)
        assert len(case["released"]) == len(READERS_BY_BRANCH)
        assert case["winner"] in VOTES_BY_NAME
        assert 1.0 / len(VOTES_BY_NAME) < case["true_winner_prob"] < 1.0
    # Ten releases in one budget: an exponent between Laplace and Gaussian needs the least noise.
    assert [case["std_of_several"] for case in cases] == pytest.approx([14.1277, 12.6088, 13.3596], rel=1e-5)
    assert "at beta = 1.5 (std 12.61, against 14.13 at beta = 1, 13.36 at beta = 2)" in finished[0].out


def test_a_file_where_the_folder_should_be_is_refused(ggdp, tmp_path):
    (tmp_path / "taken").write_text("")
    done = ggdp("demo", "--out", tmp_path / "taken")
    assert done.code == 2
    assert done.err.count("\n") == 1
