"""Rounds on Ray's actors against those in the process pool, on this machine, and what actors hold of the data."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.problems import problem, random_dataset, rounds_on
from benchmarks.rows import Row, at_most, best_ratio, interleaved, not_measured
from ecgr.config.experiment import load
from ecgr.errors import DataError
from ecgr.simulation.engines import ENGINES, open_engine, ready_engine
from ecgr.simulation.engines.ray import Cluster, RayPool
from ecgr.simulation.prepare import prepare
from ecgr.simulation.workspace import Problem

PAPER = "ray: seconds per round / process pool, paper/mnist"
MANY = "ray: seconds per round / process pool, 200 clients of 300 samples"
MEMORY = "ray: memory of its own that an actor takes for the data / the data"
LIMITS = {PAPER: 1.15, MANY: 1.3, MEMORY: 0.1}
ACTORS = 4


def rows(quick: bool) -> Iterator[Row]:
    try:
        import ray  # noqa: F401 - only whether it is there
    except ImportError:
        yield from (not_measured(name, limit, "at most", "the extra ray is missing") for name, limit in LIMITS.items())
        return
    yield _rounds(PAPER, _paper(0.05 if quick else 1.0), 4)
    clients = 20 if quick else 200
    many = problem("lenet", samples=300 * clients, clients=clients, test=60 * clients, regulator__name="none")
    yield _rounds(MANY, many, 3)
    yield _memory(10_000 if quick else 60_000)


def _paper(fraction: float) -> Problem:
    experiment = load("paper/mnist", {"regulator.name": "none", "data.fraction": fraction})
    try:
        dataset = experiment.source.load()
    except DataError:  # the time of a step does not depend on what is in a picture
        dataset = random_dataset(60_000, (1, 28, 28), test=10_000)
    return prepare(experiment, dataset)


def _rounds(name: str, chosen: Problem, repetitions: int) -> Row:
    """Rounds of both engines in turn, two workers each; the first of each, in which workspaces are opened, apart."""
    with ready_engine(chosen, 2, ENGINES["ray"])() as ours, open_engine(chosen, workers=2) as pool:
        ray_round, pool_round = rounds_on(ours, chosen), rounds_on(pool, chosen)
        ray_round()
        pool_round()
        on_ray, in_pool = interleaved(repetitions, ray_round, pool_round)
    note = f"{min(on_ray):.2f} s against {min(in_pool):.2f} s, the fastest round of each; two workers"
    return at_most(name, best_ratio(on_ray, in_pool), LIMITS[name], note)


def _memory(samples: int) -> Row:
    data = torch.ones(samples, 784)
    size = data.numel() * data.element_size()
    large, small = _own_memory(data), _own_memory(torch.ones(1, 784))
    over = sum(large) / ACTORS - sum(small) / ACTORS
    note = f"{over / 1e6:.1f} MB over an actor without, {size / 1e6:.0f} MB of data; mean of {ACTORS} actors on a node"
    return at_most(MEMORY, over / size, LIMITS[MEMORY], note)


def _own_memory(data: Tensor) -> list[int]:
    """What each of some actors on one node has for itself alone, after reading all of the data."""
    with RayPool(_Holds(data), ACTORS, Cluster(cpus=0.25)) as pool:
        answers = list(pool.map([_OwnMemory()] * ACTORS))
    return [answer for answer in answers if isinstance(answer, int)]


@dataclass(frozen=True)
class _Holds:
    data: Tensor

    def __call__(self) -> Tensor:
        return self.data


@dataclass(frozen=True)
class _OwnMemory:
    cost: int = 1

    def run(self, data: Tensor) -> int:
        assert float(data.sum()) == data.numel()  # every page of it is read
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
