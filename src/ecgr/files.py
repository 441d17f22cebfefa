"""Writing files so that a crash leaves the old content or the new, never something between; configs as TOML."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ecgr.errors import EnvironmentFault


@contextmanager
def whole_file(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """A file to write that gets its name when the block ends well: flushed to the disk first if it is to be durable."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def make_directory(path: Path) -> Path:
    """A directory, made with those above it where it is missing."""
    with _said(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write beside ``path``, whose folder is made, flush to the disk, rename over it, flush the directory."""
    with _said(path, len(content)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path, durable=durable) as file:
            file.write(content)


def append(path: Path, content: bytes) -> None:
    """Append; what must survive a power loss is to be flushed."""
    with _said(path, len(content)), path.open("ab") as file:
        file.write(content)


def flush(path: Path) -> None:
    """Make a file's content, or the renames and removals in a directory, survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with _said(path, path.stat().st_size):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _said(path: Path, size: int | None = None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = path if size is None else f"{path} ({size:,} bytes)"
        raise EnvironmentFault(f"cannot write {what}: {error.strerror or error}") from None


def to_toml(config: Mapping[str, Mapping[str, Any]]) -> str:
    """A config as TOML; keys without a value are left out.

    >>> print(to_toml({"run": {"seed": 0, "name": None}}), end="")
    [run]
    seed = 0
    """
    from tomli_w import dumps

    return dumps({name: {k: v for k, v in values.items() if v is not None} for name, values in config.items()})
