"""CIFAR-10 and CIFAR-100 as their authors give them out: pickled batches, or fixed-length records ("binary version").

A record is the label (for CIFAR-100 the coarse one, then the fine one) and 3,072 bytes, red, green and blue planes of
32x32; https://www.cs.toronto.edu/~kriz/cifar.html.
"""

import io
import math
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened  # bounded, however often a pickle nests one thing in itself
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from ecgr.component import component
from ecgr.errors import DataError, IntegrityError
from ecgr.tasks.data.dataset import Dataset, Images, Labels, check_labels, image_dataset
from ecgr.tasks.data.files import Digest, check_length, find_folder, member, read_file
from ecgr.tasks.data.official import OFFICIAL, KnownSet, Report, assess
from ecgr.tasks.samples import Samples

PIXELS = 3 * 32 * 32

Batch = tuple[NDArray[np.uint8], Labels, Digest]


@dataclass(frozen=True, slots=True)
class Layout:
    """One of the forms in which a set is given out: its files and how to read them."""

    folder: str
    train: tuple[str, ...]
    test: str
    names: str
    read_batch: Callable[[Path], Batch]
    read_names: Callable[[Path], tuple[list[str], Digest]]


@component
class Cifar10(KnownSet):
    """50,000 + 10,000 photographs of 10 kinds of things, 32x32 in colour."""

    root: str | None = None
    image_size: Literal[32, 16, 8] = 32

    def folder(self) -> Path:
        return _folder("cifar10", self.root)

    def read(self) -> tuple[Dataset, Report]:
        mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
        return read_set("cifar10", self.folder(), classes=10, mean=mean, std=std, size=self.image_size)


@component
class Cifar100(KnownSet):
    """50,000 + 10,000 photographs of 100 kinds of things, 32x32 in colour."""

    root: str | None = None
    image_size: Literal[32, 16, 8] = 32

    def folder(self) -> Path:
        return _folder("cifar100", self.root)

    def read(self) -> tuple[Dataset, Report]:
        half = (0.5, 0.5, 0.5)
        return read_set("cifar100", self.folder(), classes=100, mean=half, std=half, size=self.image_size)


def read_set(
    name: str, folder: Path, classes: int, mean: tuple[float, ...], std: tuple[float, ...], size: int = 32
) -> tuple[Dataset, Report]:
    """The batches of ``folder`` as a data set, and how they compare with the official ones."""
    layout = next(layout for layout in LAYOUTS[name] if layout.folder == folder.name)
    digests: dict[str, Digest] = {}

    def split(files: tuple[str, ...]) -> Samples:
        images, labels = [], []
        for file in files:
            path = member(name, folder, file)
            batch_images, batch_labels, digests[file] = layout.read_batch(path)
            check_labels(path, batch_labels, classes)
            images.append(batch_images)
            labels.append(batch_labels)
        return Samples(shrunk(_join(images), size), np.concatenate(labels))

    train, test = split(layout.train), split((layout.test,))
    report = assess(name, OFFICIAL[name], digests, len(train), len(test))
    names, names_digest = layout.read_names(member(name, folder, layout.names))
    if len(names) != classes or len(set(names)) != classes:
        raise DataError(f"{folder / layout.names}: {len(set(names))} different class names, {classes} were expected")
    files = {file: digest.sha256 for file, digest in (*digests.items(), (layout.names, names_digest))}
    notes = report.notes if size == 32 else (*report.notes, f"images averaged down from 32x32 to {size}x{size}")
    return image_dataset(train, test, tuple(names), mean, std, files, notes), report


def shrunk(images: Images, size: int) -> Images:
    """Images of ``size`` x ``size``, each pixel the rounded mean of the square it covers.

    >>> shrunk(np.array([[[[0, 2], [4, 6]]]], dtype=np.uint8), 1).tolist()
    [[[[3]]]]
    """
    count, channels, side, _ = images.shape
    if size == side:
        return images
    block = side // size
    squares = images.reshape(count, channels, size, block, size, block)
    totals = squares.sum(axis=(3, 5), dtype=np.uint32)
    smaller: Images = ((totals + block * block // 2) // (block * block)).astype(np.uint8)
    return smaller


def _folder(name: str, root: str | None) -> Path:
    return find_folder(name, [layout.folder for layout in LAYOUTS[name]], root)


def _join(parts: list[NDArray[np.uint8]]) -> Images:
    """One contiguous array; a part is let go as soon as it is copied, so that no more than one is there twice."""
    images = np.empty((sum(map(len, parts)), PIXELS), dtype=np.uint8)
    start = 0
    while parts:
        part = parts.pop(0)
        images[start : start + len(part)] = part
        start += len(part)
    return images.reshape(-1, 3, 32, 32)


def _pickled_batch(path: Path, key: str) -> Batch:
    batch, digest = read_pickle(path)
    images, labels = batch.get("data"), batch.get(key)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (PIXELS,):
        found = f"{images.dtype} {images.shape}" if isinstance(images, np.ndarray) else type(images).__name__
        raise DataError(f"{path}: `data` must be uint8 (N, {PIXELS}), got {found}")
    labels = _whole_numbers(path, key, labels)
    if not len(images) or len(labels) != len(images):
        raise DataError(f"{path}: {len(labels):,} labels under `{key}` for {len(images):,} images")
    return images, labels, digest


def _whole_numbers(path: Path, key: str, labels: object) -> Labels:
    if isinstance(labels, np.ndarray) and labels.ndim == 1:
        labels = labels.tolist()
    if not isinstance(labels, list):
        raise DataError(f"{path}: `{key}` must be a list of labels, got {type(labels).__name__}")
    for index, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < 1 << 31:
            shown = label if isinstance(label, int | float) else type(label).__name__
            raise DataError(f"{path}: label {shown} at index {index}; labels are whole numbers from 0")
    return np.array(labels, dtype=np.int64)


def _pickled_names(path: Path, key: str) -> tuple[list[str], Digest]:
    content, digest = read_pickle(path)
    names = content.get(key)
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise DataError(f"{path}: `{key}` must be a list of class names")
    return [name.decode("latin-1") if isinstance(name, bytes) else name for name in names], digest


def _binary_batch(path: Path, label_bytes: int, most: int) -> Batch:
    record = label_bytes + PIXELS
    content, digest = read_file(path, most * record)
    count, rest = divmod(len(content), record)
    if rest or not count:
        raise DataError(
            f"{path}: {len(content):,} bytes are not whole records of {record} bytes"
            f" (record {count} breaks off at byte {count * record:,}); get it again"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(count, record)
    return records[:, label_bytes:], records[:, label_bytes - 1].astype(np.int64), digest


def _text_names(path: Path) -> tuple[list[str], Digest]:
    content, digest = read_file(path, 1 << 16)
    lines = content.decode("utf-8", errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()], digest


MOST_BYTES = 512 << 20  # the largest official file, CIFAR-100's training images, has 155 MB


class _Refused(Exception):
    """The pickle wants something that it shall not have."""


class _Part:
    """A name, a dtype or an array on the unpickler's stack: it can be neither called nor changed from a pickle."""

    __slots__ = ("kind", "value")

    def __init__(self, kind: str, value: Any = None) -> None:
        self.kind, self.value = kind, value


def read_pickle(path: Path) -> tuple[dict[str, object], Digest]:
    """The dict that a pickle holds, its keys as text, its arrays as arrays, and the hashes of the file.

    A pickle is a program that names things to import and calls them. Here names are only names: a pickle can make
    lists, dicts, text, numbers and arrays of integers, and whatever else it asks for is refused before it happens. The
    unpickler is the standard library's in Python: its memo is a dict, and what it reads is in memory already, so
    neither an absurd index nor an absurd length sets memory aside.

    Raises:
        IntegrityError: it wants something that reading images does not need, or is absurdly large.
        DataError: it is damaged, or holds something else than a dict.
    """
    if path.is_file() and path.stat().st_size > MOST_BYTES:
        raise IntegrityError(f"{path}: {path.stat().st_size:,} bytes, no official file has more than {MOST_BYTES:,}")
    content, digest = read_file(path, MOST_BYTES)
    source = io.BytesIO(content)
    try:
        found = _Unpickler(source, encoding="bytes").load()
        if type(found) is not dict:
            raise ValueError(f"a {type(found).__name__}, a dict was expected")
        values = {_text(key): _whole(value) if isinstance(value, _Part) else value for key, value in found.items()}
    except _Refused as refused:
        raise IntegrityError(
            f"{path}: before byte {source.tell():,} the pickle {refused}, which images do not need;"
            " nothing was run; do not use this file"
        ) from None
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to spell
        reason = f"{type(error).__name__}: {error}"[:120]
        raise DataError(f"{path}: damaged before byte {source.tell():,} ({reason}); get it again") from None
    check_length(path, content, source.tell())
    return values, digest


def _text(text: bytes | str) -> str:
    return text if isinstance(text, str) else text.decode("latin-1")


def _whole(part: _Part) -> NDArray[Any]:
    if not isinstance(part.value, np.ndarray):
        raise ValueError("an array without content")
    return part.value


def _call(unpickler: Any) -> None:
    """REDUCE: the calls by which numpy's pickles make an array, a dtype, or bytes."""
    arguments, name = unpickler.stack.pop(), unpickler.stack.pop()
    match name.kind if isinstance(name, _Part) else None, arguments:
        case "_reconstruct", (_Part(kind="ndarray"), (0,), b"b" | "b"):
            made: object = _Part("array")
        case "_frombuffer", (bytes() as content, _Part(kind="integers") as dtype, tuple() as shape, "C" | "F" as order):
            made = _Part("array", _shaped(content, dtype.value, shape, order))
        case "dtype", (bytes() | str() as code, int(), int()) if re.fullmatch("[iu][1248]", _text(code)):
            made = _Part("integers", np.dtype(_text(code)))
        case "encode", (str() as text, "latin1" | "latin-1"):
            made = text.encode("latin-1")
        case _:
            raise _Refused(f"calls {getattr(name, 'kind', type(name).__name__)} with {shortened(arguments)[:80]}")
    unpickler.append(made)


def _set_state(unpickler: Any) -> None:
    """BUILD: the content of an array, the byte order of a dtype."""
    state, part = unpickler.stack.pop(), unpickler.stack[-1]
    match part.kind if isinstance(part, _Part) else None, state:
        case "array", (int(), tuple() as shape, _Part(kind="integers") as dtype, int() as fortran, bytes() as content):
            part.value = _shaped(content, dtype.value, shape, "F" if fortran else "C")
        case "integers", (int(), b"|" | "|" | b"<" | "<" | b">" | ">" as order, None, None, None, int(), int(), int()):
            part.value = part.value.newbyteorder(_text(order))
        case _:
            raise _Refused(f"makes {getattr(part, 'kind', type(part).__name__)} from {shortened(state)[:80]}")


def _load_bytearray(unpickler: Any) -> None:
    """As the base class does, but without setting the memory aside first."""
    unpickler.append(unpickler.read(int.from_bytes(unpickler.read(8), "little")))


def _shaped(content: bytes, dtype: np.dtype[Any], shape: tuple[object, ...], order: Literal["C", "F"]) -> NDArray[Any]:
    sizes = [size for size in shape if type(size) is int and size >= 0]
    if len(sizes) != len(shape) or len(shape) > 4 or math.prod(sizes) * dtype.itemsize != len(content):
        raise ValueError(f"an array of shape {shortened(shape)} with {len(content):,} bytes of {dtype}")
    return np.frombuffer(content, dtype).reshape(sizes, order=order)


def _with_plain_keys(opcode: str, keys: slice) -> Callable[[Any], None]:
    """The handler of an opcode that fills a dict, for keys that are quick to hash: nested tuples can take for ever."""
    fill: Callable[[Any], None] = pickle._Unpickler.dispatch[getattr(pickle, opcode)[0]]

    def checked(unpickler: Any) -> None:
        if not all(type(key) in (bytes, str) for key in unpickler.stack[keys]):
            raise _Refused("has a dict with keys other than text")
        fill(unpickler)

    return checked


class _Opcodes(dict[int, Callable[[Any], None]]):
    def __missing__(self, opcode: int) -> NoReturn:
        if opcode in pickle._Unpickler.dispatch:
            raise _Refused(f"uses the opcode {bytes([opcode])!r}")
        raise ValueError(f"there is no opcode {bytes([opcode])!r}")


PLAIN = (
    "PROTO FRAME STOP MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT"
    " STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES"
    " BINBYTES8 LIST EMPTY_LIST APPEND APPENDS EMPTY_DICT TUPLE EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3"
    " PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL"
)
"""Opcodes that make plain data, or name something."""
NAMES = {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")} | {
    (f"numpy.{core}.{module}", name)
    for core in ("core", "_core")
    for module, name in (("multiarray", "_reconstruct"), ("numeric", "_frombuffer"))
}


class _Unpickler(pickle._Unpickler):
    dispatch = _Opcodes(
        {getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in PLAIN.split()}
        | {
            pickle.BYTEARRAY8[0]: _load_bytearray,
            pickle.REDUCE[0]: _call,
            pickle.BUILD[0]: _set_state,
            pickle.DICT[0]: _with_plain_keys("DICT", slice(0, None, 2)),
            pickle.SETITEM[0]: _with_plain_keys("SETITEM", slice(-2, -1)),
            pickle.SETITEMS[0]: _with_plain_keys("SETITEMS", slice(0, None, 2)),
        }
    )

    def find_class(self, module: str, name: str) -> _Part:
        if (module, name) not in NAMES:
            raise _Refused(f"asks for {shortened(module)}, {shortened(name)}")
        return _Part(name)


BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
LAYOUTS = {
    "cifar10": (
        Layout(
            folder="cifar-10-batches-py",
            train=BATCHES,
            test="test_batch",
            names="batches.meta",
            read_batch=lambda path: _pickled_batch(path, "labels"),
            read_names=lambda path: _pickled_names(path, "label_names"),
        ),
        Layout(
            folder="cifar-10-batches-bin",
            train=tuple(f"{batch}.bin" for batch in BATCHES),
            test="test_batch.bin",
            names="batches.meta.txt",
            read_batch=lambda path: _binary_batch(path, label_bytes=1, most=50_000),
            read_names=_text_names,
        ),
    ),
    "cifar100": (
        Layout(
            folder="cifar-100-python",
            train=("train",),
            test="test",
            names="meta",
            read_batch=lambda path: _pickled_batch(path, "fine_labels"),
            read_names=lambda path: _pickled_names(path, "fine_label_names"),
        ),
        Layout(
            folder="cifar-100-binary",
            train=("train.bin",),
            test="test.bin",
            names="fine_label_names.txt",
            read_batch=lambda path: _binary_batch(path, label_bytes=2, most=50_000),
            read_names=_text_names,
        ),
    ),
}
