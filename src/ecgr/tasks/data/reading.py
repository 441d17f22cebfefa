"""One pass over a file: unpacked if it ends in .gz, hashed while it is read, every complaint with file and offset."""

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ecgr.errors import DataError

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
        """The next ``count`` bytes, neither more nor fewer."""
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
