"""Displacements in memory as float32: exact, and T x d x 4 bytes large."""

import torch
from torch import Tensor

from ecgr.gradients import blocked
from ecgr.gradients.blocked import ROWS_PER_TILE, BlockedSet
from ecgr.gradients.protocol import Replay

ROWS_PER_CHUNK = 32
COLUMNS_PER_BLOCK = blocked.COLUMNS_PER_BLOCK
CHEAP_PRODUCT = blocked.CHEAP_PRODUCT


class DenseGradientSet(BlockedSet):
    """Chunks of rows: growing allocates one more chunk and never moves what is held.

    >>> steps = DenseGradientSet(2)
    >>> steps.append(torch.tensor([3.0, 4.0])); steps.append(torch.tensor([1.0, 0.0]))
    >>> steps.gram().tolist()
    [[25.0, 3.0], [3.0, 1.0]]
    >>> steps.combine(torch.tensor([1.0, 2.0]))
    tensor([5., 4.])
    """

    def __init__(self, size: int, *, steps: int | None = None, replay: Replay | None = None) -> None:
        super().__init__(size)
        self._expected = steps or 0
        self._chunks: list[Tensor] = []

    def new_row(self, device: torch.device) -> Tensor | None:
        """One more row, for the caller to fill."""
        self._device = device
        row = self._next()
        self._length += 1
        return row

    def _put(self, displacement: Tensor) -> None:
        self._next().copy_(displacement)

    def _next(self) -> Tensor:
        """The row after the last one; taken once the length says so."""
        held = sum(len(chunk) for chunk in self._chunks)
        if self._length == held:
            rows = self._expected - held if self._expected > held else ROWS_PER_CHUNK
            self._chunks.append(self._allocate(rows))
            held += rows
        return self._chunks[-1][self._length - held]  # counted from the end

    def _allocate(self, rows: int) -> Tensor:
        return torch.empty(rows, self._size, device=self._device)

    def _tiles(self, start: int, stop: int) -> list[Tensor]:
        tiles: list[Tensor] = []
        left = self._length
        for chunk in self._chunks:
            tiles += torch.split(chunk[:left, start:stop], ROWS_PER_TILE)
            left -= len(chunk)
        return tiles
