"""Somebody's own problem: any inputs, targets, loss and metric; objects in the place of names; nothing left behind."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ecgr.algorithms import Plan
from ecgr.compare import compare
from ecgr.config.experiment import load
from ecgr.core.geometry import Geometry, Regulation
from ecgr.errors import EcgrError
from ecgr.runs.runner import run
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import play_round, start
from ecgr.tasks.samples import Samples
from ecgr.tasks.task import Task

SITES = np.array(list("abc"))[np.arange(90) % 3]


class TokenModel(nn.Module):
    """Takes tokens and a mask by name."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        kept = self.table(tokens) * mask[..., None]
        scores: Tensor = self.head(kept.sum(dim=1))
        return scores


def table() -> Task:
    """Floats, yes or no, AUC; natural clients, and test samples that belong to them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 5))
    y = (x[:, 0] > 0).astype(float)
    test = (x[:60], y[:60], SITES[:60])
    return Task(lambda: nn.Linear(5, 1), (x, y), test, "bce", ["auc", "accuracy"], clients=SITES, name="table")


def tokens() -> Task:
    """A dict of whole numbers and truth values; classes."""
    rng = np.random.default_rng(0)
    x = {"tokens": rng.integers(0, 9, size=(90, 6)).astype(np.uint16), "mask": rng.random((90, 6)) > 0.2}
    y = (x["tokens"][:, 0] % 3).astype(np.int32)
    return Task(TokenModel, (x, y), (x, y), metrics=["accuracy", "perplexity"], clients=SITES, name="tokens")


def labels() -> Task:
    """Several yes-or-no labels a sample."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 5)).astype(np.float32)
    y = (x[:, :3] > 0).astype(np.int64)
    return Task(lambda: nn.Linear(5, 3), (x, y), (x, y), "bce", ["macro_f1", "auc"], clients=3, name="labels")


def regression() -> Task:
    """A tuple of two inputs; numbers; smaller is better; a loss of one's own."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(90, 4)), rng.normal(size=(90, 2))
    y = x.sum(axis=1) + z[:, 0]

    def huber(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.huber_loss(outputs[:, 0], targets.to(outputs.dtype))

    test = Samples((x, z), y, SITES)
    return Task(lambda: nn.Bilinear(4, 2, 1), ((x, z), y), test, huber, ["mae", "r2"], clients=SITES, name="regression")


FEW: dict[str, Any] = {"rounds": 2, "lr": 0.05, "batch_size": 8}


def model_of(directory: Path) -> bytes:
    return (directory / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("make", "worst"), [(table, min), (tokens, ...), (labels, None), (regression, max)])
def test_any_task_is_run_and_recorded_by_its_own_metrics(make: Any, worst: Any, tmp_path: Path) -> None:
    """The worst client is that by the metric's own direction, where clients have test samples."""
    task = make()
    record = run(task, tmp_path / "run", **FEW)
    row, name = record.rounds[-1], task.primary.name
    assert list(row["metrics"]) == [entry["name"] for entry in record.manifest["metrics"]] == list(task.metrics)
    assert ("accuracy" in row) == ("accuracy" in task.metrics)
    assert record.manifest["config"]["data"]["sha256"] == task.identity.sha256
    assert sum(map(sum, record.manifest["partition"])) == 90
    scores = [client[name] for client in row["clients"]]  # which a record rounds to six digits
    shown = row["worst_client"] and float(f"{row['worst_client']:.6g}")
    assert worst is ... or shown == (worst and worst(scores))


def test_a_run_never_goes_on_with_another_task(tmp_path: Path) -> None:
    task = table()
    run(task, tmp_path / "run", **FEW)
    x, y = task.train.inputs.copy(), task.train.targets
    x[0, 0] += 1
    others: dict[str, dict[str, Any]] = {
        r"another data$": {"train": (x, y)},
        r"another task.loss.name: 'bce', now 'mse'": {"loss": "mse"},
        r"another task.parameters": {"model": lambda: nn.Linear(5, 1, bias=False)},
    }
    for message, changes in others.items():
        with pytest.raises(EcgrError, match=message):
            run(replace(task, **changes), tmp_path / "run", resume=True, **FEW)


@dataclass(frozen=True)
class EveryOther:
    """A regulator of one's own: an ordinary frozen dataclass."""

    weight: float = 2.0

    def __call__(self, geometry: Geometry) -> Regulation:
        weights = torch.ones(len(geometry.gram), dtype=torch.float64)
        weights[1::2] *= self.weight
        return Regulation(weights, restore=True, kept=tuple(range(0, len(weights), 2)))


@dataclass(frozen=True)
class Shrinking:
    """An algorithm of one's own that says one thing only: a pull towards zero."""

    pull: float = 0.1

    def gradient_term(self, params: Tensor, anchor: Tensor, server: Any, client: Any) -> Tensor:
        return self.pull * params


def test_objects_stand_where_names_may(tmp_path: Path) -> None:
    settings = {"regulator.name": EveryOther(weight=0.5), "algorithm.name": Shrinking(pull=0.2)}
    record = run(table(), tmp_path / "run", settings=settings, **FEW)
    config = record.manifest["config"]
    assert config["regulator"]["name"].endswith("test_own_tasks.EveryOther")
    assert (config["regulator"]["weight"], config["algorithm"]["pull"]) == (0.5, 0.2)
    run(table(), tmp_path / "two", settings=settings, workers=2, **FEW)
    assert model_of(tmp_path / "run") == model_of(tmp_path / "two")
    plain = run(table(), tmp_path / "plain", settings={"regulator.name": "none"}, **FEW)
    assert model_of(plain.directory) != model_of(tmp_path / "run")


def test_an_experiment_keeps_its_objects_when_something_else_changes() -> None:
    experiment = load(table(), {"regulator.name": EveryOther(), "algorithm.name": Shrinking()})
    changed = experiment.replace({"run.seed": 3})
    assert changed.regulator == EveryOther()
    assert changed.key() == experiment.key()
    assert experiment.replace({"regulator.name": EveryOther(weight=3.0)}).key() != experiment.key()
    assert changed.algorithm.begin(Plan(1, 0.1, 0.0), {}, {"a": torch.ones(1)}).keys() == {"a"}


class WantsTeacher:
    """A loss that also looks at what the round's first model gives, and counts a client's classes."""

    needs_teacher = True
    seen: list[Any] = []  # noqa: RUF012  # what the loss was called with

    def __call__(self, outputs: Tensor, targets: Tensor, teacher: Tensor | None = None) -> Tensor:
        if teacher is not None:
            WantsTeacher.seen.append((outputs.detach().clone(), teacher.clone()))
        return nn.functional.cross_entropy(outputs, targets.long())

    def for_client(self, counts: Tensor) -> "WantsTeacher":
        WantsTeacher.seen.append(counts.tolist())
        return self


def test_a_loss_may_ask_for_a_teacher_and_for_a_client_s_classes() -> None:
    """At the first step of a round student and teacher are the same model; afterwards they are not."""
    WantsTeacher.seen.clear()
    task = replace(tokens(), loss=WantsTeacher())
    experiment = load(task, {"federation.batch_size": 8, "federation.rounds": 1, "regulator.name": "none"})
    problem = prepare(experiment, task.load())
    play_round(problem, SerialEngine(problem), start(problem))
    counts, first, second, *_ = WantsTeacher.seen
    assert counts == problem.class_counts[0].tolist()
    assert torch.equal(*first)
    assert not torch.equal(*second)


def nan(targets: Any, predictions: Any) -> float:
    return float("nan")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "cross_entropy"}, "train: targets are float64; cross_entropy takes classes"),
        ({"train": (np.ones((90, 5)), np.full(90, 2.0))}, "train: targets[0] is 2.0; bce takes 0 and 1"),
        ({"model": lambda: nn.Linear(4, 1)}, "model: Linear cannot take the test samples (RuntimeError:"),
        ({"model": lambda: nn.Linear(5, 2)}, "train: 1 targets a sample, 2 outputs of the model"),
        ({"model": lambda: 3}, "model: expected a function that returns a torch.nn.Module, got int"),
        ({"model": lambda: 1 / 0}, "model: building it failed (ZeroDivisionError: division by zero)"),
        ({"model": nn.Flatten}, "model: has no trainable parameter"),
        ({"metrics": [nan]}, "metrics: nan is nan on the 60 test targets"),
        ({"test": (np.ones((60, 5)), np.ones(60))}, "metrics: auc is nan on the 60 test targets"),
        ({"loss": lambda outputs, targets: outputs}, "loss: gives (2, 1), not one number"),
        ({"loss": lambda outputs, targets: outputs.detach().mean()}, "loss: has no gradient"),
        ({"loss": lambda outputs, targets: outputs.missing}, "loss: cannot take outputs (2, 1) with targets (2,)"),
    ],
)
def test_what_cannot_be_trained_leaves_no_directory(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(EcgrError) as caught:
        run(replace(table(), **changes), tmp_path / "run", **FEW)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code in {2, 3}
    assert not (tmp_path / "run").exists()


class Locked(nn.Linear):
    """A model that cannot be pickled, however hard one tries."""

    def __init__(self) -> None:
        super().__init__(5, 1)
        self.lock = Lock()


def holding() -> Any:
    lock = Lock()
    return lambda: (lock, nn.Linear(5, 1))[1]


@pytest.mark.parametrize(
    ("make", "model", "message"),
    [
        (run, Locked, r"^model: cannot be copied .*lock"),
        (
            partial(compare, methods=["fedavg", "fedacg"], seeds=1, tune=False),
            holding(),
            "workers=1 with engine serial",
        ),
    ],
)
def test_a_model_that_cannot_travel_is_refused_before_anything_is_written(
    make: Any, model: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(EcgrError, match=message) as caught:
        make(replace(table(), model=model), out=tmp_path / "run", workers=2, **FEW)
    assert caught.value.exit_code == 2
    assert not list(tmp_path.rglob("run.json"))


@dataclass(frozen=True)
class Fails:
    """A regulator, or an algorithm's part at the server, with a mistake."""

    def __call__(self, geometry: Geometry) -> Regulation:
        raise IndexError("step 9 of 4")

    def aggregate(self, *arguments: object) -> None:
        raise IndexError("step 9 of 4")


@pytest.mark.parametrize(
    ("key", "place", "function"),
    [("regulator.name", "client 0", "__call__"), ("algorithm.name", "server", "aggregate")],
)
def test_a_mistake_in_one_s_own_code_is_one_line_with_its_place(
    tmp_path: Path, key: str, place: str, function: str
) -> None:
    with pytest.raises(EcgrError) as caught:
        run(table(), tmp_path / "run", settings={key: Fails()}, **FEW)
    said = str(caught.value)
    assert said.startswith(f"round 1, {place}: IndexError: step 9 of 4 (test_own_tasks.py, line ")
    assert said.endswith(f", in {function})")


def test_a_softmax_before_cross_entropy_is_said_once_by_a_comparison(tmp_path: Path) -> None:
    half = (np.linspace(-1, 1, 120, dtype=np.float32).reshape(30, 4), np.arange(30) % 2)
    model = nn.Sequential(nn.Linear(4, 2), nn.Softmax(dim=1))
    task = Task(model=model, train=half, test=half, clients=list("abc") * 10)
    said: list[str] = []
    few: dict[str, Any] = {"seeds": 2, "rounds": 1, "trials": 2, "references": False, "workers": 1}
    compare(task, methods=["fedavg", "fedavgm"], out=tmp_path / "out", warn=said.append, **few)
    assert sum("cross_entropy expects logits" in line for line in said) == 1


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    task = table()
    run(task, tmp_path / "whole", **FEW)

    def stop(row: Any) -> None:
        if row["round"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(task, tmp_path / "cut", watch=stop, **FEW)
    run(task, tmp_path / "cut", resume=True, **FEW)
    assert model_of(tmp_path / "whole") == model_of(tmp_path / "cut")
