"""Which data sets are there, and whether they are whole and unaltered."""

from dataclasses import dataclass
from inspect import signature
from typing import Protocol, runtime_checkable

from ecgr.errors import ConfigError, EcgrError
from ecgr.tasks.data import DATASETS
from ecgr.tasks.data.dataset import DatasetSource
from ecgr.tasks.data.official import Report


@runtime_checkable
class OnDisk(Protocol):
    """A data set that lies on disk, and can be missing, damaged or altered."""

    def folder(self) -> object:
        """Where it is; raises where it is not."""
        ...

    def assess(self) -> Report:
        """Read all of it and compare it with the official files."""
        ...


@dataclass(frozen=True, slots=True)
class Row:
    """A line of ``ecgr data list``; ``place`` is None where nothing is found, ``own`` where only its owner can say."""

    name: str
    description: str
    place: str | None
    own: bool = False


def verify(name: str, root: str | None = None) -> Report:
    """Read the whole of a data set; damage is a `DataError`, everything else stands in the report.

    >>> verify("digits").status
    'whole'
    """
    source = _source(name, root)
    if isinstance(source, OnDisk):
        return source.assess()
    return Report(name, "whole", ("whole: comes with an installed package",), source.load().counts)


def available() -> list[Row]:
    """Every data set there is a reader for, and where it is."""
    return [_row(name) for name in DATASETS]


def _row(name: str) -> Row:
    source, description = _source(name, root=None), (DATASETS[name].__doc__ or "").strip().splitlines()[0]
    if not isinstance(source, OnDisk):
        return Row(name, description, "installed")
    try:
        return Row(name, description, str(source.folder()))
    except ConfigError:
        return Row(name, description, None, own=True)
    except EcgrError:
        return Row(name, description, None)


def _source(name: str, root: str | None) -> DatasetSource:
    if name not in DATASETS:
        raise ConfigError(f"data.name: no data set {name!r}; there are: {', '.join(DATASETS)}")
    takes_root = "root" in signature(DATASETS[name]).parameters
    return DATASETS[name](root=root) if takes_root else DATASETS[name]()
