"""Engines: where jobs run. Serial and pooled give the same bits.

Results come back in the order of the jobs. Every process computes with one torch thread, so a sum is added up in the
same order wherever it is computed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import torch

from ecgr.errors import ConfigError
from ecgr.simulation.engines.pool import Job, Lost, ProcessPool
from ecgr.simulation.engines.ray import RayPool
from ecgr.simulation.workspace import Portable, Problem, Workspace
from ecgr.tables import unknown

R = TypeVar("R")
W = TypeVar("W")


class Engine(Protocol):
    """Runs jobs; passed in, never global."""

    def map(self, jobs: Sequence[Job[Workspace, R]]) -> Iterator[R | Lost]:
        """The jobs' results, in the order of the jobs."""
        ...


class SerialEngine:
    """Everything in this process, one job after the other."""

    def __init__(self, problem: Problem) -> None:
        self._workspace = Workspace(problem)

    def map(self, jobs: Sequence[Job[Workspace, R]]) -> Iterator[R | Lost]:
        """The jobs' results, in the order of the jobs."""
        return _one_by_one(self._workspace, jobs)


def _one_by_one(workspace: W, jobs: Sequence[Job[W, R]]) -> Iterator[R | Lost]:
    for job in jobs:
        with one_thread():
            result = job.run(workspace)
        yield result


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
class InThisProcess(Generic[W]):
    """A workspace and whoever asks for it: the engine of jobs that need no process of their own."""

    workspace: W

    def map(self, jobs: Sequence[Job[W, R]]) -> Iterator[R | Lost]:
        """The jobs' results, in the order of the jobs."""
        return _one_by_one(self.workspace, jobs)


@dataclass(frozen=True, slots=True)
class EngineKind:
    """An entry of ``ENGINES``: opened with a function that makes a workspace, and a number of workers."""

    open: Callable[[Callable[[], Any], int], AbstractContextManager[Any]]
    elsewhere: bool = True
    """Whether jobs run in other processes, so that a workspace is opened from what can travel."""


ENGINES: Mapping[str, EngineKind] = {
    "serial": EngineKind(lambda open_workspace, workers: nullcontext(InThisProcess(open_workspace())), elsewhere=False),
    "pool": EngineKind(ProcessPool),
    "ray": EngineKind(RayPool),
}


def engine_kind(name: str | None, workers: int) -> EngineKind:
    """The engine of this name; by default serial for one worker, and a pool for more."""
    chosen = name or ("serial" if workers == 1 else "pool")
    if chosen not in ENGINES:
        raise ConfigError(unknown("--engine", chosen, ENGINES, kind="engine"))
    return ENGINES[chosen]


def ready_engine(
    problem: Problem, workers: int, name: str | None = None
) -> Callable[[], AbstractContextManager[Engine]]:
    """How to open an engine for ``problem``; what cannot travel to where its jobs run is refused here."""
    kind = engine_kind(name, workers)
    open_workspace = Portable.of(problem).open if kind.elsewhere else partial(Workspace, problem)
    return partial(kind.open, open_workspace, workers)


@contextmanager
def open_engine(problem: Problem, workers: int, name: str | None = None) -> Iterator[Engine]:
    """An engine for ``problem`` that ends with the block."""
    with ready_engine(problem, workers, name)() as engine:
        yield engine
