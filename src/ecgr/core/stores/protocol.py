"""What every store can do, and what it says of itself."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ecgr.component import Tensor, torch

Visit = Callable[[Tensor], None]
Replay = Callable[[Visit], None]
"""Runs the same training again and hands every displacement, in order, to its argument."""


class Room(NamedTuple):
    """Bytes, by where they are taken."""

    memory: float = 0.0
    disk: float = 0.0


class Store(Protocol):
    """A growing set of equally long displacement vectors."""

    @property
    def name(self) -> str:
        """What it is called in a config."""
        ...

    @property
    def needs_replay(self) -> bool:
        """Whether it has to see the displacements a second time."""
        ...

    def __len__(self) -> int:
        """T, the number of displacements held."""
        ...

    def append(self, displacement: Tensor) -> None:
        """Store a copy of one displacement."""
        ...

    def new_row(self, device: "torch.device") -> Tensor | None:
        """One more row of float32, for the caller to fill at once: saves `append`'s copy; None where it cannot."""
        ...

    def gram(self) -> Tensor:
        """All inner products, (T, T), float64 on the CPU."""
        ...

    def combine(self, coefficients: Tensor) -> Tensor:
        """``coefficients @ G``, (d,): summed in float64, one step after the other, then rounded once."""
        ...


class Kind(Protocol):
    """An entry of ``STORES``: describes a store and makes an empty one."""

    @property
    def name(self) -> str:
        """What it is called in a config."""
        ...

    @property
    def exact(self) -> bool:
        """Whether the answers are always those of the displacements themselves, to the same bits."""
        ...

    @property
    def needs_replay(self) -> bool:
        """Whether it has to see the displacements a second time."""
        ...

    def room(self, size: int, steps: int) -> Room:
        """The bytes that ``steps`` displacements of ``size`` float32 numbers take."""
        ...

    def __call__(
        self,
        size: int,
        *,
        steps: int | None = None,
        replay: Replay | None = None,
        like: Tensor | None = None,
    ) -> Store:
        """An empty store for displacements of ``size`` numbers.

        Args:
            size: d.
            steps: how many displacements will come, where that is known: room for them is made at once.
            replay: how to see all displacements again; only a store that does not hold them needs it.
            like: a vector where and as precise as they are going to be; float32 on the CPU where nobody says.
        """
        ...
