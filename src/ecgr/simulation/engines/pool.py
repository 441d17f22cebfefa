"""A pool of worker processes that survives the death of any of them.

Each worker has its own pipe, so the pool knows which job a dead worker held: that job is tried once more in a fresh
process and then given up as `Lost`, while all others go on. Workers inherit nothing by accident, keep their workspace
from round to round, and end when the parent does, however it ends. What all jobs of a call hold in
common goes to each worker once, and a worker gets its next job before its last answer is looked at.
"""

import ctypes
import json
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

import torch
import torch.multiprocessing as mp

from ecgr.errors import EnvironmentFault
from ecgr.simulation.pickling import common_parts, pack, pack_for_workers, unpack

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
W = TypeVar("W")
W_contra = TypeVar("W_contra", contravariant=True)
ATTEMPTS = 2

Begun = Callable[[int, int], None]
"""Hears of each job that is handed out: its index, and the how many-th attempt it is."""


class Job(Protocol[W_contra, R_co]):
    """A piece of work that any process with a workspace can do."""

    @property
    def cost(self) -> int:
        """About how long it takes, in any unit: expensive jobs start first."""
        ...

    def run(self, workspace: W_contra) -> R_co:
        """Do it."""
        ...


@dataclass(frozen=True, slots=True)
class Lost:
    """Stands for the result of a job whose process died, also the second time."""

    reason: str


@dataclass(eq=False)
class Worker:
    """A process, the parent's end of its pipe, the index of its job, and the call whose common parts it has."""

    process: Any
    pipe: Connection
    job: int | None = None
    call: "Call[Any] | None" = None


@dataclass(eq=False)
class Call(Generic[W]):
    """The jobs of one call: those that wait, the most expensive last; how often each was tried; what all hold."""

    jobs: Sequence[Job[W, Any]]
    begun: Begun

    def __post_init__(self) -> None:
        self.waiting = sorted(range(len(self.jobs)), key=lambda index: (self.jobs[index].cost, -index))
        self.attempts = [0] * len(self.jobs)
        self._shared = common_parts(self.jobs)
        self._packed = pack_for_workers("job", self._shared)

    def hand_out(self, worker: Worker) -> None:
        """Give an idle worker the next job, if there is one."""
        if not self.waiting:
            return
        index = worker.job = self.waiting.pop()
        self.attempts[index] += 1
        common = None if worker.call is self else self._packed
        worker.call = self
        message = pickle.dumps((common, pack_for_workers("job", self.jobs[index], self._shared)), protocol=5)
        with suppress(OSError):  # the worker is gone; reading from it will say so
            worker.pipe.send_bytes(message)
        self.begun(index, self.attempts[index])


@dataclass(eq=False)
class ProcessPool(Generic[W]):
    """``workers`` processes, each with a workspace of its own from ``open_workspace``; a context manager."""

    open_workspace: Callable[[], W]
    workers: int
    _workers: list[Worker] = field(default_factory=list)

    def __enter__(self) -> "ProcessPool[W]":
        self._fill()
        return self

    def __exit__(self, *exception: object) -> None:
        self._drop_busy()
        for worker in self._workers:
            worker.pipe.close()  # an idle worker reads the end of its pipe and leaves
        for worker in self._workers:
            worker.process.join()
        self._workers = []

    @property
    def pids(self) -> list[int]:
        """The workers' process ids."""
        return [worker.process.pid for worker in self._workers]

    def map(self, jobs: Sequence[Job[W, R]], begun: Begun | None = None) -> Iterator[R | Lost]:
        """The jobs' results, in the order of the jobs; the most expensive jobs start first."""
        self._fill()
        try:
            yield from self._map(jobs, begun or ignore)
        finally:
            self._drop_busy()  # a job raised, or nobody reads on: late answers must not reach the next call

    def _map(self, jobs: Sequence[Job[W, R]], begun: Begun) -> Iterator[R | Lost]:
        call = Call(jobs, begun)
        results: dict[int, R | Lost] = {}
        delivered = 0
        while delivered < len(jobs):
            for worker in self._workers:
                if worker.job is None:
                    call.hand_out(worker)
            for worker in self._ready():
                index = worker.job
                assert index is not None
                answer = self._receive(worker)
                worker.job = None
                if answer is not None:
                    call.hand_out(worker)
                    results[index] = answer_of(answer)
                    continue
                reason = f"worker process ended with exit code {worker.process.exitcode}"
                self._workers[self._workers.index(worker)] = self._start()
                if call.attempts[index] < ATTEMPTS:
                    call.waiting.append(index)
                else:
                    results[index] = Lost(f"{reason}, {ATTEMPTS} times")
            while delivered in results:
                yield results.pop(delivered)
                delivered += 1

    def _drop_busy(self) -> None:
        for worker in [worker for worker in self._workers if worker.job is not None]:
            worker.process.terminate()
            worker.process.join()
            worker.pipe.close()
            self._workers.remove(worker)

    def _ready(self) -> list[Worker]:
        """Workers that answered or died, once there is at least one."""
        busy = {worker.pipe: worker for worker in self._workers if worker.job is not None}
        return [busy[pipe] for pipe in wait(list(busy)) if isinstance(pipe, Connection)]

    def _receive(self, worker: Worker) -> bytes | None:
        """A worker's answer, or None if it died; its end of the pipe closes with it, so this never waits for long."""
        try:
            return worker.pipe.recv_bytes()
        except (EOFError, OSError):
            worker.process.join()
            return None

    def _fill(self) -> None:
        while len(self._workers) < self.workers:
            self._workers.append(self._start())

    def _start(self) -> Worker:
        if mp.current_process().daemon:
            raise EnvironmentFault(
                "this process may start no others: it is a worker itself, as of multiprocessing.Pool; use workers=1"
            )
        for context in worker_contexts():
            ours, theirs = context.Pipe()
            arguments = (theirs, self.open_workspace, dict(os.environ))
            process = context.Process(target=_work, args=arguments, daemon=True)
            try:
                begin(process)
                return Worker(process, ours)
            except (OSError, EOFError) as error:
                reason = error
            finally:
                theirs.close()  # the worker's end must be open in the worker alone, or its death would go unnoticed
        raise EnvironmentFault(f"cannot start a worker process: {reason}; use fewer --workers")


def _work(pipe: Connection, open_workspace: Callable[[], Any], variables: Mapping[str, str]) -> None:
    """A worker's life: open the workspace, answer jobs until the pipe ends."""
    adopt(variables)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    keep_freed_memory()
    workspace: Any = None
    shared: Any = ()
    while True:
        try:
            common, content = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)  # the parent is done or gone; nothing here needs cleaning up
        try:
            workspace = workspace or open_workspace()
            shared = shared if common is None else unpack(common)
            answer = pack((True, unpack(content, shared).run(workspace)))
        except Exception as error:
            answer = packed_error(error)
        try:
            pipe.send_bytes(answer)
        except OSError:
            os._exit(0)


def ignore(index: int, attempt: int) -> None:
    """Nobody wants to hear of jobs that begin."""


def packed_error(error: Exception) -> bytes:
    """An error as an answer; one that cannot travel is described."""
    try:
        answer = pack((False, error))
        pickle.loads(answer)
    except Exception:
        return pack((False, RuntimeError(f"{type(error).__name__}: {error}")))
    return answer


def _end_with_parent() -> None:
    """A job can take minutes, and nobody waits for its answer once the parent is gone."""
    parent = mp.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def answer_of(answer: bytes) -> Any:
    """What a job answered; what it raised is raised here."""
    ok, value = pickle.loads(answer)
    if not ok:
        raise value
    return value


# How a worker process is started


PRELOADED = [f"ecgr.simulation.{name}" for name in ("client", "evaluate", "prepare", "engines.pool")]
BEFORE = "ECGR_ENVIRONMENT_BEFORE"
"""The variable that holds what `same_modules` changed."""
ONE_AT_A_TIME = Lock()
"""For threads: while a process is begun, this one looks different."""


def worker_contexts() -> list[Any]:
    """How processes come into being, the best way first; the next is for when it fails.

    Where that is possible, they are forked from a process of this program's own that has imported what training needs
    and has done nothing else: importing torch takes longer than many a run. Otherwise each is begun from nothing.
    """
    from_nothing = mp.get_context("spawn")
    if sys.platform != "linux":  # the libraries of macOS mind being forked, and Windows cannot
        return [from_nothing]
    forked = mp.get_context("forkserver")
    forked.set_forkserver_preload(PRELOADED)
    return [forked, from_nothing]


def begin(process: Any) -> None:
    """Start a process of one of `worker_contexts`."""
    with ONE_AT_A_TIME, same_modules(), no_interrupts(), no_main_module():
        process.start()


def adopt(variables: Mapping[str, str]) -> None:
    """Make the environment that of the process which asked for this one; it may have changed since the first worker."""
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


@contextmanager
def no_interrupts() -> Iterator[None]:
    """A process begun in here never hears Ctrl-C, not even while it imports: ending it is its parent's to do."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # lets Ctrl-C through again when it begins a process of its own
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def same_modules() -> Iterator[None]:
    """A process begun in here imports from where this one would, from its first line on.

    By itself it would look into the working directory first, whatever lies there, and not at what this program has
    changed in ``sys.path``: its workers could run another version of what this one runs.
    """
    found = [entry or str(Path.cwd()) for entry in sys.path if isinstance(entry, str) and os.pathsep not in entry]
    changes = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(found)}
    before = json.dumps({name: os.environ.get(name) for name in changes})
    os.environ.update(changes | {BEFORE: before})
    try:
        yield
    finally:
        restore_environment()


def restore_environment() -> None:
    """Undo what `same_modules` changed, here or in the process that began this one."""
    for name, value in json.loads(os.environ.pop(BEFORE, "{}")).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


restore_environment()  # this process may have been begun by `same_modules`, and others may be forked from it


@contextmanager
def no_main_module() -> Iterator[None]:
    """A process begun in here does not run the user's script again, which might start processes itself.

    Nothing is missed there: what a script or a notebook defines travels by value (`ecgr.simulation.pickling`).
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in malloc.h
KEPT, FROM_HEAP = 2**30, 2**25


def keep_freed_memory() -> None:
    """Have the C library keep what this process frees for its next step: the system clears every page it hands out.

    A step frees all its activations. glibc gives them back once there are a few megabytes of them at the end of its
    heap, which is a tenth of the time of small steps; elsewhere nothing happens here.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT)
        mallopt(M_MMAP_THRESHOLD, FROM_HEAP)
