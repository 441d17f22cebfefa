"""The steps that clients kept, as values and as flat arrays. Needs numpy, not torch."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Kept(NamedTuple):
    """The steps that one client kept in one round."""

    round: int
    client: int
    steps: int
    kept: tuple[int, ...]


def pack_kept(entries: Sequence[Kept]) -> dict[str, NDArray[np.int32]]:
    """Flat arrays: entry i kept ``kept[offset[i]:offset[i + 1]]`` of ``steps[i]`` steps."""
    return {
        "round": np.array([e.round for e in entries], dtype=np.int32),
        "client": np.array([e.client for e in entries], dtype=np.int32),
        "steps": np.array([e.steps for e in entries], dtype=np.int32),
        "offset": np.cumsum([0, *(len(e.kept) for e in entries)], dtype=np.int32),
        "kept": np.array([i for e in entries for i in e.kept], dtype=np.int32),
    }


def unpack_kept(arrays: Mapping[str, NDArray[Any]]) -> list[Kept]:
    """The inverse of `pack_kept`.

    >>> unpack_kept(pack_kept([Kept(1, 0, 4, (3, 2))]))
    [Kept(round=1, client=0, steps=4, kept=(3, 2))]
    """
    starts, stops = arrays["offset"][:-1], arrays["offset"][1:]
    return [
        Kept(int(r), int(c), int(t), tuple(arrays["kept"][start:stop].tolist()))
        for r, c, t, start, stop in zip(arrays["round"], arrays["client"], arrays["steps"], starts, stops, strict=True)
    ]
