"""Pictures in folders, one folder a class: any set of one's own."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from ecgr.component import component
from ecgr.errors import DataError
from ecgr.tasks.data.dataset import Dataset, image_dataset
from ecgr.tasks.data.locate import own_path
from ecgr.tasks.data.official import Report
from ecgr.tasks.data.picture_cache import decoded
from ecgr.tasks.data.pictures import Picture, decode_all, list_pictures
from ecgr.tasks.samples import Samples

ImageSize = Annotated[int, Field(ge=8, le=1024)]
Share = Annotated[float, Field(gt=0, lt=1)]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Listing = Mapping[str, Sequence[Picture]]
"""Pictures by class, classes in the order of their labels."""


@component
class ImageFolder:
    """Your own pictures: root/CLASS/*.png, or root/train/CLASS/ and root/test/CLASS/.

    Without ``train/`` and ``test/``, ``test_share`` of each class is for testing: evenly spaced in the order of the
    names, so that adding a class changes nothing for the others.
    """

    root: str | None = None
    image_size: ImageSize = 224
    test_share: Share = 0.2

    def folder(self) -> Path:
        """The folder with the pictures."""
        return own_path("image_folder", self.root, "the folder that has one folder of pictures a class", "a folder")

    def load(self) -> Dataset:
        """List, decode (once) and map the pictures."""
        train, test = self._split()
        return picture_dataset(train, test, self.image_size)

    def assess(self) -> Report:
        """Decode every picture, keep none."""
        train, test = self._split()
        return assess_pictures("image_folder", train, test, self.image_size)

    def _split(self) -> tuple[Listing, Listing]:
        root = self.folder()
        if not ((root / "train").is_dir() and (root / "test").is_dir()):
            return split_evenly(list_classes(root, root), self.test_share)
        train, test = list_classes(root / "train", root), list_classes(root / "test", root)
        if list(train) != list(test):
            lonely = sorted(set(train) ^ set(test))[0]
            raise DataError(f"{root}: class {lonely!r} is not in both train/ and test/")
        return train, test


def list_classes(folder: Path, root: Path) -> Listing:
    """Pictures by class, a class for each folder in ``folder``, in the order of the names."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if len(names) < 2:
        raise DataError(f"{folder}: {len(names)} folders, there must be one for each of at least two classes")
    return {name: list_pictures(folder / name, root) for name in names}


def split_evenly(classes: Listing, share: float) -> tuple[Listing, Listing]:
    """Take ``share`` of each class for testing, evenly spaced.

    >>> train, test = split_evenly({"a": list("0123456789")}, 0.2)
    >>> "".join(train["a"]), "".join(test["a"])
    ('01235678', '49')
    """
    train: dict[str, list[Picture]] = {}
    test: dict[str, list[Picture]] = {}
    for name, pictures in classes.items():
        marks = np.floor(np.arange(1, len(pictures) + 1) * share + 1e-9)
        chosen = np.diff(marks, prepend=0) > 0
        train[name] = [picture for picture, mark in zip(pictures, chosen, strict=True) if not mark]
        test[name] = [picture for picture, mark in zip(pictures, chosen, strict=True) if mark]
    return train, test


def picture_dataset(
    train: Listing,
    test: Listing,
    side: int,
    groups: Mapping[str, str] | None = None,
    notes: tuple[str, ...] = (),
) -> Dataset:
    """The pictures as a data set: one mapped file, training pictures first, so that each half is contiguous."""
    train_pictures, test_pictures = _flat(train), _flat(test)
    _check_not_empty(train_pictures, test_pictures)
    pixels = decoded([*train_pictures, *test_pictures], side)

    def split(listing: Listing, pictures: list[Picture], start: int) -> Samples:
        labels = np.repeat(np.arange(len(listing)), [len(members) for members in listing.values()]).astype(np.int64)
        names = None if groups is None else np.array([groups[picture.name] for picture in pictures])
        return Samples(pixels.rows(start, start + len(pictures)), labels, names)

    listing = "".join(f"{picture.name}\n" for picture in (*train_pictures, *test_pictures))
    return image_dataset(
        train=split(train, train_pictures, 0),
        test=split(test, test_pictures, len(train_pictures)),
        classes=tuple(train),
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        files={
            "names": hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest(),
            "pixels": pixels.sha256,
        },
        notes=notes,
    )


def assess_pictures(name: str, train: Listing, test: Listing, side: int) -> Report:
    """Decode every picture to find the damaged ones."""
    train_pictures, test_pictures = _flat(train), _flat(test)
    _check_not_empty(train_pictures, test_pictures)
    for _ in decode_all([*train_pictures, *test_pictures], side):
        pass
    counts = {"train": len(train_pictures), "test": len(test_pictures)}
    detail = f"whole: every one of {sum(counts.values()):,} pictures can be decoded"
    return Report(name, "whole", (detail,), counts)


def _flat(listing: Listing) -> list[Picture]:
    return [picture for pictures in listing.values() for picture in pictures]


def _check_not_empty(train: list[Picture], test: list[Picture]) -> None:
    if not train or not test:
        raise DataError(
            f"{len(train)} pictures to train on and {len(test)} to test on; add pictures or change data.test_share"
        )
