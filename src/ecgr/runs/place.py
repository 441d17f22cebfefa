"""A run's directory: nobody else's, and one process's at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from ecgr.errors import ConfigError, EnvironmentFault
from ecgr.runs.record import RunRecord

OWN_FILES = frozenset({".lock", ".holder", ".federation"})
"""What may lie in a directory before there is a run in it, beside temporary files of a process that was killed."""


def refuse_foreign(directory: Path, resume: bool) -> None:
    """A directory must be empty, new, or hold the run that is to be resumed."""
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"out: expected a directory, got the file {directory}")
    if RunRecord.is_run(directory):
        if not resume:
            state = "a finished" if RunRecord(directory).finished else "an unfinished"
            raise ConfigError(f"out: {directory} holds {state} run; give another directory, or resume it")
    elif directory.is_dir() and any(
        path.name not in OWN_FILES and path.suffix != ".tmp" for path in directory.iterdir()
    ):
        raise ConfigError(f"out: {directory} is not empty and holds no run; give another directory")


def refuse_unusable(directory: Path) -> None:
    """A place where no directory can be made, said before anything is tried there; nothing stays behind."""
    above = [directory, *directory.absolute().parents]
    missing = list(takewhile(lambda path: not path.exists(), above))
    nearest = above[len(missing)]
    if not nearest.is_dir():
        raise ConfigError(f"out: expected a directory, got the file {nearest}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        usable = os.access(directory, os.W_OK)
    except OSError:
        usable = False
    for path in missing:
        with suppress(OSError):
            path.rmdir()
    if not usable:
        raise EnvironmentFault(f"cannot use {directory}: nothing can be written there; give another directory")


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the run directory: a second run on it ends at once and says who has it."""
    lock, holder = acquire(directory), holder_path(directory)
    try:
        holder.write_text(f"{os.getpid()}\n")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def acquire(directory: Path, name: str = ".lock", by: str | None = None) -> BaseFileLock:
    """A lock in ``directory``, made if missing; it dies with the process that holds it. ``by`` says who that may be."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = FileLock(directory / name, timeout=0)
        lock.acquire()
    except Timeout:
        holder = holder_path(directory)
        who = by or (f"process {holder.read_text().strip()}" if holder.exists() else "another process")
        raise EnvironmentFault(f"{directory} is in use by {who}; wait for it, or give another directory") from None
    except OSError as error:
        raise EnvironmentFault(f"cannot use {directory}: {error.strerror or error}") from None
    return lock


def checkpoint_of(directory: Path) -> Path:
    """Where a run keeps what it goes on from."""
    return directory / "checkpoint"


def holder_path(directory: Path) -> Path:
    """Where whoever works in a run directory leaves its process id."""
    return directory / ".holder"
