"""Estimates of time: from one client and one shard to a round, and from rounds to a sweep."""

import re
from itertools import count
from pathlib import Path

import pytest

from ecgr.cli.running import list_plans
from ecgr.config.experiment import load
from ecgr.config.partition import chosen_share, partition_of
from ecgr.runs.calibration import calibrate, cost_of_run
from ecgr.runs.clean import size_of
from ecgr.runs.runner import run
from ecgr.runs.sweep import plan_runs

SMALL = {"federation.rounds": 3, "partition.clients": 4, "data.fraction": 0.2}


def test_a_round_is_so_many_times_the_client_and_the_shard_that_were_measured() -> None:
    """A clock that gives 2 s for the client and 3 s for the shard; digits has one shard of test images."""
    experiment = load("quickstart", SMALL)
    dataset = experiment.source.load()
    sizes = partition_of(experiment, chosen_share(experiment, dataset)).sizes()
    middle = sorted(sizes)[1:3]
    ticks = iter((10.0, 12.0, 15.0))
    seconds = cost_of_run(experiment, dataset, lambda: next(ticks)).seconds
    assert seconds in [pytest.approx(2 * sum(sizes) / size + 3) for size in middle]


def test_each_kind_of_run_is_measured_once() -> None:
    kinds: list[str] = []
    ticks = count()
    experiments = [
        load("quickstart", {**SMALL, "run.seed": seed, "regulator.name": regulator})
        for regulator in ("none", "ecgr")
        for seed in (0, 1)
    ]
    measured = calibrate(experiments, kinds.append, lambda: float(next(ticks)))
    assert kinds == ["digits, fedavg, none", "digits, fedavg, ecgr"]
    assert set(measured) == {experiment.key() for experiment in experiments}
    assert all(cost.seconds > 0 for cost in measured.values())


def test_a_dry_run_shows_the_time_of_each_method_and_time_and_room_of_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """10 s a round: 30 s a run; two runs on two processes take as long as one, three take 45 s."""
    monkeypatch.setattr("ecgr.runs.calibration._seconds_per_round", lambda *_: 10.0)
    experiments = [load("quickstart", {**SMALL, "run.seed": seed}) for seed in range(3)]
    list_plans({"fedavg": plan_runs(experiments[:2], tmp_path)}, workers=2)
    assert "about 30 s with 2 processes" in capsys.readouterr().out
    list_plans({"fedavg": plan_runs(experiments, tmp_path)}, workers=2)
    shown = capsys.readouterr().out
    assert "3 runs, 3 to do" in shown
    assert "about 45 s with 2 processes" in shown
    assert "fedavg: 3 runs, about 1 min 30 s of one process" in shown
    (line,) = [line for line in shown.splitlines() if "on disk" in line]
    assert re.fullmatch(r"about [\d.]+ kB on disk, and at most [\d.]+ MB until they are all finished", line)


def test_the_room_is_that_of_a_run(tmp_path: Path) -> None:
    """A model and its checkpoints to a few percent (headers of files); a line of the record to a third."""
    small = {"partition.clients": 3, "federation.rounds": 3, "algorithm.name": "scaffold", "run.served": "average"}
    experiment = load("quickstart", small)
    record = run(experiment, tmp_path)
    _, line, model, checkpoints = cost_of_run(experiment, experiment.source.load())
    rows = (tmp_path / "rounds.jsonl").stat().st_size / len(record.rounds)
    assert line == pytest.approx(rows, rel=0.33)
    assert model == pytest.approx((tmp_path / "model.safetensors").stat().st_size, rel=0.05)
    assert checkpoints == pytest.approx(size_of(tmp_path / "checkpoint"), rel=0.25)


def test_without_the_data_a_line_says_why_there_is_no_estimate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    list_plans({"fedavg": plan_runs([load("paper/mnist", {"data.root": str(tmp_path)})], tmp_path)}, workers=1)
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["fedavg: 1 run", "1 run, 1 to do"]
    assert "no estimate of the time: mnist" in shown.err
