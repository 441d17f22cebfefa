"""Engines: where jobs run. Serial, pooled and on a cluster they give the same bits.

Results come back in the order of the jobs. Every process computes with one torch thread, so a sum is added up in the
same order wherever it is computed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import torch

from ecgr.errors import ConfigError, EnvironmentFault
from ecgr.simulation.engines.pool import Begun, Job, Lost, ProcessPool
from ecgr.simulation.engines.ray import Cluster, RayPool
from ecgr.simulation.workspace import Problem, Workspace, portable
from ecgr.tables import unknown

R = TypeVar("R")
W = TypeVar("W")


class Engine(Protocol):
    """Runs jobs; passed in, never global."""

    def map(self, jobs: Sequence[Job[Workspace, R]]) -> Iterator[R | Lost]:
        """The jobs' results, in the order of the jobs."""
        ...


def results(engine: Engine, jobs: Sequence[Job[Workspace, R]], lost: str) -> Iterator[R]:
    """The results of jobs that cannot be done without; ``lost`` says in words that one of them is."""
    for job, result in zip(jobs, engine.map(jobs), strict=True):
        if isinstance(result, Lost):
            whose = f" (client {job.client})" if hasattr(job, "client") else ""
            raise EnvironmentFault(f"{lost}{whose}: {result.reason}")
        yield result


class InThisProcess(Generic[W]):
    """Runs jobs in this process, one after the other."""

    def __init__(self, workspace: W) -> None:
        self.workspace = workspace

    def map(self, jobs: Sequence[Job[W, R]], begun: Begun | None = None) -> Iterator[R | Lost]:
        for index, job in enumerate(jobs):
            if begun is not None:
                begun(index, 1)
            with one_thread():
                result = job.run(self.workspace)
            yield result


class SerialEngine(InThisProcess[Workspace]):
    """Runs one problem's jobs in this process."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(Workspace(problem))


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one torch thread, as workers do, and restore the setting afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True)
class EngineKind:
    """How an engine is opened.

    Attributes:
        open: from what opens a workspace and the number of workers (None: as many as there is room for).
        processes: whether jobs run in other processes, so that a workspace is opened from what can be sent there.
        remote: whether these may be on other machines, which have neither this one's memory nor, perhaps, its files.
    """

    open: Callable[[Callable[[], Any], int | None], AbstractContextManager[Any]]
    processes: bool = True
    remote: bool = False


ENGINES: Mapping[str, EngineKind] = {
    "serial": EngineKind(lambda open_workspace, _: nullcontext(InThisProcess(open_workspace())), processes=False),
    "pool": EngineKind(ProcessPool),
    "ray": EngineKind(RayPool, remote=True),
}


def engine_kind(engine: str | Cluster | None, workers: int) -> EngineKind:
    """The engine of this name, or the cluster; by default serial for one worker, and a pool for more."""
    if isinstance(engine, Cluster):
        return EngineKind(partial(RayPool, cluster=engine), remote=True)
    chosen = engine or ("serial" if workers == 1 else "pool")
    if chosen not in ENGINES:
        raise ConfigError(unknown("engine", str(chosen), ENGINES, kind="engine"))
    return ENGINES[chosen]


def ready_engine(
    problem: Problem, workers: int | None, kind: EngineKind
) -> Callable[[], AbstractContextManager[Engine]]:
    """How to open an engine for ``problem``; what cannot be sent to its processes is refused here."""
    open_workspace = portable(problem, remote=kind.remote) if kind.processes else partial(Workspace, problem)
    return partial(kind.open, open_workspace, workers)


def open_engine(problem: Problem, workers: int, name: str | None = None) -> AbstractContextManager[Engine]:
    """An engine for ``problem`` that ends with the block."""
    return ready_engine(problem, workers, engine_kind(name, workers))()
