"""Jobs on a Ray cluster: one actor per worker, each with a workspace of its own, to the same bits as the process pool.

What a workspace is opened from goes into Ray's object store once; the actors of a node read its arrays from shared
memory. A job whose actor dies, with its process, its node or for want of memory, is tried once more on another one and
then given up as `Lost`. A worker that dies is replaced where the cluster has room for it; the others go on meanwhile.
"""

import logging
import os
import platform
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from ecgr._version import __version__
from ecgr.errors import ConfigError, EnvironmentFault, missing_extra
from ecgr.simulation.engines.pool import ATTEMPTS, Desk, Lost, Worker, WorkerPool

VERSIONS: Mapping[str, str] = {
    "ecgr": __version__,
    "torch": torch.__version__,
    "Python": platform.python_version(),
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster, and what a worker takes of it: ``engine=Cluster(address="10.0.0.1:6379", gpus=0.25)``.

    Attributes:
        address: of a cluster that runs already, by default that in ``RAY_ADDRESS``; without one, a cluster is started
            on this machine and ends with the work.
        cpus: of each worker.
        gpus: of each worker; a fraction lets several share one.
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.cpus < float("inf"):
            raise ConfigError(f"cpus per worker: expected a number above 0, such as 1 or 0.5, got {self.cpus:g}")
        if not 0 <= self.gpus < float("inf") or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise ConfigError(f"gpus per worker: expected a share up to 1 or a whole number, got {self.gpus:g}")


def connect(cluster: Cluster, workers: int | None) -> bool:
    """Join the cluster, or start one on this machine; whether it was started here and so ends with us."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise missing_extra("the engine ray", "ray") from None
    if ray.is_initialized():
        return False
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    _check_reachable(address)
    local: dict[str, Any] = {
        "num_cpus": max(1, ceil(workers * cluster.cpus)) if workers else None,
        "include_dashboard": False,
        # as in a spawned process: what can be imported here can be imported there
        "runtime_env": {"env_vars": {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}},
    }
    try:
        ray.init(
            address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **({} if address else local)
        )
    except (ConnectionError, RuntimeError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise EnvironmentFault(f"ray: cannot use the cluster at {address or 'this machine'}: {reason}") from None
    return True


def _check_reachable(address: str | None) -> None:
    """Ask before Ray does, which tries for minutes."""
    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return  # none, or a word such as "auto"
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EnvironmentFault(f"ray: cannot use the cluster at {address}: {reason}; is its head node up?") from None


def _as_array(tensor: Tensor) -> Any:
    return tensor.detach().cpu().numpy()


def _as_tensor(array: Any) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nobody writes to the data
        return torch.from_numpy(array)


def room(cluster: Cluster) -> int:
    """How many workers fit on the cluster as it is; one on which none does is refused."""
    import ray

    nodes = [node["Resources"] for node in cast("Any", ray).nodes() if node["Alive"]]
    wanted = {kind: share for kind, share in (("CPU", cluster.cpus), ("GPU", cluster.gpus)) if share}
    fit = sum(min(int(node.get(kind, 0.0) / share) for kind, share in wanted.items()) for node in nodes)
    if not fit:
        have = "; ".join(f"{node.get('CPU', 0.0):g} CPUs, {node.get('GPU', 0.0):g} GPUs" for node in nodes[:3])
        raise EnvironmentFault(
            f"ray: no node of the cluster has {cluster.cpus:g} CPUs and {cluster.gpus:g} GPUs for a worker"
            f" (they have {have or 'nothing'}); ask for fewer per worker"
        )
    return fit


def check_versions(theirs: Mapping[str, str]) -> None:
    """Refuse a node with other versions of what decides the bits."""
    wrong = [f"{name} {theirs.get(name)} (here {own})" for name, own in VERSIONS.items() if theirs.get(name) != own]
    if wrong:
        raise EnvironmentFault(
            f"ray: a node has {', '.join(wrong)}; the bits would differ: install the same everywhere"
        )


# The pool of actors


W = TypeVar("W")
PATIENCE = 120.0
"""Seconds to wait for a first worker before the cluster counts as too small."""


@dataclass(eq=False)
class RayPool(WorkerPool[W]):
    """Up to ``workers`` actors; None are as many as the cluster has room for. They start when there are jobs."""

    cluster: Cluster = field(default_factory=Cluster)
    _opener: Any = None
    _started: bool = False
    _failed_starts: int = 0

    def __enter__(self) -> "RayPool[W]":
        self._started = connect(self.cluster, self.workers)
        import ray

        try:
            fit = room(self.cluster)
            self._most = min(self.workers or fit, fit)
            settings = {name: value for name, value in os.environ.items() if name.startswith("ECGR_")}
            path = [entry for entry in sys.path if entry]
            # Tensors are sent as arrays, which actors read from shared memory without a copy.
            cast("Any", ray).util.register_serializer(Tensor, serializer=_as_array, deserializer=_as_tensor)
            self._opener = ray.put(partial(_open_there, self.open_workspace, str(Path.cwd()), path, settings))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        import ray

        for worker in self._workers:
            self._end(worker)
        self._workers, self._opener = [], None
        if self._started:
            ray.shutdown()

    def _start(self) -> Worker:
        import ray

        remote: Any = ray.remote(max_restarts=0, num_cpus=self.cluster.cpus, num_gpus=self.cluster.gpus)
        actor = remote(_Actor).remote(self._opener)
        return Worker(actor, actor.versions.remote(), ready=False)

    def _send(self, worker: Worker, message: bytes) -> None:
        worker.pipe = worker.process.answer.remote(message)

    def _answers(self) -> Iterator[tuple[Worker, bytes | Lost]]:
        import ray

        watched = {worker.pipe: worker for worker in self._workers if worker.job is not None or not worker.ready}
        nobody = not any(worker.ready for worker in self._workers)
        found, _ = ray.wait(list(watched), num_returns=1, timeout=PATIENCE if nobody else None)
        if not found:
            raise EnvironmentFault(
                f"ray: no worker could be started within {PATIENCE:.0f} s; the cluster has no room for"
                f" {self.cluster.cpus:g} CPUs and {self.cluster.gpus:g} GPUs a worker"
            )
        worker, gone = watched[found[0]], ray.exceptions
        try:
            answer = ray.get(worker.pipe)
        except (gone.RayActorError, gone.OutOfMemoryError, gone.ObjectLostError) as error:
            self._failed_starts = 0 if worker.ready else self._failed_starts + 1
            if self._failed_starts >= ATTEMPTS * self._most:
                reason = str(error).strip().splitlines()[-1].strip()
                raise EnvironmentFault(f"ray: workers cannot start: {reason}") from None
            self._end(worker)
            answer = Lost("the actor that held it died")
        if not worker.ready and not isinstance(answer, Lost):
            check_versions(answer)
            worker.ready = True
        yield worker, answer  # which is looked at only where the worker had a job

    def _end(self, worker: Worker) -> None:
        import ray

        with suppress(Exception):  # an actor that is gone cannot be ended
            ray.kill(worker.process, no_restart=True)


def _open_there(
    open_workspace: Callable[[], Any], folder: str, path: Sequence[str], settings: Mapping[str, str]
) -> Any:
    """Open a workspace, perhaps on another machine, where a process of this one would.

    It looks for files, modules and data in the same places; the other machine's own settings go first.
    """
    with suppress(OSError):
        os.chdir(folder)
    sys.path += [entry for entry in path if entry not in sys.path]
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    return open_workspace()


class _Actor(Desk):
    """A worker's own process."""

    def versions(self) -> dict[str, str]:
        torch.set_num_threads(1)
        return dict(VERSIONS)
