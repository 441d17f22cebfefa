"""Data sets of items, read once or at every epoch: pairs (inputs, target), or dicts as of Hugging Face ``datasets``.

A transform is called with an item's inputs. What it draws, it draws from ``rng``, a numpy generator, if it has a
parameter of that name, or from torch: both are seeded by (seed, round, client, step, item), so that the numbers depend
neither on the process nor on the order. An image (Pillow) becomes float32 (channels, height, width) in [0, 1]: one
channel of a grey image, three of any other.
"""

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from ecgr.errors import ConfigError, DataError, refused
from ecgr.streams import stream
from ecgr.tasks.samples import (
    NUMBERS,
    Array,
    Inputs,
    Items,
    Moment,
    Samples,
    as_array,
    combined,
    is_of,
    map_arrays,
    named_arrays,
)

Transform = Callable[..., Any]
GREY = ("1", "L")
BEGINNING = (0,)
"""The moment at which training items are read once."""


@dataclass(frozen=True)
class Reader:
    """Reads the items of a data set; refuses by key and index what cannot be trained on.

    ``inputs``, ``target`` and ``client`` are the keys of items that are dicts; several inputs are the arguments of the
    model. ``transform`` is what items go through to be trained on, ``scored`` to be scored on; ``fresh`` ones are read
    anew whenever they are needed, to the same numbers.
    """

    where: str
    dataset: Any
    inputs: str | tuple[str, ...] | None = None
    target: str | None = None
    client: str | None = None
    transform: Transform | None = None
    scored: Transform | None = None
    fresh: bool = False

    def __call__(self, numbers: Array, moment: Moment) -> Inputs:
        """The inputs of some items, stacked."""
        made: Inputs = combined(np.stack, [self.item(int(number), moment)[0] for number in numbers])
        return made

    def item(self, index: int, moment: Moment) -> tuple[Inputs, dict[str, Array], Any]:
        """The inputs of an item, all its arrays by name, and its client."""
        transform = self.scored if moment is None else self.transform
        with _seeded(moment or BEGINNING, index) if self.fresh or transform else nullcontext() as rng:
            try:
                item = self.dataset[index]
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                raise DataError(f"{self.where}: item {index} cannot be read ({why})") from None
            given, target, client = self._parts(index, item)
            if transform is not None:
                with refused(f"{self.where}: transform failed for item {index}"):
                    given = transform(given, rng=rng) if self._drawing[moment is None] else transform(given)
        inputs = map_arrays(_numbers, given)
        arrays = {**dict(named_arrays(inputs)), "targets": _numbers(target)}
        for name, array in arrays.items():
            what = f"{self.named(name)} of item {index}"
            if array.dtype.kind not in NUMBERS:
                advice = "encode it" if name == "targets" else "make numbers of it in transform="
                kind = "text" if array.dtype.kind in "US" else type(array.item(0)).__name__ if array.size else "empty"
                raise DataError(f"{what} is {kind}; {advice}")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise DataError(f"{what} has NaN or infinite values; fill them in, or leave it out")
        return inputs, arrays, client

    @cached_property
    def _drawing(self) -> tuple[bool, bool]:
        """Whether each of the transforms has a parameter ``rng``."""
        return _has_rng(self.transform), _has_rng(self.scored)

    def named(self, name: str) -> str:
        """What a message calls an array."""
        if self.inputs is not None:
            known = {"targets": repr(self.target), "inputs": repr(self.inputs)}
            name = known.get(name, name.removeprefix("inputs[").removesuffix("]"))
        return f"{self.where}: {name}"

    def _parts(self, index: int, item: Any) -> tuple[Any, Any, Any]:
        here = f"{self.where}: item {index}"
        if self.inputs is None:
            if not isinstance(item, tuple | list) or len(item) != 2:
                advice = ", or dicts whose keys inputs= and target= name" if isinstance(item, Mapping) else ""
                raise DataError(f"{here} is {type(item).__name__}; items are pairs (inputs, target){advice}")
            return item[0], item[1], None
        if not isinstance(item, Mapping):
            raise DataError(f"{here} is {type(item).__name__}; inputs= and target= name keys of dicts")
        several = (self.inputs,) if isinstance(self.inputs, str) else self.inputs
        whose = [self.client] if self.client is not None and self.where == "train" else []  # a test item need not say
        for key in (*several, self.target, *whose):
            if key not in item:
                raise DataError(f"{here} has no key {key!r}; it has: {', '.join(map(str, item))}")
            if item[key] is None:
                raise DataError(f"{self.where}: {key!r} of item {index} is None; fill it in, or leave the item out")
        given = item[self.inputs] if isinstance(self.inputs, str) else {key: item[key] for key in several}
        return given, item[self.target], item.get(self.client)


@contextmanager
def _seeded(moment: tuple[int, ...], index: int) -> Iterator[np.random.Generator]:
    """What an item is read with: a generator, and torch's own seeded from it."""
    import torch  # a task may be described without it

    rng = stream(moment[0], "transform", *moment[1:], index)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(rng.integers(2**63)))
        yield rng


def _has_rng(transform: Transform | None) -> bool:
    try:
        return transform is not None and "rng" in signature(transform).parameters
    except ValueError:  # written in C
        return False


def _numbers(value: Any) -> Array:
    """A value of an item as an array; an image by the rule above."""
    if not is_of("PIL", value):
        return as_array(value)
    if value.mode[0] in "IF":
        raise DataError(f"an image of mode {value.mode} has no one range; make an array of it in transform=")
    pixels = np.asarray(value.convert("L" if value.mode in GREY else "RGB"), dtype=np.float32) / 255
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def is_map_style(value: Any) -> bool:
    """Whether ``value`` is a collection of items rather than arrays.

    >>> is_map_style([1, 2]), is_map_style(np.zeros(2)), is_map_style(type("D", (), {"__getitem__": 0, "__len__": 0})())
    (False, False, True)
    """
    arrays = isinstance(value, list | tuple | Mapping | np.ndarray | str | Samples) or hasattr(value, "detach")
    return not arrays and not is_of("pandas", value) and hasattr(value, "__getitem__") and hasattr(value, "__len__")


def read_items(reader: Reader, moment: Moment = None) -> Samples:
    """Every item, read once; one that cannot be read or differs from the first is named.

    Inputs of fresh items are only looked at; others fill at most half of the free memory, or are kept on disk.
    """
    from ecgr.core.stores import free_memory  # loads torch, as the data set has done

    count, keep = len(reader.dataset), not reader.fresh
    if not count:
        raise DataError(f"{reader.where}: there are no samples")
    inputs, parts, _ = reader.item(0, moment)
    for name, again in reader.item(0, moment)[1].items() if reader.transform or reader.scored or reader.fresh else ():
        if not np.array_equal(again, parts[name]):
            advice = "draw from its parameter rng, or from torch"
            raise ConfigError(f"transform: {reader.named(name)} of item 0 is another each time; {advice}")
    needed = count * sum(array.nbytes for array in parts.values())
    make = np.empty if needed <= free_memory() // 2 or not keep else _map
    rows = {
        name: make((count if keep or name == "targets" else 1, *array.shape), array.dtype)
        for name, array in parts.items()
    }
    digest, clients = sha256(), []
    for index in range(count):
        _, parts, client = reader.item(index, moment)
        clients.append(client)
        if parts.keys() != rows.keys():
            raise DataError(
                f"{reader.where}: item {index} has {', '.join(parts)}, item 0 {', '.join(rows)}; give the same"
            )
        for name, array in parts.items():
            what, first = f"{reader.named(name)} of item {index}", rows[name]
            if array.shape != first.shape[1:]:
                advice = f"those of item 0 {first.shape[1:]}; pad or resize them to one shape"
                raise DataError(f"{what} have shape {array.shape}, {advice}")
            if not np.can_cast(array.dtype, first.dtype, "same_kind"):
                raise DataError(f"{what} are {array.dtype}, those of item 0 {first.dtype}; give one dtype")
            place = index % len(first)
            first[place] = array
            if not keep:
                digest.update(first[place].tobytes())
    targets, filled = rows.pop("targets"), iter(rows.values())
    read = Items(reader, np.arange(count), digest.hexdigest())
    given = map_arrays(lambda _: next(filled), inputs) if keep else read
    return Samples(given, targets, None if None in clients else clients)


def _map(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array in a file of its own, which goes when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="ecgr-samples-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return np.memmap(folder / "rows", dtype=dtype, mode="w+", shape=shape)
