"""A run's identity, and the commit of a checkout, however git keeps it."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ecgr
from ecgr.errors import ConfigError
from ecgr.runs.identity import Identify, commit, identity_key
from ecgr.runs.runner import run
from ecgr.tasks.models import resnet18
from support.problems import tiny_task

HASH = "0123456789abcdef0123456789abcdef01234567"


def test_a_branch_a_packed_branch_and_a_commit_by_itself(tmp_path: Path) -> None:
    assert commit(tmp_path) is None
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text(f"{HASH}\n")
    assert commit(tmp_path) == HASH
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    assert commit(tmp_path) is None
    (tmp_path / ".git" / "packed-refs").write_text(f"# pack-refs with: peeled\n{HASH} refs/heads/main\n")
    assert commit(tmp_path) == HASH
    (tmp_path / ".git" / "refs" / "heads" / "main").write_text(HASH[::-1])
    assert commit(tmp_path) == HASH[::-1]


class Net(nn.Module):
    """A model of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)


task = partial(tiny_task, model=Net)


def key(source: Any, **settings: Any) -> str:
    return identity_key(Identify()(ecgr.load(source, settings)))


def doubled(targets: Any, predictions: Any) -> float:
    return float(np.mean(targets == predictions)) * 2


def weighted(outputs: torch.Tensor, targets: torch.Tensor, weight: float = 1.0) -> torch.Tensor:
    return weight * nn.functional.cross_entropy(outputs, targets)


def test_whatever_decides_a_number_is_in_the_identity_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setitem(ecgr.MODELS, "own", Net)
    tasks = [
        *(task(model=model) for model in (Net, Net(), Net(), "own")),
        *(task(model=partial(nn.Linear, 2, 2, bias=bias)) for bias in (True, False)),
        *(task(loss=loss) for loss in (weighted, partial(weighted, weight=2.0), partial(weighted, weight=3.0))),
        *(task(metrics=[doubled]), *(task(metrics={"a": partial(doubled, targets=n), "b": doubled}) for n in (0, 1))),
    ]
    keys = [key(each) for each in tasks]
    assert len(set(keys)) == len(keys)
    assert keys == [key(each) for each in tasks]
    assert "test_run_identity.Net.__init__" in Identify()(ecgr.load(tasks[3]))["code"]["model"]
    assert key(task()) == key(task(), **{"run.seed": 3, "run.name": "another"})
    assert key(task()) != key(task(), **{"optimizer.lr": 0.7})


def test_a_partition_s_file_counts_by_its_content(tmp_path: Path) -> None:
    file, copy = tmp_path / "clients.csv", tmp_path / "copy.csv"
    file.write_text("0,1\n")
    copy.write_text("0,1\n")
    first = key("quickstart", **{"partition.file": str(file)})
    assert key("quickstart", **{"partition.file": str(copy)}) == first
    file.write_text("1,0\n")
    assert key("quickstart", **{"partition.file": str(file)}) != first


def test_data_that_are_not_here_do_not_stop_a_plan(tmp_path: Path) -> None:
    """They may be where the runs are made; where nothing is known of them, their place stands for them."""
    settings = {"data.name": "csv", "data.target": "y"}
    identity = Identify()(ecgr.load("quickstart", {**settings, "data.root": str(tmp_path / "no.csv")}))
    assert identity["data"] == {}
    assert identity_key(identity) != key("quickstart", **settings, **{"data.root": str(tmp_path / "other.csv")})


def test_a_run_that_was_planned_on_other_data_is_not_made(tmp_path: Path) -> None:
    experiment = ecgr.load(task(), {"federation.batch_size": 8, "partition.min_batches": 0})
    identity = {**Identify()(experiment), "data": {"task": "0"}}
    with pytest.raises(ConfigError, match="data changed since the runs were planned; give the command again"):
        run(experiment, tmp_path / "run", identity=identity)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("make", [Net, lambda: resnet18(channels=1, classes=2)], ids=["user's", "ours"])
def test_weights_of_a_module_and_what_of_it_is_trained_are_in_the_identity(make: Any) -> None:
    torch.manual_seed(0)
    model = make()
    before = key(task(model=model))
    assert key(task(model=model)) == before
    keys = {before, *(key(task(model=model, trainable=chosen)) for chosen in ("head", "*.bias", lambda *_: True))}
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    assert len(keys | {key(task(model=model))}) == 5
