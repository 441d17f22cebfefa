"""Arrays that several processes can have without copying them: shared memory, or a file mapped by each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecgr.tasks.samples import Samples, map_arrays

WIDER = {"u2": np.int32, "u4": np.int64, "u8": np.int64, "f16": np.float64}
"""What torch cannot compute with, by what it can."""


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A memory-mapped array by the place of its bytes."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def open(self) -> Tensor:
        """Map it into this process; copy-on-write, so that the file can never change."""
        return torch.from_numpy(np.memmap(self.path, self.dtype, mode="c", offset=self.offset, shape=self.shape))


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Samples as tensors or mapped files, in the structure that their inputs have."""

    inputs: Any
    targets: Tensor

    @classmethod
    def of(cls, samples: Samples) -> "Held":
        """Nothing is copied that need not be, but the targets."""
        return cls(map_arrays(_handle, samples.inputs), torch.from_numpy(_native(samples.targets).copy()))

    def __len__(self) -> int:
        return len(self.targets)

    def open(self) -> "Held":
        """The same with every file mapped into this process."""
        return Held(
            map_arrays(lambda held: held.open() if isinstance(held, MappedFile) else held, self.inputs), self.targets
        )

    def share(self) -> None:
        """Move tensors to shared memory, so that handing them to a process copies nothing."""
        for tensor in (*_leaves(self.inputs), self.targets):
            if isinstance(tensor, Tensor):
                tensor.share_memory_()  # type: ignore[no-untyped-call]


def _leaves(inputs: Any) -> list[Any]:
    if isinstance(inputs, dict):
        return list(inputs.values())
    return list(inputs) if isinstance(inputs, tuple) else [inputs]


def _handle(array: NDArray[Any]) -> Tensor | MappedFile:
    if (
        isinstance(array, np.memmap)
        and array.filename is not None
        and array.flags.c_contiguous
        and array.dtype.isnative
        and array.dtype.str[1:] not in WIDER
    ):
        return MappedFile(Path(array.filename), str(array.dtype), array.shape, array.offset)
    return torch.from_numpy(np.require(_native(array), requirements=["C", "W"]))


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """In this machine's byte order and a dtype that torch computes with."""
    wider = WIDER.get(array.dtype.str[1:])
    return array.astype(wider or array.dtype.newbyteorder("="), copy=False)
