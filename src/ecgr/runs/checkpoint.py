"""Exact resume: after a round, all that the next one depends on, in files that notice any damage.

A generation is a safetensors file with the tensors and a manifest with its hash, written after it; the manifest begins
with a hash of itself. Two generations are kept. Loading takes the newest that is whole and says what it passed over.

What clients remember from round to round lies in files of its own: memory grows with participants, not with the
population. A state is one file, named by client and round and never changed. A set of states is an index of such files,
with their hashes; a round makes a new index and leaves the old one valid. A checkpoint flushes the files that are new,
writes down the index, and only then lets go of files that no checkpoint needs any more.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load, save
from torch import Tensor

from ecgr.component import State
from ecgr.errors import EnvironmentFault, IntegrityError
from ecgr.files import flush, write_atomically
from ecgr.runs.record import Position, to_json
from ecgr.simulation.rounds import ClientStates, Snapshot, StatesInMemory

GENERATIONS = 2
CLIENTS = "clients"


class Entry(NamedTuple):
    """Which file holds a client's state: that of the round it was made in."""

    round: int
    sha256: str


@dataclass(slots=True)
class Pending:
    """What the next checkpoint has to do: flush files that are new, remove files that were replaced in a round."""

    new: list[Path] = field(default_factory=list)
    replaced: list[tuple[int, Path]] = field(default_factory=list)


class StatesOnDisk(ClientStates):
    """The states of all clients that have taken part, each read from its file when it is asked for."""

    def __init__(
        self, directory: Path, entries: Mapping[int, Entry] | None = None, pending: Pending | None = None
    ) -> None:
        self.directory = directory
        self.entries = dict(entries or {})
        self._pending = pending or Pending()

    def __getitem__(self, client: int) -> State:
        return load(self._read(client))

    def __iter__(self) -> Iterator[int]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, client: object) -> bool:
        return client in self.entries

    def updated(self, rounds: int, states: Mapping[int, State]) -> "StatesOnDisk":
        """The index after round ``rounds``, in which these clients' states are new."""
        if not states:
            return self
        entries = dict(self.entries)
        for client, state in states.items():
            content = save({name: tensor.contiguous() for name, tensor in state.items()})
            path = self._path(client, rounds)
            self._write(path, content)
            self._pending.new.append(path)
            if client in entries:
                self._pending.replaced.append((rounds, self._path(client, entries[client].round)))
            entries[client] = Entry(rounds, sha256(content).hexdigest())
        return StatesOnDisk(self.directory, entries, self._pending)

    def flush(self) -> None:
        """Make sure that every file of the index survives a power loss."""
        for path in self._pending.new:
            flush(path)
        if self._pending.new:
            flush(self.directory)
        self._pending.new.clear()

    def forget(self, oldest: int) -> None:
        """Remove what was replaced up to round ``oldest``, the earliest that anybody can still go back to."""
        for _, path in (entry for entry in self._pending.replaced if entry[0] <= oldest):
            path.unlink(missing_ok=True)
        self._pending.replaced[:] = [entry for entry in self._pending.replaced if entry[0] > oldest]

    def damaged(self, known: set[tuple[int, Entry]]) -> str | None:
        """The first file that is missing or altered, or None; ``known`` collects those that are whole, by client."""
        for client, entry in self.entries.items():
            if (client, entry) not in known:
                try:
                    self._read(client)
                except IntegrityError as error:
                    return str(error)
                known.add((client, entry))
        return None

    def sweep(self, others: Iterable["StatesOnDisk"]) -> None:
        """Remove files that neither this index nor the older ``others`` name: left by a process that was killed."""
        if not self.directory.is_dir():
            return
        needed = {self._path(client, entry.round) for client, entry in self.entries.items()}
        for older in others:
            for client, entry in older.entries.items():
                path = self._path(client, entry.round)
                if path not in needed:
                    self._pending.replaced.append((self.entries[client].round, path))
        needed |= {path for _, path in self._pending.replaced}
        for path in self.directory.iterdir():
            if path not in needed:
                path.unlink(missing_ok=True)

    def _path(self, client: int, rounds: int) -> Path:
        return self.directory / f"client-{client:07d}.round-{rounds:07d}.safetensors"

    def _read(self, client: int) -> bytes:
        path, digest = self._path(client, self.entries[client].round), self.entries[client].sha256
        try:
            content = path.read_bytes()
        except OSError as error:
            raise IntegrityError(f"{path}: {error.strerror}") from None
        if sha256(content).hexdigest() != digest:
            raise IntegrityError(f"{path}: was altered or cut short")
        return content

    def _write(self, path: Path, content: bytes) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentFault(f"cannot write {path}: {error.strerror or error}") from None
        write_atomically(path, content, durable=False)  # flushed with the others, when a checkpoint names them


@dataclass(frozen=True, slots=True, eq=False)
class Restored:
    """A checkpoint that was read back, where the record stood, and the damaged ones that were passed over."""

    snapshot: Snapshot
    position: Position
    damaged: tuple[str, ...]


def save_checkpoint(directory: Path, snapshot: Snapshot, position: Position) -> None:
    """Write one generation and remove those beyond the last two."""
    directory.mkdir(exist_ok=True)
    states = snapshot.clients if isinstance(snapshot.clients, StatesOnDisk) else None
    if states is not None:
        states.flush()
    content = save(_to_tensors(snapshot))
    tensor_path, manifest_path = _paths(directory, snapshot.rounds)
    write_atomically(tensor_path, content)
    digest = sha256(content).hexdigest()
    entries = None if states is None else states.entries
    manifest = to_json({"rounds": snapshot.rounds, "sha256": digest, "record": position._asdict(), "clients": entries})
    write_atomically(manifest_path, sha256(manifest).hexdigest().encode() + b"\n" + manifest)
    for rounds in _generations(directory)[:-GENERATIONS]:
        for path in reversed(_paths(directory, rounds)):
            path.unlink(missing_ok=True)
    for path in directory.glob("*.tmp"):
        path.unlink(missing_ok=True)
    flush(directory)
    if states is not None:
        states.forget(min(_generations(directory)))


def load_checkpoint(directory: Path) -> Restored | None:
    """The newest whole generation; None if there never was one; `IntegrityError` if all are damaged."""
    damaged: list[str] = []
    whole: list[tuple[Snapshot, Position]] = []
    known: set[tuple[int, Entry]] = set()
    for rounds in _generations(directory):
        try:
            whole.append(_load(directory, rounds, known))
        except IntegrityError as error:
            damaged.append(str(error))
    if whole:
        on_disk = [s.clients for s, _ in whole if isinstance(s.clients, StatesOnDisk)]
        if on_disk:
            on_disk[-1].sweep(on_disk[:-1])
        return Restored(*whole[-1], tuple(damaged))
    if damaged:
        raise IntegrityError(f"no checkpoint is whole: {'; '.join(damaged)}; start the run anew in another directory")
    return None


def _load(directory: Path, rounds: int, known: set[tuple[int, Entry]]) -> tuple[Snapshot, Position]:
    tensor_path, manifest_path = _paths(directory, rounds)
    try:
        digest, _, body = manifest_path.read_bytes().partition(b"\n")
        content = tensor_path.read_bytes()
    except OSError as error:
        raise IntegrityError(f"{manifest_path.name}: {error.strerror}") from None
    if sha256(body).hexdigest().encode() != digest:
        raise IntegrityError(f"{manifest_path}: was altered or cut short")
    manifest = json.loads(body)
    if sha256(content).hexdigest() != manifest["sha256"]:
        raise IntegrityError(f"{tensor_path}: was altered or cut short")
    snapshot = _from_tensors(load(content), manifest["rounds"])
    if manifest.get("clients") is not None:
        entries = {int(client): Entry(*entry) for client, entry in manifest["clients"].items()}
        states = StatesOnDisk(directory / CLIENTS, entries)
        damage = states.damaged(known)
        if damage is not None:
            raise IntegrityError(damage)
        snapshot = replace(snapshot, clients=states)
    return snapshot, Position(**manifest["record"])


def _paths(directory: Path, rounds: int) -> tuple[Path, Path]:
    return directory / f"round-{rounds:07d}.safetensors", directory / f"round-{rounds:07d}.manifest"


def _generations(directory: Path) -> list[int]:
    """The rounds that have a manifest, oldest first: without one a generation was never finished."""
    stems = {path.stem for path in directory.glob("round-*.manifest")} if directory.is_dir() else set()
    return sorted(int(stem.removeprefix("round-")) for stem in stems if stem.removeprefix("round-").isdigit())


def _to_tensors(snapshot: Snapshot) -> dict[str, Tensor]:
    parts: dict[str, State] = {
        "params": {"": snapshot.params},
        "buffers": snapshot.buffers,
        "server": snapshot.server,
        "average": snapshot.average,
    }
    if isinstance(snapshot.clients, StatesInMemory):
        parts |= {f"client.{client}": state for client, state in snapshot.clients.items()}
    return {f"{part}/{name}": tensor.contiguous() for part, state in parts.items() for name, tensor in state.items()}


def _from_tensors(tensors: Mapping[str, Tensor], rounds: int) -> Snapshot:
    parts: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = tensor
    clients = {int(part.removeprefix("client.")): s for part, s in parts.items() if part.startswith("client.")}
    return Snapshot(
        rounds=rounds,
        params=parts["params"][""],
        buffers=parts.get("buffers", {}),
        server=parts.get("server", {}),
        clients=StatesInMemory(dict(sorted(clients.items()))),
        average=parts.get("average", {}),
    )
