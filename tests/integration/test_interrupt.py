"""Ctrl-C at any time: one line, exit 130, and what it says is true."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from support.commands import ecgr, spawn
from support.quick import quick_where

SMALL = ["--set", "federation.rounds=20", "--set", "partition.clients=3", "--set", "data.fraction=0.3"]


def end(process: "subprocess.Popen[str]") -> list[str]:
    """Press Ctrl-C: the whole group hears it, as at a terminal. The lines that are not progress."""
    try:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    return [line for line in errors.splitlines() if line.startswith("ecgr: ")]


def wait_for(process: "subprocess.Popen[str]", folder: Path, pattern: str) -> None:
    while process.poll() is None and not list(folder.glob(pattern)):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.01)


@pytest.mark.parametrize(
    "seconds", quick_where(lambda s: s in (0.3, 1.0), zip([0.15, 0.3, 0.6, 1.0, 1.6, 2.5]), pytest.mark.nightly)
)
def test_in_the_first_seconds(tmp_path: Path, seconds: float) -> None:
    """While Python, the command line or torch are still being imported, or workers are started."""
    process = spawn("compare", "quickstart", "--no-tune", "--no-references", "--workers", "2", *SMALL, cwd=tmp_path)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)
    *_, line = end(process)
    assert "interrupted" in line


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.nightly)])
def test_a_run_says_what_it_keeps_and_the_command_that_goes_on(tmp_path: Path, workers: str) -> None:
    process = spawn("run", "quickstart", "--workers", workers, *SMALL, cwd=tmp_path)
    wait_for(process, tmp_path, "runs/quickstart/checkpoint/*.manifest")
    (line,) = end(process)
    assert "runs/quickstart has" in line
    command = shlex.split(line.partition("to continue: ")[2])
    assert command[0] == "ecgr"
    assert "--resume" in command
    done = ecgr(*command[1:], "--out", tmp_path / "runs/quickstart")
    assert done.returncode == 0, done.stderr


def test_a_comparison_says_how_many_runs_are_finished_and_the_command_that_goes_on(tmp_path: Path) -> None:
    words = "compare quickstart --no-tune --no-references --methods fedavg,fedavg+ecgr --seeds 1 --workers 2"
    process = spawn(*words.split(), *SMALL, cwd=tmp_path)
    wait_for(process, tmp_path, "runs/compare-quickstart/runs/*/rounds.jsonl")
    *_, line = end(process)  # before it, what one seed can show
    assert re.search(r"0 of \d+ runs are finished, the others keep their last checkpoint", line)
    command = shlex.split(line.partition("to continue: ")[2])
    assert command[:3] == ["ecgr", "compare", "quickstart"]
    done = ecgr(*command[1:], "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("runs/compare-quickstart/runs/*/model.safetensors"))) == 2
