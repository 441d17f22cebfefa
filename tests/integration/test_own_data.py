"""Data of one's own from a config file alone: tables, arrays and texts, with natural clients, to the same bits."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecgr.config.experiment import Experiment
from ecgr.runs.runner import run
from support.commands import ecgr, sets

RNG = np.random.default_rng(0)
Config = dict[str, dict[str, Any]]
FEW: Config = {"federation": {"rounds": 3, "batch_size": 8}, "optimizer": {"lr": 0.1}, "partition": {"name": "groups"}}


def table(folder: Path) -> Config:
    """A binary target: three sites, one column of categories."""
    rows = [f"{x:.3f},{'abc'[i % 3]},site{i % 3},{int(x > 0)}" for i, x in enumerate(RNG.normal(size=120))]
    (folder / "t.csv").write_text("x,kind,site,y\n" + "\n".join(rows))
    data = {"name": "csv", "root": str(folder / "t.csv"), "target": "y", "client": "site", "categorical": ["kind"]}
    return {"data": data, "model": {"name": "logistic"}}


def numbers(folder: Path) -> Config:
    """Regression from arrays."""
    x = RNG.normal(size=(120, 4))
    np.savez(folder / "n.npz", inputs=x, targets=x @ [1.0, -2.0, 0.5, 0.0], clients=np.arange(120) % 3)
    return {"data": {"name": "arrays", "root": str(folder / "n.npz")}, "model": {"name": "mlp", "hidden": [8]}}


def play(folder: Path) -> Config:
    """The next character."""
    speeches = (f"{'AB'[i % 2]}:\nabcabcabc abc {i}\n\n" for i in range(40))
    (folder / "p.txt").write_text("".join(speeches))
    data = {"name": "text", "root": str(folder / "p.txt"), "length": 8, "stride": 4, "minimum": 50}
    return {"data": data, "model": {"name": "transformer", "width": 8, "heads": 2, "layers": 1}}


def given(config: Config) -> list[str]:
    """A config as options of a command."""
    return sets(*(f"{section}.{key}={value}" for section, keys in config.items() for key, value in keys.items()))


@pytest.mark.parametrize(
    ("make", "metrics"),
    [
        (table, ["auc", "accuracy"]),
        (numbers, ["r2", "mae"]),
        (play, ["accuracy", "perplexity"]),
    ],
)
def test_it_trains_to_the_same_bits_in_workers(tmp_path: Path, make: Any, metrics: list[str]) -> None:
    experiment = Experiment.from_dict({**FEW, **make(tmp_path)})
    records = [run(experiment, tmp_path / f"run{workers}", workers=workers) for workers in (1, 2)]
    models = [(record.directory / "model.safetensors").read_bytes() for record in records]
    assert models[0] == models[1]
    rows = records[0].rounds
    assert list(rows[-1]["metrics"]) == metrics
    assert rows[-1]["train_loss"] < rows[0]["train_loss"]
    assert rows[-1]["worst_client"] is not None
    assert len(rows[-1]["clients"]) in (2, 3)


@pytest.mark.parametrize(
    ("settings", "code", "says"),
    [
        (["data.root=none.csv"], 3, "csv: none.csv is not there"),
        (["data.categorical=[]"], 3, "line 2, column 'kind': 'a' is not a number"),
        (["data.missing=guess"], 2, "data.missing: expected one of: refuse, drop, mean, median, got 'guess'"),
        (["model.name=lenet"], 2, "lenet needs channels.*models that fit: .*logistic, mlp"),
    ],
)
def test_what_does_not_fit_gets_one_line_and_leaves_nothing(
    tmp_path: Path, settings: list[str], code: int, says: str
) -> None:
    words = [*given(table(tmp_path)), *sets(*settings)]
    done = ecgr("run", *given(FEW), *words, "--out", tmp_path / "run")
    assert done.returncode == code, done.stderr
    assert re.search(says, done.stderr), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_who_gets_what_names_natural_clients(tmp_path: Path) -> None:
    done = ecgr("partition", *given({"data": numbers(tmp_path)["data"], **FEW}), "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["clients"]
    assert [(row["name"], row["samples"]) for row in rows] == [("0", 32), ("1", 32), ("2", 32)]
