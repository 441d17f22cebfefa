"""Displacements in memory with fewer bits: half or a quarter of the room, for a small and known error.

Both encodings keep what is not finite recognisable, so that a diverged round is found out and not averaged away.
"""

import torch
from torch import Tensor

from ecgr.gradients.blocked import ROWS_PER_TILE, BlockedSet
from ecgr.gradients.protocol import Replay

GROUP = 256  # numbers of an int8 row that share one scale


class Bf16GradientSet(BlockedSet):
    """Rows as bfloat16: two bytes a number, relative error at most 2^-9.

    >>> steps = Bf16GradientSet(2)
    >>> steps.append(torch.tensor([1.0, 1 / 3]))
    >>> steps.combine(torch.tensor([3.0]))
    tensor([3.0000, 1.0020])
    """

    def __init__(self, size: int, *, steps: int | None = None, replay: Replay | None = None) -> None:
        super().__init__(size)
        self._rows: list[Tensor] = []

    def _put(self, displacement: Tensor) -> None:
        self._rows.append(displacement.to(torch.bfloat16, copy=True))

    def _tiles(self, start: int, stop: int) -> list[Tensor]:
        return [
            torch.stack([row[start:stop] for row in self._rows[first : first + ROWS_PER_TILE]]).float()
            for first in range(0, self._length, ROWS_PER_TILE)
        ]


class Int8GradientSet(BlockedSet):
    """Rows as int8 with one float32 scale for every 256 numbers: error at most 1/254 of the group's largest number.

    >>> steps = Int8GradientSet(2)
    >>> steps.append(torch.tensor([127.0, 3.3]))
    >>> steps.combine(torch.tensor([1.0]))
    tensor([127.,   3.])
    """

    def __init__(self, size: int, *, steps: int | None = None, replay: Replay | None = None) -> None:
        super().__init__(size)
        self._codes: list[Tensor] = []
        self._scales: list[Tensor] = []

    def _put(self, displacement: Tensor) -> None:
        codes = torch.empty(self._size, dtype=torch.int8, device=displacement.device)
        scales = torch.empty(-(-self._size // GROUP), device=displacement.device)
        whole = self._size - self._size % GROUP
        for part in (slice(0, whole), slice(whole, self._size)):
            if part.start == part.stop:
                continue
            groups = displacement[part].view(-1, min(GROUP, part.stop - part.start))
            scale = groups.abs().amax(dim=1) / 127
            scales[part.start // GROUP : part.start // GROUP + len(scale)] = scale
            divisor = torch.where(scale == 0, 1.0, scale)  # a group of zeros; infinities and NaN stay in the scale
            codes[part] = (groups / divisor[:, None]).round_().nan_to_num_(0.0, 0.0, 0.0).to(torch.int8).view(-1)
        self._codes.append(codes)
        self._scales.append(scales)

    def _tiles(self, start: int, stop: int) -> list[Tensor]:
        groups = slice(start // GROUP, -(-stop // GROUP))
        tiles = []
        for first in range(0, self._length, ROWS_PER_TILE):
            last = first + ROWS_PER_TILE
            tile = torch.stack([codes[start:stop] for codes in self._codes[first:last]]).float()
            scales = torch.stack([scales[groups] for scales in self._scales[first:last]])
            tiles.append(tile.mul_(scales.repeat_interleave(GROUP, dim=1)[:, : stop - start]))
        return tiles
