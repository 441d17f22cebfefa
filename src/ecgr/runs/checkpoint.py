"""Exact resume: after a round, all that the next one depends on, in files that notice any damage.

A generation is a safetensors file with the tensors and a manifest with its hash, written after it; the manifest begins
with a hash of itself. Two generations are kept. Loading takes the newest that is whole and says what it passed over.
Clients' states lie in files of their own (`ecgr.runs.states`), which the manifest names by client, round and hash.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from safetensors.torch import load, save
from torch import Tensor

from ecgr.component import State
from ecgr.errors import IntegrityError
from ecgr.files import flush, write_atomically
from ecgr.runs.record import Position, to_json
from ecgr.runs.states import Entry, StatesOnDisk
from ecgr.simulation.rounds import Snapshot, StatesInMemory

GENERATIONS = 2
CLIENTS = "clients"


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
