"""Data sets, read and checked once: what there is, and whether it is whole. Needs numpy, not torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature

from ecgr.errors import ConfigError, EcgrError
from ecgr.tables import Table
from ecgr.tasks.data.arrays import Arrays as Arrays
from ecgr.tasks.data.arrays import Site as Site
from ecgr.tasks.data.dataset import Dataset as Dataset
from ecgr.tasks.data.dataset import DatasetSource as DatasetSource
from ecgr.tasks.data.dataset import hold_out as hold_out
from ecgr.tasks.data.dataset import image_dataset as image_dataset
from ecgr.tasks.data.dataset import redrawn as redrawn
from ecgr.tasks.data.dataset import set_aside as set_aside
from ecgr.tasks.data.dataset import strata as strata
from ecgr.tasks.data.dataset import stratify as stratify
from ecgr.tasks.data.images import Cifar10 as Cifar10
from ecgr.tasks.data.images import Cifar100 as Cifar100
from ecgr.tasks.data.images import Digits as Digits
from ecgr.tasks.data.images import FashionMnist as FashionMnist
from ecgr.tasks.data.images import Mnist as Mnist
from ecgr.tasks.data.pictures import LC25000 as LC25000
from ecgr.tasks.data.pictures import ImageFolder as ImageFolder
from ecgr.tasks.data.sets import fetch as fetch
from ecgr.tasks.data.tables import Csv as Csv
from ecgr.tasks.data.tables import HeartDisease as HeartDisease
from ecgr.tasks.data.text import Shakespeare as Shakespeare
from ecgr.tasks.data.text import Text as Text

DATASETS: Table[DatasetSource] = Table(
    "data set",
    "datasets",
    {
        "digits": Digits,
        "mnist": Mnist,
        "fashion_mnist": FashionMnist,
        "cifar10": Cifar10,
        "cifar100": Cifar100,
        "image_folder": ImageFolder,
        "lc25000": LC25000,
        "arrays": Arrays,
        "csv": Csv,
        "text": Text,
        "heart_disease": HeartDisease,
        "shakespeare": Shakespeare,
        "site": Site,
    },
)


@dataclass(frozen=True, slots=True)
class Report:
    """How a set on disk compares with the official one.

    ``official``: every file has the official content. ``reordered``: as many images, other bytes, which is what
    shuffling gives; only the hash in the record can say which order. ``reduced``: fewer images. ``whole``: undamaged,
    with nothing official to compare with.
    """

    name: str
    status: str
    details: tuple[str, ...]
    counts: Mapping[str, int]


MEANINGS = {"official": "every file has the official content", "whole": "all of it could be read"}


def verify(name: str, root: str | None = None) -> Report:
    """Read the whole of a data set; damage is a `DataError`, everything else stands in the report.

    >>> verify("digits").details
    ('whole: all of it could be read',)
    """
    source = _source(name, root)
    if hasattr(source, "check"):  # reads all of it where loading does not, or needs to know more
        status, notes, counts = source.check()
    else:
        dataset = source.load()
        status, notes, counts = dataset.status, dataset.notes, {"train": len(dataset.train), "test": len(dataset.test)}
    said = () if notes and notes[0].startswith(status) else (f"{status}: {MEANINGS[status]}",)
    return Report(name, status, (*said, *notes), counts)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of ``ecgr data list``; ``place`` is None where nothing is found, ``own`` where only its owner can say."""

    name: str
    description: str
    place: str | None
    own: bool = False


def available() -> list[Row]:
    """Every data set there is a reader for, and where it is."""
    rows = []
    for name in DATASETS:
        source, description = _source(name, root=None), (DATASETS[name].__doc__ or "").strip().splitlines()[0]
        try:
            rows.append(Row(name, description, str(source.folder()) if hasattr(source, "folder") else "installed"))
        except EcgrError as error:
            rows.append(Row(name, description, None, own=isinstance(error, ConfigError)))
    return rows


def _source(name: str, root: str | None) -> DatasetSource:
    if name not in DATASETS:
        raise ConfigError(f"data.name: no data set {name!r}; there are: {', '.join(DATASETS)}")
    takes_root = "root" in signature(DATASETS[name]).parameters
    return DATASETS[name](root=root) if takes_root else DATASETS[name]()
