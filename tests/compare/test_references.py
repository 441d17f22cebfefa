"""References: one model on everybody's data, and clients by themselves, through the same code as every method."""

import json
from pathlib import Path

import numpy as np
import pytest

from ecgr.analysis.comparison import compare, one_a_seed
from ecgr.analysis.summaries import RunSummary
from ecgr.compare.plan import ALONE_MOST, plan_comparison
from ecgr.config.experiment import load
from ecgr.config.partition import chosen_share, partition_of
from ecgr.simulation.client import epoch_batches, local_steps
from ecgr.simulation.prepare import prepare

SMALL = {"partition.clients": 5, "data.fraction": 0.3, "federation.rounds": 2}


def partition(**changes: object) -> list[list[int]]:
    experiment = load("demo", {**SMALL, **changes})
    found = partition_of(experiment, chosen_share(experiment, experiment.source.load()))
    return [indices.tolist() for indices in found]


def test_pooled_is_one_client_with_everybodys_samples() -> None:
    everybody = sorted(index for client in partition() for index in client)
    assert partition(**{"partition.pooled": True}) == [everybody]


def test_alone_is_one_of_the_clients_and_each_of_them_once() -> None:
    clients = partition()
    alone = [partition(**{"partition.alone": index}) for index in range(5)]
    assert all(len(one) == 1 for one in alone)
    assert sorted(one[0] for one in alone) == sorted(clients)


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


def test_clients_that_trained_alone_are_one_curve_a_seed() -> None:
    runs = [RunSummary("fedavg", seed, (0.5, 0.6)) for seed in (0, 1)]
    runs += [RunSummary("alone", seed, (0.1 * client, 0.2 * client)) for seed in (0, 1) for client in (1, 2, 3)]
    merged = [run for run in one_a_seed(runs) if run.method == "alone"]
    assert [run.values for run in merged] == [pytest.approx((0.2, 0.4))] * 2
    (reference,) = compare([*runs, *(RunSummary("fedprox", seed, (0.5, 0.6)) for seed in (0, 1))]).references
    assert reference.name == "alone"
    assert reference.score == pytest.approx(0.4)


@pytest.mark.slow
def test_a_comparison_with_references_says_what_federating_is_worth(tmp_path: Path) -> None:
    from ecgr.compare import compare as run_comparison

    answer = run_comparison(
        "demo",
        methods=["fedavg", "fedprox"],
        seeds=2,
        settings=SMALL,
        tune=False,
        references=True,
        engine="serial",
        out=tmp_path,
    )
    found = json.loads(answer.to_json())
    assert [each["name"] for each in found["references"]] == ["alone", "pooled"]
    assert {pair["method"] for pair in found["pairs"]} == {"fedprox"}
    assert "alone" in str(answer)
