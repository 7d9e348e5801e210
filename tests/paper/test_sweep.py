# SPDX-License-Identifier: Apache-2.0
"""A sweep keeps what has ended, goes on after a kill, and gives the same numbers wherever it runs."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from ggdp_paper.sweep import Cell, CellStore, SweepError, sweep
from ggdp_paper.workers import JoblibCrew, Workers

SEQUENTIAL = Workers("sequential")


def cells(count, seconds=0.0, task="draw"):
    return [Cell(f"sweep_tasks:{task}", {"x": x, "seconds": seconds}) for x in range(count)]


def test_a_cell_draws_from_its_settings_alone(tmp_path):
    forward = sweep(cells(5), tmp_path / "a", workers=SEQUENTIAL).results
    backward = sweep(cells(5)[::-1], tmp_path / "b", workers=SEQUENTIAL).results
    assert forward == backward[::-1]
    assert len({result["number"] for result in forward}) == 5
    entropy = cells(1)[0].entropy
    assert forward[0]["number"] == np.random.default_rng(np.random.SeedSequence(entropy)).random()


def test_a_function_that_moved_keeps_its_seeds_and_its_finished_cells(tmp_path):
    before = cells(1)[0]
    moved = Cell("sweep_tasks:variable", before.config | {"name": "HOME"}, seeded_as=before.task)
    named = Cell(before.task, moved.config)
    assert (moved.digest, moved.entropy) == (named.digest, named.entropy)
    assert "found" in moved.result()  # the function of today runs
    store = CellStore(tmp_path)
    store.write(named, {"number": 1.0}, 0.0)
    assert store.read(moved)["result"] == {"number": 1.0}


def test_a_record_holds_the_cell_its_seed_and_its_result(tmp_path):
    (cell,) = cells(1)
    sweep([cell], tmp_path, workers=SEQUENTIAL)
    record = json.loads(CellStore(tmp_path).path(cell).read_text())
    assert record["config"] == {"x": 0, "seconds": 0.0}
    assert record["entropy"] == list(cell.entropy)
    assert record["result"]["x"] == 0


def test_finished_cells_are_read_and_not_run_again(tmp_path):
    first = sweep(cells(4), tmp_path, workers=SEQUENTIAL)
    told = []
    again = sweep(cells(6), tmp_path, workers=SEQUENTIAL, on_progress=lambda *told_of: told.append(told_of))
    assert (first.num_reused, again.num_reused) == (0, 4)
    assert again.records[:4] == first.records
    assert told == [(4, 6), (5, 6), (6, 6)]


@pytest.mark.parametrize("spoiled", ["", "{}", "[]", '{"result": 1}', "\x00\xff"])
def test_a_file_that_is_not_the_finished_cell_is_computed_again(tmp_path, spoiled):
    (cell,) = cells(1)
    right = sweep([cell], tmp_path, workers=SEQUENTIAL)
    CellStore(tmp_path).path(cell).write_text(spoiled, encoding="latin-1")
    again = sweep([cell], tmp_path, workers=SEQUENTIAL)
    assert again.num_reused == 0
    assert again.results == right.results


def test_a_result_of_another_version_is_computed_again(tmp_path):
    (cell,) = cells(1)
    sweep([cell], tmp_path, workers=SEQUENTIAL)
    path = CellStore(tmp_path).path(cell)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"ggdp": "0.0.1"}))
    assert sweep([cell], tmp_path, workers=SEQUENTIAL).num_reused == 0


def test_a_failing_cell_is_told_and_the_others_are_kept(tmp_path):
    failing = cells(6, task="fail_at_three")
    with pytest.raises(
        SweepError, match=r"1 of 6 cells failed, the first with ValueError: three is not for me"
    ):
        sweep(failing, tmp_path, workers=SEQUENTIAL)
    assert [CellStore(tmp_path).read(cell) is not None for cell in failing] == [True] * 3 + [False] + [
        True
    ] * 2


def test_a_result_that_json_cannot_hold_is_a_failure(tmp_path):
    with pytest.raises(SweepError, match="Out of range float values"):
        sweep(cells(1, task="not_a_number"), tmp_path, workers=SEQUENTIAL)


def test_a_lost_worker_is_told_in_one_line_and_what_ended_is_kept(tmp_path):
    some = [*cells(2), Cell("sweep_tasks:lose_the_worker", {})]
    with pytest.raises(SweepError, match=r"the workers were lost .* start again to go on"):
        sweep(some, tmp_path, workers=Workers("loky", 2))
    num_kept = len(list(tmp_path.glob("*.json")))
    assert sweep(some[:2], tmp_path, workers=SEQUENTIAL).num_reused == num_kept


def test_a_cell_that_needs_a_gpu_is_left_out_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr("ggdp_paper.workers._cuda_is_here", lambda: False)
    some = [*cells(2), Cell("sweep_tasks:draw", {"x": 9}, needs_gpu=True)]
    found = sweep(some, tmp_path, workers=SEQUENTIAL)
    assert found.num_left_out == 1
    assert found.records[2] is None
    assert len(found.results) == 2


def test_a_cell_that_needs_a_gpu_runs_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr("ggdp_paper.workers._cuda_is_here", lambda: True)
    found = sweep([Cell("sweep_tasks:draw", {"x": 9}, needs_gpu=True)], tmp_path, workers=SEQUENTIAL)
    assert found.num_left_out == 0
    assert found.results[0]["x"] == 9


def test_a_crew_without_a_gpu_refuses_to_be_asked_for_one():
    with pytest.raises(ValueError, match="no worker has one"):
        list(JoblibCrew({"backend": "sequential"}, None).results(len, [((),)], gpu=True))


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_every_backend_gives_the_same_numbers(tmp_path, backend):
    alone = sweep(cells(6), tmp_path / "alone", workers=SEQUENTIAL)
    assert sweep(cells(6), tmp_path / backend, workers=Workers(backend, 2)).results == alone.results


def test_bad_workers_are_refused_by_name():
    with pytest.raises(ValueError, match=r"backend must be one of loky, .* got 'slurm'"):
        Workers("slurm")
    with pytest.raises(ValueError, match="jobs must be a whole number >= 1, got 0"):
        Workers("loky", 0)
    with pytest.raises(
        ValueError, match=r"cluster must not be given with backend loky.*; it goes with backend dask"
    ):
        Workers("loky", 1, "tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("backend", "good", "bad"),
    [
        (
            "dask",
            ["tcp://10.0.0.1:8786", "host:8786", "tls://a.b:1/", "tcp://[::1]:65535"],
            ["nonsense", "tcp://host", "host:0", "host:65536", "http://host:80/path", "", "auto", "a b:1"],
        ),
        ("ray", ["auto", "10.0.0.1:6379", "ray://host:10001"], ["nonsense", "host", "", "ray://host"]),
    ],
)
def test_the_form_of_an_address_is_checked_before_anything_else(backend, good, bad):
    for address in good:
        assert Workers(backend, 1, address).cluster == address
    for address in bad:
        with pytest.raises(ValueError, match=r"cluster must be .*address of a running .* got '"):
            Workers(backend, 1, address)


def test_a_device_is_looked_for_only_where_an_open_cell_needs_one(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("ggdp_paper.workers._cuda_is_here", lambda: not asked.append(1))
    sweep(cells(3), tmp_path, workers=SEQUENTIAL)
    assert not asked
    needy = [Cell(cell.task, cell.config, needs_gpu=True) for cell in cells(3)]
    assert sweep(needy, tmp_path, workers=SEQUENTIAL).num_reused == 3
    assert not asked
    sweep([Cell("sweep_tasks:draw", {"x": 9}, needs_gpu=True)], tmp_path, workers=SEQUENTIAL)
    assert asked == [1]


@pytest.mark.parametrize("below", ["", "fig1"])
def test_a_file_in_the_way_of_the_cells_is_told_before_any_work(tmp_path, below):
    (tmp_path / "cells").write_text("not a folder")
    with pytest.raises(ValueError, match="must be a folder, for finished cells, and a file is in its way"):
        sweep(cells(2), tmp_path / "cells" / below, workers=Workers("loky", 2))


KILLED = """
import sys
from pathlib import Path
from ggdp_paper.workers import Workers
from ggdp_paper.sweep import Cell, sweep
cells = [Cell("sweep_tasks:draw", {"x": x, "seconds": 0.05}) for x in range(24)]
sweep(cells, Path(sys.argv[1]), workers=Workers(sys.argv[2], 2))
"""


def test_a_sweep_killed_three_times_ends_with_the_numbers_of_one_that_was_not(tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    def finished():
        return len(list(tmp_path.glob("killed/*.json")))

    for backend in ("loky", "threading", "sequential"):
        before = finished()
        command = [sys.executable, "-c", KILLED, str(tmp_path / "killed"), backend]
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        while finished() < before + 3 and process.poll() is None:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)  # the workers as well, at whatever they are doing
        assert process.wait() == -signal.SIGKILL
    assert before + 3 <= finished() < 24
    killed = sweep(cells(24, 0.05), tmp_path / "killed", workers=SEQUENTIAL)
    whole = sweep(cells(24, 0.05), tmp_path / "whole", workers=Workers("threading", 8))
    assert killed.num_reused >= 9
    assert killed.results == whole.results
    names = [sorted(path.name for path in folder.glob("*.json")) for folder in tmp_path.iterdir()]
    assert names[0] == names[1]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"result": ' * 100_000])
def test_a_cell_nested_too_deeply_counts_as_not_there(tmp_path, text):
    store, cell = CellStore(tmp_path), cells(1)[0]
    store.path(cell).write_text(text)
    assert store.read(cell) is None


def test_a_cell_whose_result_was_changed_counts_as_not_there(tmp_path):
    store, cell = CellStore(tmp_path), cells(1)[0]
    record = store.write(cell, {"mean": 0.5, "rows": [1, 2]}, 0.1)
    assert store.read(cell) == record
    changed = store.path(cell).read_text().replace("0.5", "0.7")
    store.path(cell).write_text(changed)
    assert store.read(cell) is None
    record.pop("digest")  # as earlier runs wrote them
    store.path(cell).write_text(json.dumps(record))
    assert store.read(cell) == record
