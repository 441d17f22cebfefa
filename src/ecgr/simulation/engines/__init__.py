"""Engines: where jobs run. Serial, pooled and on a cluster they give the same bits.

Results come back in the order of the jobs. Every process computes with one torch thread, so a sum is added up in the
same order wherever it is computed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch

from ecgr.errors import ConfigError
from ecgr.simulation.engines.pool import Begun, Job, Lost, ProcessPool
from ecgr.simulation.engines.ray import Cluster
from ecgr.simulation.workspace import Portable, Problem, Workspace
from ecgr.tables import unknown

R = TypeVar("R")
W = TypeVar("W")


class Engine(Protocol):
    """Runs jobs; passed in, never global."""

    def map(self, jobs: Sequence[Job[Workspace, R]]) -> Iterator[R | Lost]:
        """The jobs' results, in the order of the jobs."""
        ...


class InThisProcess(Generic[W]):
    """A workspace and whoever asks for it: jobs that need no process of their own, one after the other."""

    def __init__(self, workspace: W) -> None:
        self.workspace = workspace

    def map(self, jobs: Sequence[Job[W, R]], begun: Begun | None = None) -> Iterator[R | Lost]:
        """The jobs' results, in the order of the jobs."""
        for index, job in enumerate(jobs):
            if begun is not None:
                begun(index, 1)
            with one_thread():
                result = job.run(self.workspace)
            yield result


class SerialEngine(InThisProcess[Workspace]):
    """Everything about one problem in this process."""

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


class EngineKind(Protocol):
    """What an engine is opened by: an entry of ``ENGINES``, or a cluster of one's own."""

    elsewhere: ClassVar[bool]
    """Whether jobs run in other processes, so that a workspace is opened from what can travel."""
    beyond: ClassVar[bool]
    """Whether they may run on other machines, which have neither this one's memory nor, perhaps, its files."""

    def open(self, open_workspace: Callable[[], Any], workers: int | None) -> AbstractContextManager[Any]:
        """An engine of ``workers`` workspaces that ends with the block; None: as many as there is room for."""
        ...


@dataclass(frozen=True, slots=True)
class Serial:
    """Everything in this process."""

    elsewhere: ClassVar[bool] = False
    beyond: ClassVar[bool] = False

    def open(self, open_workspace: Callable[[], W], workers: int | None) -> AbstractContextManager[InThisProcess[W]]:
        """One workspace, whatever the number of workers."""
        return nullcontext(InThisProcess(open_workspace()))


@dataclass(frozen=True, slots=True)
class Pool:
    """Processes of this machine."""

    elsewhere: ClassVar[bool] = True
    beyond: ClassVar[bool] = False

    def open(self, open_workspace: Callable[[], W], workers: int | None) -> ProcessPool[W]:
        """So many processes."""
        return ProcessPool(open_workspace, workers or 1)


ENGINES: Mapping[str, EngineKind] = {"serial": Serial(), "pool": Pool(), "ray": Cluster()}


def engine_kind(engine: str | Cluster | None, workers: int) -> EngineKind:
    """The engine of this name, or the cluster; by default serial for one worker, and a pool for more."""
    if isinstance(engine, Cluster):
        return engine
    chosen = engine or ("serial" if workers == 1 else "pool")
    if chosen not in ENGINES:
        raise ConfigError(unknown("--engine", str(chosen), ENGINES, kind="engine"))
    return ENGINES[chosen]


def ready_engine(
    problem: Problem, workers: int | None, kind: EngineKind
) -> Callable[[], AbstractContextManager[Engine]]:
    """How to open an engine for ``problem``; what cannot travel to where its jobs run is refused here."""
    open_workspace = Portable.of(problem, beyond=kind.beyond).open if kind.elsewhere else partial(Workspace, problem)
    return partial(kind.open, open_workspace, workers)


@contextmanager
def open_engine(problem: Problem, workers: int, name: str | None = None) -> Iterator[Engine]:
    """An engine for ``problem`` that ends with the block."""
    with ready_engine(problem, workers, engine_kind(name, workers))() as engine:
        yield engine
