"""What every gradient set can do."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

Visit = Callable[[Tensor], None]
Replay = Callable[[Visit], None]
"""Runs the same training again and hands every displacement, in order, to its argument."""


class GradientSet(Protocol):
    """A growing set of equally long displacement vectors."""

    def __len__(self) -> int:
        """T, the number of displacements held."""
        ...

    def append(self, displacement: Tensor) -> None:
        """Store a copy of one displacement."""
        ...

    def new_row(self, device: torch.device) -> Tensor | None:
        """One more row of float32, for the caller to fill at once: saves `append`'s copy; None where it cannot."""
        ...

    def gram(self) -> Tensor:
        """All inner products, (T, T), float64 on the CPU."""
        ...

    def project(self, direction: Tensor) -> Tensor:
        """Inner products with one direction, (T,), float64 on the CPU."""
        ...

    def combine(self, coefficients: Tensor) -> Tensor:
        """``coefficients @ G``, (d,): summed in float64, one step after the other, then rounded once."""
        ...


class Store(Protocol):
    """An entry of ``STORES``: makes an empty set."""

    def __call__(self, size: int, *, steps: int | None = None, replay: Replay | None = None) -> GradientSet:
        """A set for displacements of ``size`` numbers.

        Args:
            size: d.
            steps: how many displacements will come, where that is known: room for them is made at once.
            replay: how to see all displacements again; only a set that does not hold them needs it.
        """
        ...
