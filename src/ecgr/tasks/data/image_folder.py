"""Pictures in folders, one folder a class: any set of one's own, and LC25000."""

import csv
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from ecgr.component import component
from ecgr.errors import DataError
from ecgr.tasks.data.dataset import Dataset, Share, image_dataset
from ecgr.tasks.data.files import data_root, missing, own_path
from ecgr.tasks.data.official import Report
from ecgr.tasks.data.pictures import Picture, decode_all, decoded, list_pictures
from ecgr.tasks.samples import Samples

ImageSize = Annotated[int, Field(ge=8, le=1024)]

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
        return own_path("image_folder", self.root, "the folder that has one folder of pictures a class", "a folder")

    def load(self) -> Dataset:
        train, test = self._split()
        return picture_dataset(train, test, self.image_size)

    def assess(self) -> Report:
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


# LC25000: 25,000 pictures of lung and colon tissue, made from about 1,250 tiles by turning and mirroring.
#
# Borkowski et al., "Lung and Colon Cancer Histopathological Image Dataset (LC25000)", arXiv 1912.12142. Pictures of one
# tile are all but equal. A split that ignores this tests on what it trained on, so the tile of every picture has to be
# known, and it is not in the set itself: ``groups.csv`` says it.

CLASSES = ("colon_aca", "colon_n", "lung_aca", "lung_n", "lung_scc")
ORGAN_FOLDERS = {"colon": "colon_image_sets", "lung": "lung_image_sets"}
PLACES = ("lung_colon_image_set", "LC25000/lung_colon_image_set", "LC25000", ".")
PICTURES = 25_000
COLUMNS = ["class", "file", "group"]
SPLIT_SEED = 25_000  # which tiles are for testing is part of the data set, not of an experiment

Tiles = Mapping[tuple[str, str], str]
"""The tile of each picture, by (class, file name)."""


@component
class LC25000:
    """25,000 pictures of lung and colon tissue in 5 classes; all pictures of a tile on one side of the split.

    ``image_size`` is the paper's 224; its published code uses 128.
    """

    root: str | None = None
    image_size: ImageSize = 224
    test_share: Share = 0.2

    def folder(self) -> Path:
        return _locate(data_root(self.root))[0]

    def load(self) -> Dataset:
        base = data_root(self.root)
        groups_file = _groups_file(base)
        train, test, groups = _split(base, read_groups(groups_file), self.test_share)
        dataset = picture_dataset(train, test, self.image_size, groups, _notes(len(groups)))
        return replace(dataset, files={**dataset.files, "groups.csv": sha256(groups_file.read_bytes()).hexdigest()})

    def assess(self) -> Report:
        base = data_root(self.root)
        train, test, groups = _split(base, read_groups(_groups_file(base)), self.test_share)
        report = assess_pictures("lc25000", train, test, self.image_size)
        notes = _notes(len(groups))
        return replace(report, status="reduced", details=notes) if notes else report


def _split(base: Path, tiles: Tiles, share: float) -> tuple[Listing, Listing, dict[str, str]]:
    """Pictures to train on, pictures to test on, and the tile of each picture by its name, unique over the classes."""
    folder, class_folders = _locate(base)
    train: dict[str, list[Picture]] = {}
    test: dict[str, list[Picture]] = {}
    groups: dict[str, str] = {}
    for name, class_folder in class_folders.items():
        pictures = list_pictures(class_folder, folder)
        for picture in pictures:
            tile = tiles.get((name, picture.path.name))
            if tile is None:
                raise DataError(
                    f"lc25000: groups.csv has no line {name},{picture.path.name},…; every picture needs one"
                )
            groups[picture.name] = f"{name}/{tile}"
        sizes = Counter(groups[picture.name] for picture in pictures)
        if len(sizes) < 2:
            raise DataError(f"lc25000: all pictures of {name} come from one tile; they cannot be split")
        for_test = nearest_subset(sizes, share * len(pictures))
        train[name] = [picture for picture in pictures if groups[picture.name] not in for_test]
        test[name] = [picture for picture in pictures if groups[picture.name] in for_test]
    return train, test, groups


def _notes(pictures: int) -> tuple[str, ...]:
    return () if pictures >= PICTURES else (f"reduced: {pictures:,} of {PICTURES:,} pictures",)


def nearest_subset(sizes: Mapping[str, int], target: float) -> set[str]:
    """Some, not all, of the groups, with a total as near to ``target`` as whole groups allow.

    The groups are first brought into a fixed random order: of the many subsets with the best total, the one taken then
    depends neither on their names nor on their sizes. Bit s of ``reachable[i]`` says that the first i groups have a
    subset of total s.

    >>> sorted(nearest_subset({"a": 5, "b": 3, "c": 2}, 4.9))
    ['a']
    """
    names = np.random.default_rng(SPLIT_SEED).permutation(sorted(sizes)).tolist()
    reachable = [1]
    for name in names:
        reachable.append(reachable[-1] | reachable[-1] << sizes[name])
    whole = sum(sizes.values())
    totals = [total for total in range(1, whole) if reachable[-1] >> total & 1]
    total = min(totals, key=lambda total: (abs(total - target), total))
    chosen = set()
    for i in reversed(range(len(names))):
        if not reachable[i] >> total & 1:
            chosen.add(names[i])
            total -= sizes[names[i]]
    return chosen


def read_groups(path: Path) -> Tiles:
    """Read ``groups.csv``."""
    tiles: dict[tuple[str, str], str] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file, strict=True)
            header = next(lines, [])
            if header != COLUMNS:
                raise DataError(f"{path}: line 1 is {','.join(header)[:80]!r}, it must be {','.join(COLUMNS)!r}")
            for line in lines:
                if len(line) != len(COLUMNS) or line[0] not in CLASSES or not all(line):
                    raise DataError(
                        f"{path}: line {lines.line_num} is {','.join(line)[:80]!r}, not a class, file and group"
                    )
                if (line[0], line[1]) in tiles:
                    raise DataError(f"{path}: line {lines.line_num} names {line[0]},{line[1]} a second time")
                tiles[line[0], line[1]] = line[2]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    return tiles


def _locate(base: Path) -> tuple[Path, Mapping[str, Path]]:
    """The folder of the set and its five class folders."""
    for place in PLACES:
        folder = base / place
        nested = {name: folder / ORGAN_FOLDERS[name.partition("_")[0]] / name for name in CLASSES}
        direct = {name: folder / name for name in CLASSES}
        for class_folders in (nested, direct):
            if all(path.is_dir() for path in class_folders.values()):
                return folder, class_folders
    wanted = f"{PLACES[0]}/ with the folders {', '.join(CLASSES)}"
    raise missing("lc25000", wanted, base, "unpack LC25000 there (it cannot be fetched)")


def _groups_file(base: Path) -> Path:
    """``groups.csv`` in the folder of the set or, if that is below the data folder, in the one above it."""
    folder, _ = _locate(base)
    for place in (folder,) if folder == base else (folder, folder.parent):
        if (place / "groups.csv").is_file():
            return place / "groups.csv"
    raise DataError(
        f"lc25000: no groups.csv in {folder}; its columns class,file,group say which tissue tile each picture was made"
        " from, and without them near-copies of training pictures would be test pictures"
    )
