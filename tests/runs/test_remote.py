"""Runs whose folder another machine may not see: made in place, or in pieces that come back; the same bits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ecgr.config.experiment import load
from ecgr.runs.remote import Pause, Piece, RemoteJob, pause_after, read_files, seen_by_others, write_files
from ecgr.runs.sweep import Failure, RunJob, plan_runs
from ecgr.simulation.engines.pool import Rest
from support.commands import rows_without_times

SMALL = {"partition.clients": 3, "federation.rounds": 3, "data.fraction": 0.2}


def job_in(folder: Path, **changes: object) -> RunJob:
    more = {key.replace("__", "."): value for key, value in changes.items()}
    (planned,) = plan_runs([load("quickstart", {**SMALL, **more})], folder)
    return RunJob(planned)


def unseen(job: RemoteJob) -> RemoteJob:
    """The same job as on a machine without the token."""
    return replace(job, token=job.token.with_name("elsewhere"))


def play(job: RemoteJob, after: Callable[[RemoteJob], RemoteJob] = lambda job: job) -> tuple[Failure | None, int]:
    """What an engine does with a job: how it ended, and in how many answers."""
    answers = 0
    while True:
        answers += 1
        answer = job.received(job.run({}))
        if not isinstance(answer, Rest):
            return answer, answers
        job = after(answer.job)


@pytest.mark.slow
@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.nightly)])
def test_pieces_that_come_back_make_the_same_run(tmp_path: Path, every: int) -> None:
    """Without patience each checkpoint is a piece: one answer asks for the files, one comes for each piece."""
    whole, pieces = job_in(tmp_path / "whole"), job_in(tmp_path / "pieces", run__checkpoint_every=every)
    whole.run({})
    with seen_by_others([pieces], seconds=0.0) as (remote,):
        assert play(unseen(remote)) == (None, 1 + {1: 3, 2: 2}[every])
    assert pieces.planned.finished
    models = [(job.planned.directory / "model.safetensors").read_bytes() for job in (whole, pieces)]
    assert models[0] == models[1]
    assert rows_without_times(whole.planned.directory) == rows_without_times(pieces.planned.directory)
    assert not list((tmp_path / "pieces/runs").glob(".here-*"))


def test_a_driver_that_was_killed_goes_on_with_the_pieces_it_has(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    with seen_by_others([job], seconds=0.0) as (remote,):
        rest = unseen(remote).received(Piece(ended=False))
        assert isinstance(rest, Rest)
        rest.job.received(rest.job.run({}))
    assert job.planned.rounds_done == 1
    with seen_by_others([job], seconds=0.0) as (remote,):
        assert play(unseen(remote)) == (None, 3)
    assert job.planned.finished


def test_where_the_folder_is_seen_the_run_is_made_in_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = job_in(Path("runs"))
    with seen_by_others([job], seconds=0.0) as (remote,):
        monkeypatch.chdir("/")  # another process need not be where this one is
        assert play(remote) == (None, 1)
    assert (tmp_path / "runs" / "runs" / job.planned.name / "model.safetensors").is_file()


def test_what_fails_there_is_said_here(tmp_path: Path) -> None:
    job = job_in(tmp_path, data__name="mnist", data__root=str(tmp_path / "nowhere"), partition__clients=10)
    with seen_by_others([job]) as (remote,):
        failure, _ = play(unseen(remote))
    assert failure is not None
    assert (failure.name, failure.exit_code) == (job.planned.name, 3)


def test_files_are_written_so_that_a_folder_always_holds_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr("ecgr.runs.remote.write_atomically", lambda path, content: written.append(path.name))
    names = ["checkpoint/5.manifest", "checkpoint/5.safetensors", "model.safetensors", "rounds.jsonl", "run.json"]
    write_files(tmp_path, dict.fromkeys(names, b""))
    assert written == ["run.json", "5.safetensors", "rounds.jsonl", "5.manifest", "model.safetensors"]


def test_files_that_are_gone_there_go_here_and_locks_stay(tmp_path: Path) -> None:
    write_files(tmp_path, {"a/old": b"1", "same": b"2"})
    (tmp_path / ".lock").touch()
    write_files(tmp_path, {"a/new": b"3", "same": b"2"})
    assert read_files(tmp_path) == {"a/new": b"3", "same": b"2"}
    assert (tmp_path / ".lock").exists()


def test_a_piece_ends_at_the_first_checkpoint_after_its_time() -> None:
    moments = iter([0.0, 30.0, 61.0])  # at the start, at rounds 6 and 8
    watch = pause_after(60.0, [6, 8, 10], clock=lambda: next(moments))
    for number in (2, 4, 5, 6, 7):
        watch({"round": number})
    with pytest.raises(Pause):
        watch({"round": 8})
