# SPDX-License-Identifier: Apache-2.0
"""The scripts beside the records: what they compare, and the one line they end with when they cannot."""

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from ggdp_paper.figures import NAMES

PAPER = Path(__file__).parents[2] / "papers" / "generalized_gaussian"


@pytest.fixture
def script(capsys, monkeypatch):
    """Run a script; its status, and what it printed or left with."""
    monkeypatch.syspath_prepend(PAPER)

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        code = 0
        try:
            runpy.run_path(str(PAPER / name), run_name="__main__")
        except SystemExit as leaving:
            code = leaving.code
        told = capsys.readouterr()
        text = f"{told.out}{told.err}"
        return (1, f"{text}{code}") if isinstance(code, str) else (code or 0, text)

    return run


def test_the_committed_records_are_as_expected(script):
    code, told = script("check.py")
    assert code == 0
    for name in NAMES:
        assert f"{name}: " in told or not (PAPER / "expected" / f"{name}.json").exists()


def test_absent_records_are_told_one_by_one(script, tmp_path):
    shutil.copy(PAPER / "records" / "fig1.json", tmp_path)
    code, told = script("check.py", tmp_path)
    assert code == 1
    assert "fig1: 5 of 5 numbers as expected" in told
    assert f"fig2: no record in '{tmp_path}'" in told
    assert f"table1: no record in '{tmp_path}'" in told
    assert script("check.py", tmp_path, "fig1") == (0, "fig1: 5 of 5 numbers as expected\n")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"quick": True}, "fig1: the record is of a quick run"),
        ({"headline": {}}, "is missing"),
        ({"headline": 1}, "wrong or missing: headline"),
    ],
)
def test_a_record_that_cannot_be_compared_is_told(script, tmp_path, change, told):
    record = json.loads((PAPER / "records" / "fig1.json").read_text())
    (tmp_path / "fig1.json").write_text(json.dumps(record | change))
    code, text = script("check.py", tmp_path, "fig1")
    assert code == 1
    assert told in text


def test_a_folder_or_figure_that_is_not_there_is_refused(script, tmp_path):
    assert script("check.py", tmp_path / "nowhere") == (
        1,
        f"DIR must be a folder with records, got '{tmp_path / 'nowhere'}'",
    )
    code, told = script("check.py", tmp_path, "fig99")
    assert code == 1
    assert told.startswith("figure must be one of fig1, ")


def test_a_figure_made_anew_has_the_numbers_that_are_expected(script, ggdp, tmp_path):
    assert ggdp("reproduce", "fig1", "--out", tmp_path, "--jobs", 1).code == 0
    assert script("check.py", tmp_path, "fig1") == (0, "fig1: 5 of 5 numbers as expected\n")


@pytest.mark.parametrize("name", ["figure4_adult.py", "pate_confident.py", "pate_digits.py", "pate_mnist.py"])
def test_a_script_of_its_own_says_what_it_takes(script, name):
    code, told = script(name, "--help")
    assert code == 0
    assert "--out" in told
