"""Comparisons: the baseline, tuning, the plan; the commands do what is left, and nothing else."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import ecgr
from ecgr.errors import ConfigError
from ecgr.runs.record import RunRecord
from support.commands import ecgr as command_line
from support.commands import sets

FEW = {"federation.rounds": 2, "partition.clients": 3, "data.fraction": 0.3}
TUNE = {"optimizer.lr": [0.01, 0.03]}
METHODS = ["fedavg", "fedavg+ecgr", "scaffold(damping=0.5, units=gradient)/lookahead(momentum=0.7)"]


def small(tmp_path: Path, **more: Any) -> "ecgr.Answer":
    options = {"methods": METHODS, "seeds": 2, "settings": FEW, "tune": False, "references": False, **more}
    return ecgr.compare("quickstart", out=tmp_path / "out", workers=1, engine="serial", **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> "ecgr.Answer":
    return small(tmp_path_factory.mktemp("whole"), tune=TUNE)


def written(answer: "ecgr.Answer", name: str) -> Any:
    assert answer.directory is not None
    return json.loads((answer.directory / name).read_text())


def test_every_method_is_compared_with_the_first(whole: "ecgr.Answer") -> None:
    assert [pair.baseline for pair in whole.pairs] == ["fedavg", "fedavg"]
    assert whole.pairs[0].method == "fedavg+ecgr"
    assert whole.pairs[1].method.startswith("scaffold(")
    assert all(pair.seeds == (0, 1) for pair in whole.pairs)


def test_each_method_is_tuned_on_seeds_and_data_of_its_own(whole: "ecgr.Answer") -> None:
    assert whole.directory is not None
    methods = written(whole, "tuning.json")["methods"]
    assert len(methods) == 3
    assert all(len(method["trials"]) == 2 for method in methods)
    records = [RunRecord.open(path.parent) for path in (whole.directory / "tuning").glob("*/run.json")]
    assert len(records) == 3 * 2 * 2
    assert {record.seed for record in records} == {100, 101}
    assert {record.config["data"]["validation"] for record in records} == {0.2}
    assert {run.record.config["data"]["validation"] for run in whole.runs} == {0.0}
    chosen = {method["method"]: method["chosen"]["optimizer.lr"] for method in methods}
    assert {run.summary.method: run.record.config["optimizer"]["lr"] for run in whole.runs} == chosen
    for method in methods:
        best = max(method["trials"], key=lambda trial: trial["mean"])
        assert best["values"] == method["chosen"]


def test_the_plan_names_methods_pairs_and_runs(whole: "ecgr.Answer") -> None:
    assert whole.directory is not None
    plan = written(whole, "plan.json")
    names = [method["name"] for method in plan["methods"]]
    assert plan["pairs"] == [[name, "fedavg"] for name in names[1:]]
    assert (plan["baseline"], plan["seeds"], plan["tuned"]) == ("fedavg", [0, 1], ["optimizer.lr"])
    for method in plan["methods"]:
        records = [RunRecord.open(whole.directory / run) for run in method["runs"]]
        assert [record.seed for record in records] == [0, 1]
        assert {record.config["optimizer"]["lr"] for record in records} == {method["chosen"]["optimizer.lr"]}


def test_a_method_keeps_its_name_when_its_own_parameters_are_tuned(tmp_path: Path) -> None:
    """The records of the baseline then say fedavg/average(lr=…), which is no other method."""
    answer = small(tmp_path, methods=["fedavg", "fedavg+ecgr"], seeds=1, tune={"server.lr": [0.5, 0.9]})
    assert [(pair.method, pair.baseline, pair.seeds) for pair in answer.pairs] == [("fedavg+ecgr", "fedavg", (0,))]
    assert ecgr.compare(tmp_path / "out").to_json() == answer.to_json()


def test_another_baseline_comes_first(tmp_path: Path) -> None:
    answer = small(tmp_path, methods=["fedavg", "fedavg+ecgr"], baseline="fedavg+ecgr", seeds=1)
    assert [(pair.method, pair.baseline) for pair in answer.pairs] == [("fedavg", "fedavg+ecgr")]


def test_runs_of_an_earlier_comparison_in_the_same_place_are_not_mixed_in(tmp_path: Path) -> None:
    first = small(tmp_path, methods=METHODS[:2], seeds=1)
    small(tmp_path, methods=METHODS[:2], seeds=1, settings={**FEW, "federation.rounds": 1})
    third = small(tmp_path, methods=METHODS[:2], seeds=1)
    assert third.to_json() == first.to_json()
    assert ecgr.compare(tmp_path / "out").to_json() == first.to_json()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"methods": ["fedavg"]}, "methods: nothing to compare"),
        ({"methods": ["fedavg", "fedavg(server_lr=1.0)"]}, "methods: nothing to compare"),
        ({"methods": ["fedavg", "fedavgg"]}, "did you mean 'fedavg'"),
        ({"tune": {"optimizer.lrr": [1]}}, "tune: no method has the key optimizer.lrr"),
        ({"tune": {"optimizer.lr": []}}, "tune: optimizer.lr has no values"),
        ({"tune": {"optimizer.lr": [0.1, -1]}}, "optimizer.lr: expected a number, above 0, got -1"),
        ({"tune": {"optimizer.lr": [0.1]}, "seeds": [0, 100]}, "seeds: 100 is a seed that hyper-parameters"),
        ({"tune": None, "seeds": [0, 103]}, "seeds: 103 is a seed that hyper-parameters are tuned on"),
        ({"until_level": 20, "settings": {"schedule.name": "cosine"}}, "until_level: schedule.name = 'cosine' levels"),
        ({"until_level": 1}, "until_level: expected at least federation.rounds = 2, got 1"),
        ({"trials": 0}, "trials: expected a whole number, at least 1, got 0"),
        ({"tune": {"optimizer.lr": 0.1}}, "tune: optimizer.lr: expected a list of values, got 0.1"),
        ({"tune": "optimizer.lr=0.1"}, "tune: expected lists by key"),
        ({"tune": {"run.seed": [1, 2]}}, "tune: run.seed is the same for all methods"),
        ({"tune": {"partition.alpha": [1, 2]}}, "tune: partition.alpha is the same for all methods"),
        ({"tune": {"algorithm.name": ["fedavg", "scaffold"]}}, "tune: algorithm.name names another method"),
        ({"methods": []}, "methods: nothing to compare"),
        ({"methods": "fedavg"}, "methods: nothing to compare"),
        ({"methods": ["fedavg", "fedprox(mu=1,mu=2)"]}, "fedprox.mu is given twice"),
        ({"settings": {**FEW, "run.seed": 3}}, "run.seed: the seeds of a comparison are given as seeds"),
        ({"seeds": 10**20}, "seeds: 100000000000000000000 are too many; give at most 10,000"),
        ({"seeds": 2.0}, "got 2.0"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(tmp_path: Path, options: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        small(tmp_path, **options)
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "out").exists()


# The commands


def stamps(directory: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in directory.glob("runs/*/model.safetensors")}


def test_compare_ends_with_the_paired_table_and_redoes_only_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "comparison"
    words = "compare quickstart --no-tune --no-references --methods fedavg,fedavg+ecgr --seeds 0,1,42 --workers 2"
    small = sets("federation.rounds=2", "partition.clients=3")
    command: list[str | Path] = [*words.split(), *small, "--out", out]
    first = command_line(*command)
    assert first.returncode == 0, first.stderr
    assert "fedavg+ecgr" in first.stdout
    assert "too few seeds" in first.stdout
    written = json.loads((out / "comparison.json").read_text())
    assert written["pairs"][0]["seeds"] == [0, 1, 42]
    assert len(written["pairs"][0]["difference"]["by_seed"]) == 3
    with (out / "comparison.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["fedavg", "fedavg+ecgr"]

    before = stamps(out)
    assert len(before) == 6
    again = command_line(*command)
    assert again.returncode == 0
    assert again.stdout == first.stdout
    assert stamps(out) == before

    removed = next(path for path in (out / "runs").iterdir() if "ecgr-seed1" in path.name)
    shutil.rmtree(removed)
    third = command_line(*command)
    assert third.returncode == 0
    after = stamps(out)
    assert [name for name in before if after[name] != before[name]] == [removed.name]
    assert third.stdout == first.stdout
    assert json.loads((out / "comparison.json").read_text()) == written

    existing = command_line("compare", out, "--json")
    assert json.loads(existing.stdout) == written


SWEEP = """
base = "quickstart"
data = { fraction = 0.2 }
federation = { rounds = 2 }
partition = { clients = 3 }
[grid]
run.seed = [0, 1]
optimizer.lr = [0.01, 1e30]
"""


def test_a_sweep_skips_what_is_finished_and_reports_what_failed(tmp_path: Path) -> None:
    """The absurd learning rate gives NaN updates, so those runs lose their quorum (exit 6); the others finish."""
    file = tmp_path / "grid.toml"
    file.write_text(SWEEP)
    command: list[str | Path] = ["sweep", file, "--out", tmp_path / "out", "--workers", "2"]
    listed = command_line(*command, "--dry-run")
    assert "4 runs, 4 to do" in listed.stdout
    assert not (tmp_path / "out").exists()

    first = command_line(*command)
    assert first.returncode == 6
    assert "and 1 more failed:" in first.stderr
    assert "none of 3 client updates can be used" in first.stderr
    before = stamps(tmp_path / "out")
    assert len(before) == 2

    assert command_line(*command).returncode == 6
    assert stamps(tmp_path / "out") == before
