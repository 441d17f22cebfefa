"""The `ecgr` command in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ECGR = Path(sys.executable).parent / "ecgr"


def ecgr(*arguments: str | Path, cwd: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run the installed command in ``cwd`` with one thread and without colours."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "80"}
    return subprocess.run(
        [str(ECGR), *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file's content by its path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
