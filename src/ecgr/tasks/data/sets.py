"""Where data sets lie, what the official ones are, and how to get them.

A set lies below the ``root`` of its component, else ``$ECGR_DATA``, else the user's data folder. Files are read once
and hashed; every complaint names file and place.

What is known of the official sets is in ``official.toml`` beside this file.
"""

import gzip
import hashlib
import os
import tarfile
import tempfile
import tomllib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from ecgr.errors import ConfigError, DataError, EnvironmentFault, missing_extra
from ecgr.files import flush
from ecgr.tasks.data.dataset import Dataset


def data_root(root: str | None = None) -> Path:
    """The folder that holds the data sets.

    >>> data_root("/srv/data").as_posix()
    '/srv/data'
    """
    return _user_folder(root or os.environ.get("ECGR_DATA"), "user_data_path")


def cache_folder() -> Path:
    """Where decoded pictures are kept: ``$ECGR_CACHE``, else the user's cache folder."""
    return _user_folder(os.environ.get("ECGR_CACHE"), "user_cache_path")


def _user_folder(chosen: str | None, otherwise: str) -> Path:
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs  # needed only where nobody says where files are

    folder: Path = getattr(platformdirs, otherwise)("ecgr", appauthor=False)
    return folder


def known_folder(name: str, root: str | None, get_it: str | None = None) -> Path:
    """The folder of a known set; a `DataError` if it is not there."""
    base = data_root(root)
    folder = base / OFFICIAL[name].folder
    if not folder.is_dir():
        raise missing(name, f"{OFFICIAL[name].folder}/", base, get_it or f"run `ecgr data fetch {name}`")
    return folder


def missing(name: str, what: str, where: Path, get_it: str) -> DataError:
    """The error for a set that is not there."""
    return DataError(f"{name}: no {what} in {where}; {get_it}, or set data.root or ECGR_DATA to the folder that has it")


def own_path(name: str, root: str | None, needs: str, kind: str = "there") -> Path:
    """The user's own file or folder that ``root`` names."""
    if root is None:
        raise ConfigError(f"data.root: {name} needs {needs}")
    path = Path(root).expanduser()
    if not {"there": path.exists, "a file": path.is_file, "a folder": path.is_dir}[kind]():
        raise DataError(f"{name}: {path} is not {kind}; set data.root to {needs}")
    return path


def read_file(path: Path, most: int) -> bytes:
    """The content of a file of at most ``most`` bytes, unpacked if it ends in .gz."""
    try:
        with path.open("rb") as plain, gzip.open(plain) if path.suffix == ".gz" else nullcontext(plain) as file:
            bound = most if file is not plain else min(most, path.stat().st_size)  # memory is set aside for all of it
            try:
                content = file.read(bound + 1)
            except (OSError, EOFError, zlib.error) as error:
                raise DataError(f"{path}: damaged near byte {plain.tell():,} ({error}); get it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > most:
        raise DataError(f"{path}: has more than {most:,} bytes")
    return content


def read_text(path: Path) -> tuple[str, str]:
    """The UTF-8 text of a file, with or without a byte-order mark, and its SHA-256."""
    content = read_file(path, 256 << 20)
    try:
        return content.decode("utf-8-sig"), hashlib.sha256(content).hexdigest()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text at byte {error.start:,}; save it as UTF-8") from None


def check_length(path: Path, content: bytes, expected: int) -> None:
    """Refuse a file that is cut off or goes on."""
    if len(content) < expected:
        raise DataError(f"{path}: ends at byte {len(content):,}, at least {expected:,} were expected; get it again")
    if len(content) > expected:
        raise DataError(f"{path}: goes on after byte {expected}, where it should end; get it again")


@dataclass(frozen=True, slots=True)
class Official:
    """What is known of a data set as its authors give it out.

    Attributes:
        folder: where its files are, below the data folder.
        content: hash of each data file's content, "sha256:…" or "md5:…", by file name.
        train: number of training images; 0 where the set is not split by its authors.
        test: number of test images, likewise.
        unhashed: files of ``folder`` beside those.
        downloads: SHA-256 of what `fetch` gets, by name: the files themselves, or an archive of ``folder``.
        mirrors: the addresses below which the downloads are, best first.
    """

    folder: str
    content: Mapping[str, str]
    train: int = 0
    test: int = 0
    unhashed: Sequence[str] = ()
    downloads: Mapping[str, str] = field(default_factory=dict)
    mirrors: Sequence[str] = ()


OFFICIAL = {
    name: Official(**known)
    for name, known in tomllib.loads((files("ecgr.tasks.data") / "official.toml").read_text()).items()
}


class KnownFiles:
    """The files of a known set on disk: their SHA-256, and which have other bytes than the official ones."""

    def __init__(self, name: str, root: str | None) -> None:
        self.name, self.folder, self.official = name, known_folder(name, root), OFFICIAL[name]
        self.sha256: dict[str, str] = {}
        self.altered: list[str] = []

    def read(self, file: str, most: int = 512 << 20) -> tuple[Path, bytes]:
        """Where a file lies, plain or as .gz, and its content."""
        path = _found(self.folder, file)
        if path is None:
            raise DataError(f"{self.folder / file} is missing; `ecgr data fetch {self.name}` adds what is missing")
        content = read_file(path, most)
        self.sha256[file] = hashlib.sha256(content).hexdigest()
        algorithm, _, known = self.official.content.get(file, "").partition(":")
        if known and hashlib.new(algorithm, content, usedforsecurity=False).hexdigest() != known:
            self.altered.append(file)
        return path, content


def _found(folder: Path, file: str) -> Path | None:
    """The file, plain or packed, if it is there."""
    return next((path for path in (folder / file, folder / f"{file}.gz") if path.is_file()), None)


def compared(name: str, dataset: Dataset, altered: Iterable[str] | None = None) -> Dataset:
    """A set that was read whole, with its status beside the official one, noted unless it is the official one.

    ``altered`` are the files with other bytes; by default those of another SHA-256.
    """
    official = OFFICIAL[name]
    if altered is None:
        altered = (file for file, found in dataset.files.items() if official.content.get(file) != f"sha256:{found}")
    sizes, of_images = [("files", len(dataset.files), len(official.content))], official.train > 0
    if of_images:
        halves = ("training images", dataset.train, official.train), ("test images", dataset.test, official.test)
        sizes = [(what, len(samples), known) for what, samples, known in halves]
    for what, have, known in sizes:
        if have > known:
            raise DataError(f"{name}: {have:,} {what}, the official set has {known:,}; this is another set")
    status, others = "official", ", ".join(sorted(altered))
    notes = [f"reduced: {have:,} of {known:,} {what}" for what, have, known in sizes if have < known]
    if notes:
        status = "reduced"
    elif others:
        status = "reordered" if of_images else "whole"
        notes = [f"{status}: {'as many images as the official set, ' if of_images else ''}other bytes in {others}"]
    return replace(dataset, status=status, notes=(*notes, *dataset.notes))


def fetch(name: str, root: str | None = None) -> Path:
    """Download the files of a set that are not there yet, and return their folder.

    What arrives is checked against a known hash, in a temporary folder beside the final place: an interruption leaves
    nothing that could be taken for a data set. Files that are already there are never overwritten.

    Raises:
        ConfigError: there is no such set, or it cannot be fetched.
        DataError: what the mirrors give is not the official file.
        EnvironmentFault: no mirror can be reached, or the disk refuses.
    """
    fetchable = [key for key, official in OFFICIAL.items() if official.downloads]
    if name not in fetchable:
        others = f"these can: {', '.join(fetchable)}; docs/reference/datasets.md says how to get others"
        raise ConfigError(f"data.name: {name} cannot be fetched; {others}")
    official, base = OFFICIAL[name], data_root(root)
    folder = base / official.folder
    absent = [file for file in (*official.content, *official.unhashed) if _found(folder, file) is None]
    if not absent:
        return folder
    try:
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=base) as temporary:
            arrived = Path(temporary) / official.folder
            for file, sha256 in official.downloads.items():
                if file.endswith(".tar.gz"):
                    _unpack(_download(file, sha256, official.mirrors, Path(temporary)))
                elif file.removesuffix(".gz") in absent:
                    _download(file, sha256, official.mirrors, arrived)
            found = [_found(arrived, file) for file in absent]
            if None in found:
                raise DataError(f"{name}: no {absent[found.index(None)]} in what was downloaded; nothing was kept")
            folder.mkdir(parents=True, exist_ok=True)
            for path in filter(None, found):
                flush(path)
                path.replace(folder / path.name)
    except OSError as error:
        raise EnvironmentFault(f"{base}: cannot be written to ({error.strerror or error})") from None
    return folder


def _download(file: str, sha256: str, mirrors: Iterable[str], folder: Path) -> Path:
    """Try the mirrors in order until one gives the file with the known hash."""
    try:
        import pooch  # an optional dependency
        from requests import RequestException  # comes with pooch
    except ImportError:
        raise missing_extra("fetching data", "data") from None
    failures, altered = [], False
    for mirror in mirrors:
        url, bar = f"{mirror}{file}", find_spec("tqdm") is not None
        try:
            return Path(pooch.retrieve(url, f"sha256:{sha256}", fname=file, path=folder, progressbar=bar))
        except ValueError:
            altered = True
            failures.append(f"{url} gives a file with another hash")
        except RequestException as error:
            failures.append(f"{url} fails ({type(error).__name__})")
    message = f"{file}: download failed: {'; '.join(failures)}"
    if altered:
        raise DataError(f"{message}; nothing was kept")
    raise EnvironmentFault(f"{message}; check the network, or put the files there by hand")


def _unpack(archive: Path) -> None:
    """Beside itself; one with an entry that leads out, or is neither file nor folder, is refused."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(archive.parent, filter="data")
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{archive.name}: damaged or unsafe archive ({error}); nothing was kept") from None
