# SPDX-License-Identifier: Apache-2.0
"""The same sweep on a real Dask cluster, one of whose workers is killed on the way."""

import os
import signal

import pytest
from distributed import LocalCluster

from ggdp.reproduction.backends import Workers, crew
from ggdp.reproduction.cell import Cell
from ggdp.reproduction.sweep import sweep


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", resources={"GPU": 1}, silence_logs=50
    ) as running:
        yield running


def test_a_sweep_outlives_a_killed_worker_with_the_same_numbers(tmp_path, cluster):
    (tmp_path / "seen").mkdir()
    cells = [Cell("sweep_tasks:draw_and_tell", {"x": x, "seconds": 0.05}) for x in range(30)]
    killed = []

    def kill_one(finished, total):
        if finished == 6:
            killed.append(int(min((tmp_path / "seen").iterdir()).stem))
            os.kill(killed[0], signal.SIGKILL)

    workers = Workers("dask", 2, cluster.scheduler_address)
    found = sweep(cells, tmp_path / "dask", workers=workers, data=tmp_path / "seen", on_progress=kill_one)
    assert len(killed) == 1
    assert killed[0] != os.getpid()
    alone = sweep(cells, tmp_path / "alone", workers=Workers("threading", 8), data=tmp_path / "seen")
    assert found.results == alone.results
    assert len(list((tmp_path / "seen").iterdir())) >= 3  # two workers, and this process


def test_cells_that_need_a_gpu_go_to_the_workers_that_have_one(tmp_path, cluster):
    workers = Workers("dask", 2, cluster.scheduler_address)
    with crew(workers) as ready:
        assert ready.has_gpu
    cells = [Cell("sweep_tasks:draw", {"x": x}, needs_gpu=x % 2 == 1) for x in range(4)]
    found = sweep(cells, tmp_path, workers=workers)
    assert found.num_left_out == 0
    assert [result["x"] for result in found.results] == [0, 1, 2, 3]


@pytest.mark.parametrize("has_gpu", [False, True])
def test_without_an_address_a_cluster_is_started_with_what_this_machine_has(tmp_path, monkeypatch, has_gpu):
    monkeypatch.setattr("ggdp.reproduction.backends._cuda_is_here", lambda: has_gpu)
    cells = [Cell("sweep_tasks:draw", {"x": x}, needs_gpu=x == 3) for x in range(4)]
    found = sweep(cells, tmp_path, workers=Workers("dask", 1))
    assert [result["x"] for result in found.results] == [0, 1, 2, 3][: 3 + has_gpu]
    assert found.num_left_out == 1 - has_gpu
