"""A map-style torch Dataset as arrays: read once, item by item, before anything is trained.

What does not fit into half of the free memory is written to mapped files, which all processes share and which are
removed when this one ends.
"""

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ecgr.errors import DataError
from ecgr.tasks.samples import Array, Samples, as_array, map_arrays

Make = Callable[[tuple[int, ...], Any], Array]
"""How to make an empty array of a shape and a dtype."""


def is_map_style(value: Any) -> bool:
    """Whether ``value`` is a collection of (inputs, target) items rather than arrays.

    >>> is_map_style([1, 2]), is_map_style(np.zeros(2)), is_map_style(type("D", (), {"__getitem__": 0, "__len__": 0})())
    (False, False, True)
    """
    if isinstance(value, list | tuple | Mapping | np.ndarray | str | Samples) or hasattr(value, "detach"):
        return False
    return hasattr(value, "__getitem__") and hasattr(value, "__len__")


def materialise(where: str, dataset: Any, most_bytes: int | None = None) -> Samples:
    """Every item of ``dataset``; one that cannot be read or differs from the first is named.

    ``most_bytes`` is what may be held in memory, by default half of what is free.
    """
    count = len(dataset)
    if not count:
        raise DataError(f"{where}: there is not a single sample")
    first, target = _item(where, dataset, 0)
    parts = _leaves("inputs", first)
    needed = count * sum(array.nbytes for _, array in parts)
    make = np.empty if needed <= (_half_of_memory() if most_bytes is None else most_bytes) else _map
    rows = {name: make((count, *array.shape), array.dtype) for name, array in parts}
    targets = np.empty((count, *target.shape), target.dtype)
    for index in range(count):
        inputs, target = _item(where, dataset, index)
        _fill(f"{where}: targets", targets, index, target)
        for name, array in _leaves("inputs", inputs):
            if name not in rows:
                raise DataError(f"{where}: item {index} has {name}, which item 0 has not")
            _fill(f"{where}: {name}", rows[name], index, array)
    filled = iter(rows.values())
    return Samples(map_arrays(lambda _: next(filled), first), targets)


def _item(where: str, dataset: Any, index: int) -> tuple[Any, Array]:
    try:
        item = dataset[index]
    except Exception as error:
        raise DataError(f"{where}: item {index} cannot be read ({type(error).__name__}: {error})") from None
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(f"{where}: item {index} is {type(item).__name__}; items are pairs (inputs, target)")
    return map_arrays(as_array, item[0]), as_array(item[1])


def _leaves(name: str, inputs: Any) -> list[tuple[str, Array]]:
    if isinstance(inputs, Mapping):
        return [(f"{name}[{key!r}]", array) for key, array in inputs.items()]
    if isinstance(inputs, tuple):
        return [(f"{name}[{i}]", array) for i, array in enumerate(inputs)]
    return [(name, inputs)]


def _fill(what: str, rows: Array, index: int, array: Array) -> None:
    if array.shape != rows.shape[1:]:
        raise DataError(
            f"{what} of item {index} have shape {array.shape}, those of item 0 {rows.shape[1:]}; pad them to one shape"
        )
    if not np.can_cast(array.dtype, rows.dtype, "same_kind"):
        raise DataError(f"{what} of item {index} are {array.dtype}, those of item 0 {rows.dtype}; give one dtype")
    rows[index] = array


def _half_of_memory() -> int:
    from ecgr.core.room import free_memory  # loads torch, as the Dataset has done

    return free_memory() // 2


def _map(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array in a file of its own, which goes when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="ecgr-samples-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return np.memmap(folder / "rows", dtype=dtype, mode="w+", shape=shape)
