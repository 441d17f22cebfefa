"""Displacements in memory with fewer bits: half or a quarter of the room, for a small and known error.

Both stores also keep each displacement's exact length, which leaves the choice of steps as it would be without rounding
(here: 0 of 1,334 choices changed, against 1 with the lengths of the rounded numbers). Both encodings keep what is not
finite recognisable, so that a diverged round is found out and not averaged away.
"""

from typing import ClassVar

from ecgr.component import Tensor, torch
from ecgr.core.stores.blocked import set_lengths_, squared_norm
from ecgr.core.stores.dense import DenseStore

GROUP = 256  # numbers of an int8 row that share one scale
DECODED_AT_ONCE = 1024  # columns: a decoded block of all rows is small beside what encoding saves
ENCODED_AT_ONCE = 2**16  # a multiple of GROUP; keeps the temporary copies of a long row small


class ReducedStore(DenseStore):
    """Rows in another form than float32, with exact lengths beside them; a subclass says in which."""

    exact: ClassVar[bool] = False
    columns_per_block: ClassVar[int] = DECODED_AT_ONCE

    def _set_up(self) -> None:
        super()._set_up()
        self._squared: list[float] = []

    def append(self, displacement: Tensor) -> None:
        """Encode one displacement."""
        super().append(displacement)
        self._squared.append(squared_norm(displacement))

    def new_row(self, device: "torch.device") -> Tensor | None:
        """None: a displacement is encoded by `append`."""
        return None

    def gram(self) -> Tensor:
        """All inner products, (T, T), float64 on the CPU."""
        return set_lengths_(super().gram(), self._squared)


class Bf16Store(ReducedStore):
    """Rows as bfloat16: two bytes a number, relative error at most 2^-8.

    >>> steps = Bf16Store(2)
    >>> steps.append(torch.tensor([1.0, 1 / 3]))
    >>> steps.combine(torch.tensor([3.0]))
    tensor([3.0000, 1.0020])
    """

    name: ClassVar[str] = "bf16"
    bytes_per_number: ClassVar[float] = 2.0

    def _allocate(self, rows: int) -> Tensor:
        return torch.empty(rows, self._size, dtype=torch.bfloat16, device=self._device)

    def _tiles(self, start: int, stop: int) -> list[Tensor]:
        return [tile.float() for tile in super()._tiles(start, stop)]


class Int8Store(ReducedStore):
    """Rows as int8 with one float32 scale for every 256 numbers: error at most 1/254 of the group's largest number.

    >>> steps = Int8Store(2)
    >>> steps.append(torch.tensor([127.0, 3.3]))
    >>> steps.combine(torch.tensor([1.0]))
    tensor([127.,   3.])
    """

    name: ClassVar[str] = "int8"
    bytes_per_number: ClassVar[float] = 1.0 + 4.0 / GROUP

    def _set_up(self) -> None:
        super()._set_up()
        self._scales = DenseStore(-(-self._size // GROUP), steps=self._expected)

    def _allocate(self, rows: int) -> Tensor:
        return torch.empty(rows, self._size, dtype=torch.int8, device=self._device)

    def _put(self, displacement: Tensor) -> None:
        codes, scales = self._next(), torch.empty(self._scales._size, device=displacement.device)
        for start in range(0, self._size, ENCODED_AT_ONCE):
            piece = displacement[start : start + ENCODED_AT_ONCE].float()
            whole = len(piece) - len(piece) % GROUP
            for first, last in ((0, whole), (whole, len(piece))):
                if first < last:
                    groups = piece[first:last].view(-1, min(GROUP, last - first))
                    scale = _encode(groups, into=codes[start + first : start + last].view(groups.shape))
                    scales[(start + first) // GROUP :][: len(scale)] = scale
        self._scales.append(scales)

    def _tiles(self, start: int, stop: int) -> list[Tensor]:
        scales = self._scales._tiles(start // GROUP, -(-stop // GROUP))
        tiles = [tile.float() for tile in super()._tiles(start, stop)]
        whole = (stop - start) // GROUP
        for tile, scale in zip(tiles, scales, strict=True):
            tile[:, : whole * GROUP].view(len(tile), whole, GROUP).mul_(scale[:, :whole, None])
            tile[:, whole * GROUP :].mul_(scale[:, whole:])
        return tiles


def _encode(groups: Tensor, into: Tensor) -> Tensor:
    """Write each row of ``groups`` as whole numbers from -127 to 127; the rows' scales."""
    scale = groups.abs().amax(dim=1) / 127
    divisor = torch.where(scale == 0, 1.0, scale)  # a group of zeros; infinities and NaN stay in the scale
    into.copy_((groups / divisor[:, None]).round_().nan_to_num_(0.0, 0.0, 0.0))
    return scale
