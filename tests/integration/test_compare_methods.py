"""Comparisons of whole methods: the baseline, tuned arms, the length curve, and the same answer from the directory."""

import json
from pathlib import Path
from typing import Any

import pytest

import ecgr
from ecgr.errors import ConfigError
from ecgr.runs.record import RunRecord

SMALL = {"federation.rounds": 2, "partition.clients": 3, "data.fraction": 0.5}
METHODS = ["fedavg", "fedavg+ecgr", "scaffold(damping=0.5, units=gradient)/lookahead(momentum=0.7)"]


def small(tmp_path: Path, **more: Any) -> "ecgr.Answer":
    options = {"methods": METHODS, "seeds": 2, "settings": SMALL, "workers": 1, "engine": "serial", **more}
    return ecgr.compare("quickstart", out=tmp_path / "out", **options)


def models(directory: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in directory.rglob("model.safetensors")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> "ecgr.Answer":
    """Tuned, with a length curve."""
    told: list[str] = []
    folder = tmp_path_factory.mktemp("whole")
    answer = small(folder, tune={"optimizer.lr": [0.01, 0.03]}, length=True, warn=told.append)
    (folder / "told").write_text("\n".join(told))
    return answer


def test_every_method_is_compared_with_the_first(whole: "ecgr.Answer") -> None:
    assert [pair.baseline_method for pair in whole.pairs] == ["fedavg", "fedavg"]
    assert whole.pairs[0].method == "fedavg+ecgr"
    assert whole.pairs[1].method.startswith("scaffold(")
    assert all(pair.seeds == (0, 1) for pair in whole.pairs)


def test_the_directory_gives_the_same_answer_again(whole: "ecgr.Answer") -> None:
    assert whole.directory is not None
    again = ecgr.compare(whole.directory)
    assert again.to_json() == whole.to_json()
    assert str(again) == str(whole)
    assert ecgr.compare(whole.directory / "summaries.json").to_json() == whole.to_json()


def test_each_arm_is_tuned_on_seeds_and_data_of_its_own(whole: "ecgr.Answer") -> None:
    assert whole.directory is not None
    written = json.loads((whole.directory / "tuning.json").read_text())
    assert len(written["methods"]) == 3
    assert all(len(method["trials"]) == 2 for method in written["methods"])
    records = [RunRecord.open(path.parent) for path in (whole.directory / "tuning").glob("*/run.json")]
    assert len(records) == 3 * 2 * 2
    assert {record.seed for record in records} == {100, 101}
    assert {record.config["data"]["validation"] for record in records} == {0.2}
    test = [run.record for run in whole.runs if run.summary.role == "arm"]
    assert {record.config["data"]["validation"] for record in test} == {0.0}
    chosen = {method["method"]: method["chosen"]["optimizer.lr"] for method in written["methods"]}
    assert {
        run.summary.method: run.record.config["optimizer"]["lr"] for run in whole.runs if run.summary.role == "arm"
    } == chosen
    for method in written["methods"]:
        best = max(method["trials"], key=lambda trial: trial["mean"])
        assert best["values"] == method["chosen"]


def test_the_budget_and_the_edges_are_said(whole: "ecgr.Answer") -> None:
    assert whole.directory is not None
    told = (whole.directory.parent / "told").read_text().splitlines()
    assert "cannot decide" in told[0]
    assert "each of 3 methods is tuned with 2 choices of optimizer.lr on seeds 100, 101" in told[1]
    assert sum("widen the grid" in line for line in told) == 3


def test_the_length_curve_is_of_the_baseline_alone(whole: "ecgr.Answer") -> None:
    (curve,) = whole.comparison.curves
    assert curve.baseline_method == "fedavg"
    assert 1.0 in curve.factors
    assert len(curve.factors) > 1
    longer = [run for run in whole.runs if run.summary.role == "length"]
    assert {run.record.config["regulator"]["name"] for run in longer} == {"none"}
    assert {run.summary.seed for run in longer} == {0, 1}


def test_given_again_it_does_nothing_more(whole: "ecgr.Answer") -> None:
    assert whole.directory is not None
    before = models(whole.directory)
    again = small(whole.directory.parent, tune={"optimizer.lr": [0.01, 0.03]}, length=True)
    assert again.to_json() == whole.to_json()
    assert models(whole.directory) == before


def test_another_baseline_comes_first(tmp_path: Path) -> None:
    answer = small(tmp_path, methods=["fedavg", "fedavg+ecgr"], baseline="fedavg+ecgr", seeds=1)
    assert [(pair.method, pair.baseline_method) for pair in answer.pairs] == [("fedavg", "fedavg+ecgr")]


def test_runs_of_an_earlier_comparison_in_the_same_place_are_not_mixed_in(tmp_path: Path) -> None:
    first = small(tmp_path, methods=METHODS[:2], seeds=1)
    small(tmp_path, methods=METHODS[:2], seeds=1, settings={**SMALL, "federation.rounds": 1})
    third = small(tmp_path, methods=METHODS[:2], seeds=1)
    assert third.to_json() == first.to_json()
    assert ecgr.compare(tmp_path / "out").to_json() == first.to_json()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"methods": ["fedavg"]}, "--methods: nothing to compare"),
        ({"methods": ["fedavg", "fedavg(server_lr=1.0)"]}, "--methods: nothing to compare"),
        ({"methods": ["fedavg", "fedavgg"]}, "did you mean 'fedavg'"),
        ({"methods": METHODS, "regulators": ["ecgr"]}, "leave out --regulators"),
        ({"tune": {"optimizer.lrr": [1]}}, "--tune: no method has the key optimizer.lrr"),
        ({"tune": {"optimizer.lr": []}}, "--tune: optimizer.lr has no values"),
        ({"tune": {"optimizer.lr": [0.1, -1]}}, "optimizer.lr: -1"),
        ({"tune": {"optimizer.lr": [0.1]}, "seeds": [0, 100]}, "--seeds: 100 is a seed that hyper-parameters"),
        ({"tune": {"optimizer.lr": 0.1}}, "--tune: optimizer.lr: 0.1 does not fit; give a list"),
        ({"tune": "optimizer.lr=0.1"}, "--tune: 'optimizer.lr=0.1' does not fit"),
        ({"tune": {"run.seed": [1, 2]}}, "--tune: run.seed is the same for all methods"),
        ({"tune": {"partition.alpha": [1, 2]}}, "--tune: partition.alpha is the same for all methods"),
        ({"tune": {"algorithm.name": ["fedavg", "scaffold"]}}, "--tune: algorithm.name names another method"),
        ({"treatment": ["a.b"]}, "--treatment: no run has a.b"),
        ({"treatment": "a.b"}, "--treatment: no run has a.b"),
        ({"treatment": ["run.seed"]}, "--treatment: run.seed is what runs are paired by"),
        ({"methods": []}, "--methods: nothing to compare"),
        ({"methods": "fedavg"}, "--methods: nothing to compare"),
        ({"methods": ["fedavg", "fedprox(mu=1,mu=2)"]}, "fedprox.mu is given twice"),
        ({"methods": None, "baseline": "fedavg"}, "--baseline: fedavg is not compared; without --methods give one of"),
        ({"settings": {**SMALL, "run.seed": 3}}, "run.seed: the seeds of a comparison are those of --seeds"),
        ({"seeds": 10**20}, "--seeds: 100000000000000000000 are too many; give at most 10,000"),
        ({"seeds": 2.0}, "--seeds: 2.0 does not fit"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(tmp_path: Path, options: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        small(tmp_path, **options)
    assert line in str(refusal.value)
    assert not (tmp_path / "out").exists()
