# SPDX-License-Identifier: Apache-2.0
"""The scripts beside the records: what they compare, and the one line they end with when they cannot."""

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest

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
    for path in (PAPER / "expected").glob("fig?.json"):
        assert f"{path.stem}: " in told


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


def test_a_script_of_one_figure_makes_it_and_compares(script, tmp_path):
    code, told = script("figure1_densities.py", "--out", tmp_path / "out", "--jobs", 1)
    assert code == 0
    assert "5 of 5 cells" in told
    assert (tmp_path / "out" / "fig1.svg").is_file()


def test_a_script_says_what_was_read(script, tmp_path):
    code, told = script("table1_cifar10.py", "--out", tmp_path)
    assert code == 0
    assert "this command trained nothing" in told


def test_a_script_refuses_in_one_line(script, tmp_path):
    (tmp_path / "file").write_text("")
    for arguments, told in (
        (["--jobs", 0], "--jobs must be a whole number >= 1, got 0"),
        (["--out", tmp_path / "file"], "--out must be a folder, or the name of a new one, got the file"),
        (["--data", tmp_path / "nowhere"], "--data must be a folder, got"),
    ):
        code, text = script("figure1_densities.py", "--out", tmp_path / "out", *arguments)
        assert code == 2
        assert told in text.splitlines()[-1]
    (tmp_path / "cells").write_text("")
    code, text = script("figure1_densities.py", "--out", tmp_path)
    assert code == 1
    assert "fig1 was not made: " in text
    assert "must be a folder, for finished cells" in text
