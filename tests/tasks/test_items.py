"""Items of dicts or pairs become samples by their keys, through a transform once or at every epoch, or are refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ecgr
from ecgr.errors import ConfigError, DataError
from ecgr.tasks.data.dataset import hold_out
from ecgr.tasks.data.items import Reader, read_items
from ecgr.tasks.task import Task


class Items:
    """A data set as of Hugging Face."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


ROWS = [{"a": float(i), "b": [i, i + 1], "y": i % 2, "who": "xyz"[i % 3]} for i in range(12)]


def task_of(items: Sequence[Any] = ROWS, **options: Any) -> Task:
    own = {"model": list, "inputs": "b", "target": "y", "clients": "who", "test": Items(ROWS[:4])}
    return Task(train=Items(items), **{**own, **options})


def test_keys_name_what_the_parts_are() -> None:
    one, several = task_of(), task_of(inputs=["a", "b"])
    assert one.train.inputs.tolist() == [row["b"] for row in ROWS]
    assert one.train.targets.tolist() == [row["y"] for row in ROWS]
    assert one.train.groups.tolist() == one.clients.tolist() == [row["who"] for row in ROWS]
    assert one.test.groups.tolist() == ["x", "y", "z", "x"]
    assert {name: array.tolist()[1] for name, array in several.train.inputs.items()} == {"a": 1.0, "b": [1, 2]}


def test_a_test_item_need_not_say_whose_it_is() -> None:
    assert task_of(test=Items([{"b": [1, 2], "y": 0}])).test.groups is None


@pytest.mark.parametrize(
    ("items", "options", "message"),
    [
        (ROWS, {"target": None}, "inputs, target: name the keys of items, both; got inputs='b', target=None"),
        (ROWS, {"inputs": []}, "inputs, target: name the keys of items, both; got inputs=[]"),
        (ROWS, {"target": "z"}, "train: item 0 has no key 'z'; it has: a, b, y, who"),
        ([*ROWS, {"b": [1, 2], "who": "x"}], {}, "train: item 12 has no key 'y'; it has: b, who"),
        ([*ROWS, {**ROWS[0], "who": None}], {}, "train: 'who' of item 12 is None; fill it in"),
        ([*ROWS, {**ROWS[0], "b": [1, 2, 3]}], {}, "train: 'b' of item 12 have shape (3,), those of item 0 (2,); pad"),
        ([*ROWS, {**ROWS[0], "a": "text"}], {"inputs": ["a", "b"]}, "train: 'a' of item 12 is text; make numbers of"),
        ([*ROWS, {**ROWS[0], "y": "cat"}], {}, "train: 'y' of item 12 is text; encode it"),
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
    (pixels,) = read_items(Reader("train", Items([(image, 0)]))).inputs
    assert (pixels.shape, pixels.dtype, pixels.max() <= 1) == ((channels, 4, 5), np.float32, True)
    if mode in ("RGB", "RGBA", "P"):
        assert pixels[:, 0, 0].tolist() == [1, 0, 0]


def test_an_image_without_a_range_is_refused() -> None:
    image = pytest.importorskip("PIL.Image").new("F", (5, 4))
    with pytest.raises(DataError, match="an image of mode F has no one range"):
        read_items(Reader("train", Items([(image, 0)])))


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


def test_read_once_a_transform_is_frozen() -> None:
    once = task_of(transform=noisy, test_transform=lambda row: row)
    assert once.train.inputs.shape == (12, 2)
    assert not np.array_equal(once.train.inputs, task_of().train.inputs)
    assert once.test.inputs.tolist() == task_of().test.inputs.tolist()


def test_arrays_go_through_a_transform_too() -> None:
    X, y = np.arange(8.0).reshape(4, 2), np.arange(4) % 2
    task = Task(model=list, train=(X, y, ["a", "a", "b", "b"]), test=(X, y), transform=lambda row: 2 * row)
    assert task.train.inputs.tolist() == (2 * X).tolist() == task.test.inputs.tolist()
    assert task.train.groups.tolist() == ["a", "a", "b", "b"]


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
