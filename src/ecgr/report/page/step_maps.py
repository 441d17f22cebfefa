"""Which steps were kept, small enough for a page: bit maps as they are, or bins where those would be large.

A map has a row for each round in which its client took part and a column for each step. Exact maps are packed bits;
binned ones hold for each cell the share of its steps that was kept, as a byte: 0 to 250, or 255 where there is none.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecgr.simulation.kept import Kept

BUDGET = 500_000
"""Bytes, before base64, for the maps of all runs together."""
SIDE = 100
"""Most rows and columns of a binned map; fewer if many maps share the budget."""
LEAST_SIDE = 24
"""Rather than draw maps coarser than this, the last runs are left out."""
LEVELS, ABSENT = 250, 255

Entries = Sequence[Kept]


def step_maps(runs: Mapping[str, Entries], budget: int = BUDGET) -> dict[str, list[dict[str, Any]]]:
    """For each run the maps of its clients; exact if all of them fit the budget, else binned.

    >>> maps = step_maps({"a": [Kept(round=1, client=0, steps=4, kept=(3, 2))]})
    >>> maps["a"][0]["kind"], base64.b64decode(maps["a"][0]["data"])
    ('bits', b'0')
    """
    clients = {name: by_client(entries) for name, entries in runs.items() if entries}
    if sum(_exact_bytes(own) for each in clients.values() for own in each.values()) <= budget:
        return {name: [_exact_map(client, own) for client, own in each.items()] for name, each in clients.items()}
    while len(clients) > 1 and _side(clients, budget) < LEAST_SIDE:
        clients.popitem()
    side = max(1, min(SIDE, _side(clients, budget)))
    return {name: [_binned_map(client, own, side) for client, own in each.items()] for name, each in clients.items()}


def kept_array(entries: Entries) -> NDArray[np.float64]:
    """One client's map, rows by round and columns by step: 1 kept, 0 not kept, NaN where there was no step."""
    width = max((entry.steps for entry in entries), default=0)
    array = np.full((len(entries), width), np.nan)
    for row, entry in zip(array, entries, strict=True):
        row[: entry.steps] = 0.0
        row[list(entry.kept)] = 1.0
    return array


def binned_array(array: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    """Shares kept in at most ``side`` by ``side`` cells; NaN where a cell holds no step.

    >>> binned_array(np.array([[0.0, 1.0, 1.0, 1.0]]), side=2)
    array([[0.5, 1. ]])
    """
    rows, columns = (min(size, side) for size in array.shape)
    row, column = (np.arange(size) * bins // size for size, bins in zip(array.shape, (rows, columns), strict=True))
    cell = (row[:, None] * columns + column[None, :])[there := ~np.isnan(array)]
    total = np.bincount(cell, minlength=rows * columns).astype(np.float64)
    kept = np.bincount(cell, weights=array[there], minlength=rows * columns)
    shares = np.full(rows * columns, np.nan)
    np.divide(kept, total, out=shares, where=total > 0)
    return shares.reshape(rows, columns)


def _exact_map(client: int, entries: Entries) -> dict[str, Any]:
    bits = np.nan_to_num(kept_array(entries)).astype(bool)
    return {
        "client": client,
        "kind": "bits",
        "steps": [entry.steps for entry in entries],
        "rounds": [entry.round for entry in entries],
        "columns": bits.shape[1],
        "data": base64.b64encode(np.packbits(bits).tobytes()).decode(),
    }


def _binned_map(client: int, entries: Entries, side: int) -> dict[str, Any]:
    array = kept_array(entries)
    shares = binned_array(array, side)
    levels = np.where(np.isnan(shares), ABSENT, np.rint(np.nan_to_num(shares) * LEVELS)).astype(np.uint8)
    starts = [-(-row * len(entries) // len(shares)) for row in range(len(shares))]
    return {
        "client": client,
        "kind": "shares",
        "steps": array.shape[1],
        "rounds": [entries[start].round for start in starts],
        "columns": shares.shape[1],
        "data": base64.b64encode(levels.tobytes()).decode(),
    }


def by_client(entries: Entries) -> dict[int, list[Kept]]:
    """Each client's entries by round."""
    clients: dict[int, list[Kept]] = {}
    for entry in sorted(entries):
        clients.setdefault(entry.client, []).append(entry)
    return dict(sorted(clients.items()))


def _exact_bytes(entries: Entries) -> int:
    return -(-len(entries) * max(entry.steps for entry in entries) // 8)


def _side(clients: Mapping[str, Mapping[int, Entries]], budget: int) -> int:
    return math.isqrt(budget // sum(map(len, clients.values())))
