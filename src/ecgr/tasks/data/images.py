"""Small images in classes: digits that come with the package, MNIST and Fashion-MNIST, CIFAR-10 and CIFAR-100.

MNIST's files are IDX, plain or .gz, in torchvision's layout: a magic number, the sizes as big-endian 32-bit numbers,
then bytes; http://yann.lecun.com/exdb/mnist/. CIFAR's are pickled batches; https://www.cs.toronto.edu/~kriz/cifar.html.

A pickle is a program that names things to import and calls them. Here it can name five things, none of which does more
than hold bytes; whatever else it asks for is refused before it happens. The unpickler is the standard library's in
Python: what it reads is in memory already, so neither an absurd index nor an absurd length sets memory aside.
"""

import io
import pickle
import struct
from importlib.resources import files as resources
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ecgr.component import component
from ecgr.errors import DataError, IntegrityError
from ecgr.tasks.data.dataset import Channels, Dataset, Images, Labels, apart, check_labels, image_dataset
from ecgr.tasks.data.sets import KnownFiles, check_length, compared, known_folder
from ecgr.tasks.samples import Samples

TEST_EVERY = 5  # every fifth image is a test image: 1,438 to train on, 359 to test on
ORIGIN = "f6d9e39f37dc45d327f6db33428ee58970ccceabb2535a5c179de35886b70443"
"""SHA-256 of scikit-learn's float64 images and int64 labels, which records name as the data of a run."""
DIGITS = tuple("0123456789")


@component
class Digits:
    """1,797 handwritten digits from scikit-learn, 8x8 resized to 28x28, fixed split (1,438 + 359).

    From the UCI repository (CC BY 4.0), kept beside this file as 8x8 whole numbers from 0 to 16: all runs offline.
    """

    table: bool = False  # as 64 numbers a digit, for models of tables: a tenth of the time
    train_samples: ClassVar[int] = 1438

    def load(self) -> Dataset:
        with (resources("ecgr.tasks.data") / "digits.npz").open("rb") as file, np.load(file) as arrays:
            small, labels = arrays["images"].astype(np.float64), arrays["labels"].astype(np.int64)
        if self.table:  # from -1 (white) to 1 (black)
            inputs: NDArray[Any] = (small.reshape(len(small), -1) / 8 - 1).astype(np.float32)
        else:
            inputs = np.rint(enlarge(small, side=28) * (255 / 16)).clip(0, 255).astype(np.uint8)[:, None]
        test = np.arange(len(labels)) % TEST_EVERY == TEST_EVERY - 1
        train, held_out = apart(Samples(inputs, labels), test)
        if self.table:
            shape = {"features": inputs.shape[1], "classes": len(DIGITS)}
            return Dataset(train, held_out, shape, classes=DIGITS, files={"sklearn-digits": ORIGIN})
        return image_dataset(train, held_out, DIGITS, mean=(0.3058,), std=(0.3251,), files={"sklearn-digits": ORIGIN})


def enlarge(images: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    """Square images (N, n, n) enlarged bilinearly to (N, side, side), pixels being areas: the bits of scipy's ``zoom``.

    >>> enlarge(np.array([[[0.0, 4.0], [0.0, 4.0]]]), side=4)[0, 0]
    array([0., 1., 3., 4.])
    """
    last = images.shape[1] - 1
    centres = (np.arange(side) + 0.5) * (images.shape[1] / side) - 0.5
    left = np.floor(centres).astype(int)
    share = centres - left
    neighbours = ((left.clip(0, last), 1 - share), ((left + 1).clip(0, last), share))
    result = np.zeros((len(images), side, side))
    for (rows, down), (columns, across) in product(neighbours, neighbours):
        result += images[:, rows][:, :, columns] * down[:, None] * across
    return result


FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


@component
class Mnist:
    """60,000 + 10,000 handwritten digits, 28x28 grey."""

    root: str | None = None
    name: ClassVar[str] = "mnist"
    classes: ClassVar[tuple[str, ...]] = DIGITS
    scale: ClassVar[tuple[float, float]] = (0.1307, 0.3081)

    def folder(self) -> Path:
        return known_folder(self.name, self.root)

    def load(self) -> Dataset:
        files, (mean, std) = KnownFiles(self.name, self.root), self.scale

        def split(prefix: str, most: int) -> Samples:
            path, images = _read_idx(files, f"{prefix}-images-idx3-ubyte", most, (28, 28))
            labels_path, labels = _read_idx(files, f"{prefix}-labels-idx1-ubyte", most, ())
            check_labels(labels_path, labels, len(self.classes))
            if len(images) != len(labels):
                raise DataError(f"{labels_path}: {len(labels):,} labels for the {len(images):,} images of {path.name}")
            return Samples(images[:, None], labels.astype(np.int64))

        train, test = split("train", files.official.train), split("t10k", files.official.test)
        dataset = image_dataset(train, test, self.classes, (mean,), (std,), files=files.sha256)
        return compared(self.name, dataset, files.altered)


@component
class FashionMnist(Mnist):
    """60,000 + 10,000 pictures of clothes, 28x28 grey."""

    name: ClassVar[str] = "fashion_mnist"
    classes: ClassVar[tuple[str, ...]] = FASHION
    scale: ClassVar[tuple[float, float]] = (0.5, 0.5)


def _read_idx(files: KnownFiles, file: str, most: int, sides: tuple[int, ...]) -> tuple[Path, Images]:
    """An IDX file of at most ``most`` samples of the shape ``sides``."""
    header, size = 8 + 4 * len(sides), int(np.prod(sides, dtype=int))
    path, content = files.read(file, header + most * size + 1)
    check_length(path, content[:header], header)
    magic, count, *found = struct.unpack(f">{2 + len(sides)}I", content[:header])
    if magic != 2049 + len(sides):
        raise DataError(f"{path}: magic number {magic} at byte 0, this file starts with {2049 + len(sides)}")
    if not 0 < count <= most:
        raise DataError(f"{path}: {count:,} samples announced at byte 4, expected 1 to {most:,}")
    if tuple(found) != sides:
        raise DataError(f"{path}: images of {found[0]}x{found[1]} at byte 8, expected {sides[0]}x{sides[1]}")
    check_length(path, content, header + count * size)
    return path, np.frombuffer(content, np.uint8, offset=header).reshape(count, *sides).copy()


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
