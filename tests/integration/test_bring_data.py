"""Data as people have them, with 3 to 5,000 samples a client: a comparison in two workers has the bits of one."""

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
        cut = [
            np.lib.stride_tricks.sliding_window_view(np.sin(np.arange(n + 8) / (3 + i)), 9)
            for i, n in enumerate(lengths)
        ]
        rows = np.concatenate(cut)
        return rows[:, :8], rows[:, 8], np.repeat([f"meter {i}" for i in range(len(cut))], [len(own) for own in cut])

    parts = {"train": windows(SIZES), "test": windows([50] * 4)}
    return ecgr.Task(model=lambda: nn.Linear(8, 1), loss="mse", metrics=["mae"], **parts)


@pytest.mark.parametrize("make", [frame, hugging_face, series])
def test_a_comparison_of_two_workers_has_the_bits_of_one(make: Any, tmp_path: Path) -> None:
    task = make()
    assert max(np.unique(task.clients, return_counts=True)[1]) >= 4000
    found = {}
    for workers in (1, 2):
        out = tmp_path / str(workers)
        own: dict[str, Any] = {
            "methods": ["fedavg", "fedavgm"],
            "seeds": 2,
            "rounds": 2,
            "lr": 0.01,
            "tune": False,
            "references": False,
        }
        answer = ecgr.compare(task, workers=workers, out=out, **own)
        models = {path.parent.name: path.read_bytes() for path in out.glob("runs/*/model.safetensors")}
        found[workers] = answer.to_json(), models
    assert len(found[1][1]) == 4
    assert found[1] == found[2]
