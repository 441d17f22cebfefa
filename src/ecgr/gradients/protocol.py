"""What every gradient set can do."""

from typing import Protocol

from torch import Tensor


class GradientSet(Protocol):
    """A growing set of equally long displacement vectors."""

    def __len__(self) -> int:
        """T, the number of displacements held."""
        ...

    def append(self, displacement: Tensor) -> None:
        """Store a copy of one displacement."""
        ...

    def gram(self) -> Tensor:
        """All inner products, (T, T), float64 on the CPU."""
        ...

    def project(self, direction: Tensor) -> Tensor:
        """Inner products with one direction, (T,), float64 on the CPU."""
        ...

    def combine(self, coefficients: Tensor) -> Tensor:
        """``coefficients @ G``, (d,), float32."""
        ...
