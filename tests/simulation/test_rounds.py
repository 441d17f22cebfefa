"""Rounds: who takes part, what is averaged, what is never aggregated, and what is never extrapolated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ecgr.algorithms import Upload
from ecgr.errors import EnvironmentFault, QuorumLost
from ecgr.simulation.client import ClientJob, batch_sizes, epoch_batches, nonfinite
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.engines.pool import Lost
from ecgr.simulation.rounds import final_state, participants, play_round, simulate, start
from ecgr.simulation.workspace import Workspace, safe_in_channels_last
from ecgr.tasks.models import cnn
from ecgr.tasks.partition import Partition
from support.problems import TRAINED, Watching, blobs, offer, problem, same_bits, small_net, spoiled
from support.problems import four_clients as task
from support.quick import quick_where

# Statistics


@pytest.mark.parametrize(
    ("name", "regulator"),
    quick_where(
        lambda name, regulator: name in {"fednova", "scaffold"} and regulator == "ecgr",
        product(sorted(TRAINED), ["none", "ecgr"]),
    ),
)
def test_no_algorithm_extrapolates_a_running_statistic(name: str, regulator: str) -> None:
    """After each of three rounds every statistic of the global model lies between the clients' smallest and largest.

    Unequal clients (8, 1, 3 and 2 steps) are where FedNova's factor leaves [0, 1] if statistics pass through it.
    """
    task = problem(
        blobs(56, side=16),
        [range(32), range(32, 36), range(36, 48), range(48, 56)],
        model={"name": "cnn", "width": 0.05},
        algorithm={"name": name},
        regulator={"name": regulator, **({"beta": 0.0} if regulator == "ecgr" else {})},
        optimizer={"name": "sgd", "lr": 0.05, "momentum": 0.9},
        federation={"rounds": 3, "batch_size": 4},
    )
    uploads: list[Mapping[str, Tensor]] = []

    def look(result: Upload) -> Upload:
        uploads.append(result.buffers)
        return result

    snapshot, engine = start(task), Watching(task, look)
    names = {name for name, _ in cnn(width=0.05, classes=3, channels=1).named_buffers()}
    for _ in range(3):
        uploads.clear()
        snapshot = play_round(task, engine, snapshot).snapshot
        assert len(uploads) == 4
        assert set(snapshot.buffers) == names
        for key, merged in snapshot.buffers.items():
            stack = torch.stack([buffers[key] for buffers in uploads])
            assert (merged >= stack.amin(dim=0)).all(), key
            assert (merged <= stack.amax(dim=0)).all(), key
            if merged.is_floating_point():
                weights = torch.tensor([32.0, 4.0, 12.0, 8.0]).view(-1, *[1] * merged.ndim)
                assert torch.allclose(merged, (stack * weights).sum(dim=0) / 56, rtol=1e-5, atol=1e-6)
            else:
                assert int(merged) == int(stack.max())
        assert all((v > 0).all() for k, v in snapshot.buffers.items() if k.endswith("running_var"))


# Updates that must not be used


@pytest.mark.parametrize(
    ("name", "bad"),
    quick_where(
        lambda name, bad: name in {"fedavg", "scaffold"},
        product(sorted(TRAINED), [float("nan"), float("inf"), -float("inf")]),
    ),
)
def test_a_client_with_a_nonfinite_update_is_dropped_and_named(name: str, bad: float) -> None:
    """The aggregate equals, to the bit, the one of the others alone; the spoiled client's own state stays as it was."""
    problem = task(name)
    snapshot = start(problem)

    def spoil(result: Upload) -> Upload:
        return spoiled(result, bad) if result.client == 2 else result

    def lose(result: Upload) -> Any:
        return Lost("gone") if result.client == 2 else result

    outcome = play_round(problem, Watching(problem, spoil), snapshot)
    without = play_round(problem, Watching(problem, lose), snapshot)
    [refusal] = outcome.row["rejected"]
    assert refusal["client"] == 2
    assert "nonfinite: update holds 1 " in refusal["reason"]
    assert [row["client"] for row in outcome.row["clients"]] == [0, 1, 3]
    assert outcome.row["examples"] == 10 + 4 + 3
    assert same_bits(outcome.snapshot.params, without.snapshot.params)
    assert {e.client for e in outcome.kept} == {0, 1, 3}
    for a, b in (
        (outcome.snapshot.server, without.snapshot.server),
        (outcome.snapshot.buffers, without.snapshot.buffers),
    ):
        assert all(same_bits(a[key], b[key]) for key in a)
    assert 2 not in outcome.snapshot.clients
    assert without.row["rejected"] == [{"client": 2, "reason": "lost: gone"}]


def test_a_round_in_which_nobody_is_left_is_refused_with_round_client_and_reason() -> None:
    problem = task()
    with pytest.raises(QuorumLost, match=r"round 1: none of 4 client updates.*client 0: nonfinite: update holds 1"):
        play_round(problem, Watching(problem, spoiled), start(problem))


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (lambda result: spoiled(result, name="plain"), "plain"),
        (lambda result: replace(result, buffers={"1.running_var": torch.tensor([torch.nan])}), "1.running_var"),
    ],
    ids=["plain", "buffer"],
)
def test_any_nonfinite_tensor_of_an_upload_drops_the_client_and_large_ones_do_not(spoil: Any, where: str) -> None:
    problem, seen = task("scaffold"), []

    def look(result: Upload) -> Upload:
        huge = {name: torch.full_like(tensor, 3e38) for name, tensor in result.payload.items()}
        seen.append((nonfinite(result), nonfinite(replace(result, payload=huge))))
        return spoil(result) if result.client == 1 else result

    outcome = play_round(problem, Watching(problem, look), start(problem))
    assert seen == [(None, None)] * 4
    [refusal] = outcome.row["rejected"]
    assert refusal["client"] == 1
    assert where in refusal["reason"]
    assert torch.isfinite(outcome.snapshot.server["control"]).all()
    assert all(torch.isfinite(b).all() for b in outcome.snapshot.buffers.values())


@pytest.mark.parametrize(
    ("name", "value", "before"),
    [("fedavgm", 3e38, {"rule/velocity": 3e38}), ("fedadam", 1e25, {}), ("fedyogi", 1e25, {})],
)
def test_finite_updates_whose_aggregate_overflows_are_refused(
    name: str, value: float, before: dict[str, float]
) -> None:
    """1e25 squares to infinity in float32: such a second moment would freeze the server for good."""
    problem = task(name)
    snapshot = start(problem)
    given = {name: torch.full_like(snapshot.params, number) for name, number in before.items()}

    def huge(result: Upload) -> Upload:
        return replace(result, payload={k: torch.full_like(v, value) for k, v in result.payload.items()})

    with pytest.raises(QuorumLost, match="round 1: the aggregate of finite updates is not finite"):
        play_round(problem, Watching(problem, huge), replace(snapshot, server={**snapshot.server, **given}))


def test_a_lost_evaluation_is_the_machines_fault() -> None:
    problem = task()

    class LosesEvaluations:
        def __init__(self) -> None:
            self.inner = SerialEngine(problem)

        def map(self, jobs: Sequence[Any]) -> Iterator[Any]:
            if isinstance(jobs[0], ClientJob):
                yield from self.inner.map(jobs)
            else:
                yield from (Lost("worker process ended") for _ in jobs)

    with pytest.raises(EnvironmentFault, match="evaluation was lost"):
        play_round(problem, LosesEvaluations(), start(problem))


# Rounds


def test_rounds_are_numbered_from_one_and_their_learning_rate_is_the_schedules() -> None:
    schedule = {"name": "step", "every": 1, "factor": 0.5}
    problem = task(optimizer={"name": "sgd", "lr": 0.08}, schedule=schedule)
    outcomes = list(simulate(problem, SerialEngine(problem), start(problem)))
    assert [(o.row["round"], o.snapshot.rounds, o.row["lr"]) for o in outcomes] == [
        (1, 1, 0.08),
        (2, 2, 0.04),
        (3, 3, 0.02),
    ]
    last = outcomes[-1].snapshot
    problem.model.load_state_dict(final_state(problem, last))
    assert same_bits(problem.spec.read(problem.model), last.params)


def test_every_epoch_is_a_new_permutation_of_the_clients_own_samples_whatever_regulates() -> None:
    given = task(federation={"rounds": 1, "batch_size": 4, "local_epochs": 3})
    own, batches = given.partition.clients[0].tolist(), list(epoch_batches(given, 0, 0))
    assert [len(b) for b in batches] == [4, 4, 2] * 3
    epochs = [torch.cat(batches[i : i + 3]).tolist() for i in (0, 3, 6)]
    assert all(sorted(epoch) == own for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert torch.cat(batches).tolist() != torch.cat(list(epoch_batches(given, 0, 1))).tolist()
    plain = task(federation={"rounds": 1, "batch_size": 4, "local_epochs": 3}, regulator={"name": "none"})
    assert all(map(torch.equal, batches, epoch_batches(plain, 0, 0)))
    assert same_bits(start(given).params, start(plain).params)


@pytest.mark.parametrize("samples", [0, 1])
def test_a_client_with_a_single_sample_takes_its_one_step_whatever_the_rule(samples: int) -> None:
    assert all(batch_sizes(samples, 4, rule) == [1] * samples for rule in ("keep", "merge", "drop"))


@pytest.mark.parametrize(("share", "count"), [(1.0, 4), (0.5, 2), (0.01, 1), (0.75, 3)])
def test_the_share_of_participants_is_kept_and_at_least_one(share: float, count: int) -> None:
    problem = task(federation={"rounds": 50, "batch_size": 4, "participation": share})
    rounds = [participants(problem, t) for t in range(50)]
    assert all(len(chosen) == count == len(set(chosen)) and chosen == sorted(chosen) for chosen in rounds)
    assert set().union(*rounds) == {0, 1, 2, 3}
    assert rounds == [participants(problem, t) for t in range(50)]


def test_a_client_without_data_never_takes_part_and_counts_for_nothing() -> None:
    problem_ = replace(task("scaffold"), partition=Partition.of([range(10), [], range(10, 20)]))
    outcome = play_round(problem_, SerialEngine(problem_), start(problem_))
    assert participants(problem_, 0) == [0, 2]
    assert [row["client"] for row in outcome.row["clients"]] == [0, 2]
    assert outcome.row["worst_client"] == min(row["accuracy"] for row in outcome.row["clients"])


def test_a_row_adds_up() -> None:
    problem = task("scaffold", federation={"rounds": 1, "batch_size": 4, "local_epochs": 2})
    snapshot = start(problem)
    row = play_round(problem, SerialEngine(problem), snapshot).row
    clients = row["clients"]
    assert [c["examples"] for c in clients] == [10, 4, 7, 3]
    assert row["examples"] == 2 * 24
    expected = sum(c["train_loss"] * c["examples"] for c in clients) / 24
    assert row["train_loss"] == pytest.approx(expected)
    assert row["worst_client"] == min(c["accuracy"] for c in clients)
    size = snapshot.params.numel()
    buffers = 3 + 3 + 2  # running mean and variance in float32, and an int64 counter, in units of four bytes
    steps = 2  # a float64
    assert row["bytes_up"] == 4 * 4 * (2 * size + steps + buffers)  # with a regulator the plain update goes up too
    assert row["bytes_down"] == 4 * 4 * (2 * size + buffers)
    assert row["rejected"] == []


def test_a_model_that_draws_random_numbers_does_not_depend_on_the_order_of_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dropout draws from torch's generator, which is seeded for every client and round and restored."""

    def dropping(*, channels: int = 1, classes: int = 3) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(36 * channels, classes))

    offer(monkeypatch, dropping=dropping)
    problem = task(model={"name": "dropping"})
    snapshot = start(problem)
    updates: dict[int, list[Tensor]] = {client: [] for client in range(4)}
    for seed, order in enumerate(([0, 1, 2, 3], [3, 1, 0, 2])):
        torch.manual_seed(seed)  # what the caller did before must not matter either
        workspace = Workspace(problem)
        for client in order:
            result, _ = ClientJob(client, 0, 0.1, 1, snapshot.params, {}, {}, {}).run(workspace)
            updates[client].append(result.payload["update"])
    assert all(same_bits(*pair) for pair in updates.values())


def frozen_convolution(*, channels: int = 1, classes: int = 3) -> nn.Module:
    """A frozen convolution followed by GroupNorm, which crashes torch in channels-last."""
    convolution = nn.Conv2d(channels, 4, kernel_size=3, padding=1)
    convolution.requires_grad_(False)
    return nn.Sequential(convolution, nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, classes))


def test_only_models_that_are_known_to_stand_it_are_trained_in_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, frozen=frozen_convolution, net=small_net)
    settings: dict[str, Any] = {"federation": {"rounds": 1, "batch_size": 8}}
    own = problem(blobs(24), [range(12), range(12, 24)], model={"name": "frozen"}, **settings)
    known = problem(blobs(24), [range(24)], model={"name": "net"}, **settings)
    assert safe_in_channels_last(known.model)
    assert not safe_in_channels_last(own.model)
    assert play_round(own, SerialEngine(own), start(own)).row["round"] == 1
