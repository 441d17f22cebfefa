"""What a run leaves on disk, reading it back, and whose its directory is; needs neither torch nor pickle.

::

    run.json            the whole config, versions, data hashes, who held what; written once, first
    rounds.jsonl        one line a round, appended; of an answered comparison packed, as rounds.jsonl.gz
    steps.npz           which steps were kept, by client and round
    model.safetensors   the final global model; written last, so it marks a finished run; empty where it is a reference
    checkpoint/         where an interrupted run, or one that gets more rounds, goes on
    diverged.json       why a run ended early, if it did because no update could be used any more
"""

import gzip
import json
import math
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import BaseFileLock, FileLock, Timeout
from numpy.typing import NDArray

from ecgr.errors import ConfigError, DataError, EnvironmentFault, IntegrityError
from ecgr.files import append, flush, write_atomically
from ecgr.simulation.kept import Kept, pack_kept, unpack_kept

FORMAT = 1
ROUNDS, PACKED = "rounds.jsonl", "rounds.jsonl.gz"
DIVERGED = "diverged.json"
OWN_FILES = frozenset({".lock", ".holder", ".federation"})
"""What may lie in a directory before there is a run in it, beside temporary files of a process that was killed."""


@dataclass(frozen=True)
class RunRecord:
    """A run directory, read lazily; with a ``limit``, as the run of that many rounds, which a longer one contains.

    ``rounds`` gives dicts as in ``rounds.jsonl``; in pandas: ``pandas.read_json(path, lines=True)``.
    """

    directory: Path
    limit: int | None = None

    @classmethod
    def open(cls, directory: str | Path, limit: int | None = None) -> "RunRecord":
        """The record in ``directory``; raises `DataError` if there is none."""
        record = cls(Path(directory), limit)
        if not record.is_run(record.directory):
            raise DataError(f"{directory}: no run there (run.json is missing)")
        if record.manifest.get("format") != FORMAT:
            raise DataError(
                f"{directory}/run.json: format {record.manifest.get('format')!r}, this version reads {FORMAT}"
            )
        return record

    @staticmethod
    def is_run(directory: Path) -> bool:
        """Whether ``directory`` holds a run, finished or not."""
        return (directory / "run.json").is_file()

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return _object(self.directory / "run.json")

    @property
    def config(self) -> dict[str, dict[str, Any]]:
        config: dict[str, dict[str, Any]] = self.manifest["config"]
        if self.limit is None:
            return config
        return {**config, "federation": {**config["federation"], "rounds": self.limit}}

    @property
    def key(self) -> str:
        """What runs that differ in the seed alone have in common."""
        return str(self.manifest["key"])

    @property
    def seed(self) -> int:
        return int(self.config["run"]["seed"])

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The rounds so far; a line that a crash cut short is not one."""
        path, lines = self.directory / ROUNDS, read_lines(self.directory)
        return [_object(path, line, f", line {number}") for number, line in enumerate(lines[: self.limit], start=1)]

    @property
    def finished(self) -> bool:
        """Whether the final model is there; with a limit, whether that many rounds are."""
        ended = (self.directory / "model.safetensors").is_file()
        if self.limit is None or not self.is_run(self.directory):
            return ended
        planned = int(self.manifest["config"]["federation"]["rounds"])
        return (ended and planned >= self.limit) or (planned > self.limit and len(self.rounds) == self.limit)

    @property
    def diverged(self) -> str | None:
        """Why it ended early, if it did because no update could be used any more: it would end so again."""
        path = self.directory / DIVERGED
        if self.finished or not path.is_file():
            return None
        reason = _object(path).get("reason")
        if not isinstance(reason, str):
            raise DataError(f"{path}: expected a reason, got {reason!r}; remove the run's directory to make it anew")
        return reason

    @property
    def ended(self) -> bool:
        """Whether it is over: finished, or diverged."""
        return self.finished or self.diverged is not None

    def kept(self) -> list[Kept]:
        """Which steps were kept, by round and client; empty for runs without regulation."""
        path = self.directory / "steps.npz"
        if not path.exists():
            return []
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in ("round", "client", "steps", "offset", "kept")}
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{path}: not readable: {error}") from None
        return [entry for entry in unpack_kept(arrays) if self.limit is None or entry.round <= self.limit]


def read_lines(directory: Path) -> list[bytes]:
    """The whole lines of a run's rounds, be they packed."""
    path, packed = directory / ROUNDS, directory / PACKED
    content = path.read_bytes() if path.exists() else b""
    if not content and packed.exists():
        try:
            content = gzip.decompress(packed.read_bytes())
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{packed}: not readable: {error}") from None
    return content.split(b"\n")[:-1]


def pack_rounds(directory: Path) -> None:
    """Pack the rounds of a run that nobody will go on with: a fifth of the room."""
    path = directory / ROUNDS
    if path.is_file():
        write_atomically(directory / PACKED, gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()


class Position(NamedTuple):
    """How far ``rounds.jsonl`` goes, and the hash of all up to there."""

    bytes: int
    sha256: str


class RunWriter:
    """Appends to a run directory; every method leaves a record that can be read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._kept: list[Kept] = []
        self._bytes = 0
        self._hash = sha256()

    @property
    def position(self) -> Position:
        return Position(self._bytes, self._hash.hexdigest())

    def begin(self, manifest: Mapping[str, Any]) -> None:
        write_atomically(self.directory / "run.json", to_json({"format": FORMAT, **manifest}))

    def rewind(self, position: Position, rounds: int) -> None:
        """Forget what was recorded after ``position``, where ``rounds`` rounds were done, to go on from there."""
        path = self.directory / ROUNDS
        content = path.read_bytes()[: position.bytes] if path.exists() else b""
        if sha256(content).hexdigest() != position.sha256:
            raise IntegrityError(f"{path}: was altered since the checkpoint; start the run anew in another directory")
        self._bytes, self._hash = len(content), sha256(content)
        write_atomically(path, content)
        (self.directory / PACKED).unlink(missing_ok=True)
        self._kept = [entry for entry in RunRecord(self.directory).kept() if entry.round <= rounds]

    def append(self, row: Mapping[str, Any], kept: Sequence[Kept]) -> None:
        """Add one round; it is there to be read at once, and sure to stay with the next `flush`."""
        line = to_json(row) + b"\n"
        append(self.directory / ROUNDS, line)
        self._bytes += len(line)
        self._hash.update(line)
        self._kept.extend(kept)

    def flush(self) -> None:
        """Make sure that what was added survives a power loss: before a checkpoint counts on it."""
        flush(self.directory / ROUNDS)
        if self._kept:
            buffer = BytesIO()
            arrays: dict[str, Any] = dict(pack_kept(self._kept))
            np.savez_compressed(buffer, **arrays)
            write_atomically(self.directory / "steps.npz", buffer.getvalue())

    def finish(self, model: Mapping[str, NDArray[Any]]) -> None:
        """Write the final model, which marks the run as finished."""
        from safetensors.numpy import save  # reading a record does not need it

        write_atomically(
            self.directory / "model.safetensors", save({k: np.asarray(v, order="C") for k, v in model.items()})
        )


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


def absences(row: Mapping[str, Any], away: set[int], name: Callable[[int], str]) -> list[str]:
    """Who was not used in a round, and who is back; ``away`` says who was not used before, and is kept up to date.

    >>> away = set()
    >>> gone = {"clients": [], "rejected": [{"client": 2, "reason": "failed: SuperNode gone"}]}
    >>> absences(gone, away, "site-{}".format), absences({"clients": [{"client": 2}], "rejected": []}, away, str)
    (['site-2: not used, failed (SuperNode gone)'], ['2 is back'])
    """
    used, rejected = {each["client"] for each in row["clients"]}, {e["client"]: e["reason"] for e in row["rejected"]}
    told = {client: reason.partition(": ") for client, reason in rejected.items() if client not in used}
    lines = [f"{name(client)}: not used, {word} ({why})" for client, (word, _, why) in told.items()]
    lines += [f"{name(client)} is back" for client in sorted(away & used)]
    away.difference_update(used)
    away.update(told)
    return lines


def to_json(value: Any, indent: int | None = None) -> bytes:
    """JSON with null for numbers that JSON cannot hold.

    >>> to_json({"loss": float("nan")})
    b'{"loss": null}'
    """
    return json.dumps(_finite(value), indent=indent, allow_nan=False).encode()


def _object(path: Path, content: bytes | None = None, where: str = "") -> dict[str, Any]:
    """What a file, or a line of it, holds."""
    try:
        found = json.loads(path.read_bytes() if content is None else content)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}{where}: not readable as JSON: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}{where}: must hold a JSON object")
    return found


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value
