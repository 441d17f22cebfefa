"""An environment of its own for Flower's simulation engine, which nothing but one comparison needs.

It is made on first use in ``build/flower-ray``, through ``constraints.txt``, and looks into the environment that runs
the benchmarks for everything that is there already: only Ray, Flower Datasets and what they need have to be fetched,
torch has not. It is made again when the pins, the interpreter or that environment change.
"""

import shutil
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

from benchmarks.rows import ROOT, environment

PLACE = ROOT / "build" / "flower-ray"
CONSTRAINTS = ROOT / "constraints.txt"
WANTED = ("flwr[simulation]==1.41.0", "flwr-datasets[vision]==0.6.1")
PATIENCE = 300  # seconds for the installation: the rest of the suite has to fit into its quarter of an hour as well


class Unavailable(Exception):
    """The environment cannot be made; says why in one line."""


def python_with_ray() -> str:
    """The interpreter of the environment, which is made if need be."""
    python, stamp = PLACE / "bin" / "python", PLACE / "installed.txt"
    if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == _identity()):
        shutil.rmtree(PLACE, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(PLACE)])
        _look_into_ours(python)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        _run([*pip, "--constraint", str(CONSTRAINTS), *WANTED])
        _run([str(python), "-c", "import flwr.simulation, flwr_datasets, ray, torch, ecgr"])
        stamp.write_text(_identity(), encoding="utf-8")
    return str(python)


def _identity() -> str:
    """What the environment was made from: the same text, the same environment."""
    return "\n".join([*WANTED, sys.version, *_ours(), CONSTRAINTS.read_text(encoding="utf-8")])


def _ours() -> list[str]:
    """Where the running interpreter finds packages."""
    return [path for path in site.getsitepackages() if Path(path).is_dir()]


def _look_into_ours(python: Path) -> None:
    """Let the new environment see the packages of the running one, behind its own.

    `site.addsitedir` and not the bare path: this package may be installed in editable form, through a ``.pth`` file.
    """
    version = f"python{sysconfig.get_python_version()}"
    own = python.parents[1] / "lib" / version / "site-packages"
    lines = [f"import site; site.addsitedir({path!r})" for path in _ours()]
    (own / "packages-of-the-benchmarks.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _run(command: list[str]) -> None:
    variables = {k: v for k, v in environment().items() if k not in {"PYTHONPATH", "PYTHONHOME", "PIP_TARGET"}}
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{Path(command[0]).name}: {error}") from None
    if done.returncode:
        said = [line for line in done.stderr.strip().splitlines() if line.strip()] or ["no reason given"]
        raise Unavailable(next((line for line in said if line.startswith("ERROR")), said[-1]))
