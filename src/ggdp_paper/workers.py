# SPDX-License-Identifier: Apache-2.0
"""Where cells run: processes or threads of this machine, a Dask or a Ray cluster."""

import contextlib
import importlib
import re
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from ggdp import arguments
from ggdp.cli.output import lacking_line

_NO_GPU = "a cell that needs a GPU cannot run here: no worker has one"
_CONNECT_SECONDS = 10.0  # a cluster that is there answers at once
_ADDRESS = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?P<host>\[[^\s\[\]]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})/?")


class ClusterError(ValueError):
    """A cluster that is not there, or does not answer."""


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
        cluster: the address of a running Dask scheduler or Ray cluster. Without one a cluster of this machine
            is started, and stopped at the end.
    """

    backend: BackendName = BackendName.LOKY
    jobs: int = 1
    cluster: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        object.__setattr__(self, "backend", _known(self.backend))
        arguments.whole("jobs", self.jobs)
        if self.cluster is None:
            return
        if self.backend not in (BackendName.DASK, BackendName.RAY):
            raise ValueError(
                f"cluster must not be given with backend {self.backend}, got {self.cluster!r}; "
                "it goes with backend dask or backend ray"
            )
        if not _is_address(self.cluster, self.backend):
            raise ValueError(f"cluster must be {_wanted(self.backend)}, got {self.cluster!r}")

    @property
    def may_have_gpu(self) -> bool:
        """Whether it is worth asking for a GPU; of a cluster elsewhere, only the cluster knows."""
        return self.cluster is not None or _cuda_is_here()


class Crew(Protocol):
    """Workers that are ready."""

    @property
    def has_gpu(self) -> bool:
        """Whether a cell that needs a GPU can run."""

    def results(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], *, gpu: bool = False
    ) -> Iterator[Any]:
        """`function(*call)` for each call, in the order in which they end."""


class JoblibCrew:
    """Workers of joblib's: of this machine, or of Dask."""

    def __init__(self, config: dict[str, Any], gpu_config: dict[str, Any] | None):
        self._config, self._gpu_config = config, gpu_config

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
            raise ValueError(_NO_GPU)
        with parallel_config(**config), warnings.catch_warnings():
            # loky replaces workers that have grown; no cell is lost by it.
            warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
            work = [delayed(function)(*call) for call in calls]
            # One call in a batch: what has ended is handed over, and not lost with its neighbours.
            yield from Parallel(return_as="generator_unordered", batch_size=1)(work)


class RayCrew:
    """Workers of Ray's, asked without joblib: a pool of one, as on one GPU, joblib runs in this process."""

    def __init__(self, ray: Any):
        self._ray = ray

    @property
    def has_gpu(self) -> bool:
        """Whether a cell that needs a GPU can run."""
        return bool(self._ray.cluster_resources().get("GPU", 0.0) >= 1.0)

    def results(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], *, gpu: bool = False
    ) -> Iterator[Any]:
        """`function(*call)` for each call, in the order in which they end."""
        if gpu and not self.has_gpu:  # Ray would wait for one to come
            raise ValueError(_NO_GPU)
        task = self._ray.remote(num_gpus=int(gpu))(function)
        waiting = [task.remote(*call) for call in calls]
        while waiting:
            ended, waiting = self._ray.wait(waiting)
            yield from self._ray.get(ended)


@contextlib.contextmanager
def crew(workers: Workers, *, with_gpu: bool = True) -> Iterator[Crew]:
    """Start or find the workers, and let them go at the end; a GPU is looked for only where one is wanted."""
    here = _gpu_of_this_machine() if with_gpu and workers.cluster is None else None
    if workers.backend is BackendName.DASK:
        with _dask_client(workers) as client:
            described = client.scheduler_info(n_workers=-1)["workers"].values()
            has_gpu = any(worker.get("resources", {}).get("GPU", 0) > 0 for worker in described)
            plain = {"backend": "dask", "client": client}
            asking = {**plain, "resources": {"GPU": 1}} if has_gpu else None
            yield JoblibCrew(plain, asking if workers.cluster else here)
    elif workers.backend is BackendName.RAY:
        with _ray(workers) as ray:
            yield RayCrew(ray)
    else:
        plain = {"backend": str(workers.backend), "n_jobs": workers.jobs}
        yield JoblibCrew(plain, here)


@contextlib.contextmanager
def _dask_client(workers: Workers) -> Iterator[Any]:
    dask = _installed("distributed", workers.backend)
    if workers.cluster is not None:
        with _found(workers):
            client = dask.Client(workers.cluster, set_as_default=False, timeout=_CONNECT_SECONDS)
        with client:
            yield client
        return
    with (
        # Whoever reaches a scheduler can run code on its workers: it listens to this machine alone.
        dask.LocalCluster(
            n_workers=workers.jobs, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        dask.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextlib.contextmanager
def _ray(workers: Workers) -> Iterator[Any]:
    """Start Ray, or find it."""
    ray = _installed("ray", workers.backend)
    if ray.is_initialized():
        yield ray
        return
    local = {} if workers.cluster else {"num_cpus": workers.jobs, "include_dashboard": False}
    with _found(workers):
        ray.init(address=workers.cluster, **local)
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _found(workers: Workers) -> Iterator[None]:
    """Knock before the toolkits do, who try again and again; whatever they then say is one line."""
    try:
        if workers.cluster is not None:
            _knock(workers.cluster)
        yield
    except (OSError, RuntimeError) as error:
        if workers.cluster is None:
            raise
        why = str(error) or type(error).__name__
        raise ClusterError(
            f"cluster must be {_wanted(workers.backend)}, got {workers.cluster!r}, which does not answer "
            f"({why}); without it, one of this machine is started"
        ) from None


def _knock(address: str) -> None:
    parts = _ADDRESS.fullmatch(address)
    if parts is not None and parts["scheme"] in (None, "tcp", "tls", "ray"):
        host = parts["host"].strip("[]")
        socket.create_connection((host, int(parts["port"])), timeout=_CONNECT_SECONDS).close()


def _is_address(address: str, backend: BackendName) -> bool:
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        return backend is BackendName.RAY and address == "auto"
    return 0 < int(parts["port"]) < 1 << 16


def _wanted(backend: BackendName) -> str:
    if backend is BackendName.DASK:
        return "the address of a running Dask scheduler, as tcp://HOST:8786"
    return "auto or the address of a running Ray cluster, as HOST:6379 or ray://HOST:10001"


def _installed(package: str, backend: BackendName) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        raise ValueError(f"backend {backend} {lacking_line([package])}") from None


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
