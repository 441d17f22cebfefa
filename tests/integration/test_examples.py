"""The scripts of ``examples/``: short, and they do what they say, on small files of the same form."""

import difflib
import runpy
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import ecgr
from ecgr.core.regulators import Plain

EXAMPLES = Path(__file__).parents[2] / "examples"
LOOP = EXAMPLES / "accelerate-loop"


def task_of(script: str, function: str, argument: Path) -> ecgr.Task:
    task: ecgr.Task = runpy.run_path(str(EXAMPLES / script))[function](str(argument))
    return task


def test_the_hospitals_are_compared_by_auc(tmp_path: Path) -> None:
    for number, hospital in enumerate(("cleveland", "va")):
        rows = ([str(40 + i + number), *["-9" if i % 7 == 0 else str(i % 3)] * 12, str(i % 4)] for i in range(60))
        lines = "".join(",".join(row) + "\n" for row in rows)
        (tmp_path / f"processed.{hospital}.data").write_text(lines)
    task = task_of("heart_disease.py", "hospitals", tmp_path)
    assert sorted(set(task.train.groups)) == ["cleveland", "va"]
    few: dict[str, Any] = {"seeds": 2, "rounds": 2, "batch_size": 8, "tune": False, "references": False, "workers": 1}
    answer = ecgr.compare(task, methods=["fedavg", "fedavg+ecgr"], out=tmp_path / "out", **few)
    assert "auc" in str(answer)
    assert "accuracy" not in str(answer)
    assert len((EXAMPLES / "heart_disease.py").read_text().splitlines()) <= 30


def test_the_play_trains(tmp_path: Path) -> None:
    speeches = (f"{'AB'[i % 2]}:\n{'to be or not to be ' * 10}\n\n" for i in range(140))
    (tmp_path / "play.txt").write_text("".join(speeches))
    task = task_of("text_task.py", "play", tmp_path / "play.txt")
    assert sorted(set(task.train.groups)) == ["A", "B"]
    record = ecgr.run(task, tmp_path / "run", rounds=2, lr=0.1, batch_size=16)
    assert list(record.rounds[-1]["metrics"]) == ["accuracy", "perplexity"]


def test_a_loop_of_accelerate_records_with_three_more_lines() -> None:
    plain, regulated = ((LOOP / f"{name}.py").read_text().splitlines()[1:] for name in ("plain", "regulated"))
    old = {line.strip() for line in plain}
    changes = [line[2:].strip() for line in difflib.ndiff(plain, regulated) if line.startswith("+ ")]
    assert [line for line in changes if line not in old] == [
        "import ecgr",
        "with ecgr.Recorder(model, optimizer) as steps:",
        "steps.regulated(ecgr.ECGR(beta=0.2)).apply_(model)",
    ]


def test_a_step_is_one_that_accelerate_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """45 batches, two of them a step, the last one alone; with beta = 1 the loop sends what the plain one does."""
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    seen: list[ecgr.Recorder] = []

    class Seen(ecgr.Recorder):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            seen.append(self)

    monkeypatch.setattr(ecgr, "Recorder", Seen)
    monkeypatch.setattr(ecgr, "ECGR", lambda beta: Plain())
    monkeypatch.syspath_prepend(str(LOOP))
    generator = torch.Generator().manual_seed(1)
    images, labels = torch.rand(180, 1, 28, 28, generator=generator), torch.randint(10, (180,), generator=generator)
    sent = []
    for name in ("plain", "regulated"):
        batches = DataLoader(TensorDataset(images, labels), batch_size=4)
        sent.append(import_module(name).train(import_module("sites").build_model(), batches))
    for name in ("plain", "regulated", "sites"):
        del sys.modules[name]
    assert [recorder.steps for recorder in seen] == [23]
    assert all(torch.allclose(sent[0][name], sent[1][name], rtol=0, atol=1e-6) for name in sent[0])
