"""Files of data sets: where they are, and reading them once, hashed, every complaint with file and offset.

A set lies below the ``root`` of its component, else ``$ECGR_DATA``, else the user's data folder: one rule for every
set, so that one message can say what was looked for, where, and what to do.
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

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


def read_file(path: Path, most: int) -> tuple[bytes, Digest]:
    """The content of a file of at most ``most`` bytes, unpacked if it ends in .gz, and its hashes."""
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
        raise DataError(f"{path}: has more than {most:,} bytes; get it again")
    sha256, md5 = hashlib.sha256(content), hashlib.md5(content, usedforsecurity=False)
    return content, Digest(sha256.hexdigest(), md5.hexdigest())


def check_length(path: Path, content: bytes, expected: int) -> None:
    """Refuse a file that is cut off or goes on."""
    if len(content) < expected:
        raise DataError(f"{path}: ends at byte {len(content):,}, at least {expected:,} were expected; get it again")
    if len(content) > expected:
        raise DataError(f"{path}: goes on after byte {expected}, where it should end; get it again")
