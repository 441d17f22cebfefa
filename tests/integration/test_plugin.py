"""The example of a package with parts of its own: installed beside ecgr, listed, run from a file, in workers too."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from support.commands import ecgr, environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "ecgr-plugin"
WORDS = ["run", str(EXAMPLE / "experiment.toml"), "--out"]
SCRIPT = f"""
import sys
from ecgr.cli.app import run_command_line
from ecgr.testing import check_algorithm, check_regulator
from ecgr_plugin.algorithm import Clipped
from ecgr_plugin.regulator import LargestNorm

for words in (["list", "--json"], {WORDS} + ["one"], {WORDS} + ["two", "--workers", "2"]):
    sys.argv = ["ecgr", *words]
    code = run_command_line()
    assert code == 0, words
check_regulator(LargestNorm)
check_algorithm(Clipped)
"""
"""In a process of its own, in which pip has installed the package."""


def test_installed_it_is_listed_passes_the_public_checks_and_trains_to_the_same_bits_in_workers(tmp_path: Path) -> None:
    """From a copy, so that the build leaves nothing behind."""
    copy = shutil.copytree(EXAMPLE, tmp_path / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(copy)], check=True, timeout=120)
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment(PYTHONPATH=path), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    listed = json.JSONDecoder().raw_decode(done.stdout.decode())[0]
    parts = {"regulators": "largest_norm", "algorithms": "clipped", "models": "rbf", "datasets": "rings"}
    for table, name in parts.items():
        assert [row for row in listed[table] if row["name"] == name], table
    one, two = tmp_path / "one", tmp_path / "two"
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
    last = json.loads((one / "rounds.jsonl").read_text().splitlines()[-1])
    assert last["metrics"]["auc"] > 0.7


def test_without_it_the_file_is_refused_by_name(tmp_path: Path) -> None:
    done = ecgr(*WORDS, tmp_path / "run")
    assert done.returncode == 2
    assert "regulator.name: unknown regulator 'largest_norm'" in done.stderr
    assert not (tmp_path / "run").exists()
