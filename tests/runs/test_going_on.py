"""Under a constant learning rate a longer run contains the shorter: it goes on, and is cut when it is read."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

import ecgr
from ecgr.errors import DataError
from ecgr.runs.record import checkpoint_of
from ecgr.runs.sweep import PlannedRun, plan_runs, run_all, settle
from support.commands import assert_same_run
from support.commands import rows_without_times as rows
from support.problems import tiny_task


def planned(directory: Path, rounds: int, **changes: Any) -> PlannedRun:
    settings = {
        "federation.rounds": rounds,
        "federation.batch_size": 8,
        "partition.min_batches": 1,
        "algorithm.name": "scaffold",
        "regulator.name": "ecgr",
        "run.served": "average",
        **changes,
    }
    (found,) = plan_runs([ecgr.load(tiny_task(), settings)], directory)
    return found


def make(run: PlannedRun) -> list[str]:
    said: list[str] = []
    run_all([run], engine="serial", warn=said.append)
    return said


def test_a_finished_run_goes_on_to_the_bits_of_an_uninterrupted_one(tmp_path: Path) -> None:
    short, long, whole = planned(tmp_path / "a", 3), planned(tmp_path / "a", 8), planned(tmp_path / "b", 8)
    assert short.directory == long.directory
    make(short)
    before = (short.directory / "rounds.jsonl").read_bytes()
    assert short.finished
    assert not long.finished
    make(long)
    make(whole)
    assert (long.directory / "rounds.jsonl").read_bytes().startswith(before)  # nothing was made twice
    assert_same_run(long.directory, whole.directory)
    assert json.loads((long.directory / "run.json").read_text())["config"]["federation"]["rounds"] == 8


def test_a_longer_run_is_cut_when_it_is_read(tmp_path: Path) -> None:
    short, long, alone = planned(tmp_path / "a", 3), planned(tmp_path / "a", 8), planned(tmp_path / "b", 3)
    make(long)
    make(alone)
    stamp = (long.directory / "rounds.jsonl").stat().st_mtime_ns
    make(short)
    assert (long.directory / "rounds.jsonl").stat().st_mtime_ns == stamp
    assert short.finished
    assert (short.rounds_done, short.record.config["federation"]["rounds"]) == (3, 3)
    assert rows(short.record) == rows(alone.record)
    assert short.record.kept() == alone.record.kept()


def test_a_run_that_was_stopped_on_its_way_to_more_rounds_still_has_the_fewer(tmp_path: Path) -> None:
    short, long = planned(tmp_path, 3), planned(tmp_path, 8)
    make(long)
    (long.directory / "model.safetensors").unlink()
    assert short.finished
    assert not long.finished


def test_without_a_checkpoint_it_is_made_anew_and_said(tmp_path: Path) -> None:
    short, long, whole = planned(tmp_path / "a", 3), planned(tmp_path / "a", 6), planned(tmp_path / "b", 6)
    make(short)
    settle([long], scored_only=lambda run: None)  # it has not ended
    assert checkpoint_of(short.directory).is_dir()
    before = rows(short.record)
    settle([short], scored_only=lambda run: None)
    assert not checkpoint_of(short.directory).exists()
    assert not (short.directory / "rounds.jsonl").exists()
    assert rows(short.record) == before
    assert short.rounds_done == 3
    assert any("no checkpoint" in line and "1 run" in line for line in make(long))
    make(whole)
    assert rows(long.record) == rows(whole.record)


@pytest.mark.parametrize(("schedule", "same"), [("constant", True), ("step", False), ("cosine", False)])
def test_the_number_of_rounds_is_part_of_an_identity_unless_the_rate_is_constant(
    tmp_path: Path, schedule: str, same: bool
) -> None:
    changes = [{"federation.rounds": rounds, "schedule.name": schedule} for rounds in (2, 5, 3)]
    experiments = [ecgr.load(tiny_task(), each) for each in changes]
    assert [run.experiment.federation.rounds for run in plan_runs(experiments, tmp_path)] == (
        [5] if same else [2, 5, 3]
    )
    assert (len({experiment.key() for experiment in experiments}) == 1) is same


def test_a_reference_keeps_its_scores_and_no_model(tmp_path: Path) -> None:
    (kept, scored) = (planned(tmp_path / name, 2) for name in "ab")
    make(kept)
    make(scored)
    settle([kept, scored], scored_only=lambda run: "alone" if run is scored else None)
    assert [bool(load_file(run.directory / "model.safetensors")) for run in (kept, scored)] == [True, False]
    assert scored.finished
    assert rows(scored.record) == rows(kept.record)


def test_packed_rounds_that_are_damaged_are_named(tmp_path: Path) -> None:
    run = planned(tmp_path, 1)
    make(run)
    settle([run], scored_only=lambda run: None)
    (run.directory / "rounds.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match=r"rounds\.jsonl\.gz: not readable"):
        _ = run.record.rounds
