"""Clean environments without a download: a wheel, and links to what it says it needs, and to nothing else."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement


def clean_environment(place: Path, wheel: Path, *extras: str) -> Path:
    """Its interpreter. ``wheel`` is unpacked; the packages of its core and of ``extras`` are links to ours."""
    venv.create(place, with_pip=False)
    packages = place / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        needed = re.findall(r"(?m)^Requires-Dist: (.+)$", archive.read(metadata).decode())
    for name in sorted(_closure(needed, extras)):
        _link(name, packages)
    return place / "bin" / "python"


def run_in(
    python: Path, folder: Path, *arguments: str | Path, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Call the interpreter in ``folder``, with nothing of this environment but the way to the system."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ECGR", "VIRTUAL"))}
    return subprocess.run(
        [str(python), *map(str, arguments)],
        cwd=folder,
        env={**kept, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def _closure(lines: Iterable[str], extras: Iterable[str]) -> set[str]:
    """Names of all packages that these requirements lead to, with what the needed packages need themselves."""
    found: set[tuple[str, str]] = set()
    waiting = [(line, extra) for line in lines for extra in ("", *extras)]
    while waiting:
        line, extra = waiting.pop()
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        for own in ("", *wanted.extras):
            if (wanted.name.lower(), own) not in found:
                found.add((wanted.name.lower(), own))
                try:
                    waiting += [(more, own) for more in distribution(wanted.name).requires or ()]
                except PackageNotFoundError:
                    continue  # not for this machine, as a compiler that only a GPU needs
    return {name for name, _ in found}


def _link(name: str, packages: Path) -> None:
    try:
        own = distribution(name)
    except PackageNotFoundError:
        return
    for top in {file.parts[0] for file in own.files or () if file.parts[0] not in ("..", "__pycache__")}:
        source, target = Path(str(own.locate_file(top))), packages / top
        if not target.exists() and source.exists() and sys.prefix in str(source):
            target.symlink_to(source)
