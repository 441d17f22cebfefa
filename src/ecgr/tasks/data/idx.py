"""MNIST and Fashion-MNIST: IDX files in torchvision's layout, plain or .gz.

An IDX file is a magic number, the sizes as big-endian 32-bit numbers, then bytes; http://yann.lecun.com/exdb/mnist/.
"""

import struct
from pathlib import Path

import numpy as np

from ecgr.component import component
from ecgr.errors import DataError
from ecgr.tasks.data.dataset import Dataset, Images, Labels, check_labels, image_dataset
from ecgr.tasks.data.files import Digest, check_length, find_folder, member, read_file
from ecgr.tasks.data.official import OFFICIAL, KnownSet, Report, assess
from ecgr.tasks.samples import Samples

IMAGES_MAGIC = 2051
LABELS_MAGIC = 2049
SIDE = 28
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


@component
class Mnist(KnownSet):
    """60,000 + 10,000 handwritten digits, 28x28 grey."""

    root: str | None = None

    def folder(self) -> Path:
        return find_folder("mnist", (OFFICIAL["mnist"].folder,), self.root)

    def read(self) -> tuple[Dataset, Report]:
        return read_set("mnist", self.folder(), tuple("0123456789"), 0.1307, 0.3081)


@component
class FashionMnist(KnownSet):
    """60,000 + 10,000 pictures of clothes, 28x28 grey."""

    root: str | None = None

    def folder(self) -> Path:
        return find_folder("fashion_mnist", (OFFICIAL["fashion_mnist"].folder,), self.root)

    def read(self) -> tuple[Dataset, Report]:
        return read_set("fashion_mnist", self.folder(), FASHION, 0.5, 0.5)


def read_set(name: str, folder: Path, classes: tuple[str, ...], mean: float, std: float) -> tuple[Dataset, Report]:
    """The four files of ``folder`` as a data set, and how they compare with the official ones."""
    official = OFFICIAL[name]
    digests: dict[str, Digest] = {}

    def split(prefix: str, most: int) -> Samples:
        images_name, labels_name = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
        images_path = member(name, folder, images_name, f"{images_name}.gz")
        labels_path = member(name, folder, labels_name, f"{labels_name}.gz")
        images, digests[images_name] = read_images(images_path, most)
        labels, digests[labels_name] = read_labels(labels_path, most, len(classes))
        if len(images) != len(labels):
            raise DataError(
                f"{labels_path}: {len(labels):,} labels for the {len(images):,} images of {images_path.name}"
            )
        return Samples(images, labels)

    train, test = split("train", official.train), split("t10k", official.test)
    report = assess(name, official, digests, len(train), len(test))
    files = {file: digest.sha256 for file, digest in digests.items()}
    return image_dataset(train, test, classes, (mean,), (std,), files, report.notes), report


def read_images(path: Path, most: int) -> tuple[Images, Digest]:
    """An IDX file of at most ``most`` 28x28 images as (N, 1, 28, 28)."""
    content, digest = read_file(path, 17 + most * SIDE * SIDE)
    count, height, width = _sizes(path, content, IMAGES_MAGIC, "images", most, axes=3)
    if (height, width) != (SIDE, SIDE):
        raise DataError(f"{path}: images of {height}x{width} at byte 8, {SIDE}x{SIDE} were expected")
    check_length(path, content, 16 + count * SIDE * SIDE)
    return np.frombuffer(content, np.uint8, offset=16).reshape(count, 1, SIDE, SIDE).copy(), digest


def read_labels(path: Path, most: int, classes: int) -> tuple[Labels, Digest]:
    """An IDX file of at most ``most`` labels below ``classes``."""
    content, digest = read_file(path, 9 + most)
    (count,) = _sizes(path, content, LABELS_MAGIC, "labels", most, axes=1)
    check_length(path, content, 8 + count)
    labels = np.frombuffer(content, np.uint8, offset=8)
    check_labels(path, labels, classes)
    return labels.astype(np.int64), digest


def _sizes(path: Path, content: bytes, magic: int, what: str, most: int, axes: int) -> tuple[int, ...]:
    """The sizes that a header announces; a file of something else, or of more than the official one, is refused."""
    if len(content) >= 8:
        found, count = struct.unpack(">2I", content[:8])
        if found != magic:
            raise DataError(f"{path}: magic number {found} at byte 0, an IDX file of {what} starts with {magic}")
        if not count:
            raise DataError(f"{path}: 0 {what} announced at byte 4")
        if count > most:
            raise DataError(f"{path}: {count:,} {what} announced at byte 4, the official file has {most:,}")
    header = 4 + 4 * axes
    if len(content) < header:
        check_length(path, content, header)
    return struct.unpack(f">{axes}I", content[4:header])
