"""Honest sites of very different size are never rejected; an update a hundred times too long is, whoever sends it."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecgr.config.experiment import load
from ecgr.config.methods import parse_method
from ecgr.errors import QuorumLost
from ecgr.runs.runner import run
from ecgr.simulation.rounds import Outcome, start
from ecgr.simulation.workspace import Problem
from support.commands import rows_without_times
from support.problems import TRAINED, blobs, offer, problem, small_net
from support.quick import quick_where

pytest.importorskip("flwr", reason="the flower extra is not installed")

from flwr.app import Array, Message

from ecgr.flower import MemoryGrid, client_app, server_app
from ecgr.flower.server import Federation
from support.federations import Ticks, federation

SIZES = {"1:10:100": (4, 40, 400), "1:1:1000": (2, 2, 2000), "1:1000:1000": (2, 2000, 2000), "1:50": (16, 800)}
ROUNDS = 4


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, net=small_net)


def unequal(
    sizes: Sequence[int], algorithm: str, seed: int = 0, *, regulator: str = "none", momentum: float = 0.9
) -> Problem:
    """Sites that hold other classes, too: the small ones have one class each."""
    data = blobs(sum(sizes), seed=seed)
    order = np.argsort(np.arange(sum(sizes)) % 3, kind="stable")
    parts = np.split(order, np.cumsum(sizes)[:-1])
    return problem(
        data,
        [part.tolist() for part in parts],
        model={"name": "net"},
        algorithm={"name": algorithm},
        regulator={"name": regulator},
        optimizer={"name": "sgd", "lr": 0.05, "momentum": momentum},
        federation={"rounds": ROUNDS, "batch_size": 16 if 16 in sizes else sizes[0]},
        run={"seed": seed},
    )


def play(playing: Federation, rounds: int) -> list[Outcome]:
    outcomes, snapshot = [], start(playing.problem)
    for _ in range(rounds):
        outcomes.append(playing.play_round(snapshot))
        snapshot = outcomes[-1].snapshot
    return outcomes


HONEST = [
    *((sizes, algorithm, "none", 0.9, 0) for sizes, algorithm in product(("1:10:100", "1:50"), TRAINED)),
    *(("1:1:1000", algorithm, "none", 0.9, 1) for algorithm in ("fedavg", "fednova", "scaffold", "drift_correction")),
    ("1:1000:1000", "drift_correction", "none", 0.0, 2),
    *(("1:10:100", "fedavg", "ecgr", momentum, seed) for momentum, seed in product((0.0, 0.9), (1, 2))),
    *(("1:10:100", "scaffold", "ecgr", 0.9, seed) for seed in (3, 4)),
]


@pytest.mark.parametrize(
    ("sizes", "algorithm", "regulator", "momentum", "seed"),
    quick_where(lambda *case: case[:2] == ("1:10:100", "scaffold"), HONEST),
)
def test_honest_sites_are_never_rejected(
    sizes: str, algorithm: str, regulator: str, momentum: float, seed: int, tmp_path: Path
) -> None:
    chosen = unequal(SIZES[sizes], algorithm, seed, regulator=regulator, momentum=momentum)
    rounds = ROUNDS if sum(SIZES[sizes]) < 2000 else 2
    for outcome in play(federation(chosen, tmp_path), rounds):
        assert outcome.row["rejected"] == []


def times(factor: float) -> Any:
    def spoil(reply: Message) -> None:
        arrays = reply.content.array_records["arrays"]
        for name in ("payload/update", "payload/plain"):
            if name in arrays:
                arrays[name] = Array((arrays[name].numpy() * factor).astype(np.float32))

    return spoil


@pytest.mark.parametrize(
    ("algorithm", "culprit", "when"),
    quick_where(
        lambda algorithm, culprit, when: (algorithm, culprit) == ("fedavg", 2),
        product(("fedavg", "fednova", "scaffold", "feddyn", "fedacg"), range(3), (1, 3)),
    ),
)
def test_a_hundredfold_update_is_rejected_whoever_sends_it(
    algorithm: str, culprit: int, when: int, tmp_path: Path
) -> None:
    chosen = unequal(SIZES["1:10:100"], algorithm)

    def tamper(node: int, order: Message, reply: Message) -> Sequence[Message]:
        if node == culprit and order.metadata.group_id.startswith(f"{when}."):
            times(100)(reply)
        return [reply]

    playing = federation(chosen, tmp_path, tamper=tamper)
    if culprit == 2:
        with pytest.raises(QuorumLost, match=r"hold 400 of the 444 enrolled samples.*site-2: norm"):
            play(playing, when)
        return
    *before, last = (outcome.row["rejected"] for outcome in play(playing, when))
    assert not any(before)
    assert [(entry["client"], entry["reason"].split(":")[0]) for entry in last] == [(culprit, "norm")]


def test_from_its_third_round_on_a_site_is_bound_by_its_own_updates(tmp_path: Path) -> None:
    """Fifteen times its own length is within what a site of so many steps may have, and not within its past."""
    chosen = unequal(SIZES["1:10:100"], "fedavg")

    def rejected(when: int) -> list[int]:
        def tamper(node: int, order: Message, reply: Message) -> Sequence[Message]:
            if node == 0 and order.metadata.group_id == f"{when}.1":
                times(15)(reply)
            return [reply]

        last = play(federation(chosen, tmp_path / str(when), tamper=tamper), when)[-1]
        return [entry["client"] for entry in last.row["rejected"]]

    assert (rejected(1), rejected(3)) == ([], [0])


METHODS = ("fedavg+ecgr", "fedavgm", "fednova", "scaffold+ecgr", "drift_correction")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_federation_of_very_different_sites_has_the_bits_of_a_run(method: str, tmp_path: Path) -> None:
    """The shipped quickstart, where one site has 1,087 of 1,438 samples."""
    changes = {"partition.name": "quantity", "partition.alpha": 0.2, "partition.clients": 4, "partition.min_batches": 1}
    chosen = load("quickstart").replace({**changes, "run.seed": 3, "federation.rounds": 3, **parse_method(method)})
    nodes = [{"partition-id": site, "state-dir": str(tmp_path / f"site-{site}")} for site in range(4)]
    MemoryGrid(client_app(chosen), nodes).serve(server_app(chosen, tmp_path / "federated", clock=Ticks()))
    run(chosen, tmp_path / "simulated")
    rows = rows_without_times(tmp_path / "federated")
    assert max(client["examples"] for client in rows[0]["clients"]) == 1087
    assert rows == rows_without_times(tmp_path / "simulated")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("simulated", "federated")]
    assert weights[0] == weights[1]
