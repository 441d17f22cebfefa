"""No reply can spoil a round: the aggregate is that of the good ones alone, bit for bit.

Honest sites of very different size are never rejected; an update a hundred times too long is, whoever sends it.
"""

from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Message
from torch import nn

from ecgr.errors import QuorumLost
from ecgr.flower.guard import Guard, reserved_names
from ecgr.flower.server import Federation
from ecgr.simulation.rounds import Outcome, Snapshot, participants, start
from ecgr.simulation.workspace import Problem
from support.bad_replies import BAD, CANARY, MAIN_KINDS, Spoil, only, with_array
from support.federations import federation
from support.problems import TRAINED, blobs, offer, problem, same_bits, small_net
from support.quick import quick_where
from support.replay import replayed

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


@cache
def honest(algorithm: str, used: tuple[tuple[int, ...], ...]) -> Snapshot:
    return replayed(task(algorithm), used)


def rounds(playing: Federation, count: int = ROUNDS) -> list[Outcome]:
    outcomes, snapshot = [], start(playing.problem)
    for _ in range(count):
        outcomes.append(playing.play_round(snapshot))
        snapshot = outcomes[-1].snapshot
    return outcomes


def same(a: Snapshot, b: Snapshot) -> bool:
    ours, theirs = ({"": each.params, **each.buffers, **each.server} for each in (a, b))
    return ours.keys() == theirs.keys() and all(same_bits(ours[name], theirs[name]) for name in ours)


def refusals(outcome: Outcome) -> list[tuple[int, str]]:
    """Who was refused, and the word for why."""
    return [(each["client"], each["reason"].split(":")[0]) for each in outcome.row["rejected"]]


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
    tamper = only(culprit, spoil, "1.1")
    others = [client for client in range(len(PARTS)) if client != culprit]
    arrival = [culprit, *others] if place == "first" else [*others, culprit]
    outcomes = rounds(federation(chosen, tmp_path, tamper=tamper, arrival=arrival))

    survivors = sampled[0] if kind == "twice" else [client for client in sampled[0] if client != culprit]
    expected = honest(algorithm, (tuple(survivors), tuple(sampled[1])))
    assert same(outcomes[-1].snapshot, expected)
    assert [client["client"] for client in outcomes[0].row["clients"]] == survivors
    assert [refusals(outcome) for outcome in outcomes] == [[(culprit, word)], []]
    assert CANARY not in str(outcomes[0].row)


def test_fednova_cannot_be_scaled_by_a_claimed_number_of_steps(tmp_path: Path) -> None:
    chosen = task("fednova")
    culprit = participants(chosen, 0)[0]
    spoil = with_array(lambda _: 1e9, "payload/effective_steps")
    outcome = federation(chosen, tmp_path, tamper=only(culprit, spoil)).play_round(start(chosen))
    assert outcome.row["rejected"][0]["client"] == culprit
    assert outcome.row["rejected"][0]["reason"].startswith("scalar: payload/effective_steps")


def test_an_outlier_can_be_clipped_instead(tmp_path: Path) -> None:
    chosen = task("fedavg")
    culprit = participants(chosen, 0)[0]
    spoil, _ = BAD["huge"]
    guard = Guard(outliers="clip", norm_factor=2.0)
    outcome = federation(chosen, tmp_path, guard, tamper=only(culprit, spoil)).play_round(start(chosen))
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

    outcomes = rounds(federation(chosen, tmp_path, tamper=tamper))
    assert same(outcomes[-1].snapshot, honest("scaffold", (tuple(sampled), tuple(participants(chosen, 1)))))
    reasons = [(entry["client"], entry["reason"]) for entry in outcomes[0].row["rejected"]]
    missing = "missing: no reply within 600 s"
    assert reasons == [(c, f"void attempt {a}: {missing}") for a in (1, 2) for c in sampled[1:]]


def test_a_reply_of_somebody_who_was_not_asked_is_not_used() -> None:
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
    spoil = with_array(lambda order: order + shift, "buffers/order")
    outcomes = rounds(federation(chosen, tmp_path, tamper=only(1, spoil)))
    assert [refusals(outcome) for outcome in outcomes] == [[(1, "range")]] * ROUNDS


def test_all_names_of_the_record_are_reserved(tmp_path: Path) -> None:
    chosen = task("scaffold")
    row = federation(chosen, tmp_path).play_round(start(chosen)).row
    assert {*row, *row["metrics"], "store", "state_lost", "clipped"} <= reserved_names(chosen)
    said = {"update_norm", "steps_memory", "regulation_seconds"}
    assert not reserved_names(chosen) & said
    assert said <= row["clients"][0].keys()


SIZES = {"1:10:100": (4, 40, 400), "1:1:1000": (2, 2, 2000), "1:1000:1000": (2, 2000, 2000), "1:50": (16, 800)}


def unequal(
    sizes: Sequence[int], algorithm: str, seed: int = 0, *, regulator: str = "none", momentum: float = 0.9
) -> Problem:
    """Sites that hold other classes, too: the small ones have one class each."""
    order = np.argsort(np.arange(sum(sizes)) % 3, kind="stable")
    return problem(
        blobs(sum(sizes), seed=seed),
        [part.tolist() for part in np.split(order, np.cumsum(sizes)[:-1])],
        model={"name": "net"},
        algorithm={"name": algorithm},
        regulator={"name": regulator},
        optimizer={"name": "sgd", "lr": 0.05, "momentum": momentum},
        federation={"rounds": 4, "batch_size": 16 if 16 in sizes else sizes[0]},
        run={"seed": seed},
    )


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
    count = 4 if sum(SIZES[sizes]) < 2000 else 2
    assert [refusals(outcome) for outcome in rounds(federation(chosen, tmp_path), count)] == [[]] * count


def times(factor: float) -> Spoil:
    def spoil(order: Message, reply: Message) -> Sequence[Message]:
        for name in {"payload/update", "payload/plain"} & reply.content.array_records["arrays"].keys():
            with_array(lambda array: (array * factor).astype(np.float32), name)(order, reply)
        return [reply]

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
    playing = federation(chosen, tmp_path, tamper=only(culprit, times(100), f"{when}."))
    if culprit == 2:
        with pytest.raises(QuorumLost, match=r"hold 400 of the 444 enrolled samples.*site-2: norm"):
            rounds(playing, when)
        return
    assert [refusals(outcome) for outcome in rounds(playing, when)] == [[]] * (when - 1) + [[(culprit, "norm")]]


@pytest.mark.parametrize(("when", "refused"), [(1, []), (3, [(0, "norm")])])
def test_from_its_third_round_on_a_site_is_bound_by_its_own_updates(
    when: int, refused: list[tuple[int, str]], tmp_path: Path
) -> None:
    """Fifteen times its own length is within what a site of so many steps may have, and not within its past."""
    playing = federation(unequal(SIZES["1:10:100"], "fedavg"), tmp_path, tamper=only(0, times(15), f"{when}.1"))
    assert refusals(rounds(playing, when)[-1]) == refused
