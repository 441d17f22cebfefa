"""A task takes arrays, tensors, tables and items, through a transform or not, and says in one line what cannot be."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

import ecgr
from ecgr.errors import ConfigError, DataError, EcgrError
from ecgr.simulation.workspace import Held, MappedFile
from ecgr.tasks.data.dataset import hold_out, strata
from ecgr.tasks.data.items import Reader, read_items
from ecgr.tasks.partition import Dirichlet
from ecgr.tasks.samples import Samples
from ecgr.tasks.task import Task

X = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 1, 0, 1, 0, 1])


def task(**changes: Any) -> Task:
    return Task(**{"model": list, "train": (X, Y), "test": (X[:2], Y[:2]), **changes})


class Items(TorchDataset[Any]):
    """So many items of a function."""

    def __init__(self, item: Callable[[int], Any], count: int = 10) -> None:
        self.item, self.count = item, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.item(index)


def listed(rows: list[Any]) -> Items:
    """A list as a data set as of Hugging Face."""
    return Items(rows.__getitem__, len(rows))


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


def test_without_test_samples_a_share_of_each_clients_is_held_out_and_drawn_anew_by_comparisons() -> None:
    x, ids = np.arange(80.0).reshape(40, 2), np.repeat(["a", "b"], [30, 10])
    made = Task(list, (x, x[:, 0]), clients=ids, loss="mse")
    assert made.redraw
    assert [np.count_nonzero(made.test.groups == name) for name in "ab"] == [6, 2]
    assert np.array_equal(np.sort(np.concatenate([made.train.inputs, made.test.inputs]), axis=0), x)
    assert [*made.metrics] == ["mae", "r2"]
    assert len(Task(list, (X, pd.Series(Y)), test=0.5).test) == 3
    assert not task().redraw
    for share in (0, 1, True):
        with pytest.raises(ConfigError, match=r"expected samples, or the share"):
            Task(list, (X, Y), test=share)


@pytest.mark.parametrize(
    "given",
    [
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
    assert np.shares_memory(task().train.inputs, X)


def test_a_dataset_too_large_for_the_memory_becomes_mapped_files(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = Items(lambda i: ({"a": X[i % 6], "b": np.array([i])}, np.array([0.5, i])))
    held = read_items(Reader("train", pairs))
    monkeypatch.setattr("ecgr.core.stores.free_memory", lambda: 20)
    mapped = read_items(Reader("train", pairs))
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
    with pytest.raises(DataError, match=r"^inputs: .* must be DataFrames with the same columns; column 'flag'"):
        Task(model=list, train=(table[["age", "sex"]], table["ill"]), test=half)
    with pytest.raises(DataError, match=r"^train: expected \(inputs, targets\), .* got DataFrame; of a table, Task"):
        Task(model=list, train=table, test=half)
    two = (half[0], table[["age", "flag"]])
    with pytest.raises(DataError, match=r"^test: 1 target columns, in the training data 2"):
        Task(train=two, test=half, model="logistic", loss="mse")


ROWS = [{"a": float(i), "b": [i, i + 1], "y": i % 2, "who": "xyz"[i % 3]} for i in range(12)]


def task_of(items: Any = ROWS, **options: Any) -> Task:
    own = {"model": list, "inputs": "b", "target": "y", "clients": "who", "test": listed(ROWS[:4])}
    return Task(train=listed(items), **{**own, **options})


def test_keys_name_what_the_parts_are() -> None:
    one, several = task_of(), task_of(inputs=["a", "b"])
    assert one.train.inputs.tolist() == [row["b"] for row in ROWS]
    assert one.train.targets.tolist() == [row["y"] for row in ROWS]
    assert one.train.groups.tolist() == one.clients.tolist() == [row["who"] for row in ROWS]
    assert one.test.groups.tolist() == ["x", "y", "z", "x"]
    assert task_of(test=listed([{"b": [1, 2], "y": 0}])).test.groups is None  # it need not say whose it is
    assert {name: array.tolist()[1] for name, array in several.train.inputs.items()} == {"a": 1.0, "b": [1, 2]}


@pytest.mark.parametrize(
    ("items", "options", "message"),
    [
        (ROWS, {"target": None}, "inputs, target: name the keys of items, both; got inputs='b', target=None"),
        (ROWS, {"target": "z"}, "train: item 0 has no key 'z'; it has: a, b, y, who"),
        ([*ROWS, {"b": [1, 2], "who": "x"}], {}, "train: item 12 has no key 'y'; it has: b, who"),
        ([*ROWS, {**ROWS[0], "who": None}], {}, "train: 'who' of item 12 is None; fill it in"),
        ([*ROWS, {**ROWS[0], "b": [1, 2, 3]}], {}, "train: 'b' of item 12 have shape (3,), those of item 0 (2,); pad"),
        ([*ROWS, {**ROWS[0], "a": "text"}], {"inputs": ["a", "b"]}, "train: 'a' of item 12 is text; make numbers of"),
        ([*ROWS, {**ROWS[0], "a": float("nan")}], {"inputs": "a"}, "train: 'a' of item 12 has NaN or infinite values"),
        (ROWS, {"inputs": None, "target": None, "clients": 2}, "train: item 0 is dict; items are pairs (inputs"),
        ([(1, 2)], {}, "train: item 0 is tuple; inputs= and target= name keys of dicts"),
        (ROWS, {"test": {"part": 1}}, "test: expected (inputs, targets), Samples or a Dataset, got dict; give one of"),
        (ROWS, {"transform": lambda b: 1 / (b[0] - 3)}, "train: transform failed for item 3 (ZeroDivisionError: "),
        (ROWS, {"transform": lambda b: np.random.default_rng().normal(size=2)}, "transform: train: 'b' of item 0 is"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_on_is_named_by_key_and_index(items: Any, options: Any, message: str) -> None:
    with pytest.raises((ConfigError, DataError)) as error:
        task_of(items, **options)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("1", 1), ("RGB", 3), ("RGBA", 3), ("P", 3), ("CMYK", 3)])
def test_an_image_has_one_channel_or_three_from_0_to_1(mode: str, channels: int) -> None:
    image = pytest.importorskip("PIL.Image").new("RGB", (5, 4), (255, 0, 0)).convert(mode)
    (pixels,) = read_items(Reader("train", listed([(image, 0)]))).inputs
    assert (pixels.shape, pixels.dtype, pixels.max() <= 1) == ((channels, 4, 5), np.float32, True)
    if mode in ("RGB", "RGBA", "P"):
        assert pixels[:, 0, 0].tolist() == [1, 0, 0]
    without_range = pytest.importorskip("PIL.Image").new("F", (5, 4))
    with pytest.raises(DataError, match="an image of mode F has no one range"):
        read_items(Reader("train", listed([(without_range, 0)])))


def noisy(row: Any, rng: Any) -> Any:
    return np.asarray(row, dtype=float) + rng.normal(size=2)


def torches(row: Any) -> Any:
    return torch.as_tensor(row, dtype=torch.float64) + torch.randn(2)


@pytest.mark.parametrize("transform", [noisy, torches])
def test_fresh_items_depend_on_the_moment_and_on_nothing_else(transform: Any) -> None:
    task = task_of(transform=transform, test_transform=lambda row: row, cache=False)
    items, before = task.train.inputs, torch.get_rng_state()
    late, early = items.read(np.array([3, 1]), (0, 1, 2, 0)), items.read(np.array([1]), (0, 1, 2, 0))
    assert late[1].tolist() == early[0].tolist()
    for other in ((1, 1, 2, 0), (0, 2, 2, 0), (0, 1, 1, 0), (0, 1, 2, 1)):
        assert items.read(np.array([1]), other)[0].tolist() != early[0].tolist()
    assert items.read(np.array([1, 2]), None).tolist() == [[1, 2], [2, 3]]  # to be scored on
    assert torch.equal(before, torch.get_rng_state())
    held = hold_out(task.load(), 0.5, np.random.default_rng(0))
    assert held.test.inputs.read(held.test.inputs.numbers, None).tolist() == [
        ROWS[i]["b"] for i in np.flatnonzero(np.asarray(held.held))
    ]
    assert task.identity == task_of(transform=transform, test_transform=lambda row: row, cache=False).identity


def test_read_once_a_transform_is_frozen_and_arrays_go_through_it_too() -> None:
    once = task_of(transform=noisy, test_transform=lambda row: row)
    assert once.train.inputs.shape == (12, 2)
    assert not np.array_equal(once.train.inputs, task_of().train.inputs)
    assert once.test.inputs.tolist() == task_of().test.inputs.tolist()
    doubled = task(train=(X, Y, list("aabbcc")), test=(X, Y), transform=lambda row: 2 * row)
    assert doubled.train.inputs.tolist() == (2 * X).tolist() == doubled.test.inputs.tolist()
    assert doubled.train.groups.tolist() == list("aabbcc")


@pytest.mark.slow
def test_fresh_items_train_to_the_same_bits_in_workers_and_resumed(tmp_path: Path) -> None:
    def made(folder: str, **options: Any) -> bytes:
        own = {"lr": 0.1, "rounds": 4, "settings": {"federation.local_epochs": 2, "partition.min_batches": 0}}
        task = task_of(ROWS, transform=noisy, cache=False, model=lambda: nn.Linear(2, 2))
        return (ecgr.run(task, tmp_path / folder, **{**own, **options}).directory / "model.safetensors").read_bytes()

    whole = made("serial")
    assert made("pool", workers=2) == whole
    made("resumed", rounds=2)
    assert made("resumed", resume=True) == whole
    frozen = task_of(ROWS, transform=noisy, model=lambda: nn.Linear(2, 2))
    once = ecgr.run(frozen, tmp_path / "once", lr=0.1, rounds=4, settings={"partition.min_batches": 0})
    assert (once.directory / "model.safetensors").read_bytes() != whole


def test_a_dataframe_without_test_rows_is_parted_before_it_is_encoded() -> None:
    """As from_frame parts it: categories and medians are those of the training rows."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(60, 9, 90), "sex": rng.choice(["f", "m"], 90)})
    table.loc[3, "age"] = np.nan
    ill = pd.Series(np.where(table.age > 60, "yes", "no"), name="ill")
    sites = np.repeat(["north", "south", "west"], 30)
    made = Task(model=lambda: nn.Linear(3, 2), train=(table, ill), clients=sites)
    same = Task.from_frame(
        table.assign(ill=ill, site=sites), target="ill", client="site", model=lambda: nn.Linear(3, 2)
    )
    for half, other in ((made.train, same.train), (made.test, same.test)):
        np.testing.assert_array_equal(half.inputs, other.inputs)
        np.testing.assert_array_equal(half.targets, other.targets)
        np.testing.assert_array_equal(half.groups, other.groups)
    assert made.redraw
    assert len(Task(model=lambda: nn.Linear(3, 2), train=(table, ill), clients=5, test=0.4).test) == 36
    with pytest.raises(ConfigError, match="clients: given twice"):
        Task(model=lambda: nn.Linear(3, 2), train=(table, ill, sites), clients=sites)
    with pytest.raises(DataError, match="90 rows and 50 targets"):
        Task(model=lambda: nn.Linear(3, 2), train=(table, ill[:50]), clients=5)
