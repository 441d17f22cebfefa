"""The audit log: what a federation did, one line of JSON an event, at the server and at each site.

::

    audit.jsonl          is appended to, by whoever works there: commands, the SuperNode, the apps
    audit-000001.jsonl   what was full, oldest first; nothing removes it

Of what is sent and received it has names, shapes, dtypes, bytes, norms and a hash, never a value. Both sides describe a
message alike, so their logs can be held against each other. A line is on the disk before what it says goes on: what
cannot be recorded is not done, and a crash loses the line that was being written, at most.
"""

import json
import math
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from flwr.app import Array, Message, RecordDict

from ecgr.errors import EnvironmentFault
from ecgr.files import flush
from ecgr.flower.wire import Refusal, check_answer
from ecgr.runs.record import to_json

CURRENT = "audit.jsonl"
PLACE = "ECGR_AUDIT"
"""The variable that names a site's log to what its SuperNode starts."""

MOST_BYTES, MOST = 16 * 2**20, 1000
"""The size of a file; how many arrays or numbers of a message are named, the rest counted: strangers may send many."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The log in ``folder``, written as ``at``: the server, or a site's name. Without a folder nothing is written."""

    folder: Path | None
    at: str = "server"
    most_bytes: int = MOST_BYTES

    def write(self, event: str, **said: Any) -> None:
        """Append an event; a new file is begun where the last is full."""
        if self.folder is None:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = to_json({"time": now, "at": self.at, "event": event, **said}) + b"\n"
        path = self.folder / CURRENT
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self.folder / ".lock", mode=0o600):
                if path.exists() and path.stat().st_size + len(line) > self.most_bytes:
                    last = max((int(full.stem[6:]) for full in files_of(self.folder)[:-1]), default=0)
                    path.rename(self.folder / f"audit-{last + 1:06d}.jsonl")
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
                with os.fdopen(os.open(path, flags, 0o600), "r+b") as file:
                    if file.seek(0, os.SEEK_END) and (file.seek(-1, os.SEEK_END), file.read())[1] != b"\n":
                        file.write(b"\n")  # what a crash cut short stays a line of its own
                    file.write(line)
                flush(path)
                flush(self.folder)
        except OSError as error:
            raise EnvironmentFault(f"{path}: the audit log cannot be written: {error.strerror or error}") from None

    def message(self, event: str, message: Message | RecordDict | str, **said: Any) -> None:
        """A message that was sent or received."""
        if self.folder is not None:
            self.write(event, **said, **described(message))


def described(message: Message | RecordDict | str) -> dict[str, Any]:
    """What a message holds, without its values; what is wrong with one that holds nothing."""
    try:
        if not isinstance(message, RecordDict):
            check_answer(message, None)
            assert isinstance(message, Message)
            message = message.content
    except (Refusal, ValueError) as refusal:
        return {"reason": str(refusal)}
    digest, records, arrays = sha256(), dict[str, Any](message), list[tuple[str, Array]]()
    for name in sorted(message.array_records):
        arrays += sorted(records.pop(name).items())
    for name, array in arrays:
        digest.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode() + array.data)
    digest.update(repr([(name, sorted(record.items())) for name, record in sorted(records.items())]).encode())
    norms, numbers = [_norm(array) for _, array in arrays], sorted(records.items())[:MOST]
    listed = zip(arrays[:MOST], norms, strict=False)
    return {
        "bytes": sum(len(array.data) for _, array in arrays),
        "norm": math.hypot(*norms),
        "sha256": digest.hexdigest(),
        "count": len(arrays),
        "arrays": [
            {"name": n[:100], "dtype": a.dtype[:20], "shape": a.shape[:8], "bytes": len(a.data), "norm": long}
            for (n, a), long in listed
        ],
        "numbers": {name[:100]: [key[:100] for key in sorted(record)[:MOST]] for name, record in numbers},
    }


def _norm(array: Array) -> float:
    """An array's length by what it declares, read without trusting it; NaN where it cannot be."""
    with suppress(TypeError, ValueError, OverflowError):
        dtype, count = np.dtype(array.dtype[:20]), math.prod(array.shape)
        if dtype.kind in "fiub" and count > 0:
            values = np.frombuffer(array.data, dtype, count, offset=len(array.data) - count * dtype.itemsize)
            with np.errstate(over="ignore", invalid="ignore"):
                return float(np.linalg.norm(values.astype(np.float64)))
    return math.nan


def files_of(folder: Path) -> list[Path]:
    """The files of a log, the one that is appended to last."""
    return [*sorted(folder.glob("audit-[0-9]*.jsonl")), *folder.glob(CURRENT)]


def lines_of(folder: Path) -> list[bytes]:
    """A log's lines as they are."""
    return [line for path in files_of(folder) for line in path.read_bytes().splitlines() if line]


def events_of(folder: Path) -> list[dict[str, Any]]:
    """A log's events; a line that a crash cut short is one that says so."""
    events = []
    for line in lines_of(folder):
        try:
            events.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            events.append({"event": "torn", "reason": f"a crash cut this line short after {len(line)} bytes"})
    return events
