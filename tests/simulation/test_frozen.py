"""Frozen parts: nothing in them moves, and the features of a frozen body are computed once."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

import ecgr
from ecgr.errors import ConfigError
from ecgr.runs.runner import run
from ecgr.simulation import frozen as features
from ecgr.simulation.by_hand import chain
from ecgr.simulation.engines import open_engine
from ecgr.simulation.prepare import prepare, prepare_site
from ecgr.simulation.rounds import play_round, start
from ecgr.simulation.workspace import Problem
from ecgr.tasks.models import resnet18

SAMPLES, CLASSES = 40, 3


@pytest.fixture(autouse=True)
def _caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECGR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(features, "_held", OrderedDict())


def body() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(2)
    )


def in_a_row(*before_head: nn.Module, after: tuple[nn.Module, ...] = ()) -> nn.Sequential:
    return nn.Sequential(body(), nn.Flatten(), *before_head, nn.Linear(16, CLASSES), *after)


class Written(nn.Module):
    """A forward pass of one's own, in which the head comes last."""

    def __init__(self, scale: float = 1.0, noise: float = 0.0) -> None:
        super().__init__()
        self.net, self.fc = body(), nn.Linear(16, CLASSES)
        self.scale, self.noise = scale, noise

    def forward(self, x: Tensor) -> Tensor:
        features = self.net(x).flatten(1)
        if self.training and self.noise:
            features = features + self.noise
        return self.scale * self.fc(features) if self.scale != 1 else self.fc(features)  # type: ignore[no-any-return]


def task(model: Any, trainable: Any = "head", **changes: Any) -> ecgr.Task:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(SAMPLES, 1, 8, 8)).astype(np.float32), np.arange(SAMPLES) % CLASSES
    given = {"train": (x, y), "test": (x[:20], y[:20]), "clients": 2, "partition": ecgr.IID()}
    return ecgr.Task(**{"model": model, "trainable": trainable, **given, **changes})


def problem(given: ecgr.Task, **settings: Any) -> Problem:
    changes = {"regulator.name": "none", "federation.batch_size": 4, **settings}
    return prepare(ecgr.load(given, changes), given.load())


@pytest.mark.parametrize(
    "make",
    [in_a_row, lambda: in_a_row(after=(nn.LogSoftmax(1),)), Written, lambda: nn.Sequential(in_a_row())],
    ids=["in a row", "something after the head", "a forward of its own", "nested"],
)
def test_only_the_head_is_trained_on_features_under_the_names_and_to_the_loss_of_the_whole(
    make: Callable[[], nn.Module],
) -> None:
    given, whole = problem(task(make)), problem(task(make, lambda name, _: name.split(".")[-2] in {"2", "fc"}))
    assert given.notes == ()
    assert given.train.inputs.shape == (SAMPLES, 16)
    assert given.spec == whole.spec
    assert given.spec.size == 16 * CLASSES + CLASSES
    with open_engine(given, 1) as engine:
        outcome = play_round(given, engine, start(given))
    assert outcome.row["bytes_up"] == 2 * 4 * given.spec.size
    slow = replace(given, train=whole.train, test=whole.test)
    assert slow.spec == given.spec
    assert make is not Written or chain(given.model) is not None, "trained by hand"


def trained(given: ecgr.Task, out: Path, **settings: Any) -> dict[str, Any]:
    changes = {"regulator.name": "none", "run.served": "last", **settings}
    run(given, out, rounds=3, lr=0.1, batch_size=4, settings=changes)
    return load_file(out / "model.safetensors")


def test_the_slow_way_leads_to_the_same_model_and_nothing_frozen_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = Written()
    fast = trained(task(model), tmp_path / "fast")

    def never(*_: Any) -> Any:
        raise features.Whole("not now")

    monkeypatch.setattr(features.Split, "of", never)
    slow = trained(task(model), tmp_path / "slow")
    before = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    assert fast.keys() == slow.keys() == before.keys()
    for name, value in before.items():
        np.testing.assert_allclose(fast[name], slow[name], rtol=1e-5, atol=1e-6)
        moved = not np.array_equal(slow[name], value)
        assert moved == name.startswith("fc."), name


def test_workers_and_this_process_train_the_same_bits() -> None:
    for make in (Written, lambda: Written(noise=0.1)):
        given = problem(task(make))
        found = []
        for workers in (1, 2):
            with open_engine(given, workers) as engine:
                found.append(play_round(given, engine, start(given)).snapshot.params)
        assert torch.equal(*found)


def test_a_site_finds_the_features_of_the_simulation() -> None:
    given = task(in_a_row)
    experiment = ecgr.load(given, {"regulator.name": "none"})
    whole, partition = prepare(experiment, given.load()), prepare(experiment, given.load()).partition
    own = partition.clients[1]
    features._held.clear()
    there = replace(given, train=(given.train.inputs[own], given.train.targets[own]), clients=None, partition=None)
    site = prepare_site(experiment, there.load(), 1)
    assert torch.equal(site.train.inputs, whole.train.inputs[torch.from_numpy(own)])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: in_a_row(nn.Dropout(0.1)), "not the same in training"),
        (lambda: Written(noise=0.1), "not the same in training"),
        (lambda: Written(scale=2.0), "more with its outputs"),
        (lambda: in_a_row(nn.BatchNorm1d(16, affine=False, track_running_stats=False)), "whole batch"),
    ],
    ids=["dropout", "another pass in training", "something after it", "statistics of the batch"],
)
def test_what_cannot_be_split_is_trained_whole_and_said(make: Callable[[], nn.Module], why: str) -> None:
    given = problem(task(make))
    (note,) = given.notes
    assert why in note
    assert given.train.inputs.shape == (SAMPLES, 1, 8, 8)
    with open_engine(given, 1) as engine:
        assert play_round(given, engine, start(given)).row["bytes_up"] == 2 * 4 * given.spec.size


def test_patterns_and_functions_choose_what_is_trained() -> None:
    def names(trainable: Any) -> tuple[str, ...]:
        return problem(task(in_a_row, trainable)).spec.names

    assert names("2.bias") == ("2.bias",)
    assert names("*.bias") == ("0.1.bias", "2.bias")
    assert names(lambda _, parameter: parameter.ndim == 4) == ("0.0.weight",)
    assert problem(task(lambda: resnet18(channels=1, classes=CLASSES))).spec.names == ("fc.weight", "fc.bias")


@pytest.mark.parametrize("trainable", ["last", lambda *_: False])
def test_what_picks_nothing_is_refused_with_the_names_there_are(trainable: Any) -> None:
    with pytest.raises(ConfigError, match=r"trainable: .* picks no parameter.* there are 0.0.weight, 0.1.weight"):
        problem(task(in_a_row, trainable))


def test_a_config_says_what_is_trained() -> None:
    experiment = ecgr.load(task(in_a_row, None), {"model.trainable": "head"})
    assert experiment.replace({"run.seed": 1}).to_dict()["model"]["trainable"] == "head"
    with pytest.raises(ConfigError, match=r"trainable: expected .*, got 3"):
        task(in_a_row, 3)
    with pytest.raises(ConfigError, match=r"model.trainable: expected .*, got 3"):
        ecgr.load("quickstart", {"model.trainable": 3})


def test_features_are_computed_once_and_a_damaged_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    compute = features._computed

    def counted(*given: Any) -> Any:
        calls.append(1)
        return compute(*given)

    monkeypatch.setattr(features, "_computed", counted)
    torch.manual_seed(0)
    model = in_a_row()
    first = problem(task(model))
    assert len(calls) == 2  # of training and of test samples
    problem(task(model), **{"run.seed": 5})
    assert len(calls) == 2  # from memory
    features._held.clear()
    problem(task(model))
    assert len(calls) == 2  # from disk
    files = sorted((tmp_path / "cache").glob("features-*.safetensors"))
    assert len(files) == 2
    for file in files:
        content = bytearray(file.read_bytes())
        content[-3] ^= 1
        file.write_bytes(bytes(content[: len(content) if file is files[0] else 20]))
    features._held.clear()
    again = problem(task(model))
    assert len(calls) == 4
    assert torch.equal(again.train.inputs, first.train.inputs)


def test_another_body_or_other_samples_have_other_features() -> None:
    torch.manual_seed(0)
    model = in_a_row()
    first = problem(task(model)).train.inputs
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    assert not torch.equal(problem(task(model)).train.inputs, first)
    given = task(model)
    given.train.inputs[3] += 1
    found = problem(given).train.inputs
    assert not torch.equal(found[3], first[3])
