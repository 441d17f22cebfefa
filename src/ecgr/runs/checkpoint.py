"""Exact resume: after a round, all that the next one depends on, in files that notice any damage.

A generation is a safetensors file with the tensors and a manifest with its hash, written after it; the manifest begins
with a hash of itself. Two generations are kept. Loading takes the newest that is whole and says what it passed over.

What clients remember from round to round lies in files of its own: memory grows with participants, not with the
population. A state is one file, named by client and round and never changed. A set of states is an index of such files,
with their hashes; a round makes a new index and leaves the old one valid. A checkpoint flushes the files that no
earlier one names, writes down the index, and then removes every file that no checkpoint names.
"""

import json
import os
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load, save
from torch import Tensor

from ecgr.component import State
from ecgr.errors import IntegrityError
from ecgr.files import flush, write_atomically
from ecgr.runs.record import Position, to_json
from ecgr.simulation.rounds import ClientStates, Snapshot

GENERATIONS = 2
CLIENTS = "clients"
STATES = ("buffers", "server", "average", "head")
"""What a snapshot holds by name besides the parameters and the clients' states."""


class StateFile(NamedTuple):
    """Which file holds a client's state: that of the round it was made in."""

    round: int
    sha256: str


class StatesOnDisk(ClientStates):
    """The states of all clients that have taken part, each read from its file when it is asked for."""

    def __init__(self, directory: Path, entries: Mapping[int, StateFile] | None = None) -> None:
        self.directory = directory
        self.entries = dict(entries or {})

    def __getitem__(self, client: int) -> State:
        return load(self.read(client, self.entries[client]))

    def __iter__(self) -> Iterator[int]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, client: object) -> bool:
        return client in self.entries

    def updated(self, rounds: int, states: Mapping[int, State]) -> "StatesOnDisk":
        """The index after round ``rounds``; its new files are flushed with the checkpoint that names them."""
        if not states:
            return self
        entries = dict(self.entries)
        for client, state in states.items():
            content = save({name: tensor.contiguous() for name, tensor in state.items()})
            entries[client] = StateFile(rounds, sha256(content).hexdigest())
            write_atomically(self.path(client, entries[client]), content, durable=False)
        return StatesOnDisk(self.directory, entries)

    def path(self, client: int, entry: StateFile) -> Path:
        return self.directory / _state_name(client, entry)

    def read(self, client: int, entry: StateFile) -> bytes:
        """What a file holds; `IntegrityError` if it is missing or altered."""
        return _whole(self.path(client, entry), entry.sha256)


@dataclass(frozen=True, slots=True, eq=False)
class Restored:
    """A checkpoint that was read back, where the record stood, and the damaged ones that were passed over."""

    snapshot: Snapshot
    position: Position
    damaged: tuple[str, ...]


def save_checkpoint(directory: Path, snapshot: Snapshot, position: Position) -> None:
    """Write one generation, then remove those beyond the last two and the states that none names any more."""
    states = snapshot.clients
    if not isinstance(states, StatesOnDisk):
        states = StatesOnDisk(directory / CLIENTS).updated(snapshot.rounds, states)
    others = {rounds: _named(directory, rounds) for rounds in _generations(directory) if rounds != snapshot.rounds}
    earlier = {item for rounds, named in others.items() if rounds < snapshot.rounds for item in named}
    if new := states.entries.items() - earlier:
        for client, entry in new:
            flush(states.path(client, entry))
        flush(states.directory)
    content = save(_to_tensors(snapshot))
    tensor_path, manifest_path = _paths(directory, snapshot.rounds)
    write_atomically(tensor_path, content)
    digest = sha256(content).hexdigest()
    facts = {"rounds": snapshot.rounds, "sha256": digest, "record": position._asdict(), "clients": states.entries}
    manifest = to_json(facts)
    write_atomically(manifest_path, sha256(manifest).hexdigest().encode() + b"\n" + manifest)
    for rounds in _generations(directory)[:-GENERATIONS]:
        others.pop(rounds, None)
        for path in reversed(_paths(directory, rounds)):
            path.unlink(missing_ok=True)
    for path in directory.glob("*.tmp"):
        path.unlink(missing_ok=True)
    flush(directory)
    if states.directory.is_dir():
        # by name: there may be a hundred thousand, and paths are slow
        needed = {_state_name(*item) for item in {*states.entries.items()}.union(*others.values())}
        for name in set(os.listdir(states.directory)) - needed:  # noqa: PTH208
            (states.directory / name).unlink(missing_ok=True)


def load_checkpoint(directory: Path) -> Restored | None:
    """The newest whole generation; None if there never was one; `IntegrityError` if all are damaged."""
    damaged: list[str] = []
    newest: tuple[Snapshot, Position] | None = None
    checked: set[tuple[int, StateFile]] = set()
    for rounds in _generations(directory):
        try:
            newest = _load(directory, rounds, checked)
        except IntegrityError as error:
            damaged.append(str(error))
    if newest is not None:
        return Restored(*newest, tuple(damaged))
    if damaged:
        raise IntegrityError(f"no checkpoint is whole: {'; '.join(damaged)}; start the run anew in another directory")
    return None


def _load(directory: Path, rounds: int, checked: set[tuple[int, StateFile]]) -> tuple[Snapshot, Position]:
    """One generation; the files of clients are read unless they were ``checked`` for another."""
    manifest = _manifest(directory, rounds)
    tensors = load(_whole(_paths(directory, rounds)[0], manifest["sha256"]))
    states = StatesOnDisk(directory / CLIENTS, _entries(manifest))
    for client, entry in sorted(states.entries.items() - checked):
        states.read(client, entry)
        checked.add((client, entry))
    return _from_tensors(tensors, rounds, states), Position(**manifest["record"])


def _state_name(client: int, entry: StateFile) -> str:
    return f"client-{client:07d}.round-{entry.round:07d}.safetensors"


def _manifest(directory: Path, rounds: int) -> Any:
    path = _paths(directory, rounds)[1]
    digest, _, body = _read(path).partition(b"\n")
    if sha256(body).hexdigest().encode() != digest:
        raise IntegrityError(f"{path}: was altered or cut short")
    return json.loads(body)


def _entries(manifest: Any) -> dict[int, StateFile]:
    return {int(client): StateFile(*entry) for client, entry in manifest["clients"].items()}


def _named(directory: Path, rounds: int) -> Set[tuple[int, StateFile]]:
    """The states that a generation names; none if it is damaged."""
    try:
        return _entries(_manifest(directory, rounds)).items()
    except IntegrityError:
        return set()


def _whole(path: Path, digest: str) -> bytes:
    content = _read(path)
    if sha256(content).hexdigest() != digest:
        raise IntegrityError(f"{path}: was altered or cut short")
    return content


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise IntegrityError(f"{path}: {error.strerror}") from None


def _paths(directory: Path, rounds: int) -> tuple[Path, Path]:
    return directory / f"round-{rounds:07d}.safetensors", directory / f"round-{rounds:07d}.manifest"


def _generations(directory: Path) -> list[int]:
    """The rounds that have a manifest, oldest first: without one a generation was never finished."""
    stems = {path.stem for path in directory.glob("round-*.manifest")} if directory.is_dir() else set()
    return sorted(int(stem.removeprefix("round-")) for stem in stems if stem.removeprefix("round-").isdigit())


def _to_tensors(snapshot: Snapshot) -> dict[str, Tensor]:
    parts: dict[str, State] = {"params": {"": snapshot.params}, **{name: getattr(snapshot, name) for name in STATES}}
    return {f"{part}/{name}": tensor.contiguous() for part, state in parts.items() for name, tensor in state.items()}


def _from_tensors(tensors: Mapping[str, Tensor], rounds: int, clients: StatesOnDisk) -> Snapshot:
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in ("params", *STATES)}
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        parts[part][name] = tensor
    params = parts.pop("params")[""]
    return Snapshot(rounds=rounds, params=params, clients=clients, **parts)
