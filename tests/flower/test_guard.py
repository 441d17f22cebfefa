"""No reply can spoil a round: the aggregate is that of the good ones alone, bit for bit."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ecgr.errors import ConfigError, QuorumLost
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.rounds import Outcome, Replies, Snapshot, finish_round, participants, round_jobs, score, start
from ecgr.simulation.workspace import Problem
from support.problems import TRAINED, blobs, offer, problem, same_bits, small_net
from support.quick import quick_where

pytest.importorskip("flwr", reason="the flower extra is not installed")

from flwr.app import Array, Message

from ecgr.flower.guard import Guard, reserved_names
from ecgr.flower.server import Federation
from support.bad_replies import BAD, CANARY, MAIN_KINDS
from support.federations import federation

PARTS = [range(10), range(10, 17), range(17, 25), range(25, 34)]
ROUNDS = 2


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, net=small_net)


@cache
def task(algorithm: str) -> Problem:
    return problem(
        blobs(34),
        PARTS,
        model={"name": "net"},
        algorithm={"name": algorithm},
        regulator={"name": "ecgr"},
        optimizer={"name": "sgd", "lr": 0.05, "momentum": 0.9},
        federation={"rounds": ROUNDS, "batch_size": 4, "participation": 0.75},
    )


def simulated(chosen: Problem, used: Sequence[Sequence[int]]) -> Snapshot:
    """What the simulator makes of the same clients."""
    engine, snapshot = SerialEngine(chosen), start(chosen)
    for clients in used:
        jobs = [job for job in round_jobs(chosen, snapshot) if job.client in clients]
        answers: list[Any] = list(engine.map(jobs))
        replies = Replies([r for r, _ in answers], {r.client: state for r, state in answers if state}, [])
        snapshot = finish_round(chosen, snapshot, jobs, replies, partial(score, chosen, engine), 0.0).snapshot
    return snapshot


@cache
def honest(algorithm: str, used: tuple[tuple[int, ...], ...]) -> Snapshot:
    return simulated(task(algorithm), used)


def tampering(culprit: int, spoil: Callable[[Message, Message], Sequence[Message]], group: str = "") -> Any:
    """One site's replies are spoilt, in one attempt or in all; the others' are left alone."""
    return lambda node, order, reply: (
        spoil(order, reply) if node == culprit and order.metadata.group_id.startswith(group) else [reply]
    )


def rounds(playing: Federation, snapshot: Snapshot) -> list[Outcome]:
    outcomes = []
    for _ in range(ROUNDS):
        outcomes.append(playing.play_round(snapshot))
        snapshot = outcomes[-1].snapshot
    return outcomes


def same(a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(same_bits(a[name], b[name]) for name in a)


OTHERS = sorted(set(TRAINED) - {"scaffold"})
KINDS = [
    *quick_where(lambda kind, algorithm, place: place == "first", product(BAD, ["scaffold"], ["first", "last"])),
    *(  # of the others each kind and each algorithm; each pair of them at night
        pytest.param(
            kind,
            algorithm,
            ("first", "last")[(i + j) % 2],
            marks=pytest.mark.slow if j == i % len(OTHERS) else pytest.mark.nightly,
        )
        for i, kind in enumerate(list(BAD)[:MAIN_KINDS])
        for j, algorithm in enumerate(OTHERS)
    ),
]


@pytest.mark.parametrize(("kind", "algorithm", "place"), KINDS)
def test_a_bad_reply_leaves_the_aggregate_of_the_good_ones(
    algorithm: str, kind: str, place: str, tmp_path: Path
) -> None:
    chosen = task(algorithm)
    spoil, word = BAD[kind]
    sampled = [participants(chosen, index) for index in range(ROUNDS)]
    culprit = sampled[0][1]
    tamper = tampering(culprit, spoil, "1.1")
    others = [client for client in range(len(PARTS)) if client != culprit]
    arrival = [culprit, *others] if place == "first" else [*others, culprit]
    outcomes = rounds(federation(chosen, tmp_path, tamper=tamper, arrival=arrival), start(chosen))

    survivors = sampled[0] if kind == "twice" else [client for client in sampled[0] if client != culprit]
    expected = honest(algorithm, (tuple(survivors), tuple(sampled[1])))
    final = outcomes[-1].snapshot
    assert same_bits(final.params, expected.params)
    assert same(final.buffers, expected.buffers)
    assert same(final.server, expected.server)
    assert [client["client"] for client in outcomes[0].row["clients"]] == survivors
    (refused,) = outcomes[0].row["rejected"]
    assert refused["client"] == culprit
    assert refused["reason"].split(":")[0] == word
    assert CANARY not in str(outcomes[0].row)
    assert outcomes[1].row["rejected"] == []


def test_fednova_cannot_be_scaled_by_a_claimed_number_of_steps(tmp_path: Path) -> None:
    chosen = task("fednova")
    culprit = participants(chosen, 0)[0]

    def spoil(order: Message, reply: Message) -> Sequence[Message]:
        reply.content.array_records["arrays"]["payload/effective_steps"] = Array(np.array(1e9))
        return [reply]

    outcome = federation(chosen, tmp_path, tamper=tampering(culprit, spoil)).play_round(start(chosen))
    assert outcome.row["rejected"][0]["client"] == culprit
    assert outcome.row["rejected"][0]["reason"].startswith("scalar: payload/effective_steps")


def test_an_outlier_can_be_clipped_instead(tmp_path: Path) -> None:
    chosen = task("fedavg")
    culprit = participants(chosen, 0)[0]
    spoil, _ = BAD["huge"]
    guard = Guard(outliers="clip", norm_factor=2.0)
    outcome = federation(chosen, tmp_path, guard, tamper=tampering(culprit, spoil)).play_round(start(chosen))
    clipped, *others = outcome.row["clients"]
    assert clipped["client"] == culprit
    assert 0 < clipped["clipped"] < 1e-20
    assert outcome.row["step_norm"] <= 2 * max(client["update_norm"] for client in others)
    assert outcome.row["rejected"] == []


def test_a_void_round_is_repeated_and_leaves_nothing_behind(tmp_path: Path) -> None:
    chosen = task("scaffold")
    sampled = participants(chosen, 0)

    def tamper(node: int, order: Message, reply: Message) -> Sequence[Message]:
        return [] if order.metadata.group_id in {"1.1", "1.2"} and node != sampled[0] else [reply]

    outcomes = rounds(federation(chosen, tmp_path, tamper=tamper), start(chosen))
    expected = honest("scaffold", (tuple(sampled), tuple(participants(chosen, 1))))
    assert same_bits(outcomes[-1].snapshot.params, expected.params)
    assert same(outcomes[-1].snapshot.server, expected.server)
    reasons = [(entry["client"], entry["reason"]) for entry in outcomes[0].row["rejected"]]
    missing = "missing: no reply within 600 s"
    assert reasons == [(c, f"void attempt {a}: {missing}") for a in (1, 2) for c in sampled[1:]]


def test_three_void_attempts_lose_the_quorum(tmp_path: Path) -> None:
    playing = federation(task("fedavg"), tmp_path, tamper=lambda node, order, reply: [])
    with pytest.raises(QuorumLost, match=r"round 1: void 3 times, 0 of 3 replies usable, 2 needed"):
        playing.play_round(start(task("fedavg")))
    assert QuorumLost.exit_code == 6


def test_a_reply_of_somebody_who_was_not_asked_is_not_used(tmp_path: Path) -> None:
    replies = Guard().judge({}, [(2, "anything")])
    assert replies.used == []
    assert replies.rejected == [(2, "unsampled: it was not asked in this round")]


def test_of_two_the_longer_is_the_outlier(tmp_path: Path) -> None:
    """With the usual median, half of 1e30 would allow 1e30."""
    chosen = task("fedavg")
    sampled = participants(chosen, 0)
    spoil, _ = BAD["huge"]

    def tamper(node: int, order: Message, reply: Message) -> Sequence[Message]:
        if node == sampled[2]:
            return []
        return spoil(order, reply) if node == sampled[1] else [reply]

    guard = Guard(min_clients=1)
    outcome = federation(chosen, tmp_path, guard, tamper=tamper).play_round(start(chosen))
    assert [client["client"] for client in outcome.row["clients"]] == sampled[:1]


def indexed(*, channels: int = 1, classes: int = 3) -> nn.Module:
    """A net whose outputs are ordered by an integer buffer."""

    class Indexed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_net(channels=channels, classes=classes)
            self.register_buffer("order", torch.arange(classes))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = self.net(images)[:, self.order]
            return outputs

    return Indexed()


@pytest.mark.parametrize("shift", [1000, 1, -1])
def test_an_index_that_a_site_moved_is_not_used(shift: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be merged by maximum, and there is no such class."""
    offer(monkeypatch, indexed=indexed)
    chosen = problem(blobs(34), PARTS, model={"name": "indexed"}, federation={"rounds": ROUNDS, "batch_size": 4})

    def spoil(order: Message, reply: Message) -> Sequence[Message]:
        arrays = reply.content.array_records["arrays"]
        arrays["buffers/order"] = Array(arrays["buffers/order"].numpy() + shift)
        return [reply]

    for outcome in rounds(federation(chosen, tmp_path, tamper=tampering(1, spoil)), start(chosen)):
        ((client, reason),) = ((entry["client"], entry["reason"]) for entry in outcome.row["rejected"])
        assert (client, reason.split(":")[0]) == (1, "range")


def test_all_names_of_the_record_are_reserved(tmp_path: Path) -> None:
    chosen = task("scaffold")
    row = federation(chosen, tmp_path).play_round(start(chosen)).row
    assert {*row, *row["metrics"], "store", "state_lost", "clipped"} <= reserved_names(chosen)
    said = {"update_norm", "steps_memory", "regulation_seconds"}
    assert not reserved_names(chosen) & said
    assert said <= row["clients"][0].keys()


def test_a_guard_must_make_sense() -> None:
    with pytest.raises(ValueError, match="norm_factor"):
        Guard(norm_factor=0.5)
    with pytest.raises(ValueError, match="deadline"):
        Guard(deadline=float("nan"))
    assert issubclass(ConfigError, ValueError)
