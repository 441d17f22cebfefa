"""A map-style torch Dataset as arrays: read once, item by item, before anything is trained."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ecgr.errors import DataError
from ecgr.tasks.samples import Samples, as_array, map_arrays


def is_map_style(value: Any) -> bool:
    """Whether ``value`` is a collection of (inputs, target) items rather than arrays.

    >>> is_map_style([1, 2]), is_map_style(np.zeros(2)), is_map_style(type("D", (), {"__getitem__": 0, "__len__": 0})())
    (False, False, True)
    """
    if isinstance(value, list | tuple | Mapping | np.ndarray | str | Samples) or hasattr(value, "detach"):
        return False
    return hasattr(value, "__getitem__") and hasattr(value, "__len__")


def materialise(where: str, dataset: Any) -> Samples:
    """Every item of ``dataset``, stacked; an item that cannot be read or differs from the first is named."""
    inputs, targets = [], []
    for index in range(len(dataset)):
        try:
            item = dataset[index]
        except Exception as error:
            raise DataError(f"{where}: item {index} cannot be read ({type(error).__name__}: {error})") from None
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"{where}: item {index} is {type(item).__name__}; items are pairs (inputs, target)")
        inputs.append(map_arrays(as_array, item[0]))
        targets.append(as_array(item[1]))
    if not targets:
        raise DataError(f"{where}: there is not a single sample")
    return Samples(_stacked(where, "inputs", inputs), _stacked(where, "targets", targets))


def _stacked(where: str, name: str, items: list[Any]) -> Any:
    first = items[0]
    if isinstance(first, Mapping):
        return {key: _stacked(where, f"{name}[{key!r}]", [item.get(key) for item in items]) for key in first}
    if isinstance(first, tuple):
        return tuple(_stacked(where, f"{name}[{i}]", [item[i] for item in items]) for i in range(len(first)))
    for index, item in enumerate(items):
        if np.shape(item) != np.shape(first):
            raise DataError(
                f"{where}: {name} of item {index} have shape {np.shape(item)}, those of item 0 {np.shape(first)};"
                " pad them to one shape"
            )
    return np.stack(items)
