"""What an LDA head on the baseline's features gains: the score of a run with one, computed once, said if it counts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import ecgr
from ecgr.report.words import head_lines

RNG = np.random.default_rng(0)
Y = np.sort(RNG.integers(0, 4, 240))
X = (RNG.normal(size=(240, 6)) + 3 * RNG.normal(size=(4, 6))[Y]).astype(np.float32)
SETTINGS: dict[str, Any] = {
    "federation.rounds": 1,
    "federation.batch_size": 20,
    "optimizer.lr": 0.001,
    "run.served": "average",
}


def task(**options: Any) -> ecgr.Task:
    return ecgr.Task(
        model=lambda: nn.Linear(6, 4), train=(X, Y), test=(X, Y), clients=np.repeat(list("abcd"), 60), **options
    )


def test_it_is_the_score_of_runs_with_a_head_and_is_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = ["fedavg", "fedavg@lda"]
    asked: dict[str, Any] = {
        "methods": methods,
        "seeds": 4,
        "settings": SETTINGS,
        "tune": False,
        "engine": "serial",
        "out": tmp_path,
    }
    answer = ecgr.compare(task(), **asked)
    [pair] = answer.pairs
    assert answer.head is not None
    assert pair.difference is not None
    assert answer.head.difference.differences == pytest.approx(pair.difference.differences)
    assert answer.head.difference.mean > 0.3
    [line] = head_lines(answer, everything=False)
    assert line.startswith("An LDA head on the same features as fedavg gives +")
    assert line.endswith("the classifier is the problem, not the features.")
    assert line in json.loads(answer.to_json())["worth"]

    def unexpected(*_: object) -> None:
        raise AssertionError("computed twice")

    monkeypatch.setattr("ecgr.simulation.prepare.prepare", unexpected)
    assert ecgr.compare(task(), **asked).to_json() == answer.to_json()
    assert ecgr.compare(tmp_path).to_json() == answer.to_json()
    small = replace(answer.head, margin=1.0)
    assert head_lines(replace(answer, head=small), everything=False) == []
    assert "the classifier is the problem" not in head_lines(replace(answer, head=small))[0]


def test_where_there_is_no_head_nothing_is_said(tmp_path: Path) -> None:
    numbers = ecgr.Task(
        model=lambda: nn.Linear(6, 1), train=(X, X[:, 0]), test=(X, X[:, 0]), clients=3, loss="mse", metrics=["mae"]
    )
    methods = ["fedavg", "fedprox"]
    answer = ecgr.compare(
        numbers, methods=methods, seeds=2, settings=SETTINGS, tune=False, engine="serial", out=tmp_path
    )
    assert answer.head is None
    assert head_lines(answer) == []
    assert {each["score"] for each in json.loads((tmp_path / "heads.json").read_text())} == {None}
