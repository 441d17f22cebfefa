"""Jobs on a Ray cluster: one actor a worker, each with a workspace of its own, to the same bits as the process pool.

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
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor

from ecgr._version import __version__
from ecgr.errors import ConfigError, EnvironmentFault, missing_extra
from ecgr.simulation.engines.pool import ATTEMPTS, Begun, Job, Lost, answer_of, ignore, packed_error
from ecgr.simulation.pickling import pack, pack_for_workers, unpack

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

    elsewhere: ClassVar[bool] = True
    beyond: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.cpus < float("inf"):
            raise ConfigError(f"--cpus-per-worker: {self.cpus:g} does not fit; give a number above 0, such as 1 or 0.5")
        if not 0 <= self.gpus < float("inf") or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise ConfigError(f"--gpus-per-worker: {self.gpus:g} does not fit; give a share up to 1, or a whole number")

    def open(self, open_workspace: Callable[[], Any], workers: int | None) -> AbstractContextManager[Any]:
        """So many actors; None: as many as there is room for."""
        return RayPool(open_workspace, workers, self)


def connect(cluster: Cluster, workers: int | None) -> bool:
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
    _register(ray)
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


def _register(ray: Any) -> None:
    """Tensors travel as arrays, which actors read from shared memory without a copy."""
    ray.util.register_serializer(Tensor, serializer=_as_array, deserializer=_as_tensor)


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
    if fit:
        return fit
    for kind, share in wanted.items():
        most = max((node.get(kind, 0.0) for node in nodes), default=0.0)
        if most < share:
            raise EnvironmentFault(
                f"ray: a worker wants {share:g} {kind}s and no node of the cluster has more than {most:g};"
                f" ask for fewer (--{kind.lower()}s-per-worker)"
            )
    raise EnvironmentFault(
        f"ray: no node of the cluster has both {cluster.cpus:g} CPUs and {cluster.gpus:g} GPUs for a worker;"
        " ask for fewer (--cpus-per-worker, --gpus-per-worker)"
    )


def check_versions(theirs: Mapping[str, str]) -> None:
    """Refuse a node on which anything that decides about bits is another."""
    wrong = [f"{name} {theirs.get(name)} (here {own})" for name, own in VERSIONS.items() if theirs.get(name) != own]
    if wrong:
        raise EnvironmentFault(
            f"ray: a node has {', '.join(wrong)}; the bits would differ: install the same everywhere"
        )


# The pool of actors


R = TypeVar("R")
W = TypeVar("W")

MOST_AT_ONCE, SHARES_LEFT = 8, 4
"""Jobs of one call at most, and how many such calls each worker must still have before it: the last jobs go alone."""
PATIENCE = 120.0
"""Seconds to wait for a first worker before the cluster counts as too small."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left to do after an answer that was not the last."""

    job: Any


@runtime_checkable
class InPieces(Protocol):
    """A job that answers more than once: whoever dies, no more than a piece of it is lost."""

    def received(self, answer: Any) -> Any:
        """Take an answer in, where the jobs come from: the `Rest`, or else the job's result."""
        ...


@dataclass(eq=False)
class Worker:
    """An actor and what it holds: the future of its start, then that of the jobs that it does in one call."""

    actor: Any
    future: Any
    jobs: Sequence[int] = ()
    ready: bool = False


@dataclass(eq=False)
class RayPool(Generic[W]):
    """Up to ``workers`` actors, each with a workspace of its own from ``open_workspace``; a context manager.

    None are as many as the cluster has room for. They are started when there are jobs for them.
    """

    open_workspace: Callable[[], W]
    workers: int | None
    cluster: Cluster = field(default_factory=Cluster)
    _workers: list[Worker] = field(default_factory=list)
    _most: int = 0
    _opener: Any = None
    _started: bool = False
    _failed_starts: int = 0

    def __enter__(self) -> "RayPool[W]":
        self._started = connect(self.cluster, self.workers)
        import ray

        try:
            fit = room(self.cluster)
            self._most = min(self.workers or fit, fit)
            self._opener = ray.put(_Opener(self.open_workspace, Surroundings.here()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        import ray

        for worker in self._workers:
            _end(worker)
        self._workers, self._opener = [], None
        if self._started:
            ray.shutdown()

    def map(self, jobs: Sequence[Job[W, R]], begun: Begun | None = None) -> Iterator[R | Lost]:
        """The jobs' results, in the order of the jobs; the most expensive jobs start first."""
        self._workers += [self._start() for _ in range(min(self._most, len(jobs)) - len(self._workers))]
        try:
            yield from self._map(list(jobs), begun or ignore)
        finally:
            self._drop_busy()  # a job raised, or nobody reads on: late answers must not reach the next call

    def _map(self, jobs: list[Any], begun: Begun) -> Iterator[Any]:
        waiting = sorted(range(len(jobs)), key=lambda index: (jobs[index].cost, -index))  # taken from the end
        attempts = [0] * len(jobs)
        results: dict[int, Any] = {}
        delivered = 0
        while delivered < len(jobs):
            for worker in self._workers:
                if worker.ready and not worker.jobs and waiting:
                    worker.jobs = self._bundle(waiting, jobs, attempts)
                    for index in worker.jobs:
                        attempts[index] += 1
                        begun(index, attempts[index])
                    content = pack_for_workers("job", [jobs[index] for index in worker.jobs])
                    worker.future = worker.actor.run.remote(content)
            for worker in self._answered():
                held, worker.jobs = worker.jobs, ()  # none where it has only started, or died while starting
                answers = self._answer(worker)
                for index, packed in zip(held, [None] * len(held) if answers is None else answers, strict=False):
                    if packed is not None:
                        answer, job = answer_of(packed), jobs[index]
                        answer = job.received(answer) if isinstance(job, InPieces) else answer
                        if isinstance(answer, Rest):
                            jobs[index], attempts[index] = answer.job, 0
                            waiting.append(index)
                        else:
                            results[index] = answer
                    elif attempts[index] < ATTEMPTS:
                        waiting.append(index)
                    else:
                        results[index] = Lost(f"the actor that held it died, {ATTEMPTS} times")
            while delivered in results:
                yield results.pop(delivered)
                delivered += 1

    def _bundle(self, waiting: list[int], jobs: Sequence[Any], attempts: Sequence[int]) -> list[int]:
        """The jobs of one call: several while there are many, as a call costs as much as a small client's steps.

        What has lost an actor goes alone, so that it takes no other down again; so does what answers in pieces.
        """
        bundle = [waiting.pop()]
        most = min(MOST_AT_ONCE, len(waiting) // (SHARES_LEFT * len(self._workers)))
        while len(bundle) < most and not any(
            attempts[i] or isinstance(jobs[i], InPieces) for i in (bundle[0], waiting[-1])
        ):
            bundle.append(waiting.pop())
        return bundle

    def _answered(self) -> list[Worker]:
        """Workers that answered, started or died, once there is at least one."""
        import ray

        watched = {worker.future: worker for worker in self._workers if worker.jobs or not worker.ready}
        nobody = not any(worker.ready for worker in self._workers)
        found, _ = ray.wait(list(watched), num_returns=1, timeout=PATIENCE if nobody else None)
        if not found:
            raise EnvironmentFault(
                f"ray: no worker could be started within {PATIENCE:.0f} s; the cluster has no room for"
                f" {self.cluster.cpus:g} CPUs and {self.cluster.gpus:g} GPUs a worker"
            )
        return [watched[future] for future in found]

    def _answer(self, worker: Worker) -> list[bytes] | None:
        """What a worker answered, job by job; None if it died, and then another stands in its place."""
        from ray import exceptions, get

        deaths = exceptions.RayActorError, exceptions.OutOfMemoryError, exceptions.ObjectLostError
        try:
            answer = get(worker.future)
        except deaths as error:
            self._failed_starts = 0 if worker.ready else self._failed_starts + 1
            if self._failed_starts >= ATTEMPTS * self._most:
                reason = str(error).strip().splitlines()[-1].strip()
                raise EnvironmentFault(f"ray: workers cannot start: {reason}") from None
            self._replace(worker)
            return None
        if not worker.ready:
            check_versions(answer)
            worker.ready = True
            return None
        return list(answer)

    def _drop_busy(self) -> None:
        for worker in [worker for worker in self._workers if worker.jobs]:
            self._replace(worker)

    def _replace(self, worker: Worker) -> None:
        _end(worker)
        self._workers[self._workers.index(worker)] = self._start()

    def _start(self) -> Worker:
        import ray

        remote: Any = ray.remote(max_restarts=0, num_cpus=self.cluster.cpus, num_gpus=self.cluster.gpus)
        actor = remote(_Actor).remote(self._opener)
        return Worker(actor, actor.versions.remote())


def _end(worker: Worker) -> None:
    import ray

    with suppress(Exception):  # an actor that is gone cannot be ended
        ray.kill(worker.actor, no_restart=True)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a process of this machine would inherit, as far as another machine has it."""

    folder: str
    path: Sequence[str]
    settings: Mapping[str, str]

    @classmethod
    def here(cls) -> "Surroundings":
        """Those of this process."""
        settings = {name: value for name, value in os.environ.items() if name.startswith("ECGR_")}
        return cls(str(Path.cwd()), [entry for entry in sys.path if entry], settings)

    def enter(self) -> None:
        """Look for files, modules and data in the same places; what this machine sets itself goes first."""
        with suppress(OSError):
            os.chdir(self.folder)
        sys.path += [entry for entry in self.path if entry not in sys.path]
        for name, value in self.settings.items():
            os.environ.setdefault(name, value)


@dataclass(frozen=True, slots=True)
class _Opener:
    """What opens a workspace, as one value in the object store."""

    open_workspace: Callable[[], Any]
    surroundings: Surroundings


class _Actor:
    """A worker's life: open the workspace once, answer jobs."""

    def __init__(self, opener: _Opener) -> None:
        torch.set_num_threads(1)
        opener.surroundings.enter()
        self._opener = opener
        self._workspace: Any = None

    def versions(self) -> dict[str, str]:
        """What runs here."""
        return dict(VERSIONS)

    def run(self, content: bytes) -> list[bytes]:
        """Do jobs; an error is an answer like any other, and one that all have in common that of the first."""
        try:
            if self._workspace is None:
                self._workspace = self._opener.open_workspace()
            return [self._do(job) for job in unpack(content)]
        except Exception as error:
            return [packed_error(error)]

    def _do(self, job: Any) -> bytes:
        try:
            return pack((True, job.run(self._workspace)))
        except Exception as error:
            return packed_error(error)
