"""A comparison through both stages of tuning, and on until every method has levelled off."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ecgr
from ecgr.compare.plan import plan_comparison
from ecgr.runs.record import RunRecord
from support.commands import rows_without_times
from support.problems import tiny_task

FEW = {"federation.batch_size": 8, "optimizer.lr": 0.05}


task = partial(tiny_task, samples=120, clients=3, name="tiny")


def compare(out: Path, **options: Any) -> "ecgr.Answer":
    given: dict[str, Any] = {"methods": ["fedavg", "fedprox"], "seeds": 2, "settings": FEW, "trials": 3, "rounds": 8}
    return ecgr.compare(task(), engine="serial", out=out, **{**given, "references": False, **options})


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tuned") / "out"
    compare(out)
    return out


def tuning(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "tuning.json").read_text())
    return content


def test_all_trials_are_short_and_the_best_three_go_to_the_end(tuned: Path) -> None:
    written = tuning(tuned)
    assert (written["rounds"], written["seeds"]) == ([4, 8], [100, 101, 102, 103])
    for method in written["methods"]:
        assert list(method["space"])[:2] == ["optimizer.lr", "server.lr"]
        assert method["trials"][0]["values"]["optimizer.lr"] == 0.05
        assert len(method["trials"]) == 3 + method["extended"]
        assert all(list(trial["scores"][0]) == ["100", "101"] for trial in method["trials"])
        finalists = [trial for trial in method["trials"] if len(trial["scores"]) == 2]
        assert len(finalists) == 3
        assert all(list(trial["scores"][1]) == ["100", "101", "102", "103"] for trial in finalists)
        assert method["chosen"] == max(finalists, key=lambda trial: trial["mean"])["values"]
        assert set(method["without"]) == {"100", "101", "102", "103"}
        assert method["extended"] in (0, 4, 8)
        assert method["agreeing"] == sum(values == method["chosen"] for values in method["without"].values())
    assert ecgr.compare(tuned).tuning == {method["method"]: method for method in written["methods"]}
    assert "algorithm.mu" in written["methods"][1]["space"]


def test_the_runs_of_the_second_stage_are_those_of_the_first_gone_on(tuned: Path, tmp_path: Path) -> None:
    records = [RunRecord.open(path.parent) for path in sorted((tuned / "tuning").glob("*/run.json"))]
    long = [record for record in records if len(record.rounds) == 8]
    trials = sum(len(method["trials"]) for method in tuning(tuned)["methods"])
    assert len(records) == 2 * trials + 2 * 3 * 2  # two more seeds of the best three
    assert len(long) == 2 * 3 * 4
    record = next(record for record in long if record.seed == 100)
    config = {key: value for key, value in record.config.items() if key not in ("data", "model", "partition", "loss")}
    changes = {f"{section}.{key}": value for section, own in config.items() for key, value in own.items()}
    changes |= {"data.validation": 0.2, "run.name": "tiny"}
    ecgr.run(ecgr.load(task(), changes), tmp_path / "whole")
    assert rows_without_times(record.directory) == rows_without_times(tmp_path / "whole")
    assert (record.directory / "model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def test_the_methods_are_compared_at_what_was_chosen_and_no_checkpoint_stays(tuned: Path) -> None:
    plan = json.loads((tuned / "plan.json").read_text())
    assert plan["rounds"] == 8
    for method, choice in zip(plan["methods"], tuning(tuned)["methods"], strict=True):
        assert method["chosen"] == choice["chosen"]
        for run in method["runs"]:
            config = RunRecord.open(tuned / run).config
            assert (config["optimizer"]["lr"], config["data"]["validation"]) == (choice["chosen"]["optimizer.lr"], 0.0)
            assert (config["schedule"]["name"], config["run"]["served"]) == ("constant", "average")
    assert not list(tuned.rglob("checkpoint"))


def test_given_again_it_makes_no_run(tuned: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in tuned.rglob("rounds.jsonl.gz")}
    compare(tuned)
    assert {path: path.stat().st_mtime_ns for path in tuned.rglob("rounds.jsonl.gz")} == before


def test_under_a_decaying_schedule_the_first_stage_has_runs_of_its_own(tmp_path: Path) -> None:
    compare(tmp_path, trials=2, settings={**FEW, "schedule.name": "cosine"}, methods=["fedavg", "fedcm"], rounds=4)
    lengths = [len(RunRecord.open(path.parent).rounds) for path in (tmp_path / "tuning").glob("*/run.json")]
    assert set(lengths) == {3, 4}
    assert {RunRecord.open(path.parent).config["run"]["served"] for path in tmp_path.rglob("run.json")} == {"last"}


def test_a_comparison_doubles_its_rounds_up_to_the_most_while_it_gains(tmp_path: Path) -> None:
    said: list[str] = []
    slow = {**FEW, "optimizer.lr": 0.01}
    answer = compare(tmp_path / "out", tune=False, rounds=2, until_level=7, settings=slow, warn=said.append)
    assert {len(run.rounds) for run in answer.runs} == {7}
    assert [line for line in said if "not levelled off after" in line] == [
        "note: not levelled off after 2 rounds; going on to 4",
        "note: not levelled off after 4 rounds; going on to 7",
    ]
    assert not [line for line in said if "anew" in line], "finished runs go on"
    whole = compare(tmp_path / "whole", tune=False, rounds=7, settings=slow)
    assert whole.to_json() == answer.to_json()
    assert not list((tmp_path / "out").rglob("checkpoint"))


def test_one_that_has_levelled_off_does_not_go_on_and_without_tuning_nothing_is_tuned(tmp_path: Path) -> None:
    """At such a rate nothing is learned: the curves are flat. The seeds of tuning are free."""
    flat = {**FEW, "optimizer.lr": 1e-12}
    answer = compare(tmp_path, tune=False, rounds=4, until_level=64, settings=flat, seeds=[100, 101])
    assert {len(run.rounds) for run in answer.runs} == {4}
    assert not list(tmp_path.glob("tuning*"))


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("fedavg", ["server.lr"]),
        ("fedavg(server_lr=1.5)", []),
        ("fedprox/lookahead", ["server.lr", "algorithm.mu"]),
        ("fedavg/momentum", ["server.lr", "server.momentum"]),
        ("fedavgm", ["algorithm.server_lr", "algorithm.server_momentum"]),
        ("fedavgm(server_momentum=0.5)", ["algorithm.server_lr"]),  # what it is given is not tuned
        ("drift_correction", ["algorithm.server_lr", "algorithm.damping"]),
        ("fedacg+ecgr", ["algorithm.server_lr", "regulator.beta"]),
        ("feddyn", ["algorithm.rel"]),
        ("fedadam", ["algorithm.server_lr"]),
        (ecgr.FedACG(), ["algorithm.server_lr", "algorithm.momentum"]),
        (ecgr.ECGR(beta=0.5), ["server.lr", "regulator.beta"]),
    ],
)
def test_every_method_is_tuned_by_rate_step_and_one_knob(method: Any, keys: list[str]) -> None:
    planned = plan_comparison("quickstart", methods=[method, "fednova"], trials=2)
    space = planned.methods[0].space
    assert list(space) == ["optimizer.lr", *keys]
    assert all(axis.low <= axis.default <= axis.high <= axis.most for axis in space.values())
