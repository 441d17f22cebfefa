"""Samples: inputs of any kind with their targets, N of them, as numpy arrays. Needs numpy, not torch.

Inputs are one array, or a dict or tuple of arrays (tokens and a mask), any dtype, samples first. Tensors are looked at
as arrays without copying; memory-mapped arrays stay on disk. Whatever cannot be trained on is refused once, here.
"""

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ecgr.errors import DataError

Array: TypeAlias = NDArray[Any]
Inputs: TypeAlias = Array | tuple[Array, ...] | dict[str, Array]
"""What a model is called with: ``model(array)``, ``model(*tuple)`` or ``model(**dict)``."""

NUMBERS = "biuf"
"""The kinds of numpy dtypes that can be trained on: bool, whole numbers, floats."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Inputs with their targets, one half of a task.

    Attributes:
        inputs: an array or tensor, or a dict or tuple of them, samples first; may be memory-mapped. A pandas
            DataFrame of numbers becomes floats.
        targets: one row a sample: classes (N,), labels (N, L), numbers (N,) or (N, D).
        groups: (N,) names of what each sample was taken from (a site, a speaker, a patient), where that is known.

    >>> samples = Samples({"tokens": [[1, 2], [3, 4]], "mask": [[1, 1], [1, 0]]}, [0, 1])
    >>> len(samples), samples.take(np.array([1])).inputs["tokens"].tolist()
    (2, [[3, 4]])
    """

    inputs: Any
    targets: Any
    groups: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", map_arrays(_as_input, self.inputs))
        object.__setattr__(self, "targets", as_array(self.targets))
        if self.groups is not None:
            object.__setattr__(self, "groups", as_array(self.groups).astype(np.str_))

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, indices: NDArray[np.int64]) -> "Samples":
        groups = None if self.groups is None else self.groups[indices]
        return Samples(map_arrays(lambda array: array[indices], self.inputs), self.targets[indices], groups)


def as_array(value: Any) -> Array:
    """A tensor, an array or a list as an array; tensors and arrays are not copied."""
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        return np.asarray(tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor)
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def _as_input(value: Any) -> Array:
    if not is_frame(value):
        return as_array(value)
    for name, dtype in value.dtypes.items():
        if getattr(dtype, "kind", "O") not in NUMBERS:
            raise DataError(f"inputs: column {name!r} holds no numbers; give the table to Task, which encodes it")
    floats: Array = value.to_numpy(dtype=np.float64, na_value=np.nan)
    return floats


def is_frame(value: Any) -> bool:
    """Whether ``value`` is a pandas DataFrame; asked without importing pandas."""
    return any(
        base.__module__.partition(".")[0] == "pandas" and base.__name__ == "DataFrame" for base in type(value).__mro__
    )


def is_series(value: Any) -> bool:
    """Whether ``value`` is a pandas Series, likewise."""
    return any(
        base.__module__.partition(".")[0] == "pandas" and base.__name__ == "Series" for base in type(value).__mro__
    )


def map_arrays(function: Callable[[Any], Any], inputs: Any) -> Any:
    """The same dict, tuple or single array with ``function`` applied to every array."""
    if isinstance(inputs, Mapping):
        return {name: function(array) for name, array in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(function(array) for array in inputs)
    return function(inputs)


def named_arrays(inputs: Inputs) -> Iterator[tuple[str, Array]]:
    """The arrays of ``inputs``, each with what a message calls it."""
    if isinstance(inputs, dict):
        yield from ((f"inputs[{name!r}]", array) for name, array in inputs.items())
    elif isinstance(inputs, tuple):
        yield from ((f"inputs[{i}]", array) for i, array in enumerate(inputs))
    else:
        yield "inputs", inputs


def check_samples(where: str, samples: Samples) -> None:
    """Raise a `DataError` that names the first thing that cannot be trained on."""
    arrays, count = [*named_arrays(samples.inputs), ("targets", samples.targets)], samples.targets.size
    if len(arrays) < 2 or not count:
        raise DataError(f"{where}: there are no {'samples' if arrays[1:] else 'inputs'}")
    for name, array in arrays:
        if array.dtype.kind not in NUMBERS:
            raise DataError(f"{where}: {name} are of dtype {array.dtype}; give numbers")
        if array.ndim == 0:
            raise DataError(f"{where}: {name} are a single number; give one row for each sample")
        if len(array) != len(samples.targets):
            raise DataError(f"{where}: {len(array):,} rows of {name} for {len(samples.targets):,} targets")
    for name, array in arrays:
        _check_finite(where, name, array)
    if samples.groups is not None and samples.groups.shape != (len(samples),):
        raise DataError(f"{where}: groups of shape {samples.groups.shape} for {len(samples):,} samples")


def _check_finite(where: str, name: str, array: Array, rows: int = 65536) -> None:
    """A block of rows at a time: the whole array may be larger than the memory."""
    for start in range(0, len(array) if array.dtype.kind == "f" else 0, rows):
        block = array[start : start + rows]
        wrong = np.argwhere(~np.isfinite(block))
        if len(wrong):
            value, (row, *rest) = block[tuple(wrong[0])], wrong[0].tolist()
            place = ", ".join(map(str, (start + row, *rest)))
            raise DataError(f"{where}: {name}[{place}] is {value}; fill in or leave out what is not a number")


def is_map_style(value: Any) -> bool:
    """Whether ``value`` is a collection of (inputs, target) items rather than arrays.

    >>> is_map_style([1, 2]), is_map_style(np.zeros(2)), is_map_style(type("D", (), {"__getitem__": 0, "__len__": 0})())
    (False, False, True)
    """
    arrays = isinstance(value, list | tuple | Mapping | np.ndarray | str | Samples) or hasattr(value, "detach")
    return (
        not arrays
        and not is_frame(value)
        and not is_series(value)
        and hasattr(value, "__getitem__")
        and hasattr(value, "__len__")
    )


def materialise(where: str, dataset: Any, most_bytes: int | None = None) -> Samples:
    """Every item of ``dataset``; one that cannot be read or differs from the first is named.

    ``most_bytes`` is what may be held in memory, by default half of what is free.
    """
    if not len(dataset):
        raise DataError(f"{where}: there are no samples")
    inputs, parts = _item(where, dataset, 0)
    if most_bytes is None:
        from ecgr.core.stores import free_memory  # loads torch, as the Dataset has done

        most_bytes = free_memory() // 2
    needed = len(dataset) * sum(array.nbytes for array in parts.values())
    make = np.empty if needed <= most_bytes else _map
    rows = {name: make((len(dataset), *array.shape), array.dtype) for name, array in parts.items()}
    for index in range(len(dataset)):
        _, parts = _item(where, dataset, index)
        if parts.keys() != rows.keys():
            raise DataError(f"{where}: item {index} has {', '.join(parts)}, item 0 {', '.join(rows)}; give the same")
        for name, array in parts.items():
            what, first = f"{where}: {name} of item {index}", rows[name]
            if array.shape != first.shape[1:]:
                was = f"those of item 0 {first.shape[1:]}; pad them to one shape"
                raise DataError(f"{what} have shape {array.shape}, {was}")
            if not np.can_cast(array.dtype, first.dtype, "same_kind"):
                raise DataError(f"{what} are {array.dtype}, those of item 0 {first.dtype}; give one dtype")
            first[index] = array
    targets, filled = rows.pop("targets"), iter(rows.values())
    return Samples(map_arrays(lambda _: next(filled), inputs), targets)


def _item(where: str, dataset: Any, index: int) -> tuple[Any, dict[str, Array]]:
    """The inputs of an item, and all its arrays by name."""
    try:
        item = dataset[index]
    except Exception as error:
        raise DataError(f"{where}: item {index} cannot be read ({type(error).__name__}: {error})") from None
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(f"{where}: item {index} is {type(item).__name__}; items are pairs (inputs, target)")
    inputs = map_arrays(as_array, item[0])
    return inputs, {**dict(named_arrays(inputs)), "targets": as_array(item[1])}


def _map(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array in a file of its own, which goes when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="ecgr-samples-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return np.memmap(folder / "rows", dtype=dtype, mode="w+", shape=shape)
