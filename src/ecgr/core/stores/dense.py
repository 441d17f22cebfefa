"""Displacements in memory as they are, in float32 or float64: exact, and T x d x 4 or 8 bytes large."""

import weakref
from typing import ClassVar

from ecgr.component import Tensor, torch
from ecgr.core.stores import blocked
from ecgr.core.stores.blocked import BlockedStore

ROWS_PER_CHUNK = 32  # at least; more in a long round, where products of many small chunks would take their time
SPARE_NUMBERS = 2**25

_spare: list[Tensor] = []
"""The memory of the last store, at most 128 MB: touching fresh memory costs more than all the arithmetic."""


def _give_back(memory: Tensor) -> None:
    _spare[:] = [memory]


class DenseStore(BlockedStore):
    """Chunks of rows: growing allocates one more chunk and never moves what is held.

    >>> steps = DenseStore(2)
    >>> steps.append(torch.tensor([3.0, 4.0])); steps.append(torch.tensor([1.0, 0.0]))
    >>> steps.gram().tolist()
    [[25.0, 3.0], [3.0, 1.0]]
    >>> steps.combine(torch.tensor([1.0, 2.0]))
    tensor([5., 4.])
    """

    name: ClassVar[str] = "dense"
    exact: ClassVar[bool] = True

    def _set_up(self) -> None:
        self._chunks: list[Tensor] = []
        self._rows: list[Tensor] = []  # of all chunks, one by one: made together, because a step must not wait for it

    def new_row(self, device: "torch.device") -> Tensor | None:
        """One more row, for the caller to fill."""
        self._device = device
        row = self._next()
        self._length += 1
        return row

    def _put(self, displacement: Tensor) -> None:
        self._next().copy_(displacement)

    def _next(self) -> Tensor:
        """The row after the last one; taken once the length says so."""
        held = len(self._rows)
        if self._length == held:
            more = max(ROWS_PER_CHUNK, held // blocked.STRIPS)
            chunk = self._allocate(self._expected - held if self._expected > held else more)
            self._chunks.append(chunk)
            self._rows += chunk.unbind()
        return self._rows[self._length]

    def _allocate(self, rows: int) -> Tensor:
        if self._device.type != "cpu" or self._dtype != torch.float32 or rows * self._size > SPARE_NUMBERS:
            return torch.empty(rows, self._size, device=self._device, dtype=self._dtype)
        memory = _spare.pop() if _spare else torch.empty(0)
        if memory.numel() < rows * self._size:
            memory = torch.empty(rows * self._size)
        weakref.finalize(self, _give_back, memory).atexit = False
        return memory[: rows * self._size].view(rows, self._size)

    def _tiles(self, start: int, stop: int) -> list[Tensor]:
        tiles, left = [], self._length
        for chunk in self._chunks:
            tiles.append(chunk[:left, start:stop])
            left -= len(chunk)
        return tiles
