"""The example of a package with parts of its own: installed beside ecgr, listed, run from a file, in workers too."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import ecgr_process

EXAMPLE = Path(__file__).parents[2] / "examples" / "ecgr-plugin"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as pip installs it, from a copy, so that the build leaves nothing behind."""
    folder = tmp_path_factory.mktemp("plugin")
    copy = shutil.copytree(EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder / "site"), str(copy)], check=True, timeout=120)
    return folder / "site"


def path_with(folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def test_its_parts_are_listed(installed: Path) -> None:
    done = ecgr_process("list", "--json", PYTHONPATH=path_with(installed))
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    for table, name in (
        ("regulators", "largest_norm"),
        ("algorithms", "clipped"),
        ("models", "rbf"),
        ("datasets", "rings"),
    ):
        assert [row for row in listed[table] if row["name"] == name], table


def test_a_file_runs_it_to_the_same_bits_with_two_workers(installed: Path, tmp_path: Path) -> None:
    models = []
    for workers in (1, 2):
        out = tmp_path / f"workers-{workers}"
        arguments = ("run", EXAMPLE / "experiment.toml", "--workers", str(workers), "--out", out)
        done = ecgr_process(*arguments, PYTHONPATH=path_with(installed))
        assert done.returncode == 0, done.stderr
        models.append((out / "model.safetensors").read_bytes())
        rounds = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
        assert rounds[-1]["metrics"]["auc"] > 0.7
    assert models[0] == models[1]


def test_its_parts_pass_the_public_checks(installed: Path) -> None:
    code = (
        "from ecgr.testing import check_algorithm, check_regulator\n"
        "from ecgr_plugin.algorithm import Clipped\n"
        "from ecgr_plugin.regulator import LargestNorm\n"
        "check_regulator(LargestNorm)\n"
        "check_algorithm(Clipped)\n"
    )
    environment = {**os.environ, "PYTHONPATH": path_with(installed), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)


def test_without_it_the_file_is_refused_by_name(tmp_path: Path) -> None:
    done = ecgr_process("run", EXAMPLE / "experiment.toml", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "regulator.name: unknown regulator 'largest_norm'" in done.stderr
    assert not (tmp_path / "run").exists()
