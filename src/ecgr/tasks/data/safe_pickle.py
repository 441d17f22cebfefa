"""Reading the pickles that CIFAR comes in without being able to run anything.

A pickle is a program: it names things to import and calls them. Here a name is looked up in one small table, and what
stands there is not numpy's code but a stand-in that checks its arguments and keeps them. So a pickle can build lists,
dicts, strings, numbers and arrays of integers; anything else is an `IntegrityError`, before it happens.

The unpickler is the pure-Python one of the standard library: its memo is a dict and its reads go through `Source`, so
neither an absurd index nor an absurd length sets memory aside.
"""

import math
import pickle
import re
from collections.abc import Callable, Mapping
from reprlib import repr as shortened  # bounded, however often a pickle nests one thing in itself
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ecgr.errors import DataError, EcgrError, IntegrityError
from ecgr.tasks.data.files import Source

MOST_BYTES = 512 << 20  # the largest official file, CIFAR-100's training images, has 155 MB


class _Refused(Exception):
    """The pickle wants something that it shall not have."""


def read_pickle(source: Source) -> dict[str, object]:
    """The dict that the pickle in ``source`` holds; its keys as text, its arrays as arrays.

    Raises:
        IntegrityError: it wants something that reading images does not need, or is absurdly large.
        DataError: it is damaged, or holds something else than a dict.
    """
    if source.size is None or source.size > MOST_BYTES:
        raise IntegrityError(f"{source.path}: {source.size} bytes, no official file has more than {MOST_BYTES:,}")
    try:
        return _as_dict(_Unpickler(source, encoding="bytes").load())
    except EcgrError:
        raise
    except _Refused as refused:
        raise IntegrityError(
            f"{source.path}: before byte {source.offset:,} the pickle {refused}, which images do not need;"
            " nothing was run; do not use this file"
        ) from None
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to spell
        reason = f"{type(error).__name__}: {error}"[:120]
        raise DataError(f"{source.path}: damaged before byte {source.offset:,} ({reason}); get it again") from None


def _as_dict(content: object) -> dict[str, object]:
    if type(content) is not dict:
        raise ValueError(f"a {type(content).__name__}, a dict was expected")
    return {_text(key): value.array() if isinstance(value, _Array) else value for key, value in content.items()}


def _text(key: object) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return key.decode("latin-1")
    raise ValueError(f"a {type(key).__name__} where text was expected")


def _load_bytearray8(unpickler: Any) -> None:
    """As the base class does, but without setting the memory aside first."""
    unpickler.append(unpickler.read(int.from_bytes(unpickler.read(8), "little")))


def _with_plain_keys(opcode: bytes, keys: slice) -> Callable[[Any], None]:
    """The base class's handler of ``opcode``, for keys that are quick to hash: nested tuples can take for ever."""
    fill: Callable[[Any], None] = pickle._Unpickler.dispatch[opcode[0]]

    def checked(unpickler: Any) -> None:
        if not all(type(key) in (bytes, str) for key in unpickler.stack[keys]):
            raise _Refused("has a dict with keys other than text")
        fill(unpickler)

    return checked


def _no_sets(unpickler: Any) -> NoReturn:
    raise _Refused("makes a set")


class _Unpickler(pickle._Unpickler):
    """Resolves names in the table below, and nothing else."""

    def find_class(self, module: str, name: str) -> object:
        """The stand-in for a name, if it is admitted."""
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise _Refused(f"asks for {shortened(module)}, {shortened(name)}") from None

    def persistent_load(self, pid: object) -> NoReturn:
        """Refuse: the pickle wants an object from outside itself."""
        raise _Refused("asks for an object outside itself")

    def get_extension(self, code: int) -> NoReturn:
        """Refuse: the registry of extensions belongs to the whole process."""
        raise _Refused(f"asks for extension {code}")

    dispatch = {  # noqa: RUF012
        **pickle._Unpickler.dispatch,
        pickle.BYTEARRAY8[0]: _load_bytearray8,
        pickle.DICT[0]: _with_plain_keys(pickle.DICT, slice(0, None, 2)),
        pickle.SETITEM[0]: _with_plain_keys(pickle.SETITEM, slice(-2, -1)),
        pickle.SETITEMS[0]: _with_plain_keys(pickle.SETITEMS, slice(0, None, 2)),
        pickle.EMPTY_SET[0]: _no_sets,
        pickle.ADDITEMS[0]: _no_sets,
        pickle.FROZENSET[0]: _no_sets,
    }


class _Admitted:
    """A name that may be called, with arguments that are checked; it cannot be changed or looked into."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., object]) -> None:
        self._make = make

    def __call__(self, *arguments: object) -> object:
        try:
            return self._make(*arguments)
        except TypeError:
            raise _unusual(self._make.__name__, arguments) from None

    def __setstate__(self, state: object) -> NoReturn:
        raise _unusual(self._make.__name__, state)


class _Dtype:
    """An integer type; its byte order arrives as its state."""

    __slots__ = ("_code", "_order")

    def __init__(self, code: str) -> None:
        self._code, self._order = code, "|"

    def __setstate__(self, state: object) -> None:
        match state:
            case (
                int(),
                b"|" | "|" | b"<" | "<" | b">" | ">" as order,
                None,
                None,
                None,
                int(),
                int(),
                int(),
            ):
                self._order = _text(order)
            case _:
                raise _unusual("dtype", state)

    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self._order + self._code)


class _Array:
    """An array; its shape, type and bytes arrive as its state."""

    __slots__ = ("_array",)

    def __init__(self) -> None:
        self._array: NDArray[Any] | None = None

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), tuple() as shape, _Dtype() as kind, int() as fortran, bytes() as content):
                self._array = _shape(content, kind.dtype(), shape, fortran=bool(fortran))
            case _:
                raise _unusual("array", state)

    def array(self) -> NDArray[Any]:
        if self._array is None:
            raise ValueError("an array without content")
        return self._array


def _shape(content: bytes, dtype: np.dtype[Any], shape: tuple[object, ...], *, fortran: bool) -> NDArray[Any]:
    sizes = [size for size in shape if type(size) is int and size >= 0]
    if len(sizes) != len(shape) or len(shape) > 4 or math.prod(sizes) * dtype.itemsize != len(content):
        raise ValueError(f"an array of shape {shortened(shape)} with {len(content):,} bytes of {dtype}")
    return np.frombuffer(content, dtype).reshape(sizes, order="F" if fortran else "C")


def _reconstruct(subtype: object, shape: object, code: object) -> _Array:
    if subtype is not _NDARRAY or shape != (0,) or code not in (b"b", "b"):
        raise _unusual("array", (shape, code))
    return _Array()


def _frombuffer(content: object, kind: object, shape: object, order: object) -> _Array:
    if order not in ("C", "F"):
        raise _unusual("array", order)
    array = _Array()
    array.__setstate__((1, shape, kind, int(order == "F"), content))
    return array


def _dtype(code: object, align: object, copy: object) -> _Dtype:
    if not isinstance(code, bytes | str) or not re.fullmatch("[iu][1248]", _text(code)):
        raise _unusual("dtype", (code, align, copy))
    return _Dtype(_text(code))


def _encode(text: object, encoding: object) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise _unusual("text", (type(text).__name__, encoding))
    return text.encode("latin-1")


def _ndarray(*arguments: object) -> NoReturn:
    raise _unusual("ndarray", arguments)


def _unusual(what: str, given: object) -> _Refused:
    return _Refused(f"makes a {what.strip('_')} from {shortened(given)[:80]}")


_NDARRAY = _Admitted(_ndarray)
_ADMITTED: Mapping[tuple[str, str], _Admitted] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Admitted(_dtype),
    ("numpy.core.multiarray", "_reconstruct"): _Admitted(_reconstruct),
    ("numpy._core.multiarray", "_reconstruct"): _Admitted(_reconstruct),
    ("numpy.core.numeric", "_frombuffer"): _Admitted(_frombuffer),
    ("numpy._core.numeric", "_frombuffer"): _Admitted(_frombuffer),
    ("_codecs", "encode"): _Admitted(_encode),
}
