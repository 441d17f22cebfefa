"""CIFAR-10 and CIFAR-100, pickled and binary."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecgr.errors import DataError, IntegrityError
from ecgr.tasks.data import Cifar10, Cifar100
from support.image_sets import (
    CIFAR10_NAMES,
    CIFAR100_NAMES,
    labels_of,
    random_images,
    write_cifar10,
    write_cifar10_binary,
    write_cifar100,
    write_cifar100_binary,
)

EXPECTED = np.concatenate([random_images(20, 3072, seed=number) for number in range(1, 6)])


def test_pickled_batches_arrive_as_written_whoever_wrote_them(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    dataset = Cifar10(root=str(tmp_path)).load()
    np.testing.assert_array_equal(dataset.train.inputs.reshape(-1, 3072), EXPECTED)
    np.testing.assert_array_equal(dataset.test.inputs.reshape(-1, 3072), random_images(20, 3072, seed=9))
    np.testing.assert_array_equal(dataset.train.targets, np.tile(np.arange(20) % 10, 5))
    assert dataset.train.inputs.shape == (100, 3, 32, 32)
    assert dataset.train.inputs.flags.c_contiguous
    assert dataset.train.inputs.flags.writeable
    assert dataset.classes == tuple(CIFAR10_NAMES)
    assert (dataset.mean, dataset.std) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    assert set(dataset.files) == {path.name for path in folder.iterdir()}
    assert dataset.notes == ("reduced: 100 of 50,000 training images", "reduced: 20 of 10,000 test images")


def test_the_binary_version_holds_the_same(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "pickled")
    write_cifar10_binary(tmp_path / "binary")
    pickled, binary = (Cifar10(root=str(tmp_path / form)).load() for form in ("pickled", "binary"))
    np.testing.assert_array_equal(pickled.train.inputs, binary.train.inputs)
    np.testing.assert_array_equal(pickled.train.targets, binary.train.targets)
    np.testing.assert_array_equal(pickled.test.inputs, binary.test.inputs)
    assert pickled.classes == binary.classes
    assert binary.train.inputs.flags.c_contiguous


def test_cifar100_uses_the_fine_labels_in_both_forms(tmp_path: Path) -> None:
    write_cifar100(tmp_path / "pickled")
    write_cifar100_binary(tmp_path / "binary")
    for form in ("pickled", "binary"):
        dataset = Cifar100(root=str(tmp_path / form)).load()
        np.testing.assert_array_equal(dataset.train.inputs.reshape(-1, 3072), random_images(100, 3072, seed=1))
        np.testing.assert_array_equal(dataset.train.targets, np.arange(100))
        assert dataset.classes == tuple(CIFAR100_NAMES)
        assert dataset.mean == dataset.std == (0.5, 0.5, 0.5)


def test_the_pickled_version_is_preferred(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    write_cifar10_binary(tmp_path)
    assert "data_batch_1" in Cifar10(root=str(tmp_path)).load().files


class Gadget:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.canary}",)


@pytest.mark.parametrize("file", ["data_batch_3", "test_batch", "batches.meta"])
def test_a_gadget_anywhere_is_refused_with_exit_code_4_and_does_not_run(tmp_path: Path, file: str) -> None:
    canary = tmp_path / "canary"
    folder = write_cifar10(tmp_path)
    (folder / file).write_bytes(pickle.dumps({"data": random_images(20, 3072), "labels": [Gadget(canary)]}))
    with pytest.raises(IntegrityError, match=file) as caught:
        Cifar10(root=str(tmp_path)).load()
    assert caught.value.exit_code == 4
    assert not canary.exists()


def batch(**changes: object) -> bytes:
    return pickle.dumps({"data": random_images(20, 3072), "labels": labels_of(20, 10).tolist(), **changes}, 4)


BAD_BATCHES = {
    "truncated": (lambda content: content[:-100], "data_batch_2: "),
    "no data": (lambda _: pickle.dumps({"labels": [1]}), "`data` must be uint8 .* got NoneType"),
    "wrong type": (lambda _: batch(data=np.zeros((20, 3072), np.int16)), "got int16"),
    "wrong shape": (lambda _: batch(data=random_images(20, 3071)), r"got uint8 \(20, 3071\)"),
    "flat": (lambda _: batch(data=random_images(20 * 3072)), r"got uint8 \(61440,\)"),
    "no image": (lambda _: batch(data=random_images(0, 3072), labels=[]), "0 labels .* for 0 images"),
    "no labels": (lambda _: pickle.dumps({"data": random_images(20, 3072)}, 4), "`labels` must be a list"),
    "too few labels": (lambda _: batch(labels=[1] * 19), "19 labels under `labels` for 20 images"),
    "float label": (lambda _: batch(labels=[1] * 5 + [2.5] * 15), "label 2.5 at index 5"),
    "true for a label": (lambda _: batch(labels=[True] * 20), "label True at index 0"),
    "text label": (lambda _: batch(labels=["cat"] * 20), "label str at index 0"),
    "negative label": (lambda _: batch(labels=[1, -1] * 10), "label -1 at index 1"),
    "label too large": (lambda _: batch(labels=[9] * 19 + [10]), "label 10 at index 19; labels go from 0 to 9"),
    "gigantic label": (lambda _: batch(labels=[10**30] * 20), "at index 0"),
}


@pytest.mark.parametrize(("spoil", "says"), BAD_BATCHES.values(), ids=BAD_BATCHES.keys())
def test_a_bad_batch_is_named_with_what_is_wrong(tmp_path: Path, spoil: Callable[[bytes], bytes], says: str) -> None:
    path = write_cifar10(tmp_path) / "data_batch_2"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(DataError, match=says) as caught:
        Cifar10(root=str(tmp_path)).load()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_labels_may_be_an_array_of_whole_numbers(tmp_path: Path) -> None:
    path = write_cifar10(tmp_path) / "data_batch_2"
    path.write_bytes(batch(labels=labels_of(20, 10).astype(np.int64)))
    assert Cifar10(root=str(tmp_path)).load().train.targets[25] == 5


@pytest.mark.parametrize("file", ["data_batch_4", "test_batch", "batches.meta"])
def test_a_missing_member_is_named(tmp_path: Path, file: str) -> None:
    (write_cifar10(tmp_path) / file).unlink()
    with pytest.raises(DataError, match=f"{file} is missing"):
        Cifar10(root=str(tmp_path)).load()


BAD_NAMES = {
    "nine": [b"a"] * 9,
    "twice the same": [b"a"] * 10,
    "numbers": list(range(10)),
    "none": None,
}


@pytest.mark.parametrize("names", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_class_names_have_to_fit(tmp_path: Path, names: object) -> None:
    (write_cifar10(tmp_path) / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}))
    with pytest.raises(DataError, match=r"batches\.meta.*class names"):
        Cifar10(root=str(tmp_path)).load()


def test_binary_records_have_to_be_whole_and_in_range(tmp_path: Path) -> None:
    path = write_cifar10_binary(tmp_path) / "data_batch_1.bin"
    content = path.read_bytes()
    for spoilt, says in (
        (content[:-1], "record 19 breaks off at byte 58,387"),
        (b"", "0 bytes"),
        (b"\x0a" + content[1:], "label 10 at index 0"),
    ):
        path.write_bytes(spoilt)
        with pytest.raises(DataError, match=says) as caught:
            Cifar10(root=str(tmp_path)).load()
        assert "data_batch_1.bin" in str(caught.value)
