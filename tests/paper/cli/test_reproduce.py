# SPDX-License-Identifier: Apache-2.0
"""`ggdp reproduce` writes the page and says what it found; what it cannot do is one line."""

import json
import shutil
import socket
import warnings
from pathlib import Path

import pytest

from ggdp.cli import output

RECORDS = Path(__file__).parents[3] / "papers" / "generalized_gaussian" / "records"
SKIPPED = "fig4_svhn"  # without its data: the page is written and nothing is computed


def test_figures_are_written_with_records_pictures_and_a_page(ggdp, tmp_path):
    done = ggdp("reproduce", "fig1", "--quick", "--out", tmp_path / "out", "--backend", "sequential")
    assert done.code == 0
    assert "fig1: agrees" in done.out
    assert "fig1: differs" in done.out
    assert "quick run" not in (tmp_path / "out" / "index.html").read_text()  # it has none of its own
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "cells",
        "fig1.json",
        "fig1.png",
        "fig1.svg",
        "index.html",
    }
    assert json.loads((tmp_path / "out" / "fig1.json").read_text())["quick"] is False
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
    assert "fig3: failed, 35 of 35 cells failed, the first with ValueError" in failed.out
    assert "fig3: skipped" not in failed.out
    page = (tmp_path / "out" / "index.html").read_text()
    assert 'id="fig1"' in page
    assert "fig3: failed, 35 of 35 cells failed" in page


def test_what_is_read_from_a_kept_record_is_told_on_the_terminal_and_on_the_page(ggdp, tmp_path):
    (tmp_path / "empty").mkdir()
    shared = ("--out", tmp_path / "out", "--backend", "sequential")
    needs = "it needs a GPU and --data DIR, a folder with cifar-10-batches-py or cifar-10-batches-bin."
    for arguments, told in (
        (["--quick"], f"since a quick run leaves its training out; without --quick {needs}"),
        ([], f"since {needs}"),
        (
            ["--data", tmp_path / "empty"],
            "since it needs cifar-10-batches-py or cifar-10-batches-bin in the folder of --data, "
            "which has none.",
        ),
    ):
        done = ggdp("reproduce", "table1", *arguments, *shared)
        assert done.code == 0
        (line,) = [line for line in done.out.splitlines() if line.startswith("table1: Read from the record")]
        assert line.endswith(told)
        assert done.err == ""  # no bar, where there are no cells
        page = (tmp_path / "out" / "index.html").read_text()
        assert told in page
        assert "(kept record)" in page
        assert "quick run:" not in page
        assert "NVIDIA" in page


@pytest.mark.parametrize("content", ["{", "{}", "[]", "[" * 100_000])
def test_a_file_that_is_no_record_costs_its_section_and_not_the_page(ggdp, tmp_path, content):
    shutil.copy(RECORDS / "fig1.json", tmp_path)
    (tmp_path / "fig2.json").write_text(content)
    done = ggdp("reproduce", SKIPPED, "--out", tmp_path, "--backend", "sequential")
    assert done.code == 0
    assert f"fig2: left out of the page, '{tmp_path / 'fig2.json'}' must be a record" in done.out
    page = (tmp_path / "index.html").read_text()
    assert 'id="fig1"' in page
    assert 'id="fig2"' not in page
    assert "<li>fig2: " in page
    assert (tmp_path / "fig2.json").read_text() == content


@pytest.mark.parametrize(
    "picture",
    ["https://example.org/x", "//example.org/x", "../x", "/etc/x", "javascript:alert(1)//", "a b", ""],
)
def test_a_record_that_links_to_anything_but_a_file_beside_it_is_left_out(ggdp, tmp_path, picture):
    record = json.loads((RECORDS / "fig1.json").read_text())
    (tmp_path / "fig2.json").write_text(json.dumps(record | {"figure": "fig2", "pictures": [picture]}))
    done = ggdp("reproduce", SKIPPED, "--out", tmp_path, "--backend", "sequential")
    assert "fig2: left out of the page" in done.out
    assert "wrong or missing: pictures" in done.out
    assert 'id="fig2"' not in (tmp_path / "index.html").read_text()


def test_a_section_of_an_earlier_run_says_so(ggdp, tmp_path):
    shared = ("--out", tmp_path, "--backend", "sequential")
    ggdp("reproduce", "fig1", *shared)
    record = json.loads((tmp_path / "fig1.json").read_text())
    (tmp_path / "fig3.json").write_text(json.dumps(record | {"figure": "fig3"}))
    done = ggdp("reproduce", "fig1", "fig3", *shared)
    assert "fig3: skipped, needs data" in done.out
    page = (tmp_path / "index.html").read_text()
    before, after = page.split('<section id="fig3">')
    assert "From an earlier run" not in before
    assert "From an earlier run" in after
    assert "<li>fig3: needs data" in after


def test_a_quick_run_does_not_replace_a_full_one(ggdp, tmp_path):
    ggdp("reproduce", "fig1", "--out", tmp_path, "--backend", "sequential")
    record = json.loads((tmp_path / "fig1.json").read_text()) | {"figure": "fig5"}
    (tmp_path / "fig5.json").write_text(json.dumps(record))
    done = ggdp("reproduce", "fig5", "--quick", "--out", tmp_path, "--backend", "sequential")
    told = f"fig5: skipped, a quick run would replace the full one of '{tmp_path / 'fig5.json'}'"
    assert f"{told}; give another --out" in done.out
    assert json.loads((tmp_path / "fig5.json").read_text()) == record


def test_an_unknown_figure_backend_or_folder_is_refused_in_one_line(ggdp, tmp_path):
    (tmp_path / "file").write_text("")
    backends = "loky, threading, sequential, dask, ray"
    for arguments, told in (
        (["fig99"], "figure must be one of fig1, "),
        (["all", "fig99"], "figure must be one of fig1, "),
        (["fig1", "--backend", "slurm"], f"--backend must be one of {backends}, got 'slurm'"),
        (["fig1", "--jobs", "0"], "--jobs must be a whole number in [1, 1024], got 0"),
        (["fig1", "--data", tmp_path / "nowhere"], "--data must be a folder"),
        (
            ["fig1", "--cluster", "tcp://x:1"],
            "--cluster must not be given with --backend loky, got 'tcp://x:1'; it goes with --backend",
        ),
        (
            ["fig1", "--backend", "dask", "--cluster", "nonsense"],
            "--cluster must be the address of a running Dask scheduler, as tcp://HOST:8786, got 'nonsense'",
        ),
        (["fig1", "--out", tmp_path / "file"], "--out must be a folder, or the name of a new one, got"),
        (["fig1", "--out", "/proc/nothing"], "--out must be a folder that can be made, got '/proc/nothing'"),
        (["fig1", "--out", tmp_path / "file" / "below"], "--out must be a folder, or the name of a new one"),
    ):
        out = () if "--out" in arguments else ("--out", tmp_path / "out")
        refused = ggdp("reproduce", *out, *arguments)
        assert refused.code == 2
        assert told in refused.err
        assert refused.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_cluster_that_is_not_there_is_one_line_at_once(ggdp, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"  # bound, and nobody listens
        refused = ggdp("reproduce", "fig1", "--backend", "dask", "--cluster", address, "--out", tmp_path)
    assert refused.code == 2
    told = refused.err.splitlines()[-1]
    assert told.startswith("ggdp: --cluster must be the address of a running Dask scheduler")
    assert f"got '{address}', which does not answer" in told


def test_a_file_in_the_way_of_the_cells_is_one_line_without_warnings(ggdp, tmp_path):
    (tmp_path / "cells").write_text("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused = ggdp("reproduce", "fig1", "--out", tmp_path)
    assert refused.code == 2
    assert "cells/fig1' must be a folder, for finished cells" in refused.err.splitlines()[-1]
    assert "Warning" not in refused.err


def test_an_error_of_no_file_is_told_in_its_own_words():
    assert output.sentence(OSError("the line went dead")) == "the line went dead"
    assert output.sentence(TimeoutError()) == "TimeoutError"
    assert (
        output.sentence(FileNotFoundError(2, "No such file", "a.json"))
        == "cannot use file 'a.json': No such file"
    )
    assert output.sentence(OSError(28, "No space left on device")) == "No space left on device"
    assert output.sentence(MemoryError()) == "there is not enough memory for this"
