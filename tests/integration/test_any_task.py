"""Tasks as people bring them go through a comparison with its defaults: tuned, with references, no refusal."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import ecgr

datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")

SMALL: dict[str, Any] = {"seeds": 2, "trials": 2, "rounds": 3, "workers": 1, "engine": "serial"}


def wine() -> ecgr.Task:
    """178 wines, 13 attributes, three cultivars."""
    inputs, targets = datasets.load_wine(return_X_y=True)
    inputs = ((inputs - inputs.mean(0)) / inputs.std(0)).astype(np.float32)
    test = np.arange(len(inputs)) % 5 == 0
    halves = [(inputs[rows], targets[rows]) for rows in (~test, test)]
    return ecgr.Task(model=lambda: nn.Linear(13, 3), train=halves[0], test=halves[1], clients=5, name="wine")


def diabetes() -> ecgr.Task:
    """442 patients, ten attributes, a number a year later."""
    inputs, targets = datasets.load_diabetes(return_X_y=True)
    inputs, targets = (20 * inputs).astype(np.float32), ((targets - 152) / 77).astype(np.float32)
    return ecgr.Task(
        model=lambda: nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 1)),
        train=(inputs[:350], targets[:350]),
        test=(inputs[350:], targets[350:]),
        clients=4,
        loss="mse",
        metrics=["mae"],
        name="diabetes",
    )


def many() -> ecgr.Task:
    """500 clients of whom 5 % take part, three to nine samples each."""
    rng = np.random.default_rng(0)
    clients = np.repeat(np.arange(500), rng.integers(3, 10, 500))
    inputs = rng.normal(size=(len(clients), 6)).astype(np.float32)
    targets = (inputs[:, 0] + 0.3 * rng.normal(size=len(clients)) > 0).astype(np.int64)
    test = rng.normal(size=(200, 6)).astype(np.float32)
    own = (test, (test[:, 0] > 0).astype(np.int64))
    return ecgr.Task(model=lambda: nn.Linear(6, 2), train=(inputs, targets), test=own, clients=clients, name="many")


@pytest.mark.nightly
@pytest.mark.parametrize("task", [wine, diabetes, many])
def test_a_comparison_with_its_defaults_refuses_nothing(task, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    settings = {"federation.participation": 0.05} if task is many else {}
    said: list[str] = []
    answer = ecgr.compare(task(), settings=settings, out=tmp_path, warn=said.append, **SMALL)
    assert len(answer.pairs) == 3
    assert [reference.name for reference in answer.references] == ["alone", "pooled"], said
    assert set(answer.tuning) == {*(pair.method for pair in answer.pairs), "fedavg", "alone", "pooled"}
    assert all(pair.score is not None for pair in answer.pairs)
