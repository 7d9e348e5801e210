# SPDX-License-Identifier: Apache-2.0
"""The same sweep on a real Ray cluster of this machine; collected where Ray is installed."""

import os
import signal
import socket
from pathlib import Path

import pytest

from ggdp_paper.sweep import Cell, SweepError, sweep
from ggdp_paper.workers import ClusterError, Workers, crew

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, of sockets and processes it leaves to the end


@pytest.fixture(scope="module")
def cluster():
    import ray

    # A GPU to ask for; the cells of these tests use no device. Workers find the cells' functions.
    found = {"env_vars": {"PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("src", "tests"))}}
    ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, runtime_env=found)
    yield Workers("ray", 2)
    ray.shutdown()


def test_a_sweep_outlives_a_killed_worker_with_the_same_numbers(tmp_path, cluster):
    (tmp_path / "seen").mkdir()
    cells = [Cell("sweep_tasks:draw_and_tell", {"x": x, "seconds": 0.2}) for x in range(20)]
    killed = []

    def kill_one(finished, total):
        if finished >= 4 and not killed:
            killed.append(int(min((tmp_path / "seen").iterdir()).stem))
            os.kill(killed[0], signal.SIGKILL)

    def swept():
        return sweep(cells, tmp_path / "ray", workers=cluster, data=tmp_path / "seen", on_progress=kill_one)

    try:
        found = swept()
    except SweepError:  # a round that was on the way is lost; what had ended is kept
        found = swept()
        assert found.num_reused >= 4
    assert len(killed) == 1
    assert killed[0] != os.getpid()
    alone = sweep(cells, tmp_path / "alone", workers=Workers("threading", 8), data=tmp_path / "seen")
    assert found.results == alone.results


def test_cells_that_need_a_gpu_are_given_one_and_no_others(tmp_path, cluster):
    with crew(cluster) as ready:
        assert ready.has_gpu
    # Ray tells a worker its devices by this variable.
    cells = [
        Cell("sweep_tasks:variable", {"x": x, "name": "CUDA_VISIBLE_DEVICES"}, needs_gpu=x % 2 == 1)
        for x in range(6)
    ]
    found = sweep(cells, tmp_path, workers=cluster)
    assert found.num_left_out == 0
    assert [(result["x"], result["found"]) for result in found.results] == [
        (x, "0" if x % 2 else "") for x in range(6)
    ]


def test_a_cluster_that_is_not_there_is_told_in_one_line(monkeypatch):
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, and nobody listens
        workers = Workers("ray", 1, f"127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(ClusterError, match="which does not answer"), crew(workers):
            raise AssertionError("there is nobody to work")
