"""`ecgr compare` and `ecgr sweep`: do what is left, and nothing else."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from support.commands import ecgr

SMALL = ["--set", "federation.rounds=2", "--set", "partition.clients=3"]


def stamps(directory: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in directory.glob("runs/*/model.safetensors")}


def test_compare_ends_with_the_paired_table_and_redoes_only_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "comparison"
    words = "compare quickstart --no-tune --no-references --methods fedavg,fedavg+ecgr --seeds 0,1,42 --workers 2"
    command: list[str | Path] = [*words.split(), *SMALL, "--out", out]
    first = ecgr(*command)
    assert first.returncode == 0, first.stderr
    assert "fedavg+ecgr" in first.stdout
    assert "too few seeds" in first.stdout
    written = json.loads((out / "comparison.json").read_text())
    assert written["pairs"][0]["seeds"] == [0, 1, 42]
    assert len(written["pairs"][0]["difference"]["by_seed"]) == 3
    with (out / "comparison.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["fedavg", "fedavg+ecgr"]

    before = stamps(out)
    assert len(before) == 6
    again = ecgr(*command)
    assert again.returncode == 0
    assert again.stdout == first.stdout
    assert stamps(out) == before

    removed = next(path for path in (out / "runs").iterdir() if "ecgr-seed1" in path.name)
    shutil.rmtree(removed)
    third = ecgr(*command)
    assert third.returncode == 0
    after = stamps(out)
    assert [name for name in before if after[name] != before[name]] == [removed.name]
    assert third.stdout == first.stdout
    assert json.loads((out / "comparison.json").read_text()) == written

    existing = ecgr("compare", out, "--json")
    assert json.loads(existing.stdout) == written


SWEEP = """
base = "quickstart"
data = { fraction = 0.2 }
federation = { rounds = 2 }
partition = { clients = 3 }
[grid]
run.seed = [0, 1]
optimizer.lr = [0.01, 1e30]
"""


def test_a_sweep_skips_what_is_finished_and_reports_what_failed(tmp_path: Path) -> None:
    """The absurd learning rate gives NaN updates, so those runs lose their quorum (exit 6); the others finish."""
    file = tmp_path / "grid.toml"
    file.write_text(SWEEP)
    command: list[str | Path] = ["sweep", file, "--out", tmp_path / "out", "--workers", "2"]
    listed = ecgr(*command, "--dry-run")
    assert "4 runs, 4 to do" in listed.stdout
    assert not (tmp_path / "out").exists()

    first = ecgr(*command)
    assert first.returncode == 6
    assert "and 1 more failed:" in first.stderr
    assert "none of 3 client updates can be used" in first.stderr
    before = stamps(tmp_path / "out")
    assert len(before) == 2

    assert ecgr(*command).returncode == 6
    assert stamps(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("compare quickstart --seeds 0,x", "seeds: "),
        ("compare quickstart --seeds 1,1", "seeds: "),
        ("compare quickstart --regulators none,ecgr", "--regulators"),
        ("sweep quickstart", "[grid]"),
    ],
)
def test_bad_input_gives_one_line_and_writes_nothing(tmp_path: Path, words: str, hint: str) -> None:
    done = ecgr(*words.split(), "--out", tmp_path / "out")
    assert done.returncode == 2
    assert hint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
