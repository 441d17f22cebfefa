"""Writing files so that a crash leaves the old content or the new, never something between."""

import os
from pathlib import Path

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
