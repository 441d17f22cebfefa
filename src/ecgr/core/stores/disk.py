"""Displacements in a memory-mapped temporary file: exact, for the price of disk traffic.

The file never has a name (or loses it as soon as it is open), so nothing can be left behind, however the process ends.
Room on the disk is claimed before it is written to: a full disk is an error here, not a killed process later. Pages
that were written or read are given back at once, so that only a few megabytes count as this process's memory.
"""

import mmap
import os
import tempfile
import weakref
from typing import ClassVar

from ecgr.component import Tensor, torch
from ecgr.core.stores.dense import DenseStore
from ecgr.core.stores.protocol import Room
from ecgr.core.stores.room import claim
from ecgr.errors import EnvironmentFault

RESIDENT = 2**23  # bytes read before their pages are given back


class DiskStore(DenseStore):
    """The rows of a `DenseStore`, in chunks that lie in a file below ``$TMPDIR``.

    >>> steps = DiskStore(2)
    >>> steps.append(torch.tensor([3.0, 4.0]))
    >>> steps.gram().tolist()
    [[25.0]]
    """

    name: ClassVar[str] = "disk"

    def _set_up(self) -> None:
        super()._set_up()
        self._maps: list[mmap.mmap] = []
        self._end = 0
        self._touched = 0
        try:
            with tempfile.TemporaryFile(buffering=0) as file:
                self._descriptor = os.dup(file.fileno())
        except OSError as error:
            raise EnvironmentFault(
                f"store disk: cannot make a temporary file ({error.strerror or error}); set TMPDIR to another directory"
            ) from None
        weakref.finalize(self, os.close, self._descriptor)

    @classmethod
    def room(cls, size: int, steps: int) -> Room:
        """All rows, on the disk."""
        return Room(disk=cls.bytes_per_number * size * steps)

    def new_row(self, device: "torch.device") -> Tensor | None:
        """None: through `append` the recorder gets by with one vector beside the model, which is the point here."""
        return None

    def _next(self) -> Tensor:
        self._give_back(self._size * self._dtype.itemsize)  # the row before this one is filled by now
        return super()._next()

    def _allocate(self, rows: int) -> Tensor:
        length = rows * self._size * self._dtype.itemsize
        padded = -(-length // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        claim(self._descriptor, self._end, padded)
        mapped = mmap.mmap(self._descriptor, padded, offset=self._end)
        self._maps.append(mapped)
        self._end += padded
        return torch.frombuffer(mapped, dtype=self._dtype, count=rows * self._size).view(rows, self._size)

    def _tiles(self, start: int, stop: int) -> list[Tensor]:
        self._give_back(self._length * (stop - start) * self._dtype.itemsize)
        return [tile.to(self._device) for tile in super()._tiles(start, stop)]

    def _give_back(self, touched: int) -> None:
        """Count bytes that are about to be touched; let go of the pages of those before them when they are many."""
        if self._touched + touched > RESIDENT:
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)  # of a shared mapping: what was written stays in the file
            self._touched = 0
        self._touched += touched
