"""A pool of worker processes that survives the death of any of them.

Each worker has its own pipe, so the pool knows which job a dead worker held: that job is tried once more in a fresh
process and then given up as `Lost`, while all others go on. Workers inherit nothing by accident, keep their workspace
from round to round, and end when the parent does, however it ends. What all jobs of a call hold in
common goes to each worker once, and a worker gets its next job before its last answer is looked at.
"""

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Protocol, TypeVar

import torch
import torch.multiprocessing as mp

from ecgr.errors import EnvironmentFault
from ecgr.simulation.engines.spawn import adopt, begin, keep_freed_memory, worker_contexts
from ecgr.simulation.portable import common_parts, pack, pack_for_workers, unpack

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
