# SPDX-License-Identifier: Apache-2.0
"""Where cells run: processes or threads of this machine, a Dask or a Ray cluster; joblib is the one seam."""

import contextlib
import importlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ggdp import arguments


class BackendName(StrEnum):
    """The kinds of workers."""

    LOKY = "loky"
    THREADING = "threading"
    SEQUENTIAL = "sequential"
    DASK = "dask"
    RAY = "ray"


@dataclass(frozen=True)
class Workers:
    """Which workers a sweep uses.

    Attributes:
        backend: their kind.
        jobs: how many; of an existing cluster, all that it has.
        address: of a running Dask scheduler or Ray cluster. Without one a cluster of this machine is started,
            and stopped at the end.
    """

    backend: BackendName = BackendName.LOKY
    jobs: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        object.__setattr__(self, "backend", _known(self.backend))
        arguments.whole("jobs", self.jobs)
        if self.address is not None and self.backend not in (BackendName.DASK, BackendName.RAY):
            raise ValueError(f"address must not be given with backend {self.backend}, got {self.address!r}")


class Crew:
    """Workers that are ready: hands out work, and knows whether a GPU can be asked for."""

    def __init__(
        self, config: dict[str, Any], gpu_config: dict[str, Any] | None, *, round_size: int | None = None
    ):
        self._config, self._gpu_config = config, gpu_config
        self._round_size = round_size  # of a backend that hands over nothing before all of a round has ended

    @property
    def has_gpu(self) -> bool:
        """Whether a cell that needs a GPU can run."""
        return self._gpu_config is not None

    def results(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], *, gpu: bool = False
    ) -> Iterator[Any]:
        """`function(*call)` for each call, in the order in which they end."""
        from joblib import Parallel, delayed, parallel_config

        config = self._gpu_config if gpu else self._config
        if config is None:
            raise ValueError("a cell that needs a GPU cannot run here: no worker has one")
        with parallel_config(**config), warnings.catch_warnings():
            # loky replaces workers that have grown; no cell is lost by it.
            warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
            work = [delayed(function)(*call) for call in calls]
            if self._round_size is None:
                # One call in a batch: what has ended is handed over, and not lost with its neighbours.
                yield from Parallel(return_as="generator_unordered", batch_size=1)(work)
                return
            for start in range(0, len(work), self._round_size):
                yield from Parallel(batch_size=1)(work[start : start + self._round_size])


@contextlib.contextmanager
def crew(workers: Workers) -> Iterator[Crew]:
    """Start or find the workers, and let them go at the end."""
    if workers.backend is BackendName.DASK:
        with _dask_client(workers) as client:
            described = client.scheduler_info(n_workers=-1)["workers"].values()
            has_gpu = any(worker.get("resources", {}).get("GPU", 0) > 0 for worker in described)
            plain = {"backend": "dask", "client": client}
            asking = {**plain, "resources": {"GPU": 1}} if has_gpu else None
            yield Crew(plain, asking if workers.address else _gpu_of_this_machine())
    elif workers.backend is BackendName.RAY:
        with _ray(workers) as (num_cpus, num_gpus):
            # A pool of more workers than there is room for would wait for ever.
            jobs = num_cpus if workers.address else min(workers.jobs, num_cpus)
            gpu = {"backend": "ray", "n_jobs": min(jobs, num_gpus), "ray_remote_args": {"num_gpus": 1}}
            plain = {"backend": "ray", "n_jobs": jobs}
            yield Crew(plain, gpu if num_gpus else None, round_size=2 * jobs)
    else:
        plain = {"backend": str(workers.backend), "n_jobs": workers.jobs}
        yield Crew(plain, _gpu_of_this_machine())


@contextlib.contextmanager
def _dask_client(workers: Workers) -> Iterator[Any]:
    dask = _installed("distributed", "backend dask needs Dask; try pip install 'ggdp[dask]'")
    if workers.address is not None:
        with dask.Client(workers.address, set_as_default=False) as client:
            yield client
        return
    with (
        dask.LocalCluster(n_workers=workers.jobs, threads_per_worker=1, dashboard_address=":0") as cluster,
        dask.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextlib.contextmanager
def _ray(workers: Workers) -> Iterator[tuple[int, int]]:
    """Start or find Ray; the numbers of its processors and GPUs."""
    ray = _installed("ray", "backend ray needs Ray; try pip install 'ray[default]'")
    started = not ray.is_initialized()
    if started:
        local = {} if workers.address else {"num_cpus": workers.jobs, "include_dashboard": False}
        ray.init(address=workers.address, **local)
    importlib.import_module("ray.util.joblib").register_ray()
    try:
        resources = ray.cluster_resources()
        yield int(resources["CPU"]), int(resources.get("GPU", 0.0))
    finally:
        if started:
            ray.shutdown()


def _installed(package: str, otherwise: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        raise ValueError(otherwise) from None


def _gpu_of_this_machine() -> dict[str, Any] | None:
    """One device, one cell at a time: two would share its memory."""
    return {"backend": "sequential", "n_jobs": 1} if _cuda_is_here() else None


def _cuda_is_here() -> bool:
    try:
        import torch
    except ModuleNotFoundError:
        return False
    return bool(torch.cuda.is_available())


def _known(backend: str) -> BackendName:
    arguments.one_of("backend", backend, tuple(BackendName))
    return BackendName(backend)
