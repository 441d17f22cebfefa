"""MNIST and Fashion-MNIST: right when the files are right, and one line with file and place when they are not."""

import gzip
import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ecgr.errors import DataError
from ecgr.tasks.data import FashionMnist, Mnist
from support.image_sets import idx_files, idx_images, idx_labels, labels_of, random_images, write_idx


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_images_and_labels_arrive_as_written(tmp_path: Path, packed: bool) -> None:
    files = idx_files(train=40, test=20)
    write_idx(tmp_path, files, packed=packed)
    dataset = Mnist(root=str(tmp_path)).load()
    np.testing.assert_array_equal(dataset.train.inputs[:, 0], random_images(40, 28, 28, seed=1))
    np.testing.assert_array_equal(dataset.test.inputs[:, 0], random_images(20, 28, 28, seed=2))
    np.testing.assert_array_equal(dataset.train.targets, np.arange(40) % 10)
    assert dataset.train.inputs.flags.c_contiguous
    assert dataset.train.inputs.flags.writeable
    assert (dataset.mean, dataset.std) == ((0.1307,), (0.3081,))
    assert dataset.classes == tuple("0123456789")
    assert dataset.notes == ("reduced: 40 of 60,000 training images", "reduced: 20 of 10,000 test images")
    assert dataset.files == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def test_fashion_mnist_has_its_own_folder_names_and_normalisation(tmp_path: Path) -> None:
    write_idx(tmp_path, idx_files(), folder="FashionMNIST/raw")
    dataset = FashionMnist(root=str(tmp_path)).load()
    assert (dataset.mean, dataset.std, dataset.classes[9]) == ((0.5,), (0.5,), "Ankle boot")
    with pytest.raises(DataError, match="fetch mnist"):
        Mnist(root=str(tmp_path)).load()


def replaced(offset: int, value: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:offset] + struct.pack(">I", value) + content[offset + 4 :]


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
BAD = {
    "truncated header": (IMAGES, lambda content: content[:6], "ends at byte 6"),
    "truncated images": (IMAGES, lambda content: content[:-1], "ends at byte 31,375, at least 31,376"),
    "trailing bytes": (IMAGES, lambda content: content + b"x", "goes on after byte 31376"),
    "labels for images": (IMAGES, lambda _: idx_labels(labels_of(40, 10)), "magic number 2049 at byte 0"),
    "other size": (IMAGES, lambda _: idx_images(random_images(40, 32, 32)), "32x32 at byte 8"),
    "empty": (IMAGES, replaced(4, 0), "0 samples announced"),
    "more than there are": (IMAGES, replaced(4, 41), "at least 32,160 were expected"),
    "absurdly many": (IMAGES, replaced(4, 2**32 - 1), "4,294,967,295 samples announced"),
    "count mismatch": (LABELS, lambda _: idx_labels(labels_of(39, 10)), "39 labels for the 40 images"),
    "label out of range": (LABELS, lambda _: idx_labels(labels_of(40, 11)), "label 10 at index 10"),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize(("name", "spoil", "says"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_named_with_what_is_wrong(
    tmp_path: Path, name: str, spoil: Callable[[bytes], bytes], says: str, packed: bool
) -> None:
    files = idx_files()
    files[name] = spoil(files[name])
    write_idx(tmp_path, files, packed=packed)
    with pytest.raises(DataError) as caught:
        Mnist(root=str(tmp_path)).load()
    assert says in str(caught.value)
    assert f"{name}{'.gz' if packed else ''}" in str(caught.value)
    assert "\n" not in str(caught.value)


GZIP_DAMAGE = {
    "cut off": lambda content: content[: len(content) // 2],
    "not gzip": lambda content: b"not gzip" + content,
    "bit flipped": lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:],
    "wrong checksum": lambda content: content[:-8] + b"\0\0\0\0" + content[-4:],
}


@pytest.mark.parametrize("damage", GZIP_DAMAGE.values(), ids=GZIP_DAMAGE.keys())
def test_a_damaged_gzip_is_named_with_the_place(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    folder = write_idx(tmp_path, idx_files(), packed=True)
    path = folder / f"{IMAGES}.gz"
    path.write_bytes(damage(gzip.compress(idx_files()[IMAGES])))
    with pytest.raises(DataError, match=rf"{IMAGES}\.gz: .*byte \d+"):
        Mnist(root=str(tmp_path)).load()


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    folder = write_idx(tmp_path, idx_files())
    (folder / IMAGES).unlink()
    (folder / IMAGES).mkdir()
    with pytest.raises(DataError, match=IMAGES):
        Mnist(root=str(tmp_path)).load()
