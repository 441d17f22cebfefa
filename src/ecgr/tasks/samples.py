"""Samples: inputs of any kind with their targets, N of them, as numpy arrays. Needs numpy, not torch.

Inputs are one array, or a dict or tuple of arrays (tokens and a mask), any dtype, samples first. Tensors are looked at
as arrays without copying; memory-mapped arrays stay on disk. Whatever cannot be trained on is refused once, here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from ecgr.errors import ConfigError, DataError

Array: TypeAlias = NDArray[Any]
Inputs: TypeAlias = Array | tuple[Array, ...] | dict[str, Array]
"""What a model is called with: ``model(array)``, ``model(*tuple)`` or ``model(**dict)``."""

NUMBERS = "biuf"
"""The kinds of numpy dtypes that can be trained on: bool, whole numbers, floats."""


Moment: TypeAlias = tuple[int, ...] | None
"""When a training sample is read: seed, round, client and step; None where it is scored on."""


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Inputs that are read whenever they are needed, by the numbers of their items; looks like an array of those.

    Attributes:
        read: gives the inputs of some items at a moment: a ``Reader`` of `ecgr.tasks.data.items`.
        sha256: of all items, as they were once.
    """

    read: Any
    numbers: Array
    sha256: str

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.numbers.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numbers.shape

    @property
    def ndim(self) -> int:
        return self.numbers.ndim

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, chosen: Any) -> "Items":
        return Items(self.read, self.numbers[chosen], self.sha256)

    def __reduce__(self) -> Any:
        """With the data set and functions of a user, which a worker need not be able to import."""
        try:
            return _unpacked, (cloudpickle.dumps((self.read, self.numbers, self.sha256)),)
        except Exception as error:
            advice = "give cache=True, which reads it once, or workers=1 with engine serial"
            raise ConfigError(f"train: cannot be sent to a worker process ({error}); {advice}") from None


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

    def take(self, indices: NDArray[np.int64] | slice) -> "Samples":
        groups = None if self.groups is None else self.groups[indices]
        return Samples(map_arrays(lambda array: array[indices], self.inputs), self.targets[indices], groups)


def joined(first: Samples, second: Samples) -> Samples:
    """The samples of both, one after the other, as far as their inputs are alike."""
    inputs = combined(np.concatenate, [first.inputs, second.inputs])
    groups = None if first.groups is None else np.concatenate([first.groups, second.groups])
    return Samples(inputs, np.concatenate([first.targets, second.targets]), groups)


def as_array(value: Any) -> Array:
    """A tensor, an array or a list as an array; tensors and arrays are not copied."""
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        return np.asarray(tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor)
    return value if isinstance(value, np.ndarray | Items) else np.asarray(value)  # type: ignore[return-value]


def _as_input(value: Any) -> Array:
    if not is_frame(value):
        return as_array(value)
    for name, dtype in value.dtypes.items():
        if getattr(dtype, "kind", "O") not in NUMBERS:
            raise DataError(f"inputs: column {name!r} holds no numbers; give the table to Task, which encodes it")
    floats: Array = value.to_numpy(dtype=np.float64, na_value=np.nan)
    return floats


def _unpacked(content: bytes) -> Items:
    return Items(*cloudpickle.loads(content))


def is_frame(value: Any) -> bool:
    """Whether ``value`` is a pandas DataFrame."""
    return is_of("pandas", value, "DataFrame")


def is_series(value: Any) -> bool:
    """Whether ``value`` is a pandas Series."""
    return is_of("pandas", value, "Series")


def is_of(package: str, value: Any, name: str | None = None) -> bool:
    """Whether ``value`` is an instance of a class of a package (of this name), which is not imported to ask."""
    kinds = [base for base in type(value).__mro__ if base.__module__.partition(".")[0] == package]
    return any(name in (None, base.__name__) for base in kinds)


def map_arrays(function: Callable[[Any], Any], inputs: Any) -> Any:
    """The same dict, tuple or single array with ``function`` applied to every array."""
    if isinstance(inputs, Mapping):
        return {name: function(array) for name, array in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(function(array) for array in inputs)
    return function(inputs)


def combined(function: Callable[[Any], Any], several: Sequence[Any]) -> Any:
    """One dict, tuple or array of several alike: ``function`` of the arrays that stand at the same place in them.

    >>> combined(np.stack, [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    {'a': array([1, 3]), 'b': array([2, 4])}
    """
    first = several[0]
    if isinstance(first, Mapping):
        return {name: function([each[name] for each in several]) for name in first}
    return tuple(map(function, zip(*several, strict=True))) if isinstance(first, tuple) else function(several)


def named_arrays(inputs: Inputs) -> Iterator[tuple[str, Array]]:
    """The arrays of ``inputs``, each with what a message calls it."""
    if isinstance(inputs, dict | tuple):
        places = inputs.items() if isinstance(inputs, dict) else enumerate(inputs)
        yield from ((f"inputs[{place!r}]", array) for place, array in places)
    else:
        yield "inputs", inputs


def check_samples(where: str, samples: Samples) -> None:
    """Raise a `DataError` that names the first thing that cannot be trained on."""
    arrays = [*named_arrays(samples.inputs), ("targets", samples.targets)]
    if len(arrays) < 2 or not samples.targets.size:
        raise DataError(f"{where}: there are no {'samples' if arrays[1:] else 'inputs'}")
    for name, array in arrays:
        if array.dtype.kind not in NUMBERS:
            raise DataError(f"{where}: {name} are of dtype {array.dtype}; give numbers")
        if array.ndim == 0:
            raise DataError(f"{where}: {name} are a single number; give one row for each sample")
        if len(array) != len(samples.targets):
            raise DataError(f"{where}: {len(array):,} rows of {name} for {len(samples.targets):,} targets")
    rows = 65536  # looked at at a time: a whole array may be larger than the memory
    for name, array in arrays:
        for start in range(0, len(array) if array.dtype.kind == "f" else 0, rows):
            block = array[start : start + rows]
            if found := first_wrong(name, block, ~np.isfinite(block), start):
                raise DataError(f"{where}: {found}; fill in or leave out what is not a number")
    if samples.groups is not None and samples.groups.shape != (len(samples),):
        raise DataError(f"{where}: groups of shape {samples.groups.shape} for {len(samples):,} samples")


def as_samples(where: str, given: Any, expected: str = "(inputs, targets)", advice: str = "") -> Samples:
    """What is given as `Samples` or as a tuple of their parts; whatever cannot be trained on is refused."""
    if isinstance(given, tuple | list) and len(given) in {2, 3}:
        given = Samples(*given)
    if not isinstance(given, Samples):
        raise DataError(f"{where}: expected {expected}, got {type(given).__name__}{advice}")
    check_samples(where, given)
    return given


def first_wrong(name: str, array: Array, wrong: Any, start: int = 0) -> str | None:
    """``targets[3, 1] is 7``: the first entry that is wrong, if one is; ``start`` is the number of the first row.

    >>> first_wrong("targets", np.array([0, 7]), np.array([False, True]))
    'targets[1] is 7'
    """
    if not wrong.any():
        return None
    row, *rest = place = np.argwhere(wrong)[0].tolist()
    return f"{name}[{', '.join(map(str, (start + row, *rest)))}] is {array[tuple(place)]}"
