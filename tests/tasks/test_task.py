"""A task takes whatever can be trained on, and says in one line why something else cannot be."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from ecgr.errors import ConfigError, DataError, EcgrError
from ecgr.simulation.workspace import Held, MappedFile
from ecgr.tasks.data.dataset import strata
from ecgr.tasks.data.items import Reader, read_items
from ecgr.tasks.losses import BCE, LOSSES, CallableLoss, as_loss, total
from ecgr.tasks.partition import Dirichlet
from ecgr.tasks.samples import Samples
from ecgr.tasks.task import Task

X = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 1, 0, 1, 0, 1])


def task(**changes: Any) -> Task:
    return Task(**{"model": list, "train": (X, Y), "test": (X[:2], Y[:2]), **changes})


class Items(TorchDataset[Any]):
    """Ten items of a function."""

    def __init__(self, item: Callable[[int], Any]) -> None:
        self.item = item

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        return self.item(index)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": (X, Y[:5])}, "train: 6 rows of inputs for 5 targets"),
        ({"test": ({"a": X, "b": X[:3]}, Y)}, "test: 3 rows of inputs['b'] for 6 targets"),
        ({"train": (np.where(X == 5, np.nan, X), Y)}, "train: inputs[2, 1] is nan"),
        ({"train": (X, np.array([0, 1, np.inf, 0, 0, 0]))}, "train: targets[2] is inf"),
        ({"train": (np.array([["a", 1]] * 6, dtype=object), Y)}, "train: inputs are of dtype object; give numbers"),
        ({"train": (X[:0], Y[:0])}, "train: there are no samples"),
        ({"train": "mnist"}, "train: expected (inputs, targets), Samples or a Dataset, got str"),
        ({"train": Items(lambda i: (X[i], 0))}, "train: item 6 cannot be read (IndexError: "),
        ({"test": Items(lambda i: (torch.ones(3 + i // 5), 0))}, "test: inputs of item 5 have shape (4,), those of"),
        (
            {"train": Items(lambda i: (torch.ones(2), 0.5 if i == 4 else 1))},
            "train: targets of item 4 are float64, those of item 0 int64; give one dtype",
        ),
        ({"clients": ["a", "b"]}, "clients: ids of shape (2,) for 6 training samples"),
        ({"clients": ["a"] * 6}, "clients: all samples belong to 'a'"),
        ({"clients": 1}, "clients: expected 2 or more, got 1"),
        ({"metrics": []}, "metrics: expected at least one"),
        ({"metrics": ["auc", "acuracy"]}, "metrics: unknown metric 'acuracy'; did you mean 'accuracy'?"),
        ({"loss": "mes"}, "loss: unknown loss 'mes'; did you mean 'mse'?"),
        ({"model": 3}, "model: int cannot be called"),
        ({"model": "mpl"}, "model: unknown model 'mpl'; did you mean 'mlp'?"),
        ({"metrics": None}, "metrics: NoneType cannot be called"),
        ({"metrics": {"mine": "auc"}}, "metrics: 'mine' is called auc"),
        ({"name": None}, "name: expected text, got None"),
        ({"clients": [0.0, 1.0, 0.0, np.nan, 0.0, 0.0]}, "clients: the id of sample 3 is nan"),
        ({"clients": ["a", None, "b", "b", "b", "b"]}, "clients: the id of sample 1 is None"),
        ({"clients": Dirichlet()}, "clients: expected ids or a number, got a function"),
        ({"clients": list("aabbcc"), "partition": Dirichlet()}, "partition: the clients' ids say"),
        ({"clients": list("aabbcc"), "train": (X, Y, list("aaabbb"))}, "clients: are not the third entry of train"),
    ],
)
def test_what_cannot_be_trained_on_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EcgrError) as caught:
        task(**changes)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == (2 if isinstance(caught.value, ConfigError) else 3)


def test_nothing_that_is_said_of_clients_is_dropped() -> None:
    rule = Dirichlet(alpha=5.0)
    assert task(partition=rule).partition_section == {"name": rule}
    assert task(partition=rule, clients=np.int64(3)).partition_section == {"name": rule, "clients": 3}
    named = task(train=(X, Y, list("aabbcc")))
    assert named.partition_section["name"] == "groups"
    assert named.train.groups.tolist() == list("aabbcc")
    assert replace(named, name="again").partition_section == named.partition_section


def test_functions_bear_the_names_that_they_are_given() -> None:
    metrics = task(metrics={"cost": lambda targets, given: 1.0, "gain": lambda targets, given: 2.0}).metrics
    assert [(name, metric.name) for name, metric in metrics.items()] == [("cost", "cost"), ("gain", "gain")]
    assert list(task(metrics={"auc": "auc"}).metrics) == ["auc"]


@pytest.mark.parametrize(
    "given",
    [
        (X, Y),
        [X, Y],
        (torch.tensor(X), torch.tensor(Y)),
        (X.tolist(), Y.tolist()),
        TensorDataset(torch.tensor(X), torch.tensor(Y)),
    ],
)
def test_arrays_tensors_and_lists_are_the_same_samples(given: Any) -> None:
    made = task(train=given).train
    np.testing.assert_array_equal(made.inputs, X)
    np.testing.assert_array_equal(made.targets, Y)


def test_a_dataset_too_large_for_the_memory_becomes_mapped_files() -> None:
    pairs = Items(lambda i: ({"a": X[i % 6], "b": np.array([i])}, np.array([0.5, i])))
    held, mapped = read_items(Reader("train", pairs)), read_items(Reader("train", pairs), most_bytes=10)
    assert not isinstance(held.inputs["a"], np.memmap)
    assert isinstance(mapped.inputs["a"], np.memmap)
    for name in ("a", "b"):
        np.testing.assert_array_equal(held.inputs[name], mapped.inputs[name])
    np.testing.assert_array_equal(mapped.targets[:, 1], np.arange(10))
    opened = Held.of(mapped).open()
    assert isinstance(Held.of(mapped).inputs["a"], MappedFile)
    np.testing.assert_array_equal(opened.inputs["a"].numpy()[:6], X)


def test_a_part_of_a_mapped_array_is_that_part(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(60.0).reshape(20, 3))
    whole = np.load(tmp_path / "x.npy", mmap_mode="r")
    for part in (whole, whole[:8], whole[8:], whole[4:][4:9]):
        held = Held.of(Samples(part, np.zeros(len(part), dtype=np.int64)))
        assert isinstance(held.inputs, MappedFile)
        np.testing.assert_array_equal(held.open().inputs.numpy(), part)


def test_arrays_and_tensors_are_not_copied() -> None:
    tensor = torch.tensor(X)
    assert np.shares_memory(Samples(X, Y).inputs, X)
    assert np.shares_memory(Samples(tensor, Y).inputs, tensor.numpy())


def test_the_identity_of_a_task_changes_with_any_number_loss_and_metric() -> None:
    def one(outputs: Any, targets: Any) -> Any:
        return outputs.mean()

    def two(outputs: Any, targets: Any) -> Any:
        return outputs.sum()

    changed = X.copy()
    changed[3, 1] += 1e-9
    assert task().identity == task().identity
    assert task().identity.sha256 != task(train=(changed, Y)).identity.sha256
    assert task().identity.sha256 != task(test=(X[:2], Y[:2], ["a", "b"])).identity.sha256
    assert len({task(loss=loss).identity for loss in ("cross_entropy", "mse", one, two, one)}) == 4
    assert len({task(metrics=metrics).identity for metrics in (["auc"], ["accuracy"], [one], [two])}) == 4
    with pytest.raises(DataError, match="samples of this task are in the process that made it"):
        task().identity.load()


@pytest.mark.parametrize("name", ["cross_entropy", "bce", "mse"])
def test_the_total_of_a_loss_is_its_mean_times_the_samples(name: str) -> None:
    outputs = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 2, 0, 1, 2, 0]) if name == "cross_entropy" else (outputs > 0.3).long()
    loss = LOSSES[name]()
    assert float(total(loss, outputs, targets)) == pytest.approx(7 * float(loss(outputs, targets)), rel=1e-6)


def test_any_function_is_a_loss() -> None:
    def absolute(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs - targets).abs().mean()

    assert as_loss(absolute) == CallableLoss(absolute)
    assert as_loss(BCE) == as_loss("bce") == BCE()
    with pytest.raises(ConfigError, match="loss: int cannot be called"):
        as_loss(3)


def test_a_column_of_outputs_is_as_good_as_a_vector() -> None:
    logits, yes = torch.tensor([[0.5], [-1.0]]), torch.tensor([1.0, 0.0])
    assert float(BCE()(logits, yes)) == float(BCE()(logits[:, 0], yes))


def test_numbers_are_dealt_out_by_how_large_they_are() -> None:
    """Ten bins, equally filled, in the order of the values."""
    values = np.random.default_rng(0).normal(size=100)
    bins = strata(values)
    assert np.bincount(bins).tolist() == [10] * 10
    assert values[bins == 3].max() < values[bins == 4].min()


def test_a_table_of_pandas_is_taken_and_its_columns_are_named() -> None:
    table = pd.DataFrame({"age": range(6), "flag": [True, False] * 3, "sex": list("fmfmfm"), "ill": [0, 1] * 3})
    half = (table[["age", "flag"]], table["ill"])
    task = Task(model=list, train=half, test=half, clients=table["sex"])
    assert (task.train.inputs.dtype, task.train.targets.tolist()) == (np.float64, [0, 1] * 3)
    assert task.train.groups.tolist() == list("fmfmfm")
    with pytest.raises(
        DataError, match=r"^inputs: train and test must be DataFrames with the same columns; column 'flag'"
    ):
        Task(model=list, train=(table[["age", "sex"]], table["ill"]), test=half)
    with pytest.raises(DataError, match=r"^train: expected \(inputs, targets\), .* got DataFrame; of a table, Task"):
        Task(model=list, train=table, test=half)
    gap = table[["age"]].astype("Int64").replace(2, pd.NA)
    filled = Task(model=list, train=(gap, table["ill"]), test=(gap, table["ill"]))
    assert filled.train.inputs[:, 0].tolist() == [0, 1, 3, 3, 4, 5]
