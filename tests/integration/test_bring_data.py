"""Data as people have them: a comparison in two workers has the bits of one, and with its defaults refuses nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import nn

import ecgr

SIZES = (3, 30, 300, 5000)
NAMES = np.repeat(["tiny", "small", "medium", "large"], SIZES)


def frame() -> ecgr.Task:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=len(NAMES)), "kind": rng.choice(["a", "b"], len(NAMES)), "site": NAMES})
    table["y"] = table["x"] > 0
    return ecgr.Task.from_frame(
        table, target="y", client="site", model=lambda: nn.Linear(3, 1), loss="bce", metrics=["auc"]
    )


def hugging_face() -> ecgr.Task:
    datasets = pytest.importorskip("datasets", reason="the extra heavy is not installed")
    rng = np.random.default_rng(0)
    sound = rng.normal(size=(len(NAMES), 6)).astype(np.float32)
    whole = datasets.Dataset.from_dict({"sound": sound, "word": (sound[:, 0] > 0).astype(int), "speaker": NAMES})
    keys: dict[str, Any] = {"inputs": "sound", "target": "word", "clients": "speaker"}
    test = whole.select(range(0, len(NAMES), 20))
    return ecgr.Task(model=lambda: nn.Linear(6, 2), train=whole, test=test, **keys)


def series() -> ecgr.Task:
    def windows(lengths: Any) -> Any:
        waves = [np.sin(np.arange(n + 8) / (3 + i)) for i, n in enumerate(lengths)]
        rows = np.concatenate([np.lib.stride_tricks.sliding_window_view(wave, 9) for wave in waves])
        return rows[:, :8], rows[:, 8], np.repeat([f"meter {i}" for i in range(len(lengths))], lengths)

    parts = {"train": windows(SIZES), "test": windows([50] * 4)}
    return ecgr.Task(model=lambda: nn.Linear(8, 1), loss="mse", metrics=["mae"], **parts)


def wine() -> ecgr.Task:
    """178 wines, 13 attributes, three cultivars; no clients of its own."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    inputs, targets = datasets.load_wine(return_X_y=True)
    inputs = ((inputs - inputs.mean(0)) / inputs.std(0)).astype(np.float32)
    test = np.arange(len(inputs)) % 5 == 0
    halves = [(inputs[rows], targets[rows]) for rows in (~test, test)]
    return ecgr.Task(model=lambda: nn.Linear(13, 3), train=halves[0], test=halves[1], clients=5, name="wine")


def many() -> ecgr.Task:
    """500 clients, three to nine samples each."""
    rng = np.random.default_rng(0)
    clients = np.repeat(np.arange(500), rng.integers(3, 10, 500))
    inputs = rng.normal(size=(len(clients), 6)).astype(np.float32)
    targets = (inputs[:, 0] + 0.3 * rng.normal(size=len(clients)) > 0).astype(np.int64)
    own = (inputs[::15], targets[::15])
    return ecgr.Task(model=lambda: nn.Linear(6, 2), train=(inputs, targets), test=own, clients=clients, name="many")


@pytest.mark.parametrize("make", [frame, hugging_face, series])
def test_a_comparison_of_two_workers_has_the_bits_of_one(make: Any, tmp_path: Path) -> None:
    """With 3 to 5,000 samples a client."""
    task = make()
    assert max(np.unique(task.clients, return_counts=True)[1]) >= 4000
    few: dict[str, Any] = {"seeds": 2, "rounds": 2, "lr": 0.01, "tune": False, "references": False}
    found = {}
    for workers in (1, 2):
        out = tmp_path / str(workers)
        answer = ecgr.compare(task, methods=["fedavg", "fedavgm"], workers=workers, out=out, **few)
        models = {path.parent.name: path.read_bytes() for path in out.glob("runs/*/model.safetensors")}
        found[workers] = answer.to_json(), models
    assert len(found[1][1]) == 4
    assert found[1] == found[2]


@pytest.mark.nightly
@pytest.mark.parametrize(("make", "share"), [(wine, 1.0), (series, 1.0), (many, 0.05)])
def test_a_comparison_with_its_defaults_refuses_nothing(make: Any, share: float, tmp_path: Path) -> None:
    """Tuned, with references."""
    said: list[str] = []
    few: dict[str, Any] = {"seeds": 2, "trials": 2, "rounds": 3, "workers": 1, "engine": "serial"}
    settings = {"federation.participation": share}
    answer = ecgr.compare(make(), settings=settings, out=tmp_path, warn=said.append, **few)
    assert len(answer.pairs) == 3
    assert [reference.name for reference in answer.references] == ["alone", "pooled"], said
    assert set(answer.tuning) == {*(pair.method for pair in answer.pairs), "fedavg", "alone", "pooled"}
    assert all(pair.score is not None for pair in answer.pairs)
