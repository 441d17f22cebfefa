"""Somebody's own task, model and regulator: from a file, a script without a guard, and stdin, with two workers."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.commands import ecgr, ecgr_process, environment

TASK = """
import numpy as np
import torch
import ecgr
from dataclasses import dataclass
{more}
rng = np.random.default_rng(0)
x = rng.normal(size=(120, 4)).astype(np.float32)
y = (x[:, 0] > 0).astype(np.int64)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, inputs):
        return self.layer(inputs)

@dataclass(frozen=True)
class Halve:
    share: float = 0.5

    def __call__(self, geometry):
        return ecgr.ECGR(beta=self.share)(geometry)

task = ecgr.Task(model=lambda: Net(), train=(x[:100], y[:100]), test=(x[100:], y[100:]), clients=4, name="own")
"""
CALL = """
answer = ecgr.compare(
    task, methods=["fedavg", Halve(0.3), "scaffold"], seeds=2, rounds=2, lr=0.1, batch_size=8, tune=False,
    references=False, workers=2, out="out",
)
print(answer.pairs[0].method, len(answer.pairs))
"""
SCRIPT = TASK.format(more="print('begun')") + CALL
FEW = ["--set", "federation.batch_size=8", "--set", "federation.rounds=1"]


def python(*arguments: str, cwd: Path, text: str | None = None) -> "subprocess.CompletedProcess[str]":
    options: dict[str, Any] = {"cwd": cwd, "env": environment(), "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([sys.executable, *arguments], input=text, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done


def test_a_script_without_a_guard(tmp_path: Path) -> None:
    """A worker would run the script again, and start workers itself, if classes could only be had by importing it."""
    (tmp_path / "script.py").write_text(SCRIPT)
    assert python("script.py", cwd=tmp_path).stdout.splitlines() == ["begun", "fedavg+Halve(share=0.3) 2"]


@pytest.mark.nightly
def test_a_script_from_stdin_gives_the_same(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    python("script.py", cwd=tmp_path)
    (tmp_path / "piped").mkdir()
    python("-", cwd=tmp_path / "piped", text=SCRIPT)
    assert (tmp_path / "out/comparison.json").read_bytes() == (tmp_path / "piped/out/comparison.json").read_bytes()


def test_a_task_file_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WIDTH = 4\n")
    (tmp_path / "my_task.py").write_text(TASK.format(more="from beside import WIDTH"))
    options = ["--no-tune", "--no-references", "--seeds", "2", "--workers", "2", "--methods", "fedavg,fedavg+ecgr"]
    done = ecgr("compare", "my_task.py:task", *options, *FEW, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fedavg+ecgr" in done.stdout
    assert (tmp_path / "runs/compare-own/comparison.json").is_file()


@pytest.mark.parametrize(
    "stem", ["torch", *(pytest.param(stem, marks=pytest.mark.nightly) for stem in ("json", "quopri"))]
)
def test_a_task_file_does_not_replace_the_module_whose_name_it_has(stem: str, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(
        "import copy, json, quopri\nNAMES = [json.dumps, copy.deepcopy, quopri.encode]\n"
    )
    (tmp_path / f"{stem}.py").write_text(TASK.format(more="from beside import NAMES"))
    done = ecgr_process("run", f"{stem}.py", *FEW, "--workers", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/own/model.safetensors").is_file()


UNEVEN = "model=list, train=([[0.0]], [0, 1]), test=([[0.0]], [0])"


@pytest.mark.parametrize(
    ("content", "named", "code", "line"),
    [
        (None, "no.py:task", 2, "no file no.py"),
        ("x = 1", "t.py:task", 2, "t.py: unknown task 'task'"),
        ("task = 5", "t.py:task", 2, "t.py: expected task to be an ecgr.Task"),
        ("raise SystemExit(7)", "t.py:task", 2, "t.py, line 1: SystemExit: 7"),
        ("import math\nmath.nothing", "t.py:task", 2, "t.py, line 2: AttributeError"),
        ("def task(:\n", "t.py:task", 2, "t.py, line 1: SyntaxError"),
        ("def make():\n    return 1 / 0", "t.py:make", 3, "t.py, line 2: make(): ZeroDivisionError"),
        (f"import ecgr\ntask = ecgr.Task({UNEVEN})", "t.py", 3, "t.py: train"),
    ],
)
def test_a_task_file_that_is_no_use_is_one_clear_line(
    tmp_path: Path, content: str | None, named: str, code: int, line: str
) -> None:
    if content is not None:
        (tmp_path / "t.py").write_text(content)
    done = ecgr("compare", named, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_config_file_never_runs_anything(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("open('ran', 'w')")
    (tmp_path / "c.toml").write_text('[data]\nname = "t.py:task"\n')
    done = ecgr("run", "c.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "data.name" in done.stderr
    assert not (tmp_path / "ran").exists()
