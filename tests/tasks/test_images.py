"""Small image sets: right when the files are right, one line with file and place when not; a pickle never runs."""

import gzip
import hashlib
import os
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecgr.errors import DataError, IntegrityError
from ecgr.tasks.data import Cifar10, Cifar100, FashionMnist, Mnist, available, verify
from ecgr.tasks.data.images import read_pickle
from support.image_sets import (
    CIFAR10_NAMES,
    CIFAR100_NAMES,
    idx_files,
    idx_images,
    idx_labels,
    labels_of,
    python2_pickle,
    random_images,
    write_cifar10,
    write_cifar100,
    write_idx,
)
from support.quick import examples


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


BAD_IDX = {
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


@pytest.mark.parametrize(("name", "spoil", "says"), BAD_IDX.values(), ids=BAD_IDX.keys())
def test_a_bad_file_is_named_with_what_is_wrong(
    tmp_path: Path, name: str, spoil: Callable[[bytes], bytes], says: str
) -> None:
    files = idx_files()
    files[name] = spoil(files[name])
    for packed in (False, True):
        root = tmp_path / str(packed)
        write_idx(root, files, packed=packed)
        with pytest.raises(DataError) as caught:
            Mnist(root=str(root)).load()
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


def test_cifar100_uses_the_fine_labels(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    dataset = Cifar100(root=str(tmp_path)).load()
    np.testing.assert_array_equal(dataset.train.inputs.reshape(-1, 3072), random_images(100, 3072, seed=1))
    np.testing.assert_array_equal(dataset.train.targets, np.arange(100))
    assert dataset.classes == tuple(CIFAR100_NAMES)
    assert dataset.mean == dataset.std == (0.5, 0.5, 0.5)


class Runs:
    """Pickles as a call of ``function``."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("file", ["data_batch_3", "test_batch", "batches.meta"])
def test_a_gadget_anywhere_is_refused_with_exit_code_4_and_does_not_run(tmp_path: Path, file: str) -> None:
    canary = tmp_path / "canary"
    folder = write_cifar10(tmp_path)
    (folder / file).write_bytes(
        pickle.dumps({"data": random_images(20, 3072), "labels": [Runs(os.system, f"touch {canary}")]})
    )
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
    "no image": (lambda _: batch(data=random_images(0, 3072), labels=[]), "each of 0 images, got 0"),
    "no labels": (lambda _: pickle.dumps({"data": random_images(20, 3072)}, 4), "`labels` must be a list"),
    "too few labels": (lambda _: batch(labels=[1] * 19), "each of 20 images, got 19"),
    "float label": (lambda _: batch(labels=[1] * 5 + [2.5] * 15), "label 2.5 at index 5"),
    "true for a label": (lambda _: batch(labels=[True] * 20), "label True at index 0"),
    "negative label": (lambda _: batch(labels=[1, -1] * 10), "label -1 at index 1"),
    "label too large": (lambda _: batch(labels=[9] * 19 + [10]), "label 10 at index 19; labels go from 0 to 9"),
    "no names": (lambda _: pickle.dumps({b"label_names": None}), r"batches\.meta.*class names"),
    "too few names": (lambda _: pickle.dumps({b"label_names": [b"a"] * 9}), r"batches\.meta.*class names"),
    "same names": (lambda _: pickle.dumps({b"label_names": [b"a"] * 10}), r"batches\.meta.*class names"),
}


@pytest.mark.parametrize(("spoil", "says"), BAD_BATCHES.values(), ids=BAD_BATCHES.keys())
def test_a_bad_batch_is_named_with_what_is_wrong(tmp_path: Path, spoil: Callable[[bytes], bytes], says: str) -> None:
    path = write_cifar10(tmp_path) / ("batches.meta" if "names" in says else "data_batch_2")
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(DataError, match=says) as caught:
        Cifar10(root=str(tmp_path)).load()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(DataError, match=f"{path.name} is missing"):
        Cifar10(root=str(tmp_path)).load()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_every_protocol_are_read(tmp_path: Path, protocol: int, order: Any) -> None:
    images = np.asarray(random_images(6, 10), order=order)
    labels = np.arange(6, dtype=">i4")
    content = {"data": images, b"labels": labels, "names": ["a", b"b"], "n": 7}
    result = read_pickle(tmp_path / "batch", pickle.dumps(content, protocol))
    np.testing.assert_array_equal(result["data"], images)
    np.testing.assert_array_equal(result["labels"], labels)
    assert (result["names"], result["n"]) == (["a", b"b"], 7)


def gadgets(canary: Path) -> dict[str, object]:
    touch = f"touch {canary}"
    holder = np.empty(2, dtype=object)
    holder[:] = [Runs(os.system, touch), 1]
    return {
        "system": Runs(os.system, touch),
        "nested in a dict": {"data": random_images(2, 3), "labels": [Runs(os.system, touch)]},
        "as a key": {(1, Runs(os.mkdir, str(canary))): 1},
        "object array": {"data": holder},
        "eval": Runs(eval, f"open({str(canary)!r}, 'w')"),
        "getattr": Runs(getattr, "x", "upper"),
        "numpy load": Runs(np.load, "x.npy"),
        "codecs decode": {"data": Runs(__import__("_codecs").decode, b"x", "utf-8")},
        "complex": {"data": 1j},
        "numpy scalar": {"labels": [np.int64(3)]},
        "path": {"data": canary},
    }


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("name", gadgets(Path("x")))
def test_a_pickle_that_wants_more_is_refused_and_nothing_runs(tmp_path: Path, name: str, protocol: int) -> None:
    """The standard unpickler does run what is given as `system`."""
    canary = tmp_path / "canary"
    content = pickle.dumps(gadgets(canary)[name], protocol)
    with pytest.raises(IntegrityError, match=r"^[^\n]*batch[^\n]*byte[^\n]*$"):
        read_pickle(tmp_path / "batch", content)
    assert not canary.exists()
    if name == "system":
        pickle.loads(content)
        assert canary.exists()


NDARRAY = b"cnumpy\nndarray\n"
FUNCTION = b"cnumpy.core.numeric\n_frombuffer\n"
HAND_MADE = {
    "instance opcode": b"(S'touch canary'\nios\nsystem\n.",
    "persistent id": b"\x80\x02U\x01xQ.",
    "extension": b"\x80\x02\x82\x01.",
    "state for a function": FUNCTION + b"(dS'__code__'\nI1\nsb.",
    "slot state for a function": FUNCTION + b"(N(dS'__defaults__'\n(I1\ntstb.",
    "state for a class": NDARRAY + b"(dS'array'\nI1\nsb.",
    "dotted name": b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93.",
    "builtins by the old name": b"c__builtin__\neval\n(S'1'\ntR.",
    "list": pickle.dumps([1]),
    "array": pickle.dumps(random_images(1, 2), 4),
    "array without content": b"(S'data'\n" + NDARRAY + b"(tRd.",
    "too few bytes": python2_pickle({"data": random_images(2, 3)}).replace(b"U\x06", b"U\x05", 1),
    "class without its checks": b"\x80\x02" + NDARRAY + b")\x81.",
}


@pytest.mark.parametrize("content", HAND_MADE.values(), ids=HAND_MADE.keys())
def test_what_no_pickler_of_a_batch_writes_is_refused_and_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((IntegrityError, DataError)):
        read_pickle(tmp_path / "batch", content)
    assert not (tmp_path / "canary").exists()


WHOLE = pickle.dumps({"data": random_images(4, 16), "labels": [1, 2, 3, 4]}, 4)


def test_every_truncation_and_what_goes_on_is_a_data_error(tmp_path: Path) -> None:
    for content in (*(WHOLE[:end] for end in range(len(WHOLE))), WHOLE + b"x"):
        with pytest.raises(DataError, match="batch"):
            read_pickle(tmp_path / "batch", content)


@examples(200)
@given(position=st.integers(0, len(WHOLE) - 1), value=st.integers(0, 255), data=st.binary(max_size=40))
def test_whatever_the_bytes_are_the_answer_is_ours(
    tmp_path_factory: pytest.TempPathFactory, position: int, value: int, data: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp()
    for content in (WHOLE[:position] + bytes([value]) + WHOLE[position + 1 :], data):
        with suppress(DataError, IntegrityError):
            read_pickle(folder / "batch", content)


ABSURD = {
    "bytes": b"\x80\x04\x8e" + struct.pack("<Q", 10**12) + b"x.",
    "text": b"\x80\x04\x8d" + struct.pack("<Q", 10**12) + b"x.",
    "bytearray": b"\x80\x05\x96" + struct.pack("<Q", 10**12) + b"x.",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 10**12) + b"N.",
    "memo": b"\x80\x02]r" + struct.pack("<I", 2**32 - 1) + b".",
    "string": b"\x80\x02T" + struct.pack("<i", 2**31 - 1) + b"x.",
    "shape": python2_pickle({"data": random_images(2, 3)}).replace(struct.pack("<i", 3), struct.pack("<i", 2**31 - 1)),
}


@pytest.mark.parametrize("content", ABSURD.values(), ids=ABSURD.keys())
def test_an_absurd_size_is_refused_before_memory_is_set_aside(tmp_path: Path, content: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DataError):
            read_pickle(tmp_path / "batch", content)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


SETS = {"mnist", "fashion_mnist", "cifar10", "cifar100"}
ABSENT = SETS - {row.name for row in available() if row.place} if os.environ.get("ECGR_DATA") else SETS
real = pytest.mark.skipif(bool(ABSENT), reason=f"not below $ECGR_DATA: {', '.join(sorted(ABSENT))}")


@real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "status", "counts"),
    [
        (Mnist(), "official", (60_000, 10_000)),
        (FashionMnist(), "reordered", (60_000, 10_000)),
        (Cifar10(), "reordered", (50_000, 10_000)),
        (Cifar100(), "reduced", (10_000, 2_000)),
    ],
)
def test_the_real_sets(source: Mnist | Cifar10, status: str, counts: tuple[int, int]) -> None:
    """The sets beside this project; the official ones everywhere else are as good."""
    report, dataset = verify(source.name), source.load()
    if report.status != "official":
        assert (report.status, tuple(report.counts.values())) == (status, counts)
    assert len(np.unique(dataset.train.targets)) == len(np.unique(dataset.test.targets)) == len(dataset.classes)
    if dataset.mean[0] != 0.5:
        np.testing.assert_allclose(dataset.train.inputs.mean(axis=(0, 2, 3)) / 255, dataset.mean, atol=2e-3)
