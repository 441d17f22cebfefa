"""Displacements in memory as float32: exact, and T x d x 4 bytes large."""

from collections.abc import Iterator

import torch
from torch import Tensor

ROWS_PER_CHUNK = 32
COLUMNS_PER_BLOCK = 4096
CHEAP_PRODUCT = (
    2**28
)  # multiply-adds; up to here (some 15 ms) a float64 product costs nothing that anybody notices


class DenseGradientSet:
    """Chunks of rows: growing allocates one more chunk and never moves what is held.

    Sums over the d columns run block by block in float64. Inside a block of 4,096 columns, products are float64 for
    small sets and float32 for large ones, where the error of a Gram entry stays below 1e-6 of the steps' norms.

    >>> steps = DenseGradientSet(2)
    >>> steps.append(torch.tensor([3.0, 4.0])); steps.append(torch.tensor([1.0, 0.0]))
    >>> steps.gram().tolist()
    [[25.0, 3.0], [3.0, 1.0]]
    >>> steps.combine(torch.tensor([1.0, 2.0]))
    tensor([5., 4.])
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._chunks: list[Tensor] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, displacement: Tensor) -> None:
        """Store a copy of one displacement."""
        if displacement.shape != (self._size,):
            raise ValueError(f"expected {self._size} values, got shape {tuple(displacement.shape)}")
        chunk, row = divmod(self._length, ROWS_PER_CHUNK)
        if chunk == len(self._chunks):
            self._chunks.append(torch.empty(ROWS_PER_CHUNK, self._size, device=displacement.device))
        self._chunks[chunk][row].copy_(displacement)
        self._length += 1

    def gram(self) -> Tensor:
        """All inner products, (T, T), float64 on the CPU."""
        steps = self._length
        exact = steps * steps * self._size <= CHEAP_PRODUCT
        total = torch.zeros(steps, steps, dtype=torch.float64, device=self._device)
        for block in self._column_blocks():
            factor = block.double() if exact else block
            total += factor @ factor.T
        return ((total + total.T) / 2).cpu()

    def project(self, direction: Tensor) -> Tensor:
        """Inner products with one direction, (T,), float64 on the CPU."""
        wanted = torch.split(direction.to(self._device, torch.float64), COLUMNS_PER_BLOCK)
        total = torch.zeros(self._length, dtype=torch.float64, device=self._device)
        for block, piece in zip(self._column_blocks(), wanted, strict=True):
            total += block.double() @ piece
        return total.cpu()

    def combine(self, coefficients: Tensor) -> Tensor:
        """``coefficients @ G``, (d,), summed over the steps in float64, returned as float32."""
        weights = coefficients.to(self._device, torch.float64)
        return torch.cat([(weights @ block.double()).float() for block in self._column_blocks()])

    @property
    def _device(self) -> torch.device:
        return self._chunks[0].device if self._chunks else torch.device("cpu")

    def _column_blocks(self) -> Iterator[Tensor]:
        """The set as (T, up to 4,096) blocks of columns."""
        filled = [chunk[: self._length - i * ROWS_PER_CHUNK] for i, chunk in enumerate(self._chunks)]
        for start in range(0, self._size, COLUMNS_PER_BLOCK):
            yield torch.cat([chunk[:, start : start + COLUMNS_PER_BLOCK] for chunk in filled])
