# SPDX-License-Identifier: Apache-2.0
"""The same sweep on a real Dask cluster, one of whose workers is killed on the way."""

import contextlib
import os
import signal
import socket
import threading

import pytest
from distributed import Client, LocalCluster, Nanny, Scheduler, SpecCluster

from ggdp_paper.sweep import Cell, sweep
from ggdp_paper.workers import ClusterError, Workers, crew


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as running:
        yield running


@pytest.fixture(scope="module")
def mixed_cluster():
    """Two workers, one of which has a GPU; the cells of these tests use no device."""
    shared = {"nthreads": 1, "dashboard": False}
    with SpecCluster(
        scheduler={"cls": Scheduler, "options": {"dashboard_address": ":0"}},
        workers={
            "plain": {"cls": Nanny, "options": shared},
            "gpu": {"cls": Nanny, "options": {**shared, "resources": {"GPU": 1}}},
        },
        silence_logs=50,
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


def processes(cluster):
    """The process of each worker, by whether it has a GPU."""
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        described = client.scheduler_info(n_workers=-1)["workers"]
        found = client.run(os.getpid)
    return {bool(described[address]["resources"].get("GPU")): pid for address, pid in found.items()}


def test_cells_that_need_a_gpu_go_to_the_worker_that_has_one(tmp_path, mixed_cluster):
    workers = Workers("dask", 2, mixed_cluster.scheduler_address)
    with crew(workers) as ready:
        assert ready.has_gpu
    seen = {}
    for needs_gpu in (False, True):
        folder = tmp_path / f"seen {needs_gpu}"
        folder.mkdir()
        cells = [
            Cell("sweep_tasks:draw_and_tell", {"x": x, "seconds": 0.05}, needs_gpu=needs_gpu)
            for x in range(16)
        ]
        found = sweep(cells, tmp_path / f"cells {needs_gpu}", workers=workers, data=folder)
        assert (found.num_left_out, len(found.results)) == (0, 16)
        seen[needs_gpu] = {int(path.stem) for path in folder.iterdir()}
    by_gpu = processes(mixed_cluster)
    assert len(by_gpu) == 2
    assert seen[True] == {by_gpu[True]}
    assert seen[False] == set(by_gpu.values())  # or the other worker had nothing to lose


def test_a_cluster_without_a_gpu_leaves_out_the_cells_that_need_one(tmp_path, cluster):
    cells = [Cell("sweep_tasks:draw", {"x": x}, needs_gpu=x == 1) for x in range(2)]
    found = sweep(cells, tmp_path, workers=Workers("dask", 2, cluster.scheduler_address))
    assert [result["x"] for result in found.results] == [0]
    assert found.num_left_out == 1


def hang_up(server):
    """Take every call and end it at once, as a server of something else may."""
    with contextlib.suppress(OSError):
        while True:
            server.accept()[0].close()


def test_a_server_of_something_else_is_given_up_in_one_line(monkeypatch):
    monkeypatch.setattr("ggdp_paper.workers._CONNECT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=hang_up, args=(server,), daemon=True).start()
        workers = Workers("dask", 1, f"tcp://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(ClusterError, match="which does not answer") as refused, crew(workers):
            raise AssertionError("there is nobody to work")
        server.shutdown(socket.SHUT_RDWR)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("has_gpu", [False, True])
def test_without_an_address_a_cluster_is_started_with_what_this_machine_has(tmp_path, monkeypatch, has_gpu):
    monkeypatch.setattr("ggdp_paper.workers._cuda_is_here", lambda: has_gpu)
    cells = [Cell("sweep_tasks:draw", {"x": x}, needs_gpu=x == 3) for x in range(4)]
    found = sweep(cells, tmp_path, workers=Workers("dask", 1))
    assert [result["x"] for result in found.results] == [0, 1, 2, 3][: 3 + has_gpu]
    assert found.num_left_out == 1 - has_gpu


def test_a_cluster_of_our_own_listens_to_this_machine_alone():
    with crew(Workers("dask", jobs=1), with_gpu=False) as workers:
        client = workers._config["client"]
        info = client.scheduler_info()
        listening = [info["address"], *info["workers"], client.dashboard_link]
    assert all("//127.0.0.1:" in address for address in listening)
