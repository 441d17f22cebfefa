"""Nothing is lost when the machine dies: killed runs go on to the same bits."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecgr.config.experiment import load
from ecgr.errors import ConfigError, EnvironmentFault, IntegrityError
from ecgr.runs.record import RunRecord, locked
from ecgr.runs.runner import run
from support.commands import assert_same_run, ecgr, files_below, sets, spawn

SETTINGS = sets(
    *("federation.rounds=6", "regulator.name=ecgr", "algorithm.name=scaffold", "federation.participation=0.5")
)
KILLS = {1: 2, 2: 1}
"""By the number of workers; `make nightly` says more by ``ECGR_KILLS``."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("reference") / "run"
    done = ecgr("run", "quickstart", *SETTINGS, "--out", directory)
    assert done.returncode == 0, done.stderr
    return directory


def kill_at_a_random_moment(command: list[str | Path], directory: Path, rng: np.random.Generator) -> None:
    """Let the run get at least one round further, then a random part of the next, and kill all of its processes."""
    before = len(RunRecord(directory).rounds) if directory.exists() else 0
    process = spawn(*command)
    try:
        while process.poll() is None and len(RunRecord(directory).rounds) <= before:
            wait(process, 0.01)
        wait(process, rng.uniform(0, 0.4))
    finally:
        with suppress(ProcessLookupError):  # it may have come to its end
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait(process: "subprocess.Popen[str]", seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_killed_again_and_again_ends_with_the_same_bits(
    uninterrupted: Path, tmp_path: Path, workers: int
) -> None:
    directory, rng = tmp_path / "run", np.random.default_rng(workers)
    options: list[str | Path] = ["--resume", "--workers", str(workers), "--out", directory]
    command = ["run", "quickstart", *SETTINGS, *options]
    for _ in range(int(os.environ.get("ECGR_KILLS", KILLS[workers]))):
        kill_at_a_random_moment(command, directory, rng)
        with locked(directory):  # the lock died with its process
            assert (directory / ".holder").read_text().strip() == str(os.getpid())
    done = ecgr(*command)
    assert done.returncode == 0, done.stderr
    assert_same_run(directory, uninterrupted)


def small(out: Path, resume: bool = False, rounds: int = 2, seed: int = 0, schedule: str = "step") -> RunRecord:
    own = {"partition.clients": 3, "data.fraction": 0.3, "algorithm.name": "scaffold", "schedule.name": schedule}
    return run(load("quickstart", {**own, "federation.rounds": rounds, "run.seed": seed}), out, resume=resume)


def test_a_finished_run_changes_no_more_and_trains_on_to_the_run_of_more_rounds(tmp_path: Path) -> None:
    record = small(tmp_path / "run")
    stamp = (tmp_path / "run" / "rounds.jsonl").stat().st_mtime_ns
    assert small(tmp_path / "run", resume=True).rounds == record.rounds
    assert (tmp_path / "run" / "rounds.jsonl").stat().st_mtime_ns == stamp
    more, whole = small(tmp_path / "run", resume=True, rounds=4), small(tmp_path / "whole", rounds=4)
    assert (more.key, more.config) == (whole.key, whole.config)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize(
    ("first", "then", "message", "problems"),
    [
        ({}, {"rounds": 1, "seed": 1}, r"federation.rounds: 2, now 1\n.*run.seed: 0, now 1", 2),
        (
            {"schedule": "cosine"},
            {"schedule": "cosine", "rounds": 4},
            r"planned for 2 rounds.*'cosine'.*another directory",
            1,
        ),
    ],
    ids=["another config", "rates that depend on the number of rounds"],
)
def test_resume_refuses_another_config_and_lists_the_differences(
    tmp_path: Path, first: dict[str, Any], then: dict[str, Any], message: str, problems: int
) -> None:
    small(tmp_path / "run", **first)
    before = files_below(tmp_path / "run")
    with pytest.raises(ConfigError, match=message) as refusal:
        small(tmp_path / "run", resume=True, **then)
    assert len(refusal.value.problems) == problems
    assert files_below(tmp_path / "run") == before


def test_a_run_that_diverged_is_not_trained_again(tmp_path: Path) -> None:
    options = ["--set", "optimizer.lr=1e30", "--set", "federation.rounds=3", "--out", str(tmp_path / "run")]
    first = ecgr("run", "quickstart", *options)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir() if path.is_file()}
    again = ecgr("run", "quickstart", *options, "--resume")
    assert (first.returncode, again.returncode) == (6, 6)
    assert "diverged, and would again: round 1: none of" in again.stderr
    after = {path: path.stat().st_mtime_ns for path in before}
    assert {path.name for path in before if before[path] != after[path]} <= {".lock"}


def test_resume_notices_an_altered_record(tmp_path: Path) -> None:
    small(tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    rounds = tmp_path / "run" / "rounds.jsonl"
    rounds.write_bytes(rounds.read_bytes().replace(b'"round": 1', b'"round": 7'))
    with pytest.raises(IntegrityError, match="altered"):
        small(tmp_path / "run", resume=True)


def test_a_second_run_on_the_same_directory_ends_at_once_and_names_the_holder(tmp_path: Path) -> None:
    with locked(tmp_path / "run"), pytest.raises(EnvironmentFault, match=f"process {os.getpid()}"):
        small(tmp_path / "run")
    assert not list((tmp_path / "run").glob("*.json*"))
