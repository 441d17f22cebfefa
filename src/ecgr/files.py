"""Writing files so that a crash leaves the old content or the new, never something between; configs as TOML."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ecgr.errors import EnvironmentFault


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside ``path``, flush to the disk, rename over it, flush the directory."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        flush_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise EnvironmentFault(f"cannot write {path} ({len(content):,} bytes): {error.strerror or error}") from None


def append_durably(path: Path, content: bytes) -> None:
    """Append and flush to the disk."""
    try:
        with path.open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise EnvironmentFault(f"cannot write {path} ({len(content):,} bytes): {error.strerror or error}") from None


def flush_directory(directory: Path) -> None:
    """Make renames and removals in ``directory`` survive a power loss."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def to_toml(config: Mapping[str, Mapping[str, Any]]) -> str:
    """A config as TOML; keys without a value are left out.

    >>> print(to_toml({"run": {"seed": 0, "name": None}}), end="")
    [run]
    seed = 0
    """
    from tomli_w import dumps

    return dumps({name: {k: v for k, v in values.items() if v is not None} for name, values in config.items()})
