"""Engines: where jobs run. Serial and pooled give the same bits.

Results come back in the order of the jobs. Every process computes with one torch thread, so a sum is added up in the
same order wherever it is computed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import torch

from ecgr.simulation.engines.pool import Job, Lost, ProcessPool
from ecgr.simulation.workspace import Portable, Problem, Workspace

R = TypeVar("R")


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
        for job in jobs:
            with one_thread():
                result = job.run(self._workspace)
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


@contextmanager
def open_engine(problem: Problem, workers: int) -> Iterator[Engine]:
    """An engine for ``problem``: serial for one worker, otherwise a pool of processes that ends with the block."""
    if workers == 1:
        yield SerialEngine(problem)
        return
    with ProcessPool(Portable.of(problem).open, workers) as pool:
        yield pool
