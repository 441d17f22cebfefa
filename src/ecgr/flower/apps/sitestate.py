"""A client's state (SCAFFOLD's control variate) on its own site's disk.

One file a round, written atomically, beginning with the hash of the rest. The server says which round's state it
counts on, that is the last one in which the client's update was used: so a reply that was lost, refused or repeated,
and a server that went back to an older checkpoint, never leave the two apart. A file that is missing or damaged
counts as lost: the client starts again from the algorithm's initial state, and says so.
"""

import logging
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save

from ecgr.component import State
from ecgr.files import write_atomically

GENERATIONS = 4
"""The server keeps two checkpoints, so it never goes back further than this."""

log = logging.getLogger("ecgr.flower")


@dataclass(frozen=True, slots=True)
class SiteState:
    """The states of one client in one run, by round."""

    directory: Path

    @classmethod
    def at(cls, root: Path, run: str, client: int) -> "SiteState":
        """Where one client's states of one run lie below ``root``."""
        return cls(root / run / f"client-{client}")

    def save(self, round_index: int, state: State) -> None:
        """Remember ``state`` as the one after a round; forget all but the last few."""
        self.directory.mkdir(parents=True, exist_ok=True)
        content = save({name: tensor.contiguous() for name, tensor in state.items()})
        write_atomically(self._path(round_index), sha256(content).hexdigest().encode() + b"\n" + content)
        for path in sorted(self.directory.glob("round-*.state"))[:-GENERATIONS]:
            path.unlink(missing_ok=True)

    def load(self, round_index: int) -> State | None:
        """The state after a round; None if it is lost."""
        path = self._path(round_index)
        try:
            digest, _, content = path.read_bytes().partition(b"\n")
        except OSError as error:
            log.warning("%s: client state is lost (%s); starting again from none", path, error.strerror)
            return None
        if sha256(content).hexdigest().encode() != digest:
            log.warning("%s: client state was altered or cut short; starting again from none", path)
            return None
        try:
            tensors: State = load(content)
        except SafetensorError:
            log.warning("%s: client state cannot be read; starting again from none", path)
            return None
        return tensors

    def _path(self, round_index: int) -> Path:
        return self.directory / f"round-{round_index:07d}.state"
