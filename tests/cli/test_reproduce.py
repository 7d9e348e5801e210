# SPDX-License-Identifier: Apache-2.0
"""`ggdp reproduce` writes the page and says what it found; what it cannot do is one line."""

import json


def test_figures_are_written_with_records_pictures_and_a_page(ggdp, tmp_path):
    done = ggdp("reproduce", "fig1", "--quick", "--out", tmp_path / "out", "--backend", "sequential")
    assert done.code == 0
    assert "fig1: agrees" in done.out
    assert "fig1: differs" in done.out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "cells",
        "fig1.json",
        "fig1.png",
        "fig1.svg",
        "index.html",
    }
    assert json.loads((tmp_path / "out" / "fig1.json").read_text())["quick"] is True
    again = ggdp("reproduce", "fig1", "--quick", "--out", tmp_path / "out", "--backend", "sequential")
    assert again.out == done.out


def test_an_unknown_figure_backend_or_folder_is_refused_in_one_line(ggdp, tmp_path):
    for arguments, told in (
        (["fig99"], "figure must be one of fig1, "),
        (["fig1", "--backend", "slurm"], "--backend"),
        (["fig1", "--jobs", "0"], "--jobs must be a whole number in [1, 1024], got 0"),
        (["fig1", "--data", tmp_path / "nowhere"], "--data must be a folder"),
        (["fig1", "--cluster", "tcp://x"], "address must not be given with backend loky"),
    ):
        refused = ggdp("reproduce", *arguments, "--out", tmp_path / "out")
        assert refused.code == 2
        assert told in refused.err
        assert refused.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
