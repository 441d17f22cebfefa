"""The two questions about a set of rows, answered one block of columns after the other.

A store keeps rows in whatever form and place it likes and shows them here as tiles of some rows and a block of columns,
in float32, or in float64 where the displacements are and the store keeps them so. So precision and place of storage are
one file each, and the arithmetic is in this one.

Sums over the columns run in float64 from block to block. Inside a block, products are float64 for small sets and
float32 for large ones, where the error of a Gram entry stays below 1e-6 of the two steps' lengths. Sums over the steps
run in float64, strictly one step after the other and without fused multiply-add: their bits do not depend on blocks,
tiles or vector units, so whoever sees the steps one at a time gets the same ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import sqrt
from typing import ClassVar

from ecgr.component import Tensor, torch
from ecgr.core.stores.protocol import Replay, Room

COLUMNS_PER_BLOCK = 8192  # a multiple of every block that a store encodes together
ROWS_PER_STRIP = (
    32  # of the lower triangle in one product, at least: narrow enough to leave out almost half of the work
)
STRIPS = 64  # at most, of many rows: few enough to read the rows a few times only
ROWS_AT_ONCE = 8  # of float64 in `combine`: a megabyte, which stays in the cache
ROWS_IN_PLACE = 512  # of a T x T matrix in one operation, whose temporary copy is then small
CHEAP_PRODUCT = 2**26  # multiply-adds; up to here (some 5 ms) a float64 product costs nothing that anybody notices


class StoreBase(ABC):
    """What every store does with a displacement that comes in; a subclass keeps it and answers."""

    needs_replay: ClassVar[bool] = False

    def __init__(
        self,
        size: int,
        *,
        steps: int | None = None,
        replay: Replay | None = None,
        like: Tensor | None = None,
    ) -> None:
        self._size = size
        self._expected = steps or 0
        self._replay = replay if self.needs_replay else None  # it holds the recorder, which would then outlive its use
        self._length = 0
        self._device = torch.device("cpu") if like is None else like.device
        self._dtype = torch.float32 if like is None else like.dtype
        self._set_up()

    def __len__(self) -> int:
        return self._length

    def append(self, displacement: Tensor) -> None:
        """Store a copy of one displacement."""
        check_shape(displacement, self._size)
        self._device = displacement.device
        self._dtype = torch.promote_types(displacement.dtype, torch.float32)
        self._put(displacement)
        self._length += 1

    def new_row(self, device: "torch.device") -> Tensor | None:
        """None: displacements come through `append`."""
        return None

    @abstractmethod
    def _set_up(self) -> None:
        """Make what the displacements are going to be kept in."""

    @abstractmethod
    def _put(self, displacement: Tensor) -> None:
        """Store a copy of one displacement of the right shape."""


class BlockedStore(StoreBase):
    """A store over rows that a subclass keeps; also says what rows in memory take."""

    bytes_per_number: ClassVar[float] = 4.0
    columns_per_block: ClassVar[int] = COLUMNS_PER_BLOCK

    @classmethod
    def room(cls, size: int, steps: int) -> Room:
        """All rows, in memory."""
        return Room(memory=cls.bytes_per_number * size * steps)

    def gram(self) -> Tensor:
        """All inner products, (T, T), float64 on the CPU."""
        steps = self._length
        exact = steps * steps * self._size <= CHEAP_PRODUCT
        total = torch.zeros(steps, steps, dtype=torch.float64, device=self._device)
        for start, stop in self._blocks():
            tiles = [tile.double() if exact else tile for tile in self._tiles(start, stop)]
            _add_products(total, tiles)
        _mirror(total)
        return total.cpu()

    def combine(self, coefficients: Tensor) -> Tensor:
        """``coefficients @ G``, (d,): summed in float64, one step after the other, then rounded as the steps are."""
        weights = per_step(coefficients, self._length).to(self._device)
        result = torch.empty(self._size, device=self._device, dtype=self._dtype)
        # One piece of memory for all products: made anew for each, the system would have to clear it each time.
        spare = torch.empty(ROWS_AT_ONCE * 2 * self.columns_per_block, dtype=torch.float64, device=self._device)
        for start, stop in self._blocks(wider=2):
            total = torch.zeros(stop - start, dtype=torch.float64, device=self._device)
            first = 0
            for tile in self._tiles(start, stop):
                for rows in torch.split(tile, ROWS_AT_ONCE):
                    weighted = spare[: rows.numel()].view(rows.shape).copy_(rows)
                    weighted.mul_(weights[first : first + len(rows), None])
                    for row in weighted.unbind():
                        total.add_(row)
                    first += len(rows)
            result[start:stop] = total
        return result

    @abstractmethod
    def _tiles(self, start: int, stop: int) -> list[Tensor]:
        """All rows in order, columns ``start`` to ``stop``, as float tiles on the device that computes."""

    def _blocks(self, wider: int = 1) -> Iterator[tuple[int, int]]:
        columns = wider * self.columns_per_block
        for start in range(0, self._size, columns):
            yield start, min(start + columns, self._size)


def _add_products(total: Tensor, tiles: list[Tensor]) -> None:
    """Add the products of all pairs of rows to the lower triangle of ``total``, strip by strip of columns."""
    left, width = 0, max(ROWS_PER_STRIP, len(total) // STRIPS)
    for i, tile in enumerate(tiles):
        for first in range(0, len(tile), width):
            strip = tile[first : first + width]
            columns, top = slice(left + first, left + first + len(strip)), left
            for below in (tile[first:], *tiles[i + 1 :]):
                top = max(top, columns.start)
                total[top : top + len(below), columns] += below @ strip.T
                top += len(below)
        left += len(tile)


def _mirror(square: Tensor) -> None:
    """Copy the lower triangle onto the upper one, in place: at T = 20,000 another such matrix would take 3 GB."""
    for first in range(0, len(square), ROWS_IN_PLACE):
        last = first + ROWS_IN_PLACE
        corner = square[first:last, first:last]
        corner.copy_(corner.tril() + corner.tril(-1).T)
        square[first:last, last:] = square[last:, first:last].T


def check_shape(vector: Tensor, size: int) -> None:
    """Refuse a vector that is not one of this store's."""
    if vector.shape != (size,):
        raise ValueError(f"expected {size} values, got shape {tuple(vector.shape)}")


def per_step(coefficients: Tensor, steps: int) -> Tensor:
    """The coefficients as float64, one for each step."""
    if coefficients.shape != (steps,):
        raise ValueError(f"expected one coefficient for each of {steps} steps, got shape {tuple(coefficients.shape)}")
    return coefficients.to(torch.float64)


def squared_norm(vector: Tensor) -> float:
    """``|v|^2`` in float64, block by block, so that no second copy of a large vector is made."""
    return sum((float(block.double().square().sum()) for block in torch.split(vector, COLUMNS_PER_BLOCK)), start=0.0)


def set_lengths_(gram: Tensor, squared: list[float]) -> Tensor:
    """Give every step of an estimated Gram matrix its exact length, in place; cosines stay.

    >>> set_lengths_(torch.tensor([[4.0, 2.0], [2.0, 4.0]]).double(), [1.0, 1.0]).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    estimated, exact = gram.diagonal(), torch.tensor(squared, dtype=torch.float64)
    scale = torch.where(estimated > 0, (exact / estimated).sqrt(), estimated)  # 0 for a step that vanished
    for rows, own in zip(torch.split(gram, ROWS_IN_PLACE), torch.split(scale, ROWS_IN_PLACE), strict=True):
        rows.mul_(own[:, None] * scale)
    gram.diagonal().copy_(exact)
    return gram


def norm(vector: Tensor) -> float:
    """``|v|`` in float64.

    >>> norm(torch.tensor([3.0, 4.0]))
    5.0
    """
    return sqrt(squared_norm(vector))
