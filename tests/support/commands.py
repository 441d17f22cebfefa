"""The command line, as tests use it."""

import contextlib
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from ecgr.runs.record import RunRecord

ECGR = str(Path(sys.executable).with_name("ecgr"))


def environment(**extra: str) -> dict[str, str]:
    """One thread a process, as in a run, and plain output."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "120", **extra}


def ecgr(*arguments: str | Path, cwd: Path | None = None, **extra: str) -> "subprocess.CompletedProcess[str]":
    """Run `ecgr` to its end in this process: to start one takes longer than most of what is asked of it."""
    from ecgr.cli.app import run_command_line

    words, out, err = [*map(str, arguments)], StringIO(), StringIO()
    with ExitStack() as around:
        around.enter_context(patch.object(sys, "path", [*sys.path]))
        around.callback(_forget_modules_below, (cwd or Path.cwd()).resolve())
        around.enter_context(contextlib.chdir(cwd or Path.cwd()))
        around.enter_context(patch.dict(os.environ, extra))
        around.enter_context(patch.object(sys, "argv", ["ecgr", *words]))
        around.enter_context(contextlib.redirect_stdout(out))
        around.enter_context(contextlib.redirect_stderr(err))
        code = run_command_line()
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def _forget_modules_below(folder: Path) -> None:
    """The next command runs a task's file anew, as a process of its own would; this repository's modules stay."""
    if folder not in Path(__file__).parents:
        for name, module in list(sys.modules.items()):
            if folder in Path(getattr(module, "__file__", None) or "/").parents:
                del sys.modules[name]


def ecgr_process(*arguments: str | Path, cwd: Path | None = None, **extra: str) -> "subprocess.CompletedProcess[str]":
    """Run the installed `ecgr` to its end in a process of its own."""
    command = [ECGR, *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env=environment(**extra), timeout=300, check=False
    )


def spawn(*arguments: str | Path, cwd: Path | None = None, **extra: str) -> "subprocess.Popen[str]":
    """Start `ecgr` in a process group of its own, so that all of it can be killed; `communicate` reads what it says.

    A shell's background jobs ignore Ctrl-C and hand that down; here it has to work wherever the tests were started.
    """
    return subprocess.Popen(
        [ECGR, *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**extra),
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - tests start no threads
    )


def sets(*assignments: str) -> list[str]:
    """The options that change these settings."""
    return [word for assignment in assignments for word in ("--set", assignment)]


def rows_without_times(run: "Path | RunRecord") -> list[dict[str, Any]]:
    """The rounds of a run but for how long they took."""
    from ecgr.runs.record import RunRecord

    rows = (RunRecord(run) if isinstance(run, Path) else run).rounds
    for row in rows:
        row.pop("seconds")
        for client in row["clients"]:
            client.pop("seconds")
            client.pop("regulation_seconds", None)
    return rows


def assert_same_run(left: Path, right: Path) -> None:
    """The model to the bit, every round but for its times, and which steps were kept."""
    from ecgr.runs.record import RunRecord

    assert (left / "model.safetensors").read_bytes() == (right / "model.safetensors").read_bytes()
    assert rows_without_times(left) == rows_without_times(right)
    assert RunRecord(left).kept() == RunRecord(right).kept()


def run_in_three_ways(experiment: Any, folder: Path, cut: int = 1) -> Path:
    """In this process, in a pool, and stopped by Ctrl-C in round ``cut`` and resumed: the same run. Where it lies."""
    from ecgr.runs.runner import run

    def stop(row: Any) -> None:
        if row["round"] == cut:
            raise KeyboardInterrupt

    run(experiment, folder / "serial")
    run(experiment, folder / "pooled", workers=2)
    with contextlib.suppress(KeyboardInterrupt):
        run(experiment, folder / "resumed", watch=stop)
        raise AssertionError("it was not stopped")
    run(experiment, folder / "resumed", resume=True)
    for name in ("pooled", "resumed"):
        assert_same_run(folder / "serial", folder / name)
    return folder / "serial"


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file's content by its path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
