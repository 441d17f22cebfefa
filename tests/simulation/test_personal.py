"""What stays at the clients, the last steps at each client, and scores on clients' own samples."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ecgr.algorithms import ALGORITHMS, Upload
from ecgr.algorithms.parts import Local
from ecgr.analysis.records import quantity_of
from ecgr.config.experiment import Experiment, load
from ecgr.config.methods import method_settings
from ecgr.config.partition import divided
from ecgr.errors import ConfigError, DataError
from ecgr.runs.record import RunRecord
from ecgr.runs.runner import run
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.evaluate import summarise_own
from ecgr.simulation.prepare import prepare, prepare_site
from ecgr.simulation.rounds import Outcome, simulate, start
from ecgr.simulation.workspace import LOCAL, Problem
from ecgr.tasks.partition import Partition
from ecgr.tasks.task import Task
from support.commands import run_in_three_ways
from support.problems import Watching, same_bits
from support.quick import quick_where

SIZES = (20, 12, 8)


def with_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def without_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))


def task(model: Any = with_norm, sizes: Sequence[int] = SIZES, **options: Any) -> Task:
    """Points of three classes; each client sees them shifted in its own way."""
    rng = np.random.default_rng(0)
    clients = np.repeat([f"c{i:03}" for i in range(len(sizes))], sizes)
    labels = np.arange(len(clients)) % 3
    shift = np.repeat(np.arange(len(sizes)), sizes)[:, None] % 5
    x = (rng.normal(size=(len(labels), 2)) + labels[:, None] * [1, -1] + shift).astype(np.float32)
    return Task(model, (x, labels), (x[:3], labels[:3]), clients=clients, **options)


def experiment(method: str, model: Any = with_norm, **changes: Any) -> Experiment:
    settings = {"partition.test_share": 0.25, "federation.rounds": 3, "federation.batch_size": 4, "optimizer.lr": 0.1}
    last = {"federation.last_batch": "merge", "regulator.name": "none"}
    return load(task(model), {**settings, **last, **method_settings(method), **changes})


def made(chosen: Experiment) -> Problem:
    return prepare(chosen, chosen.source.load())


def played(problem: Problem, engine: Any = None) -> list[Outcome]:
    return list(simulate(problem, engine or SerialEngine(problem), start(problem)))


# What stays at home


def test_without_a_norm_layer_keeping_norm_layers_is_fedavg_to_the_bit() -> None:
    plain, local = (played(made(experiment(m, without_norm)))[-1] for m in ("fedavg", "fedavg+local(part=norm)"))
    assert same_bits(plain.snapshot.params, local.snapshot.params)
    assert [plain.row[key] for key in ("metrics", "loss", "own", "bytes_up")] == [
        local.row[key] for key in ("metrics", "loss", "own", "bytes_up")
    ]


def test_a_local_layer_is_never_sent_and_goes_on_where_the_client_left_it() -> None:
    """BatchNorm's 4 + 4 parameters and 4 + 4 + 1 buffers: 16 floats and a counter of eight bytes less a client."""
    sent: list[Upload] = []

    def look(upload: Upload) -> Upload:
        sent.append(upload)
        return upload

    problem = made(experiment("fedavg+local(part=norm)"))
    outcomes = played(problem, Watching(problem, look))
    assert all(upload.buffers == {} for upload in sent)
    assert {len(upload.payload["update"]) for upload in sent} == {problem.spec.size}
    plain = played(made(experiment("fedavg")))[-1].row
    assert plain["bytes_up"] - outcomes[-1].row["bytes_up"] == 3 * (16 * 4 + 8)
    own = [outcome.snapshot.clients for outcome in outcomes]
    names = {
        LOCAL + name for name in ("1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked")
    }
    assert all(set(states[client]) == names for states in own for client in range(3))
    batches = [int(states[0][LOCAL + "1.num_batches_tracked"]) for states in own]
    assert batches == [4, 8, 12]  # of a client with 15 samples, in batches of four: no other client's are counted
    assert not torch.equal(own[0][0][LOCAL + "1.weight"], own[0][1][LOCAL + "1.weight"])


class Deep(nn.Module):
    """A body and a head, with every kind of normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.BatchNorm1d(4, affine=False))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x))
        return out


STATISTICS = [f"body.3.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")]


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("norm", ["body.1.weight", "body.1.bias", "body.2.weight", "body.2.bias", *STATISTICS]),
        ("head", ["head.weight", "head.bias"]),
        ("body.[13]", ["body.1.weight", "body.1.bias", *STATISTICS]),
        ("*.bias", ["body.0.bias", "body.1.bias", "body.2.bias", "head.bias"]),
    ],
)  # fmt: skip
def test_which_layers_a_part_means(part: str, names: list[str]) -> None:
    assert Local(part=part).names(Deep()) == names


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"local.name": "local", "local.part": "tail"}, ["'tail' matches nothing", "norm, head", "0.weight"]),
        ({"local.name": "local", "local.part": "*"}, ["nothing is shared"]),
        ({"finetune.name": "finetune", "partition.test_share": 0.0}, ["partition.test_share = 0.2"]),
    ],
)
def test_what_leaves_nothing_to_share_or_to_score_is_refused(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        made(experiment("fedavg", **changes))
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    "algorithm", quick_where(lambda name: name == "scaffold", zip(sorted(ALGORITHMS.keys() - {"head_only"})))
)
def test_every_algorithm_works_beside_layers_that_stay(algorithm: str) -> None:
    """What an algorithm remembers of a client, and the client's layers, lie side by side and are both new."""
    problem = made(experiment(f"{algorithm}+local(part=norm)"))
    first, *_, last = played(problem)
    for client in range(3):
        before, after = first.snapshot.clients[client], last.snapshot.clients[client]
        assert before.keys() == after.keys() == problem.first_state(last.snapshot.params).keys()
        assert not any(torch.equal(before[name], after[name]) for name in after if after[name].any())
    assert np.isfinite(last.row["loss"])


# The last steps


def test_a_fine_tuned_model_is_scored_and_dropped() -> None:
    """The served model takes one step of SGD on a batch of each client's samples; the rounds are FedAvg's."""
    one_batch = {"federation.batch_size": 100, "federation.rounds": 2}
    plain, tuned = (
        made(experiment(m, without_norm, **one_batch)) for m in ("fedavg", "fedavg+finetune(steps=1, lr=0.5)")
    )
    left, right = played(plain)[-1], played(tuned)[-1]
    assert same_bits(left.snapshot.params, right.snapshot.params)
    assert left.row["loss"] > right.row["loss"]
    losses = []
    for client, rows in plain.own_rows.items():
        model = without_norm()
        plain.spec.write(right.snapshot.params, model)
        own = torch.from_numpy(plain.partition.clients[client])
        train, test = plain.train.open(), plain.test.open()
        nn.functional.cross_entropy(model(train.inputs[own]), train.targets[own]).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.sub_(0.5 * parameter.grad)
            losses.append(float(nn.functional.cross_entropy(model(test.inputs[rows]), test.targets[rows])))
    assert right.row["loss"] == pytest.approx(np.mean(losses), rel=1e-5)


# Scores on own samples


def test_each_client_counts_the_same_and_the_record_says_who_was_scored() -> None:
    """Three of five have a number: mean 0.6, by their 1, 1 and 8 samples 0.81; 0.18 is a fifth of the way up to 0.9."""
    problem = replace(made(experiment("fedavg")), partition=Partition.of([[i] for i in range(5)]))
    found = {0: {"loss": 1.0, "accuracy": 0.0}, 2: {"loss": 2.0, "accuracy": 0.9}, 3: {"loss": 6.0, "accuracy": 0.9}}
    result = summarise_own(problem, found, {0: 1, 2: 1, 3: 8})
    assert result.metrics["accuracy"] == pytest.approx(0.6)
    assert result.loss == 3.0
    assert result.own is not None
    told = {**result.own, "clients": dict(result.own["clients"])}
    assert told.pop("clients") == {"0": 0.0, "2": 0.9, "3": 0.9}
    expected = {"scored": 3, "unscored": 2, "by_samples": 0.81, "worst": 0.0, "worst_tenth": 0.18}
    assert told == pytest.approx(expected)


@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_every_client_is_tested_on_samples_of_its_own_that_nobody_trains_on(validation: float) -> None:
    sizes = (1, 2, 3, 9, 40)
    chosen = load(task(sizes=sizes), {"partition.test_share": 0.2, "data.validation": validation})
    whole = chosen.source.load()
    dataset, partition, owners = divided(chosen, whole)
    assert owners is not None
    counts = np.bincount(owners, minlength=5)
    left = [size - max(size > 1, round(0.2 * size)) for size in sizes]
    if validation:
        left = [size - max(size > 1, round(0.2 * size)) for size in left]
    assert partition.sizes() == left
    assert counts[0] == 0
    assert all(counts[1:] >= [0, 1, 1, 1] if validation else counts[1:] == [1, 1, 2, 8])
    for client, part in enumerate(partition):
        mine = {tuple(row) for row in dataset.test.inputs[owners == client].tolist()}
        everything = {tuple(row) for row in whole.train.inputs[whole.train.groups == f"c{client:03}"].tolist()}
        assert mine <= everything
        assert not mine & {tuple(row) for row in whole.train.inputs[part].tolist()}


def test_a_site_holds_out_the_same_samples_as_a_simulation() -> None:
    chosen = experiment("fedavg")
    problem, whole = made(chosen), chosen.source.load()
    for client in range(3):
        rows = np.flatnonzero(whole.train.groups == f"c{client:03}")
        site = prepare_site(chosen, replace(whole, train=whole.train.take(rows)), client)
        assert torch.equal(site.test.inputs, problem.test.inputs[problem.own_rows[client]])
        own = torch.from_numpy(problem.partition.clients[client])
        assert torch.equal(site.train.inputs[site.partition.clients[client]], problem.train.inputs[own])


def test_the_ids_of_test_samples_say_whose_they_are() -> None:
    x, y, ids = np.zeros((6, 2), np.float32), np.array([0, 1, 2, 0, 1, 2]), ["a", "a", "b", "b", "c", "c"]
    given = Task(with_norm, (x, y), (x[:3], y[:3]), clients=ids, test_clients=["b", "b", "a"])
    settings = {"data.score": "own", "federation.last_batch": "merge"}
    problem = prepare(load(given, settings), given.load())
    assert {client: rows.tolist() for client, rows in problem.own_rows.items()} == {0: [2], 1: [0, 1]}
    with pytest.raises(DataError, match="'z' has no training sample"):
        Task(with_norm, (x, y), (x[:1], y[:1]), clients=ids, test_clients=["z"])
    with pytest.raises(ConfigError, match="give clients= the id"):
        Task(with_norm, (x, y), (x[:1], y[:1]), clients=2, test_clients=["z"])


def test_a_client_alone_is_scored_on_its_own_samples_and_pooled_on_everybodys(tmp_path: Path) -> None:
    everybody = run(experiment("fedavg"), tmp_path / "all").rounds[-1]["own"]["clients"]
    alone = [run(experiment("fedavg", **{"partition.alone": i}), tmp_path / f"{i}").rounds[-1] for i in range(3)]
    assert sorted(client for row in alone for client in row["own"]["clients"]) == sorted(everybody)
    assert all(row["metrics"]["accuracy"] == next(iter(row["own"]["clients"].values())) for row in alone)
    pooled = run(experiment("fedavg", **{"partition.pooled": True}), tmp_path / "pooled")
    assert pooled.rounds[-1]["own"]["clients"].keys() == everybody.keys()
    assert quantity_of(pooled.manifest).name == "mean accuracy on clients' own data"


def test_the_parts_are_the_same_pooled_and_resumed(tmp_path: Path) -> None:
    chosen = experiment("scaffold+ecgr+local(part=norm)+finetune(steps=3)", **{"federation.participation": 0.67})
    manifest = RunRecord.open(run_in_three_ways(chosen, tmp_path)).manifest
    assert manifest["method"] == "scaffold+ecgr+local+finetune(steps=3)"


@pytest.mark.slow
def test_five_hundred_clients_of_very_different_size_are_scored_on_their_own_samples() -> None:
    """A client that has one sample trains and is not scored; nobody is divided by zero."""
    sizes = np.minimum(5000, (3 + np.random.default_rng(0).pareto(1.0, 500) * 5).astype(int))
    sizes[:2] = 1, 5000
    settings = {"partition.test_share": 0.2, "federation.rounds": 2, "federation.participation": 0.05}
    few = {"federation.batch_size": 64, "optimizer.lr": 0.05, "regulator.name": "none"}
    chosen = load(task(without_norm, sizes=list(sizes)), settings | few | method_settings("fedavg+finetune(steps=1)"))
    own = played(made(chosen))[-1].row["own"]
    assert (own["scored"], own["unscored"]) == (499, 1)
    assert 0 <= own["worst"] <= own["worst_tenth"] <= 1
    assert all(0 <= score <= 1 for score in dict(own["clients"]).values())
