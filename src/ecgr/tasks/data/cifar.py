"""CIFAR-10 and CIFAR-100 as their authors give them out: pickled batches; https://www.cs.toronto.edu/~kriz/cifar.html.

A pickle is a program that names things to import and calls them. Here it can name five things, none of which does more
than hold bytes; whatever else it asks for is refused before it happens. The unpickler is the standard library's in
Python: what it reads is in memory already, so neither an absurd index nor an absurd length sets memory aside.
"""

import io
import pickle
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ecgr.component import component
from ecgr.errors import DataError, IntegrityError
from ecgr.tasks.data.dataset import Channels, Dataset, Images, Labels, image_dataset
from ecgr.tasks.data.sets import KnownFiles, check_length, compared, known_folder
from ecgr.tasks.samples import Samples

PIXELS = 3 * 32 * 32


@component
class Cifar10:
    """50,000 + 10,000 photographs of 10 kinds of things, 32x32 in colour."""

    root: str | None = None
    image_size: Literal[32, 16, 8] = 32
    name: ClassVar[str] = "cifar10"
    kind: ClassVar[str] = ""  # of its labels: what the names of their keys begin with
    classes: ClassVar[int] = 10
    mean: ClassVar[Channels] = (0.4914, 0.4822, 0.4465)
    std: ClassVar[Channels] = (0.2023, 0.1994, 0.2010)

    def folder(self) -> Path:
        return known_folder(self.name, self.root)

    def load(self) -> Dataset:
        files, size = KnownFiles(self.name, self.root), self.image_size
        *batches, last = files.official.content

        def split(names: list[str]) -> Samples:
            pairs = (_batch(files, name, f"{self.kind}labels", self.classes) for name in names)
            images, labels = zip(*pairs, strict=True)
            return Samples(shrunk(np.concatenate(images).reshape(-1, 3, 32, 32), size), np.concatenate(labels))

        train, test = split(batches), split([last])
        path, content = files.read(files.official.unhashed[0])
        names = read_pickle(path, content).get(f"{self.kind}label_names")
        if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
            raise DataError(f"{path}: `{self.kind}label_names` must be a list of class names")
        known = tuple(map(_text, names))
        if not len(known) == len(set(known)) == self.classes:
            raise DataError(f"{path}: {len(set(known))} different class names, {self.classes} were expected")
        notes = () if size == 32 else (f"images averaged down from 32x32 to {size}x{size}",)
        dataset = image_dataset(train, test, known, self.mean, self.std, files=files.sha256, notes=notes)
        return compared(self.name, dataset, files.altered)


@component
class Cifar100(Cifar10):
    """50,000 + 10,000 photographs of 100 kinds of things, 32x32 in colour."""

    name: ClassVar[str] = "cifar100"
    kind: ClassVar[str] = "fine_"
    classes: ClassVar[int] = 100
    mean: ClassVar[Channels] = (0.5, 0.5, 0.5)
    std: ClassVar[Channels] = (0.5, 0.5, 0.5)


def _batch(files: KnownFiles, name: str, key: str, classes: int) -> tuple[Images, Labels]:
    path, content = files.read(name)
    batch = read_pickle(path, content)
    images, labels = batch.get("data"), batch.get(key)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (PIXELS,):
        found = f"{images.dtype} {images.shape}" if isinstance(images, np.ndarray) else type(images).__name__
        raise DataError(f"{path}: `data` must be uint8 (N, {PIXELS}), got {found}")
    labels = labels.tolist() if isinstance(labels, np.ndarray) else labels
    if not isinstance(labels, list) or len(labels) != len(images) or not labels:
        found = f"{len(labels):,}" if isinstance(labels, list) else type(labels).__name__
        raise DataError(f"{path}: `{key}` must be a list, one label for each of {len(images):,} images, got {found}")
    for index, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < classes:
            shown = label if isinstance(label, int | float) else type(label).__name__
            raise DataError(f"{path}: label {shown} at index {index}; labels go from 0 to {classes - 1}")
    return images, np.array(labels, dtype=np.int64)


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


def read_pickle(path: Path, content: bytes) -> dict[str, object]:
    """The dict that a pickle holds, its keys as text, its arrays as arrays.

    Raises:
        IntegrityError: it wants something that reading images does not need.
        DataError: it is damaged, or holds something else than a dict.
    """
    source = io.BytesIO(content)
    try:
        found = _Unpickler(source, encoding="bytes").load()
        values = {_text(key): value.array if isinstance(value, _Array) else value for key, value in found.items()}
    except IntegrityError as refused:
        what = f"before byte {source.tell():,} the pickle {refused}, which images do not need"
        raise IntegrityError(f"{path}: {what}; nothing was run; do not use this file") from None
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to spell
        reason = f"{type(error).__name__}: {error}"[:120]
        raise DataError(f"{path}: damaged before byte {source.tell():,} ({reason}); get it again") from None
    check_length(path, content, source.tell())
    return values


def _text(text: bytes | str) -> str:
    return text if isinstance(text, str) else text.decode("latin-1")


class _Dtype:
    """Stands for ``numpy.dtype``."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        self.dtype = np.dtype(_text(code))

    def __setstate__(self, state: Any) -> None:
        self.dtype = self.dtype.newbyteorder(_text(state[1]))  # type: ignore[arg-type]


class _Array:
    """Stands for ``numpy.ndarray``, which numpy's pickles make empty and then fill."""

    array: NDArray[Any]

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, content = state
        self.array = np.frombuffer(content, kind.dtype).reshape(shape, order="F" if fortran else "C")


def _from_buffer(content: bytes, kind: _Dtype, shape: tuple[int, ...], order: str) -> _Array:
    made = _Array()
    made.__setstate__((1, shape, kind, order == "F", content))
    return made


def _encode(text: str, _encoding: object) -> bytes:
    return text.encode("latin-1")


NAMES = {("numpy", "ndarray"): _Array, ("numpy", "dtype"): _Dtype, ("_codecs", "encode"): _encode} | {
    (f"numpy.{core}.{module}", name): stand_in
    for core in ("core", "_core")
    for module, name, stand_in in (("multiarray", "_reconstruct", _Array), ("numeric", "_frombuffer", _from_buffer))
}


def _build(unpickler: Any) -> None:
    if type(unpickler.stack[-2]) not in (_Array, _Dtype):
        raise IntegrityError(f"sets the state of {type(unpickler.stack[-2]).__name__}")
    unpickler.load_build()


def _bytes_as_they_come(unpickler: Any) -> None:
    unpickler.append(unpickler.read(int.from_bytes(unpickler.read(8), "little")))


class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.BUILD[0]: _build,
        pickle.BYTEARRAY8[0]: _bytes_as_they_come,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in NAMES:
            raise IntegrityError(f"asks for {module[:80]!r}, {name[:80]!r}")
        return NAMES[module, name]
