"""Every algorithm with every server rule, regulator and loss: the same bits whichever way its rounds are played.

Generated from the tables; a new entry is tested by existing. `make test` plays few methods that hold every pair of
parts, `make nightly` all of the product.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ecgr.algorithms import ALGORITHMS, SERVER_RULES
from ecgr.config.methods import Method, method_name, parse_method
from ecgr.core.regulators import REGULATORS
from ecgr.errors import ConfigError
from ecgr.runs.checkpoint import load_checkpoint, save_checkpoint
from ecgr.runs.record import Position
from ecgr.simulation.by_hand import qualifies
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.engines.pool import ProcessPool
from ecgr.simulation.pickling import pack, unpack
from ecgr.simulation.rounds import Snapshot, final_state, play_round, start
from ecgr.simulation.workspace import Problem, Workspace, portable
from ecgr.tasks.losses import LOSSES
from support.compositions import VARIANTS, covering, difference, linear, model, pairs, tiny, whole
from support.problems import TRAINED

TOGETHER, APART = pairs()
COVERING = covering(together=2)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What survives a power loss is tested elsewhere."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def two_rounds(problem: Problem, engine: Any) -> tuple[Snapshot, Snapshot]:
    """Where the first round leads, and the second."""
    before = play_round(problem, engine, start(problem)).snapshot
    return before, play_round(problem, engine, before).snapshot


def serial(problem: Problem) -> tuple[Snapshot, Snapshot]:
    """In this process, one client after the other."""
    return two_rounds(problem, SerialEngine(problem))


def restored(before: Snapshot, folder: Path) -> Snapshot:
    """As it is read from a checkpoint."""
    save_checkpoint(folder, before, Position(0, ""))
    found = load_checkpoint(folder)
    assert found is not None
    return found.snapshot


@dataclass
class Workspaces:
    """What a worker of many problems keeps: the workspace of the last one."""

    of_last: bytes = b""
    last: Workspace | None = None

    def of(self, problem: bytes) -> Workspace:
        if self.last is None or self.of_last != problem:
            self.of_last, self.last = problem, unpack(problem)()
        return self.last


@dataclass(frozen=True)
class JobOf:
    """A job, and the problem that it is of."""

    problem: bytes
    job: Any

    @property
    def cost(self) -> int:
        return int(self.job.cost)

    def run(self, workspaces: Workspaces) -> Any:
        return self.job.run(workspaces.of(self.problem))


@dataclass(frozen=True)
class Pooled:
    """An engine for one problem in a pool for many: starting processes takes longer than the rounds."""

    pool: ProcessPool[Workspaces]
    problem: bytes

    def map(self, jobs: Sequence[Any]) -> Iterator[Any]:
        return self.pool.map([JobOf(self.problem, job) for job in jobs])


def pooled(problem: Problem, pool: ProcessPool[Workspaces]) -> Snapshot:
    """Clients and evaluation in other processes."""
    return two_rounds(problem, Pooled(pool, pack(portable(problem))))[1]


def federated(problem: Problem, folder: Path) -> Snapshot:
    """A site for each client: messages as Flower's, through the guard; a client's state lies at its site."""
    from ecgr.flower import Guard
    from support.federations import federation

    guard = Guard(norm_factor=1e9)  # of two clients one may well have moved much farther than the other
    playing = federation(problem, folder, guard)
    return playing.play_round(playing.play_round(start(problem)).snapshot).snapshot


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool[Workspaces]]:
    with ProcessPool(Workspaces, workers=2) as pool:
        yield pool


def check(
    methods: Sequence[str], pool: ProcessPool[Workspaces], folder: Path, net: Callable[[], nn.Module] = model
) -> None:
    pytest.importorskip("flwr", reason="the flower extra is not installed")
    for number, method in enumerate(methods):
        problem, place = tiny(method, net), folder / str(number)
        before, end = serial(problem)
        tensors = [*final_state(problem, end).values(), *end.server.values()]
        assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors), method
        assert not torch.equal(final_state(problem, end)["0.weight"], final_state(problem, before)["0.weight"]), method
        read = restored(before, place)
        assert (read.rounds, difference(problem, before, read)) == (1, []), method
        assert difference(problem, end, play_round(problem, SerialEngine(problem), read).snapshot) == [], method
        assert difference(problem, end, pooled(problem, pool)) == [], method
        assert difference(problem, end, federated(problem, place), clients=False) == [], method


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [*TRAINED, *VARIANTS])
def test_every_pair_of_parts_learns_and_is_the_same_resumed_pooled_and_federated(
    algorithm: str, pool: ProcessPool[Workspaces], tmp_path: Path
) -> None:
    check([method for method in COVERING if method.startswith(f"{algorithm}[")], pool, tmp_path)


@pytest.mark.slow
def test_what_is_trained_by_hand_is_the_same_resumed_pooled_and_federated(
    pool: ProcessPool[Workspaces], tmp_path: Path
) -> None:
    methods = [method for method in covering(together=1) if "fedntd" not in method]
    assert len(methods) >= 12
    assert all(qualifies(Workspace(tiny(method, linear))) for method in methods)
    check(methods, pool, tmp_path, linear)


@pytest.mark.nightly
@pytest.mark.parametrize("pair", [pair for pair in TOGETHER if pair[0] not in VARIANTS], ids="/".join)
def test_all_of_the_product_is(pair: tuple[str, str], pool: ProcessPool[Workspaces], tmp_path: Path) -> None:
    check(whole(*pair), pool, tmp_path)


@pytest.mark.parametrize(("algorithm", "rule"), APART, ids="/".join)
def test_what_does_not_go_together_is_refused_by_name_with_a_reason(algorithm: str, rule: str) -> None:
    name = algorithm.partition("(")[0]
    assert name in APART[algorithm, rule]
    assert "leave [server] at average" in APART[algorithm, rule]
    entry, own = Method.of(algorithm).algorithm, SERVER_RULES[rule]()
    for regulator, loss in product(REGULATORS.values(), LOSSES.values()):
        with pytest.raises(ConfigError, match=rf"{name} (already is|takes the server's step itself)"):
            Method(entry, own, regulator(), loss())


def test_what_is_refused_is_what_has_a_server_step_of_its_own() -> None:
    own = {"feddyn", "fedavgm", "fedadam", "fedyogi", "fedacg", "fedexp", "drift_correction"}
    assert {algorithm for algorithm, _ in APART if algorithm in ALGORITHMS} == own


def test_a_method_is_called_by_what_it_is() -> None:
    for method in COVERING:
        name = method_name(tiny(method).experiment.to_dict())
        assert parse_method(name).items() >= parse_method(method).items()
        assert len(name) <= len(method)
