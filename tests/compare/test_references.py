"""References: one model on everybody's data, and clients by themselves, through the same code as every method."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import ecgr
from ecgr.analysis.comparison import one_a_seed
from ecgr.analysis.curves import Estimate
from ecgr.analysis.summaries import RunSummary
from ecgr.compare.plan import ALONE_MOST, plan_comparison, reference_of, split_anew
from ecgr.config.experiment import Experiment, load
from ecgr.config.partition import chosen_share, divided
from ecgr.errors import ConfigError
from ecgr.runs.sweep import plan_runs, run_all
from ecgr.simulation.client import epoch_batches, local_steps
from ecgr.simulation.prepare import prepare

SMALL = {"partition.clients": 5, "data.fraction": 0.3, "federation.rounds": 2}


def partition(**changes: object) -> list[list[int]]:
    experiment = load("demo", {**SMALL, **changes})
    _, found, _ = divided(experiment, experiment.source.load())
    return [indices.tolist() for indices in found]


def test_pooled_is_one_client_with_everybodys_samples_alone_each_client_once() -> None:
    clients = partition()
    assert partition(**{"partition.pooled": True}) == [sorted(index for client in clients for index in client)]
    assert sorted(partition(**{"partition.alone": index}) for index in range(5)) == [[each] for each in sorted(clients)]


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_a_pooled_round_sees_as_many_samples_as_the_rounds_participants(share: float) -> None:
    experiment = load("demo", {**SMALL, "partition.pooled": True, "federation.participation": share})
    problem = prepare(experiment, experiment.source.load())
    batches = list(epoch_batches(problem, 0, 0))
    assert len(batches) == local_steps(problem, 0)
    assert sum(map(len, batches)) == round(share * len(problem.partition.clients[0]))
    assert len(np.unique(np.concatenate(batches))) == sum(map(len, batches))


def test_the_plan_has_references_that_are_compared_with_nobody(tmp_path: Path) -> None:
    plan = plan_comparison(
        "demo", methods=["fedavg", "fedprox"], seeds=2, settings=SMALL, references=True, out=tmp_path
    )
    named = {method.name: method for method in plan.methods}
    assert plan.pairs == [("fedprox", "fedavg")]
    assert len(named["alone"].runs) == 2 * min(ALONE_MOST, 5)
    assert len(named["pooled"].runs) == 2
    assert list(named["pooled"].space) == ["optimizer.lr"]


def test_clients_with_test_samples_of_their_own_count_by_how_many() -> None:
    runs = [RunSummary("alone", 0, (score,), weight=weight) for score, weight in ((0.5, 30), (0.9, 10))]
    assert one_a_seed(runs)[0].values[0] == pytest.approx(0.6)


@pytest.mark.parametrize("metric", ["accuracy", "auc"])
def test_alone_is_scored_on_its_own_test_samples_where_the_metric_has_a_value_there(metric: str) -> None:
    """Client a has a test sample, which has no AUC; b has three of both classes; c trains and has none."""
    names, inputs = np.array(["a", "b", "c"]), np.arange(24, dtype=np.float32)[:, None]
    halves = [
        (inputs, np.arange(24) % 2, names[np.arange(24) % 3]),
        (inputs[:4], np.array([0, 0, 1, 1]), names[[0, 1, 1, 1]]),
    ]
    task = ecgr.Task(lambda: nn.Linear(1, 1), train=halves[0], test=halves[1], loss="bce", metrics=[metric])
    tested = {}
    for index in range(3):
        experiment = load(task, {"partition.alone": index})
        problem = prepare(experiment, task.load())
        owner = names[problem.partition.clients[0][0] % 3]
        tested[str(owner)] = len(problem.test)
    assert tested == {"a": 1 if metric == "accuracy" else 4, "b": 3, "c": 4}


def test_a_reference_that_cannot_be_trained_is_left_out_with_a_line(tmp_path: Path) -> None:
    wrong = load("demo", {**SMALL, "partition.alone": 0, "partition.min_batches": 1000})
    said: list[str] = []
    run_all(plan_runs([wrong], tmp_path), engine="serial", optional=reference_of, warn=said.append)
    (line,) = said
    assert line.startswith("note: alone left out: partition.min_batches: ")


def test_the_split_is_redrawn_with_the_seed_where_nobody_gave_test_samples(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.normal(size=(100, 2)), columns=["x", "z"]).assign(y=lambda table: table.x > 0)
    task = ecgr.Task.from_frame(frame, target="y", model=lambda: nn.Linear(2, 1), loss="bce", clients=3)
    options: dict[str, Any] = {"methods": ["fedavg", "fedprox"], "tune": False, "references": False}
    planned = plan_comparison(task, seeds=2, out=tmp_path, **options)
    splits = [chosen_share(run.experiment, task.load()) for run in planned.baseline.runs]
    assert [(len(split.train), len(split.test)) for split in splits] == [(80, 20)] * 2
    assert sorted(map(tuple, splits[0].test.inputs)) != sorted(map(tuple, splits[1].test.inputs))
    assert len({run.experiment.key() for run in planned.baseline.runs}) == 1
    answer = ecgr.compare(task, seeds=5, rounds=2, engine="serial", out=tmp_path / "out", **options)
    (pair,) = answer.pairs
    assert pair.overlap == pytest.approx(0.25)
    assert pair.difference is not None
    assert pair.difference.interval == Estimate.of(pair.difference.differences, pair.overlap).interval
    kept = plan_comparison(task, seeds=2, settings={"data.redraw": False}, out=tmp_path, **options)
    assert not kept.baseline.experiment.data.redraw


def test_a_table_on_disk_is_split_by_the_seed_and_one_that_brings_its_test_rows_is_not(tmp_path: Path) -> None:
    rows = "x,y\n" + "".join(f"{number},{number % 2}\n" for number in range(20))
    (tmp_path / "one.csv").write_text(rows)
    (tmp_path / "two").mkdir()
    for half in ("train", "test"):
        (tmp_path / "two" / f"{half}.csv").write_text(rows)
    data = {"name": "csv", "target": "y"}
    one, two = (
        split_anew({"data": {**data, "root": str(tmp_path / name)}, "run": {"seed": 7}}) for name in ("one.csv", "two")
    )
    assert Experiment.from_dict(one).to_dict()["data"]["split_seed"] == 7
    assert "redraw" not in two["data"]


@pytest.mark.slow
def test_a_comparison_with_references_says_what_federating_is_worth(tmp_path: Path) -> None:
    options: dict[str, Any] = {"seeds": 2, "settings": SMALL, "tune": False, "engine": "serial", "out": tmp_path}
    answer = ecgr.compare("demo", methods=["fedavg", "fedprox"], **options)
    found = json.loads(answer.to_json())
    assert [each["name"] for each in found["references"]] == ["alone", "pooled"]
    assert {pair["method"] for pair in found["pairs"]} == {"fedprox"}
    assert "alone" in str(answer)


@pytest.mark.slow
def test_with_a_personal_method_all_are_scored_on_clients_own_data(tmp_path: Path) -> None:
    quick: dict[str, Any] = {"tune": False, "references": True, "engine": "serial", "seeds": 2, "out": tmp_path / "own"}
    methods = ["fedavg", "fedavg+finetune(steps=2)"]
    with pytest.raises(ConfigError, match=r"partition\.test_share = 0\.2"):
        ecgr.compare("demo", methods=methods, settings=SMALL, **quick)
    assert not (tmp_path / "own").exists()
    answer = ecgr.compare("demo", methods=methods, settings={**SMALL, "partition.test_share": 0.2}, **quick)
    found = json.loads(answer.to_json())
    assert found["pairs"][0]["metric"]["name"] == "mean accuracy on clients' own data"
    assert {own["method"] for own in found["own_data"]} == {"fedavg", "fedavg+finetune(steps=2)", "pooled"}
    assert all(own["clients"] == own["compared"] == 10 for own in found["own_data"])
    assert "clients better off than alone" in str(answer)
    assert answer.head is None, "an LDA head is scored on all test samples, which is no score on clients' own"
    by_seed = {(run.method, run.seed): run for run in answer.summaries}
    alone = by_seed["alone", 0]
    assert sorted(client for client, _ in alone.own) == [0, 1, 2, 3, 4]
    assert alone.end == pytest.approx(np.mean([score for _, score in alone.own]))
    again = ecgr.compare(tmp_path / "own" / "summaries.json")
    assert json.loads(again.to_json())["own_data"] == found["own_data"]
