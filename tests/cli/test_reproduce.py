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


def test_a_figure_without_data_is_skipped_and_one_that_fails_stops_no_other(ggdp, tmp_path):
    shared = ("--quick", "--out", tmp_path / "out", "--backend", "sequential")
    skipped = ggdp("reproduce", "fig3", *shared)
    assert skipped.code == 0
    assert "fig3: skipped, needs data: pass --data DIR" in skipped.out
    (tmp_path / "data" / "pate").mkdir(parents=True)
    for name in ("mnist", "svhn"):
        (tmp_path / "data" / "pate" / f"{name}_250_teachers.npz").write_text("no votes")
        (tmp_path / "data" / "pate" / f"{name}_test_labels.npy").write_text("no labels")
    failed = ggdp("reproduce", "fig1", "fig3", "--data", tmp_path / "data", *shared)
    assert failed.code == 1
    assert "cells failed, the first with ValueError" in failed.out
    page = (tmp_path / "out" / "index.html").read_text()
    assert 'id="fig1"' in page
    assert "fig3: 28 of 28 cells failed" in page


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
