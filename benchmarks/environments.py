"""Environments of their own for simulators that nothing but one comparison needs.

Each is made on first use in ``build``, through ``constraints.txt``, and looks into the environment that runs the
benchmarks for everything that is there already: only the other simulator and what it needs have to be fetched, torch
has not. It is made again when the pins, the interpreter or that environment change.
"""

import shutil
import site
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import ROOT, environment

CONSTRAINTS = ROOT / "constraints.txt"
PATIENCE = 300  # seconds for the installation: the rest of the suite has to fit into its quarter of an hour as well


class Unavailable(Exception):
    """The environment cannot be made; says why in one line."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What is installed where, what has to be importable then, and whose pins do not hold there.

    ``apart``: packages of which the other simulator asks for an older release than ``constraints.txt`` pins.
    """

    name: str
    wanted: tuple[str, ...]
    modules: tuple[str, ...]
    apart: tuple[str, ...] = ()

    def python(self) -> str:
        """The interpreter of the environment, which is made if need be."""
        place = ROOT / "build" / self.name
        python, stamp = place / "bin" / "python", place / "installed.txt"
        if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == self._identity()):
            shutil.rmtree(place, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(place)])
            _look_into_ours(python)
            pins = place / "constraints.txt"
            pins.write_text(self._pins(), encoding="utf-8")
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
            _run([*pip, "--constraint", str(pins), *self.wanted])
            _run([str(python), "-c", f"import {', '.join(self.modules)}, torch, ecgr"])
            stamp.write_text(self._identity(), encoding="utf-8")
        return str(python)

    def _pins(self) -> str:
        lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
        return "\n".join(line for line in lines if line.partition("==")[0] not in self.apart)

    def _identity(self) -> str:
        """What the environment was made from: the same text, the same environment."""
        return "\n".join([*self.wanted, sys.version, *_ours(), self._pins()])


FLOWER = Environment(
    "flower-ray",
    wanted=("flwr[simulation]==1.41.0", "flwr-datasets[vision]==0.6.1"),
    modules=("flwr.simulation", "flwr_datasets", "ray"),
)
PFL = Environment(
    "pfl-research",
    wanted=("pfl[pytorch]==0.6.0",),
    modules=("pfl.model.pytorch",),
    apart=("absl-py", "attrs", "dp-accounting"),
)
FEDJAX = Environment(
    "fedjax",
    wanted=("fedjax==0.0.17", "jax==0.10.2", "jaxlib==0.10.2", "optax==0.2.8", "dm-haiku==0.0.17"),
    modules=("fedjax",),
)


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
