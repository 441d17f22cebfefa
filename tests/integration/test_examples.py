"""The scripts of ``examples/``: short, and they do what they say, on small files of the same form."""

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

import ecgr

EXAMPLES = Path(__file__).parents[2] / "examples"
FEW = {"federation.rounds": 2, "federation.batch_size": 8}


def task_of(script: str, function: str, argument: Path) -> ecgr.Task:
    make: Callable[[str], ecgr.Task] = runpy.run_path(str(EXAMPLES / script))[function]
    return make(str(argument))


@pytest.mark.slow
def test_the_hospitals_are_compared_by_auc(tmp_path: Path) -> None:
    for number, hospital in enumerate(("cleveland", "va")):
        rows = ([str(40 + i + number), *["-9" if i % 7 == 0 else str(i % 3)] * 12, str(i % 4)] for i in range(60))
        lines = "".join(",".join(row) + "\n" for row in rows)
        (tmp_path / f"processed.{hospital}.data").write_text(lines)
    task = task_of("heart_disease.py", "hospitals", tmp_path)
    assert sorted(set(task.train.groups)) == ["cleveland", "va"]
    answer = ecgr.compare(
        task,
        methods=["fedavg", "fedavg+ecgr"],
        seeds=2,
        settings=FEW,
        tune=False,
        references=False,
        workers=1,
        out=tmp_path / "out",
    )
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
