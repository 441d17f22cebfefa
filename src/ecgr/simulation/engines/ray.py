"""Jobs on a Ray cluster: one actor a worker, each with a workspace of its own, to the same bits as the process pool.

What a workspace is opened from goes into Ray's object store once; the actors of a node read its arrays from shared
memory. A job whose actor dies is tried once more on another one and then given up as `Lost`. A worker that dies is
replaced where the cluster has room for it; the others go on meanwhile.
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
from math import ceil
from types import TracebackType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ecgr._version import __version__
from ecgr.errors import EnvironmentFault, missing_extra
from ecgr.simulation.engines.pool import ATTEMPTS, Job, Lost, answer_of, packed_error
from ecgr.simulation.portable import pack, unpack

R = TypeVar("R")
W = TypeVar("W")

PATIENCE = 120.0
"""Seconds to wait for a first worker before the cluster counts as too small."""
VERSIONS: Mapping[str, str] = {
    "ecgr": __version__,
    "torch": torch.__version__,
    "Python": platform.python_version(),
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster, and what a worker takes of it.

    Attributes:
        address: of a cluster that runs already; None starts one on this machine, which ends with the work.
        cpus: of each worker.
        gpus: of each worker; a fraction lets several share one.
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0


@dataclass(eq=False)
class Worker:
    """An actor and what it holds: the future of its start, then that of a job."""

    actor: Any
    future: Any
    job: int | None = None
    ready: bool = False


@dataclass(eq=False)
class RayPool(Generic[W]):
    """``workers`` actors, each with a workspace of its own from ``open_workspace``; a context manager."""

    open_workspace: Callable[[], W]
    workers: int
    cluster: Cluster = field(default_factory=Cluster)
    _workers: list[Worker] = field(default_factory=list)
    _opener: Any = None
    _started: bool = False
    _failed_starts: int = 0

    def __enter__(self) -> "RayPool[W]":
        self._started = connect(self.cluster, self.workers)
        import ray

        try:
            _check_room(ray, self.cluster, self.workers)
            self._opener = ray.put(_Opener(self.open_workspace))
            self._workers = [self._start() for _ in range(self.workers)]
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import ray

        for worker in self._workers:
            with suppress(Exception):  # an actor that is gone cannot be ended
                ray.kill(worker.actor, no_restart=True)
        self._workers, self._opener = [], None
        if self._started:
            ray.shutdown()

    def map(self, jobs: Sequence[Job[W, R]]) -> Iterator[R | Lost]:
        """The jobs' results, in the order of the jobs; the most expensive jobs start first."""
        try:
            yield from self._map(jobs)
        finally:
            self._drop_busy()  # a job raised, or nobody reads on: late answers must not reach the next call

    def _map(self, jobs: Sequence[Job[W, R]]) -> Iterator[R | Lost]:
        waiting = sorted(range(len(jobs)), key=lambda index: (jobs[index].cost, -index))  # taken from the end
        attempts = [0] * len(jobs)
        results: dict[int, R | Lost] = {}
        delivered = 0
        while delivered < len(jobs):
            for worker in self._workers:
                if worker.ready and worker.job is None and waiting:
                    worker.job = waiting.pop()
                    attempts[worker.job] += 1
                    worker.future = worker.actor.run.remote(pack(jobs[worker.job]))
            for worker in self._answered():
                index, worker.job = worker.job, None
                answer = self._answer(worker)
                if index is None:
                    continue  # it has started, or died while starting
                if answer is not None:
                    results[index] = answer_of(answer)
                elif attempts[index] < ATTEMPTS:
                    waiting.append(index)
                else:
                    results[index] = Lost(f"the actor that held it died, {ATTEMPTS} times")
            while delivered in results:
                yield results.pop(delivered)
                delivered += 1

    def _answered(self) -> list[Worker]:
        """Workers that answered, started or died, once there is at least one."""
        import ray

        watched = {worker.future: worker for worker in self._workers if worker.job is not None or not worker.ready}
        nobody = not any(worker.ready for worker in self._workers)
        found, _ = ray.wait(list(watched), num_returns=1, timeout=PATIENCE if nobody else None)
        if not found:
            raise EnvironmentFault(
                f"ray: no worker could be started within {PATIENCE:.0f} s; the cluster has no room for"
                f" {self.cluster.cpus:g} CPUs and {self.cluster.gpus:g} GPUs a worker"
            )
        return [watched[future] for future in found]

    def _answer(self, worker: Worker) -> bytes | None:
        """What a worker answered; None if it died, and then another stands in its place."""
        import ray

        try:
            answer = ray.get(worker.future)
        except ray.exceptions.RayActorError as error:
            self._failed_starts = 0 if worker.ready else self._failed_starts + 1
            if self._failed_starts >= ATTEMPTS * self.workers:
                reason = str(error).strip().splitlines()[-1].strip()
                raise EnvironmentFault(f"ray: workers cannot start: {reason}") from None
            self._workers[self._workers.index(worker)] = self._start()
            return None
        if not worker.ready:
            _check_versions(answer)
            worker.ready = True
            return None
        return bytes(answer)

    def _drop_busy(self) -> None:
        import ray

        for worker in [worker for worker in self._workers if worker.job is not None]:
            ray.kill(worker.actor, no_restart=True)
            self._workers[self._workers.index(worker)] = self._start()

    def _start(self) -> Worker:
        import ray

        remote: Any = ray.remote(max_restarts=0, num_cpus=self.cluster.cpus, num_gpus=self.cluster.gpus)
        actor = remote(_Actor).remote(self._opener)
        return Worker(actor, actor.versions.remote())


@dataclass(frozen=True, slots=True)
class _Opener:
    """What opens a workspace, as one value in the object store."""

    open_workspace: Callable[[], Any]


class _Actor:
    """A worker's life: open the workspace once, answer jobs."""

    def __init__(self, opener: _Opener) -> None:
        torch.set_num_threads(1)
        self._opener = opener
        self._workspace: Any = None

    def versions(self) -> dict[str, str]:
        """What runs here."""
        return dict(VERSIONS)

    def run(self, job: bytes) -> bytes:
        """Do a job; an error of its own is an answer like any other."""
        try:
            if self._workspace is None:
                self._workspace = self._opener.open_workspace()
            return pack((True, unpack(job).run(self._workspace)))
        except Exception as error:
            return packed_error(error)


def connect(cluster: Cluster, workers: int) -> bool:
    """Join the cluster, or start one on this machine; whether it was started here and so ends with us."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise missing_extra("the engine ray", "ray") from None
    if ray.is_initialized():
        _register(ray)
        return False
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    _check_reachable(address)
    local: dict[str, Any] = {
        "num_cpus": max(1, ceil(workers * cluster.cpus)),
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
    _register(ray)
    return True


def _check_reachable(address: str | None) -> None:
    """Ask before Ray does, which tries for minutes."""
    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return  # none, or a word such as "auto"
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise EnvironmentFault(
            f"ray: cannot use the cluster at {address}: {error.strerror or error}; is its head node up?"
        ) from None


def _register(ray: Any) -> None:
    """Tensors travel as arrays, which actors read from shared memory without a copy."""
    ray.util.register_serializer(Tensor, serializer=_as_array, deserializer=_as_tensor)


def _as_array(tensor: Tensor) -> Any:
    return tensor.detach().cpu().numpy()


def _as_tensor(array: Any) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nobody writes to the data
        return torch.from_numpy(array)


def _check_room(ray: Any, cluster: Cluster, workers: int) -> None:
    """Refuse a cluster on which not even one worker fits."""
    have = ray.cluster_resources()
    for kind, wanted in (("CPU", cluster.cpus), ("GPU", cluster.gpus)):
        if have.get(kind, 0.0) < wanted:
            raise EnvironmentFault(
                f"ray: a worker wants {wanted:g} {kind}s and the whole cluster has {have.get(kind, 0.0):g};"
                f" ask for fewer a worker (--{kind.lower()}s-per-worker)"
            )


def _check_versions(theirs: Mapping[str, str]) -> None:
    wrong = [f"{name} {theirs.get(name)} (here {own})" for name, own in VERSIONS.items() if theirs.get(name) != own]
    if wrong:
        raise EnvironmentFault(
            f"ray: a node has {', '.join(wrong)}; the bits would differ: install the same everywhere"
        )
