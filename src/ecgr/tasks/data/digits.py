"""1,797 real handwritten digits: embedded, so that everything runs offline in seconds.

They are scikit-learn's (from the UCI repository, CC BY 4.0), kept beside this file as 8x8 whole numbers from 0 to 16.
"""

from importlib.resources import files
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ecgr.component import component
from ecgr.tasks.data.dataset import Dataset, image_dataset
from ecgr.tasks.samples import Samples

TEST_EVERY = 5  # every fifth image is a test image: 1,438 to train on, 359 to test on
ORIGIN = "f6d9e39f37dc45d327f6db33428ee58970ccceabb2535a5c179de35886b70443"
"""SHA-256 of scikit-learn's float64 images and int64 labels, which records name as the data of a run."""
CLASSES, FILES = tuple("0123456789"), {"sklearn-digits": ORIGIN}


@component
class Digits:
    """1,797 handwritten digits from scikit-learn, 8x8 resized to 28x28, fixed split (1,438 + 359)."""

    table: bool = False  # as 64 numbers a digit, for models of tables: a tenth of the time
    train_samples: ClassVar[int] = 1438

    def load(self) -> Dataset:
        with (files("ecgr.tasks.data") / "digits.npz").open("rb") as file, np.load(file) as arrays:
            small, labels = arrays["images"].astype(np.float64), arrays["labels"].astype(np.int64)
        if self.table:  # from -1 (white) to 1 (black)
            inputs: NDArray[Any] = (small.reshape(len(small), -1) / 8 - 1).astype(np.float32)
        else:
            inputs = np.rint(enlarge(small, side=28) * (255 / 16)).clip(0, 255).astype(np.uint8)[:, None]
        test = np.arange(len(labels)) % TEST_EVERY == TEST_EVERY - 1
        train, held_out = (Samples(inputs[rows], labels[rows]) for rows in (~test, test))
        if self.table:
            shape = {"features": inputs.shape[1], "classes": len(CLASSES)}
            return Dataset(train, held_out, shape, classes=CLASSES, files=FILES)
        return image_dataset(train, held_out, CLASSES, mean=(0.3058,), std=(0.3251,), files=FILES)


def enlarge(images: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    """Square images (N, n, n) enlarged bilinearly to (N, side, side), pixels being areas: the bits of scipy's ``zoom``.

    >>> enlarge(np.array([[[0.0, 4.0], [0.0, 4.0]]]), side=4)[0, 0]
    array([0., 1., 3., 4.])
    """
    last = images.shape[1] - 1
    centres = (np.arange(side) + 0.5) * (images.shape[1] / side) - 0.5
    left = np.floor(centres).astype(int)
    share = centres - left
    neighbours = ((left.clip(0, last), 1 - share), ((left + 1).clip(0, last), share))
    result = np.zeros((len(images), side, side))
    for (rows, down), (columns, across) in product(neighbours, neighbours):
        result += images[:, rows][:, :, columns] * down[:, None] * across
    return result
