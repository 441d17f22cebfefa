"""The stores by name, and whether the one that is asked for has room enough."""

from collections.abc import Mapping

from ecgr.component import torch
from ecgr.core.stores import room
from ecgr.core.stores.auto import Auto
from ecgr.core.stores.dense import DenseStore
from ecgr.core.stores.disk import DiskStore
from ecgr.core.stores.protocol import Kind
from ecgr.core.stores.reduced import Bf16Store, Int8Store
from ecgr.core.stores.room import describe, fits, gigabytes, shortage, where
from ecgr.core.stores.sketch import SketchStore
from ecgr.errors import ConfigError, EnvironmentFault

KINDS: tuple[Kind, ...] = (DenseStore, Bf16Store, Int8Store, DiskStore, SketchStore)

STORES: Mapping[str, Kind] = {kind.name: kind for kind in (*KINDS, Auto())}
"""By name: how to make an empty store for displacements of a given size, and what it says of itself."""


def check_room(name: str, size: int, steps: int, stores: int, device: "torch.device | str" = "cpu") -> None:
    """Refuse a store that cannot hold its steps and their inner products; the message names those that can.

    >>> check_room("dense", 61_706, 47, stores=1)
    """
    kind = STORES[name]
    short = shortage(kind, size, steps, stores, device)
    if short is None:
        return
    others = ", ".join(other.name for other in KINDS if fits(other, size, steps, stores, device))
    held = f"{describe(kind, size, steps)}{f' for each of {stores} processes' if stores > 1 else ''}"
    advice = others or "nothing; take fewer steps in a round (federation.batch_size, federation.local_epochs)"
    if short == "memory":
        raise ConfigError(
            f"run.store: {name!r} would hold {held} in memory ({gigabytes(room.free_memory(device))} free);"
            f" what fits: {advice}"
        )
    raise EnvironmentFault(
        f"run.store: {held} do not fit on the disk below {where()} ({gigabytes(room.free_disk())} free);"
        f" set TMPDIR to a larger one, or use what fits: {advice}"
    )
