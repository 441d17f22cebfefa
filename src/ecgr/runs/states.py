"""What clients remember from round to round, on disk: memory grows with participants, not with the population.

A state is one file, named by client and round and never changed. A set of states is an index of such files, with their
hashes; a round makes a new index and leaves the old one valid. A checkpoint flushes the files that are new, writes down
the index, and only then lets go of files that no checkpoint needs any more. Files are made when there is a state to
keep: an algorithm without memory costs nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load, save

from ecgr.component import State
from ecgr.errors import EnvironmentFault, IntegrityError
from ecgr.files import flush, write_atomically
from ecgr.simulation.rounds import ClientStates


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
