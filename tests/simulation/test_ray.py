"""Jobs on Ray: in order, survived, shared; on a cluster of this machine that ends with the test."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from ecgr.errors import EnvironmentFault
from ecgr.simulation.engines.pool import Lost, Rest
from support.commands import ecgr
from support.jobs import Dies, Fails, Log, Square, answers_of, open_workspace

ray = pytest.importorskip("ray", reason="the engine ray needs the extra ray")

from ecgr.simulation.engines.ray import VERSIONS, Cluster, RayPool, check_versions, room  # noqa: E402

SMALL = Cluster(cpus=0.1)  # so that the pools of a test find room beside each other

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def pool() -> Iterator[RayPool[dict[str, int]]]:
    """One worker on one cluster for all tests: each further one imports torch in a process of its own."""
    with RayPool(open_workspace, workers=1, cluster=SMALL) as pool:
        yield pool
    assert not ray.is_initialized()


def test_the_most_expensive_jobs_start_first_and_results_come_in_the_order_of_the_jobs(
    pool: RayPool[dict[str, int]], tmp_path: Path
) -> None:
    log = tmp_path / "order"
    assert list(pool.map([Log(i, cost, log) for i, cost in enumerate([2, 9, 1, 5])])) == [0, 1, 2, 3]
    assert log.read_text().split() == ["1", "3", "0", "2"]
    assert list(pool.map([])) == []
    from ray._common.usage.usage_lib import usage_stats_enabled

    assert not usage_stats_enabled(), "nothing is reported to anybody"


def test_a_worker_keeps_its_workspace(pool: RayPool[dict[str, int]]) -> None:
    answers: list[Any] = [*pool.map([Square(1)]), *pool.map([Square(1)])]
    assert [jobs - answers[0][2] for _, _, jobs in answers] == [0, 1]
    assert os.getpid() not in {pid for _, pid, _ in answers}


def test_a_job_whose_actor_dies_is_tried_once_more_and_then_lost(pool: RayPool[dict[str, int]], tmp_path: Path) -> None:
    once, always = tmp_path / "once", tmp_path / "always"
    lost = Lost("the actor that held it died, 2 times")
    jobs = [Dies(once, times=1), Square(3), Dies(always, times=10), Square(4)]
    assert answers_of(pool, jobs) == ["alive", 9, lost, 16]
    assert once.stat().st_size == always.stat().st_size == 2


def test_what_a_job_raises_is_raised_here_and_the_pool_goes_on(pool: RayPool[dict[str, int]]) -> None:
    with pytest.raises(ArithmeticError, match="seven"):
        answers_of(pool, [Square(1), Fails("seven")])
    assert answers_of(pool, [Square(5)]) == [25]


def node(alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


@pytest.mark.parametrize(
    ("nodes", "cluster", "workers"),
    [
        ([node(CPU=8.0)], Cluster(), 8),
        ([node(CPU=8.0)], Cluster(cpus=1.5), 5),
        ([node(CPU=8.0, GPU=1.0)], Cluster(gpus=0.25), 4),
        ([node(CPU=2.0, GPU=4.0), node(CPU=64.0, GPU=1.0)], Cluster(gpus=0.25), 2 + 4),
        ([node(CPU=8.0), node(alive=False, CPU=8.0)], Cluster(cpus=4), 2),
        ([node(CPU=8.0), node(CPU=8.0, GPU=2.0)], Cluster(gpus=1), 2),
    ],
)
def test_as_many_workers_as_fit_on_the_nodes_that_are_up(
    monkeypatch: pytest.MonkeyPatch, nodes: list[dict[str, Any]], cluster: Cluster, workers: int
) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert room(cluster) == workers
    apart = [node(CPU=8.0), node(CPU=0.5, GPU=2.0)]  # CPUs on one node and GPUs on another are no room
    monkeypatch.setattr(ray, "nodes", lambda: apart)
    with pytest.raises(EnvironmentFault, match=r"has 1 CPUs and 1 GPUs for a worker \(they have 8 CPUs, 0 GPUs; 0.5"):
        room(Cluster(gpus=1))


@dataclass(frozen=True)
class Places:
    """Where the shared array lies, and in which process."""

    cost: int = 1

    def run(self, workspace: torch.Tensor) -> tuple[str, int]:
        mapped = [
            line.split()[5]  # the file, before "(deleted)"
            for line in Path("/proc/self/maps").read_text().splitlines()
            if int(line.split("-")[0], 16) <= workspace.data_ptr() < int(line.split("-")[1].split()[0], 16)
        ]
        return mapped[0], int(workspace.sum())


@dataclass(frozen=True)
class Holds:
    """Opens a workspace that is one large array."""

    data: torch.Tensor

    def __call__(self) -> torch.Tensor:
        return self.data


@pytest.mark.nightly
def test_actors_read_data_from_shared_memory(pool: RayPool[dict[str, int]]) -> None:
    with RayPool(Holds(torch.ones(2_000_000)), workers=2, cluster=SMALL) as sharing:
        answers: list[Any] = list(sharing.map([Places(), Places()]))
    for place, total in answers:
        assert place.startswith("/dev/shm/")
        assert total == 2_000_000


def test_an_address_where_nobody_answers_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where no cluster is asked for, none is looked for."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    assert ecgr("list", RAY_ADDRESS="127.0.0.1:9").returncode == 0
    done = ecgr("run", "quickstart", "--engine", "ray", "--out", tmp_path / "run", RAY_ADDRESS="127.0.0.1:9")
    assert done.returncode == 5
    assert done.stderr.splitlines() == [
        "ecgr: ray: cannot use the cluster at 127.0.0.1:9: Connection refused; is its head node up?"
    ]
    assert not (tmp_path / "run").exists()


def test_another_version_on_a_node_is_one_clear_line() -> None:
    check_versions(VERSIONS)
    with pytest.raises(EnvironmentFault, match=r"a node has ecgr 0\.0 \(here .*\), Python None .*install the same"):
        check_versions({"ecgr": "0.0", "torch": VERSIONS["torch"]})


@pytest.mark.nightly
def test_a_node_with_another_version_is_refused_before_it_gets_a_job(
    pool: RayPool[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the two sides it is this one that is made to have another torch."""
    monkeypatch.setitem(cast("dict[str, str]", VERSIONS), "torch", "0.0")
    with (
        RayPool(open_workspace, workers=1, cluster=SMALL) as other,
        pytest.raises(EnvironmentFault, match=r"a node has torch \S+ \(here 0\.0\); the bits would differ"),
    ):
        list(other.map([Square(1)]))


@dataclass(frozen=True)
class CountsUp:
    """A job in pieces: each answer is one more, and the last is the result."""

    number: int
    upto: int
    cost: int = 1

    def run(self, workspace: dict[str, int]) -> int:
        return self.number + 1

    def received(self, answer: int) -> Any:
        return Rest(CountsUp(answer, self.upto)) if answer < self.upto else f"counted to {answer}"


def test_a_job_in_pieces_goes_on_until_its_last_answer(pool: RayPool[dict[str, int]]) -> None:
    begun: list[tuple[int, int]] = []
    jobs: list[Any] = [CountsUp(0, 3), CountsUp(5, 6)]
    assert list(pool.map(jobs, lambda index, attempt: begun.append((index, attempt)))) == [
        "counted to 3",
        "counted to 6",
    ]
    assert sorted(begun) == [(0, 1), (0, 1), (0, 1), (1, 1)]


@pytest.mark.nightly
def test_want_of_memory_and_a_lost_answer_are_deaths_too(
    pool: RayPool[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither can be had in a test: two answers are made errors as Ray would raise them."""
    answers_of(pool, [Square(1), Square(1)])  # workers have started
    errors = [ray.exceptions.OutOfMemoryError("memory"), ray.exceptions.ObjectLostError("0" * 56, None, "")]
    get = ray.get

    def failing(future: Any) -> Any:
        if errors:
            raise errors.pop()
        return get(future)

    monkeypatch.setattr(ray, "get", failing)
    assert answers_of(pool, [Square(2), Square(3)]) == [4, 9]
    assert errors == []
