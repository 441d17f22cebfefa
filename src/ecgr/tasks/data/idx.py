"""MNIST and Fashion-MNIST: IDX files in torchvision's layout, plain or .gz.

An IDX file is a magic number, the sizes as big-endian 32-bit numbers, then bytes; http://yann.lecun.com/exdb/mnist/.
"""

import struct
from pathlib import Path
from typing import ClassVar

import numpy as np

from ecgr.component import component
from ecgr.errors import DataError
from ecgr.tasks.data.dataset import Dataset, Images, check_labels, image_dataset
from ecgr.tasks.data.sets import KnownFiles, check_length, compared, known_folder
from ecgr.tasks.samples import Samples

FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


@component
class Mnist:
    """60,000 + 10,000 handwritten digits, 28x28 grey."""

    root: str | None = None
    name: ClassVar[str] = "mnist"
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")
    scale: ClassVar[tuple[float, float]] = (0.1307, 0.3081)

    def folder(self) -> Path:
        return known_folder(self.name, self.root)

    def load(self) -> Dataset:
        files, (mean, std) = KnownFiles(self.name, self.root), self.scale

        def split(prefix: str, most: int) -> Samples:
            path, images = _read(files, f"{prefix}-images-idx3-ubyte", most, (28, 28))
            labels_path, labels = _read(files, f"{prefix}-labels-idx1-ubyte", most, ())
            check_labels(labels_path, labels, len(self.classes))
            if len(images) != len(labels):
                raise DataError(f"{labels_path}: {len(labels):,} labels for the {len(images):,} images of {path.name}")
            return Samples(images[:, None], labels.astype(np.int64))

        train, test = split("train", files.official.train), split("t10k", files.official.test)
        dataset = image_dataset(train, test, self.classes, (mean,), (std,), files=files.sha256)
        return compared(self.name, dataset, files.altered)


@component
class FashionMnist(Mnist):
    """60,000 + 10,000 pictures of clothes, 28x28 grey."""

    name: ClassVar[str] = "fashion_mnist"
    classes: ClassVar[tuple[str, ...]] = FASHION
    scale: ClassVar[tuple[float, float]] = (0.5, 0.5)


def _read(files: KnownFiles, file: str, most: int, sides: tuple[int, ...]) -> tuple[Path, Images]:
    """An IDX file of at most ``most`` samples of the shape ``sides``."""
    header, size = 8 + 4 * len(sides), int(np.prod(sides, dtype=int))
    path, content = files.read(file, header + most * size + 1)
    check_length(path, content[:header], header)
    magic, count, *found = struct.unpack(f">{2 + len(sides)}I", content[:header])
    if magic != 2049 + len(sides):
        raise DataError(f"{path}: magic number {magic} at byte 0, this file starts with {2049 + len(sides)}")
    if not 0 < count <= most:
        raise DataError(f"{path}: {count:,} samples announced at byte 4, expected 1 to {most:,}")
    if tuple(found) != sides:
        raise DataError(f"{path}: images of {found[0]}x{found[1]} at byte 8, expected {sides[0]}x{sides[1]}")
    check_length(path, content, header + count * size)
    return path, np.frombuffer(content, np.uint8, offset=header).reshape(count, *sides).copy()
