"""Starting the real command line from tests."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ECGR = str(Path(sys.executable).with_name("ecgr"))


def environment(**extra: str) -> dict[str, str]:
    """One thread a process, as in a run, and plain output."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "120", **extra}


def ecgr(*arguments: str | Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run `ecgr` to its end."""
    command = [ECGR, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(**extra), timeout=300, check=False)


def spawn(*arguments: str | Path) -> "subprocess.Popen[bytes]":
    """Start `ecgr` in a process group of its own, so that all of it can be killed.

    A shell's background jobs ignore Ctrl-C and hand that down; here it has to work wherever the tests were started.
    """
    return subprocess.Popen(
        [ECGR, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - tests start no threads
    )


def rows_without_times(directory: Path) -> list[dict[str, Any]]:
    """The rounds of a run but for how long they took."""
    rows = [json.loads(line) for line in (directory / "rounds.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("seconds")
        for client in row["clients"]:
            client.pop("seconds")
            client.pop("regulation_seconds", None)
    return rows
