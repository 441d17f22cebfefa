"""The store that picks another one: the fastest exact one that fits."""

import os

from ecgr.component import Tensor, torch
from ecgr.core.stores.dense import DenseStore
from ecgr.core.stores.disk import DiskStore
from ecgr.core.stores.protocol import Kind, Replay, Room, Store
from ecgr.core.stores.room import describe, fits, where
from ecgr.core.stores.sketch import SketchStore
from ecgr.errors import ConfigError

USUAL_STEPS = 256  # assumed where nobody says how many there will be


class Auto:
    """``dense`` where it is small, else ``disk``, which gives the same bits, else ``replay`` where that is possible."""

    name = "auto"
    exact = False  # it may have to be a sketch
    needs_replay = False

    def room(self, size: int, steps: int) -> Room:
        """None of its own: it looks for a store that fits."""
        return Room()

    def __call__(
        self,
        size: int,
        *,
        steps: int | None = None,
        replay: Replay | None = None,
        like: Tensor | None = None,
    ) -> Store:
        """An empty store of the kind that was picked."""
        numbers, device = (size, "cpu") if like is None else (size * like.element_size() // 4, like.device)
        kind = pick(numbers, steps, device=device, replayable=replay is not None)
        return kind(size, steps=steps, replay=replay, like=like)


def pick(size: int, steps: int | None, *, device: "torch.device | str" = "cpu", replayable: bool = False) -> Kind:
    """The store that ``auto`` stands for.

    Small means: fits into half of the free memory when as many processes as there are cores hold one.

    >>> pick(61_706, 47).name
    'dense'
    """
    count, processes = steps or USUAL_STEPS, os.cpu_count() or 1
    if fits(DenseStore, size, count, 2 * processes, device):
        return DenseStore
    if fits(DiskStore, size, count, processes, device):
        return DiskStore
    if replayable and fits(SketchStore, size, count, processes, device):
        return SketchStore
    raise ConfigError(
        f"store: {describe(DenseStore, size, count)} fit neither in memory nor on the disk below {where()};"
        " take fewer steps in a round (larger batches, fewer local epochs)"
    )
