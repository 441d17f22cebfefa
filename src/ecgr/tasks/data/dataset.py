"""What a data set is once it is loaded: bytes and labels, checked once.

Images stay uint8 (N, channels, height, width), as they come from disk; training normalises each batch. Nothing here
needs torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ecgr.errors import ConfigError, DataError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Images with their labels, one half of a data set.

    Attributes:
        images: (N, channels, height, width), uint8; may be memory-mapped.
        labels: (N,), int64.
        groups: (N,) names of what each image was taken from (a tile, a patient), where that is known.
    """

    images: Images
    labels: Labels
    groups: NDArray[np.str_] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.int64]) -> "Split":
        """The images at ``indices``."""
        groups = None if self.groups is None else self.groups[indices]
        return Split(self.images[indices], self.labels[indices], groups)


class Described(Protocol):
    """What a run's record says of its data; a `Dataset` is one, a `Provenance` is one without the images."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names."""
        ...

    @property
    def files(self) -> Mapping[str, str]:
        """SHA-256 of what was read, by file name."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know."""
        ...


@dataclass(frozen=True, slots=True)
class Provenance:
    """A data set's description, for when its images have been handed on and may be forgotten."""

    classes: tuple[str, ...]
    files: Mapping[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Training and test images of one problem.

    Attributes:
        classes: class names; label i is ``classes[i]``.
        mean: per channel, of images scaled to [0, 1]; a batch is normalised by ``(x / 255 - mean) / std``.
        std: per channel, likewise.
        files: SHA-256 of what was read, by file name: goes into the run's record.
        notes: what a reader of the record should know, such as "reduced: 10,000 of 50,000 images".
    """

    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, split in (("train", self.train), ("test", self.test)):
            check_split(name, split, channels=len(self.mean), classes=len(self.classes))

    @property
    def provenance(self) -> Provenance:
        """The description alone."""
        return Provenance(self.classes, self.files, self.notes)

    @property
    def channels(self) -> int:
        """Colour channels of an image."""
        return int(self.train.images.shape[1])


class DatasetSource(Protocol):
    """An entry of ``DATASETS``: a frozen dataclass, its own configuration, that can load what it names."""

    def load(self) -> Dataset:
        """Read and check the data set."""
        ...


def check_split(where: str, split: Split, *, channels: int, classes: int) -> None:
    """Raise a `DataError` that names the first image or label that cannot be used."""
    images, labels = split.images, split.labels
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[1] != channels:
        raise DataError(
            f"{where}: images must be uint8 (N, {channels}, height, width), got {images.dtype} {images.shape}"
        )
    if labels.shape != images.shape[:1] or labels.dtype != np.int64:
        raise DataError(f"{where}: {len(images)} images need as many int64 labels, got {labels.dtype} {labels.shape}")
    if not len(labels):
        raise DataError(f"{where}: there is not a single image")
    check_labels(where, labels, classes)


def check_labels(where: str | PathLike[str], labels: NDArray[np.integer], classes: int) -> None:
    """Raise a `DataError` that names the index and the value of the first label that is out of range."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise DataError(f"{where}: label {labels[wrong[0]]} at index {wrong[0]}; labels go from 0 to {classes - 1}")


def stratified(
    dataset: Dataset, fraction: float, rng: np.random.Generator, test_fraction: float | None = None
) -> Dataset:
    """A share of the training and test images with the class proportions kept, at least one image a class.

    Of the test images the same share as of the training images, unless ``test_fraction`` says another.
    """
    of_test = fraction if test_fraction is None else test_fraction
    for key, value in (("fraction", fraction), ("test_fraction", of_test)):
        if not 0 < value <= 1:
            raise ConfigError(f"data.{key}: {value} is not in (0, 1]")
    if fraction == of_test == 1:
        return dataset

    def share(split: Split, fraction: float) -> Split:
        if fraction == 1:
            return split
        chosen = []
        for label in np.unique(split.labels):
            members = np.flatnonzero(split.labels == label)
            chosen.append(rng.permutation(members)[: max(1, round(len(members) * fraction))])
        return split.take(np.sort(np.concatenate(chosen)))

    train, test = share(dataset.train, fraction), share(dataset.test, of_test)
    shares = f"fraction {fraction}" if test_fraction is None else f"fraction {fraction}, test fraction {of_test}"
    note = f"{shares}: {len(train)} of {len(dataset.train)} training and {len(test)} of {len(dataset.test)} test images"
    return replace(dataset, train=train, test=test, notes=(*dataset.notes, note))
