"""A run is reused while nothing that decides its numbers has changed; otherwise it is made anew, and it is said why."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ecgr as package
from ecgr.errors import ConfigError
from ecgr.runs.record import RunRecord
from support.commands import ecgr
from support.problems import tiny_task

TASK = """
from pathlib import Path
import numpy as np
import torch
import ecgr
from helper import scaled

WIDTH = 3
table = np.loadtxt(Path(__file__).parent / "table.csv", delimiter=",", dtype=np.float32)
x, y = table[:, :3], table[:, 3].astype(np.int64)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 2))

    def forward(self, inputs):
        return scaled(self.layers(inputs))

def loss(outputs, targets):
    return torch.nn.functional.cross_entropy(outputs, targets) * 1.0

task = ecgr.Task(model=lambda: Net(), train=(x[:40], y[:40]), test=(x[40:], y[40:]), clients=2, loss=loss, name="own")
"""
HELPER = "def scaled(outputs):\n    return outputs * 1.5\n"
EDITS = {
    "the model's class": ("my_task.py", "torch.nn.ReLU()", "torch.nn.Tanh()", "model code (my_task.Net.__init__)"),
    "a constant": ("my_task.py", "WIDTH = 3", "WIDTH = 4", "a constant of the model code (my_task.WIDTH)"),
    "the loss": ("my_task.py", "* 1.0", "* 2.0", "loss code (my_task.loss)"),
    "a helper in a second file": ("helper.py", "1.5", "0.5", "model code (helper.scaled)"),
    "the table": ("table.csv", "0.5,", "0.25,", "data"),
}
OPTIONS = ["--no-tune", "--no-references", "--seeds", "2", "--workers", "1", "--engine", "serial"]
OPTIONS += ["--set", "federation.rounds=1", "--set", "federation.batch_size=8", "--set", "partition.min_batches=1"]


def write_project(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.choice([0.5, 1.5, -1.0], size=(60, 3)), np.arange(60) % 2])
    np.savetxt(folder / "table.csv", rows, delimiter=",", fmt="%g")
    (folder / "my_task.py").write_text(TASK)
    (folder / "helper.py").write_text(HELPER)


def edit(path: Path, old: str, new: str) -> None:
    """Also where the file has the same size and time afterwards, as an editor's may."""
    content, stat = path.read_text(), path.stat()
    assert old in content
    path.write_text(content.replace(old, new, 1))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 2_000_000_000))


def runs_in(folder: Path) -> dict[str, int]:
    found = (folder / "runs/compare-own/runs").glob("*/model.safetensors")
    return {path.parent.name: path.stat().st_mtime_ns for path in found}


def test_after_an_edit_runs_are_made_anew_and_the_reason_is_said(tmp_path: Path) -> None:
    write_project(tmp_path)
    command = ["compare", "my_task.py:task", "--methods", "fedavg,fedavg+ecgr", *OPTIONS]
    first = ecgr(*command, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    before = runs_in(tmp_path)
    assert len(before) == 4
    again = ecgr(*command, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "changed" not in again.stderr
    assert runs_in(tmp_path) == before
    for what, (file, old, new, said) in EDITS.items():
        edit(tmp_path / file, old, new)
        done = ecgr(*command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        line = f"{said} changed: 4 runs are made anew; the old ones stay in runs/compare-own/runs"
        assert line in done.stderr, what
        after = runs_in(tmp_path)
        assert len(after) == len(before) + 4
        assert before.items() <= after.items()
        before = after


def test_data_that_a_config_names_are_known_by_their_content(tmp_path: Path) -> None:
    """A label that was corrected is another problem, also for a method that joins the comparison later."""
    rows = ["a,b,label", *(f"{i / 10},{-i % 7},{'yes' if i % 3 else 'no'}" for i in range(60))]
    (tmp_path / "table.csv").write_text("\n".join(rows))
    (tmp_path / "own.toml").write_text(
        '[data]\nname = "csv"\nroot = "table.csv"\ntarget = "label"\n[model]\nname = "mlp"\n'
        '[run]\nname = "own"\n[partition]\nclients = 2\n'
    )
    command = ["compare", "own.toml", *OPTIONS, "--methods"]
    first = ecgr(*command, "fedavg,fedacg", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert len(runs_in(tmp_path)) == 4
    edit(tmp_path / "table.csv", "yes", "no")
    done = ecgr(*command, "fedavg,fedacg,fedavgm", cwd=tmp_path)
    assert "data (table.csv) changed: 4 runs are made anew" in done.stderr, done.stderr
    assert len(runs_in(tmp_path)) == 4 + 6
    os.renames(tmp_path / "table.csv", tmp_path / "moved/table.csv")
    moved = ecgr(*command, "fedavg,fedacg,fedavgm", "--set", "data.root=moved/table.csv", cwd=tmp_path)
    assert moved.returncode == 0, moved.stderr
    assert len(runs_in(tmp_path)) == 4 + 6


def own_task(*, flipped: bool = False) -> package.Task:
    task = tiny_task(name="own")
    if flipped:
        task.train.targets[:] = 1 - task.train.targets
    return task


def test_runs_of_other_data_code_or_versions_are_not_paired(tmp_path: Path) -> None:
    def records(name: str, regulator: str, **of_task: bool) -> list[RunRecord]:
        few = {"regulator.name": regulator, "federation.rounds": 1, "federation.batch_size": 8}
        return [
            package.run(own_task(**of_task), tmp_path / f"{name}-{seed}", settings=few | {"run.seed": seed})
            for seed in range(2)
        ]

    baseline, alike = records("none", "none"), records("ecgr", "ecgr")
    assert package.compare([*baseline, *alike]).pairs[0].seeds == (0, 1)
    other = records("other", "ecgr", flipped=True)
    with pytest.raises(ConfigError, match=r"none-0 and \S*other-0 cannot be paired: they differ in data;"):
        package.compare([*baseline, *other])
    path = alike[0].directory / "run.json"
    path.write_text(path.read_text().replace(package.__version__, "0.0.1"))
    with pytest.raises(ConfigError, match=r"cannot be paired: they differ in versions \(ecgr [^\n]*0\.0\.1\)"):
        package.compare([*baseline, *(RunRecord(run.directory) for run in alike)])


def test_arrays_that_were_changed_in_place_are_other_data(tmp_path: Path) -> None:
    task, said = own_task(), list[str]()
    few: dict[str, Any] = {"seeds": 1, "rounds": 1, "batch_size": 8, "tune": False, "references": False}
    for _ in range(2):
        package.compare(task, methods=["fedavg", "fedacg"], engine="serial", out=tmp_path, warn=said.append, **few)
        task.train.targets[:5] = 1 - task.train.targets[:5]
    assert [line for line in said if "changed" in line] == [
        f"note: data changed: 2 runs are made anew; the old ones stay in {tmp_path / 'runs'}"
    ]
