"""Pools of workers that survive the death of any of them, and the one of this machine's processes.

Each worker has its own pipe, so the pool knows which job a dead worker held. Processes inherit nothing by accident,
keep their workspace from round to round, and end when the parent does, however it ends. What all jobs of a call hold in
common goes to each worker once.
"""

import json
import os
import pickle
import signal
import sys
import threading
from abc import ABC, abstractmethod
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
"""Called for each job that is handed out: its index, and which attempt it is."""


class Job(Protocol[W_contra, R_co]):
    """A piece of work that any process with a workspace can do."""

    @property
    def cost(self) -> int:
        """About how long it takes, in any unit: expensive jobs start first."""
        ...

    def run(self, workspace: W_contra) -> R_co: ...


@dataclass(frozen=True, slots=True)
class Lost:
    """Stands for the result of a job whose worker died on every attempt."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left to do after an answer that was not the last.

    A job that answers more than once, so that no more than a piece is lost when its worker dies, has a method
    ``received``: called with each answer in the process that sent the job, it gives the `Rest` or the job's result.
    """

    job: Any


@dataclass(eq=False)
class Worker:
    """A process and its pipe, or an actor and the future of its answer.

    ``job`` is the index of its job, ``call`` the call whose common parts it has.
    """

    process: Any
    pipe: Any
    job: int | None = None
    call: object = None
    ready: bool = True


@dataclass(eq=False)
class WorkerPool(ABC, Generic[W]):
    """Jobs on workers that may die, each with a workspace of its own from ``open_workspace``; a context manager.

    A job whose worker dies is tried once more on another and then given up as `Lost`, while the others go on.
    """

    open_workspace: Callable[[], W]
    workers: int | None
    _workers: list[Worker] = field(init=False, default_factory=list)
    _most: int = field(init=False, default=1)

    def map(self, jobs: Sequence[Job[W, R]], begun: Begun | None = None) -> Iterator[R | Lost]:
        """The jobs' results, in the order of the jobs; the most expensive jobs start first."""
        self._fill(len(jobs))
        try:
            yield from self._map(list(jobs), begun or (lambda index, attempt: None))
        finally:
            self._drop_busy()  # a job raised, or nobody reads on: late answers must not reach the next call

    def _map(self, jobs: list[Any], begun: Begun) -> Iterator[Any]:
        waiting = sorted(range(len(jobs)), key=lambda index: (jobs[index].cost, -index))  # taken from the end
        attempts, call = [0] * len(jobs), object()
        shared = common_parts(jobs)
        packed = pack_for_workers("job", shared)
        results: dict[int, Any] = {}
        delivered = 0
        while delivered < len(jobs):
            idle = [worker for worker in self._workers if worker.ready and worker.job is None]
            for worker in idle[: len(waiting)]:
                index = worker.job = waiting.pop()
                attempts[index] += 1
                common, worker.call = None if worker.call is call else packed, call
                self._send(worker, pickle.dumps((common, pack_for_workers("job", jobs[index], shared)), protocol=5))
                begun(index, attempts[index])
            for worker, answer in self._answers():
                held, worker.job = worker.job, None
                if isinstance(answer, Lost):
                    self._workers[self._workers.index(worker)] = self._start()
                if held is None:
                    continue  # it has only started, or died while it did
                if isinstance(answer, Lost) and attempts[held] < ATTEMPTS:
                    waiting.append(held)
                elif isinstance(answer, Lost):
                    results[held] = Lost(f"{answer.reason}, {ATTEMPTS} times")
                else:
                    ok, result = pickle.loads(answer)
                    if not ok:
                        raise result
                    received = getattr(jobs[held], "received", None)
                    results[held] = result if received is None else received(result)
                    if isinstance(results[held], Rest):
                        jobs[held], attempts[held] = results.pop(held).job, 0
                        waiting.append(held)
            while delivered in results:
                yield results.pop(delivered)
                delivered += 1

    def _drop_busy(self) -> None:
        for worker in [worker for worker in self._workers if worker.job is not None]:
            self._end(worker)
            self._workers.remove(worker)

    def _fill(self, jobs: int) -> None:
        """Start the workers that this number of jobs still needs."""
        while len(self._workers) < min(self._most, jobs):
            self._workers.append(self._start())

    @abstractmethod
    def _start(self) -> Worker: ...

    @abstractmethod
    def _send(self, worker: Worker, message: bytes) -> None: ...

    @abstractmethod
    def _answers(self) -> Iterator[tuple[Worker, bytes | Lost]]:
        """Workers that answered, started or died, at least one, each with its answer or how it died."""

    @abstractmethod
    def _end(self, worker: Worker) -> None: ...


class Desk:
    """A worker's own side: the workspace, opened for the first job, and what the jobs of a call have in common."""

    def __init__(self, open_workspace: Callable[[], Any]) -> None:
        self._open = open_workspace
        self._workspace: Any = None
        self._shared: Any = ()

    def answer(self, message: bytes) -> bytes:
        """Do a job; an error is an answer like any other."""
        try:
            common, content = pickle.loads(message)
            if self._workspace is None:
                self._workspace = self._open()
            if common is not None:
                self._shared = unpack(common)
            return pack((True, unpack(content, self._shared).run(self._workspace)))
        except Exception as error:
            with suppress(Exception):  # one that cannot be sent is described
                pickle.loads(answer := pack((False, error)))
                return answer
            return pack((False, RuntimeError(f"{type(error).__name__}: {error}")))


@dataclass(eq=False)
class ProcessPool(WorkerPool[W]):
    """``workers`` processes of this machine."""

    def __enter__(self) -> "ProcessPool[W]":
        self._most = self.workers or 1
        self._fill(self._most)
        return self

    def __exit__(self, *exception: object) -> None:
        self._drop_busy()
        for worker in self._workers:
            worker.pipe.close()  # an idle worker reads the end of its pipe and leaves
        for worker in self._workers:
            worker.process.join()
        self._workers = []

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
                with apart():
                    process.start()
                return Worker(process, ours)
            except (OSError, EOFError) as error:
                reason = error
            finally:
                theirs.close()  # the worker's end must be open in the worker alone, or its death would go unnoticed
        raise EnvironmentFault(f"cannot start a worker process: {reason}; use fewer workers")

    def _send(self, worker: Worker, message: bytes) -> None:
        with suppress(OSError):  # the worker is gone; reading from it will say so
            worker.pipe.send_bytes(message)

    def _answers(self) -> Iterator[tuple[Worker, bytes | Lost]]:
        busy = {worker.pipe: worker for worker in self._workers if worker.job is not None}
        for worker in [busy[pipe] for pipe in wait(list(busy))]:
            try:
                yield worker, worker.pipe.recv_bytes()
            except (EOFError, OSError):  # its end of the pipe closes with it, so this never waits for long
                worker.process.join()
                yield worker, Lost(f"worker process ended with exit code {worker.process.exitcode}")

    def _end(self, worker: Worker) -> None:
        worker.process.terminate()
        worker.process.join()
        worker.pipe.close()


def _work(pipe: Connection, open_workspace: Callable[[], Any], variables: Mapping[str, str]) -> None:
    """A worker's life: answer jobs until the pipe ends."""
    os.environ.clear()  # the parent's may have changed since the first worker started
    os.environ.update(variables)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    desk = Desk(open_workspace)
    try:
        while True:
            pipe.send_bytes(desk.answer(pipe.recv_bytes()))
    except (EOFError, OSError):
        os._exit(0)  # the parent is done or gone; nothing here needs cleaning up


def _end_with_parent() -> None:
    """A job can take minutes, and nobody waits for its answer once the parent is gone."""
    parent = mp.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


# How a worker process is started


PRELOADED = [f"ecgr.simulation.{name}" for name in ("client", "evaluate", "prepare", "engines.pool")]
KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**25)}
"""glibc keeps what a step frees for the next one: to get cleared pages anew is a tenth of the time of small steps."""
BEFORE = "ECGR_ENVIRONMENT_BEFORE"
"""The variable that holds what `apart` changed."""
ONE_AT_A_TIME = Lock()
"""For threads: this process looks different while it starts another."""


def worker_contexts() -> list[Any]:
    """How processes are started, the best way first; the next is for when it fails.

    Where that is possible, they are forked from a process of this program's own that has imported what training needs
    and has done nothing else: importing torch takes longer than many runs. Otherwise each starts from scratch.
    """
    from_nothing = mp.get_context("spawn")
    if sys.platform != "linux":  # the libraries of macOS mind being forked, and Windows cannot
        return [from_nothing]
    forked = mp.get_context("forkserver")
    forked.set_forkserver_preload(PRELOADED)
    return [forked, from_nothing]


@contextmanager
def apart() -> Iterator[None]:
    """A process started in this block takes nothing over from this one by accident.

    - It imports from where this one would, from its first line on. By itself it would look into the working directory
      first, and would not see what this program changed in ``sys.path``: workers could run other code.
    - It never gets Ctrl-C, not even while it imports: its parent ends it.
    - It does not run the user's script again, which might start processes itself. What a script or a notebook defines
      is sent by value (`ecgr.simulation.pickling`).
    """
    found = [entry or str(Path.cwd()) for entry in sys.path if isinstance(entry, str) and os.pathsep not in entry]
    changes = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(found), **KEEP_FREED_MEMORY}
    with ONE_AT_A_TIME:
        main, before = sys.modules["__main__"], {name: os.environ.get(name) for name in changes}
        resource_tracker.ensure_running()  # unblocks Ctrl-C when it starts a process of its own
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            os.environ.update(changes | {BEFORE: json.dumps(before)})
            sys.modules["__main__"] = ModuleType("__main__")
            yield
        finally:
            sys.modules["__main__"] = main
            restore_environment()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def restore_environment() -> None:
    """Undo what `apart` changed, here or in the process that started this one."""
    for name, value in json.loads(os.environ.pop(BEFORE, "{}")).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


restore_environment()  # `apart` may have started this process, and others may be forked from it
