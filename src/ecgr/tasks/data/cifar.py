"""CIFAR-10 and CIFAR-100 as their authors give them out: pickled batches, or fixed-length records ("binary version").

A record is the label (for CIFAR-100 the coarse one, then the fine one) and 3,072 bytes, red, green and blue planes of
32x32; https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ecgr.component import component
from ecgr.errors import DataError
from ecgr.tasks.data.dataset import Dataset, Images, Labels, check_labels, image_dataset
from ecgr.tasks.data.files import Digest, find_folder, member, opened
from ecgr.tasks.data.official import OFFICIAL, KnownSet, Report, assess
from ecgr.tasks.data.safe_pickle import read_pickle
from ecgr.tasks.samples import Samples

PIXELS = 3 * 32 * 32

Batch = tuple[NDArray[np.uint8], Labels, Digest]


@dataclass(frozen=True, slots=True)
class Layout:
    """One of the forms in which a set is given out: its files and how to read them."""

    folder: str
    train: tuple[str, ...]
    test: str
    names: str
    read_batch: Callable[[Path], Batch]
    read_names: Callable[[Path], tuple[list[str], Digest]]


@component
class Cifar10(KnownSet):
    """50,000 + 10,000 photographs of 10 kinds of things, 32x32 in colour."""

    root: str | None = None
    image_size: Literal[32, 16, 8] = 32

    def folder(self) -> Path:
        return _folder("cifar10", self.root)

    def read(self) -> tuple[Dataset, Report]:
        mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
        return read_set("cifar10", self.folder(), classes=10, mean=mean, std=std, size=self.image_size)


@component
class Cifar100(KnownSet):
    """50,000 + 10,000 photographs of 100 kinds of things, 32x32 in colour."""

    root: str | None = None
    image_size: Literal[32, 16, 8] = 32

    def folder(self) -> Path:
        return _folder("cifar100", self.root)

    def read(self) -> tuple[Dataset, Report]:
        half = (0.5, 0.5, 0.5)
        return read_set("cifar100", self.folder(), classes=100, mean=half, std=half, size=self.image_size)


def read_set(
    name: str, folder: Path, classes: int, mean: tuple[float, ...], std: tuple[float, ...], size: int = 32
) -> tuple[Dataset, Report]:
    """The batches of ``folder`` as a data set, and how they compare with the official ones."""
    layout = next(layout for layout in LAYOUTS[name] if layout.folder == folder.name)
    digests: dict[str, Digest] = {}

    def split(files: tuple[str, ...]) -> Samples:
        images, labels = [], []
        for file in files:
            path = member(name, folder, file)
            batch_images, batch_labels, digests[file] = layout.read_batch(path)
            check_labels(path, batch_labels, classes)
            images.append(batch_images)
            labels.append(batch_labels)
        return Samples(shrunk(_join(images), size), np.concatenate(labels))

    train, test = split(layout.train), split((layout.test,))
    report = assess(name, OFFICIAL[name], digests, len(train), len(test))
    names, names_digest = layout.read_names(member(name, folder, layout.names))
    if len(names) != classes or len(set(names)) != classes:
        raise DataError(f"{folder / layout.names}: {len(set(names))} different class names, {classes} were expected")
    files = {file: digest.sha256 for file, digest in (*digests.items(), (layout.names, names_digest))}
    notes = report.notes if size == 32 else (*report.notes, f"images averaged down from 32x32 to {size}x{size}")
    return image_dataset(train, test, tuple(names), mean, std, files, notes), report


def shrunk(images: Images, size: int) -> Images:
    """Images of ``size`` x ``size``, each pixel the rounded mean of the square it covers.

    >>> shrunk(np.array([[[[0, 2], [4, 6]]]], dtype=np.uint8), 1).tolist()
    [[[[3]]]]
    """
    count, channels, side, _ = images.shape
    if size == side:
        return images
    block = side // size
    squares = images.reshape(count, channels, size, block, size, block)
    totals = squares.sum(axis=(3, 5), dtype=np.uint32)
    smaller: Images = ((totals + block * block // 2) // (block * block)).astype(np.uint8)
    return smaller


def _folder(name: str, root: str | None) -> Path:
    return find_folder(name, [layout.folder for layout in LAYOUTS[name]], root)


def _join(parts: list[NDArray[np.uint8]]) -> Images:
    """One contiguous array; a part is let go as soon as it is copied, so that no more than one is there twice."""
    images = np.empty((sum(map(len, parts)), PIXELS), dtype=np.uint8)
    start = 0
    while parts:
        part = parts.pop(0)
        images[start : start + len(part)] = part
        start += len(part)
    return images.reshape(-1, 3, 32, 32)


def _pickled_batch(path: Path, key: str) -> Batch:
    with opened(path) as source:
        batch = read_pickle(source)
        digest = source.finish()
    images, labels = batch.get("data"), batch.get(key)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (PIXELS,):
        found = f"{images.dtype} {images.shape}" if isinstance(images, np.ndarray) else type(images).__name__
        raise DataError(f"{path}: `data` must be uint8 (N, {PIXELS}), got {found}")
    labels = _whole_numbers(path, key, labels)
    if not len(images) or len(labels) != len(images):
        raise DataError(f"{path}: {len(labels):,} labels under `{key}` for {len(images):,} images")
    return images, labels, digest


def _whole_numbers(path: Path, key: str, labels: object) -> Labels:
    if isinstance(labels, np.ndarray) and labels.ndim == 1:
        labels = labels.tolist()
    if not isinstance(labels, list):
        raise DataError(f"{path}: `{key}` must be a list of labels, got {type(labels).__name__}")
    for index, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < 1 << 31:
            shown = label if isinstance(label, int | float) else type(label).__name__
            raise DataError(f"{path}: label {shown} at index {index}; labels are whole numbers from 0")
    return np.array(labels, dtype=np.int64)


def _pickled_names(path: Path, key: str) -> tuple[list[str], Digest]:
    with opened(path) as source:
        names = read_pickle(source).get(key)
        digest = source.finish()
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise DataError(f"{path}: `{key}` must be a list of class names")
    return [name.decode("latin-1") if isinstance(name, bytes) else name for name in names], digest


def _binary_batch(path: Path, label_bytes: int, most: int) -> Batch:
    record = label_bytes + PIXELS
    with opened(path) as source:
        count, rest = divmod(source.size or 0, record)
        if rest or not 0 < count <= most:
            raise DataError(
                f"{path}: {source.size:,} bytes are not 1 to {most:,} records of {record} bytes"
                f" (record {count} breaks off at byte {count * record:,}); get it again"
            )
        records = np.frombuffer(source.read(count * record), dtype=np.uint8).reshape(count, record)
        digest = source.finish()
    return records[:, label_bytes:], records[:, label_bytes - 1].astype(np.int64), digest


def _text_names(path: Path) -> tuple[list[str], Digest]:
    with opened(path) as source:
        text = source.read(min(source.size or 0, 1 << 16)).decode("utf-8", errors="replace")
        digest = source.finish()
    return [line.strip() for line in text.splitlines() if line.strip()], digest


BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
LAYOUTS = {
    "cifar10": (
        Layout(
            folder="cifar-10-batches-py",
            train=BATCHES,
            test="test_batch",
            names="batches.meta",
            read_batch=lambda path: _pickled_batch(path, "labels"),
            read_names=lambda path: _pickled_names(path, "label_names"),
        ),
        Layout(
            folder="cifar-10-batches-bin",
            train=tuple(f"{batch}.bin" for batch in BATCHES),
            test="test_batch.bin",
            names="batches.meta.txt",
            read_batch=lambda path: _binary_batch(path, label_bytes=1, most=50_000),
            read_names=_text_names,
        ),
    ),
    "cifar100": (
        Layout(
            folder="cifar-100-python",
            train=("train",),
            test="test",
            names="meta",
            read_batch=lambda path: _pickled_batch(path, "fine_labels"),
            read_names=lambda path: _pickled_names(path, "fine_label_names"),
        ),
        Layout(
            folder="cifar-100-binary",
            train=("train.bin",),
            test="test.bin",
            names="fine_label_names.txt",
            read_batch=lambda path: _binary_batch(path, label_bytes=2, most=50_000),
            read_names=_text_names,
        ),
    ),
}
