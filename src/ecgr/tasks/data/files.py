"""Files of data sets: where they are, and reading them once, hashed, every complaint with file and offset.

A set lies below the ``root`` of its component, else ``$ECGR_DATA``, else the user's data folder: one rule for every
set, so that one message can say what was looked for, where, and what to do.
"""

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ecgr.errors import ConfigError, DataError


def data_root(root: str | None = None) -> Path:
    """The folder that holds the data sets.

    >>> data_root("/srv/data").as_posix()
    '/srv/data'
    """
    chosen = root or os.environ.get("ECGR_DATA")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_data_path  # needed only where nobody says where the data is

    return user_data_path("ecgr", appauthor=False)


def find_folder(name: str, candidates: Sequence[str], root: str | None, advice: str | None = None) -> Path:
    """The first of ``candidates`` below the data folder that is there; if none is, a `DataError`."""
    base = data_root(root)
    for candidate in candidates:
        if (base / candidate).is_dir():
            return base / candidate
    raise missing(name, " or ".join(f"{candidate}/" for candidate in candidates), base, advice)


KINDS: Mapping[str, Callable[[Path], bool]] = {"there": Path.exists, "a file": Path.is_file, "a folder": Path.is_dir}


def own_path(name: str, root: str | None, needs: str, kind: str = "there") -> Path:
    """The file or folder of somebody's own that ``root`` names."""
    if root is None:
        raise ConfigError(f"data.root: {name} needs {needs}")
    path = Path(root).expanduser()
    if not KINDS[kind](path):
        raise DataError(f"{name}: {path} is not {kind}; set data.root to {needs}")
    return path


def read_text(path: Path, most: int = 256 << 20) -> tuple[str, str]:
    """The UTF-8 text of a file of at most ``most`` bytes, with or without a byte-order mark, and its SHA-256."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > most:
        raise DataError(f"{path}: has more than {most:,} bytes; split it, or use arrays")
    try:
        return content.decode("utf-8-sig"), hashlib.sha256(content).hexdigest()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text at byte {error.start:,}; save it as UTF-8") from None


def missing(name: str, what: str, where: Path, advice: str | None = None) -> DataError:
    """The error for a set that is not there."""
    get_it = advice or f"run `ecgr data fetch {name}`"
    return DataError(f"{name}: no {what} in {where}; {get_it}, or set data.root or ECGR_DATA to the folder that has it")


def member(name: str, folder: Path, *spellings: str) -> Path:
    """The file of ``folder`` that has the first of these names; a `DataError` that names it if there is none."""
    for spelling in spellings:
        if (folder / spelling).is_file():
            return folder / spelling
    raise DataError(
        f"{name}: {folder / spellings[0]} is missing, the rest of the set is there;"
        f" `ecgr data fetch {name}` adds what is missing"
    )


if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK = 1 << 20


class Readable(Protocol):
    """What a plain file and a .gz have in common."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes, none at the end."""
        ...


@dataclass(frozen=True, slots=True)
class Digest:
    """Hashes of a file's content, after unpacking: the same whether the file lies there as .gz or plain.

    MD5 is here because some official files are known by nothing else; records carry SHA-256.
    """

    sha256: str
    md5: str

    def matches(self, known: str) -> bool:
        """Whether ``known``, "sha256:…" or "md5:…", is the hash of this content."""
        algorithm, _, value = known.partition(":")
        return {"sha256": self.sha256, "md5": self.md5}[algorithm] == value


class _HashedRaw(io.RawIOBase):
    """Passes the bytes of ``stream`` on and hashes them; damage becomes a `DataError`."""

    def __init__(self, path: Path, stream: Readable) -> None:
        self._path, self._stream, self._offset = path, stream, 0
        self._sha256, self._md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        try:
            block = self._stream.read(len(view))
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{self._path}: cannot be read on from byte {self._offset} ({error}); get it again"
            ) from None
        view[: len(block)] = block
        self._offset += len(block)
        self._sha256.update(block)
        self._md5.update(block)
        return len(block)

    def digest(self) -> Digest:
        return Digest(self._sha256.hexdigest(), self._md5.hexdigest())


class Source:
    """The content of one file, read from front to back in exact portions.

    A portion larger than what is left of a plain file is refused before memory is set aside for it; whoever reads a
    .gz bounds its portions.
    """

    def __init__(self, path: Path, stream: Readable, size: int | None) -> None:
        self.path, self.size, self.offset = path, size, 0
        self._raw = _HashedRaw(path, stream)
        self._buffered = io.BufferedReader(self._raw, BLOCK)

    def read(self, count: int) -> bytes:
        if self.size is not None and count > self.size - self.offset:
            raise self._truncated(self.size, count)
        block = self._buffered.read(count)
        if len(block) < count:
            raise self._truncated(self.offset + len(block), count)
        self.offset += count
        return block

    def readinto(self, buffer: memoryview) -> None:
        """Fill ``buffer``."""
        view = buffer.cast("B")
        done = 0
        while done < len(view):
            step = self._buffered.readinto(view[done : done + BLOCK])
            if not step:
                raise self._truncated(self.offset + done, len(view))
            done += step
        self.offset += done

    def readline(self) -> bytes:
        """The next line with its end, of at most 1 MiB."""
        line = self._buffered.readline(BLOCK)
        self.offset += len(line)
        return line

    def finish(self) -> Digest:
        """Make sure that nothing is left, and give the hash of all that was read."""
        if self._buffered.read(1):
            raise DataError(f"{self.path}: goes on after byte {self.offset}, where it should end; get it again")
        return self._raw.digest()

    def _truncated(self, end: int, count: int) -> DataError:
        wanted = self.offset + count
        return DataError(f"{self.path}: ends at byte {end:,}, at least {wanted:,} were expected; get it again")


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """Open ``path`` for one pass."""
    try:
        plain = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror})") from None
    with plain:
        if path.suffix == ".gz":
            with gzip.open(plain) as unpacked:
                yield Source(path, unpacked, size=None)
        else:
            yield Source(path, plain, size=path.stat().st_size)
