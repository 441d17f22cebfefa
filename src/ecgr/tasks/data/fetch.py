"""What `ecgr data` does: list the sets, verify one, fetch one.

Fetched files are checked against a known hash before they get their names. Everything happens in a temporary folder
beside the final place; what was interrupted leaves nothing that could be taken for a data set. Files that are already
there are never overwritten.
"""

import gzip
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import signature
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

from ecgr.errors import ConfigError, DataError, EcgrError, EnvironmentFault, missing_extra
from ecgr.files import flush
from ecgr.tasks.data import DATASETS
from ecgr.tasks.data.dataset import DatasetSource
from ecgr.tasks.data.files import data_root
from ecgr.tasks.data.official import OFFICIAL, Download, OfficialSet, Report


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


def fetch(
    name: str, root: str | None = None, *, progress: bool = True, registry: Mapping[str, OfficialSet] = OFFICIAL
) -> Path:
    """Download the files of a set that are not there yet, and return their folder.

    Raises:
        ConfigError: there is no such set, or it cannot be fetched.
        DataError: what the mirrors give is not the official file.
        EnvironmentFault: no mirror can be reached, or the disk refuses.
    """
    official = registry.get(name)
    if official is None or not official.downloads:
        raise _cannot_fetch(name, registry)
    base = data_root(root)
    folder = base / official.folder
    absent = [file for file in official.files if not _there(folder / file)]
    if not absent:
        return folder
    try:
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=base) as temporary:
            for download in official.downloads:
                if not official.members and download.file not in absent:
                    continue
                got = _download(download, Path(temporary), progress=progress)
                files = _unpack(got, official) if official.members else {download.file: got}
                for file in absent:
                    if file in files:
                        _settle(files[file], folder / file)
    except OSError as error:
        raise EnvironmentFault(f"{base}: cannot be written to ({error.strerror or error})") from None
    return folder


def _cannot_fetch(name: str, registry: Mapping[str, OfficialSet]) -> ConfigError:
    fetchable = ", ".join(key for key, official in registry.items() if official.downloads)
    if name not in DATASETS:
        return ConfigError(f"data.name: no data set {name!r}; these can be fetched: {fetchable}")
    return ConfigError(
        f"data.name: {name} cannot be fetched, docs/reference/datasets.md says how to get it; these can: {fetchable}"
    )


def _there(path: Path) -> bool:
    """Whether a file is there, packed or unpacked."""
    return path.is_file() or (path.suffix == ".gz" and path.with_suffix("").is_file())


def _download(download: Download, folder: Path, *, progress: bool) -> Path:
    """Try the mirrors in order until one gives the file with the known hash."""
    try:
        import pooch  # an optional dependency
        from requests import RequestException  # comes with pooch
    except ImportError:
        raise missing_extra("fetching data", "data") from None
    pooch.get_logger().setLevel("INFO" if progress else "WARNING")  # which says what is downloaded from where
    bar = progress and find_spec("tqdm") is not None
    failures, altered = [], False
    for url in download.mirrors:
        try:
            known = f"sha256:{download.sha256}"
            return Path(pooch.retrieve(url, known, fname=download.file, path=folder, progressbar=bar))
        except ValueError:
            altered = True
            failures.append(f"{url} gives a file with another hash")
        except RequestException as error:
            failures.append(f"{url} fails ({type(error).__name__})")
    message = f"{download.file}: download failed: {'; '.join(failures)}"
    if altered:
        raise DataError(f"{message}; nothing was kept")
    raise EnvironmentFault(f"{message}; check the network, or put the files there by hand")


def _unpack(archive: Path, official: OfficialSet) -> dict[str, Path]:
    """The members that are wanted, each written under a name of our own; an archive that plays tricks is refused."""
    wanted = {f"{official.folder}/{member}": member for member in official.members}
    files: dict[str, Path] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for entry in tar:
                _check_entry(archive, entry)
                member = wanted.get(PurePosixPath(entry.name).as_posix())
                content = tar.extractfile(entry) if member and entry.isfile() else None
                if member and content:
                    files[member] = archive.with_name(f"member-{len(files)}")
                    with content, files[member].open("wb") as file:
                        shutil.copyfileobj(content, file)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{archive.name}: damaged archive ({error})") from None
    for member in official.members:
        if member not in files:
            raise DataError(f"{archive.name}: has no {official.folder}/{member}")
    return files


def _check_entry(archive: Path, entry: tarfile.TarInfo) -> None:
    path = PurePosixPath(entry.name)
    if path.is_absolute() or ".." in path.parts or not (entry.isfile() or entry.isdir()):
        raise DataError(f"{archive.name}: refused, its entry {entry.name!r} is a link or leads out of its folder")


def _settle(file: Path, place: Path) -> None:
    """Flush a finished file to the disk and give it its name."""
    place.parent.mkdir(parents=True, exist_ok=True)
    flush(file)
    file.replace(place)
