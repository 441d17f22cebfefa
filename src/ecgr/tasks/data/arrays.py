"""Arrays of one's own: in files, or loaded by a site's Python file.

A file holds ``inputs``, ``targets`` and, where samples have clients, ``clients``; .npz or .safetensors. Nothing is
unpickled: an array of objects is refused. A site of a federation names its Python file by ``$ECGR_TASK`` on its own
machine, never by a config: it is the site's to run. Its function ``load`` returns training and test samples, each as
(inputs, targets); nothing of them leaves the site.
"""

import os
import runpy
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import file_digest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecgr.component import Count, component
from ecgr.errors import ConfigError, DataError, EcgrError, one_line
from ecgr.tasks.data.dataset import Dataset, Kind, Share, SplitSeed, array_targets, check_labels, input_shape, parted
from ecgr.tasks.data.sets import own_path
from ecgr.tasks.samples import Samples, as_samples, check_samples, first_wrong, map_arrays

Array = NDArray[Any]
MOST_BYTES = 16 << 30
SUFFIXES = (".npz", ".safetensors")
PARTS = ("inputs", "targets", "clients")


@component
class Arrays:
    """Your own arrays: a .npz or .safetensors file, or a folder with a train and a test file of that kind.

    A file holds ``inputs`` (or several: ``inputs.tokens``, ``inputs.mask``), ``targets`` and, optionally, ``clients``;
    one that holds ``test_inputs``, ``test_targets``, … as well needs no split.
    """

    root: str | None = None
    kind: Kind = "auto"
    test_share: Share = 0.2
    split_seed: SplitSeed = 0

    def folder(self) -> Path:
        return own_path("arrays", self.root, "a .npz or .safetensors file, or a folder with train and test")

    def brings_test(self) -> bool:
        """Whether the samples to test with are in a file, or in arrays, of their own."""
        path = self.folder()
        return path.is_dir() or any(name.startswith("test_") for name in read_arrays(path))

    def load(self) -> Dataset:
        path = self.folder()
        files = [_half_file(path, half) for half in ("train", "test")] if path.is_dir() else [path]
        first, *second = (read_arrays(file) for file in files)
        train = {name: array for name, array in first.items() if not name.startswith("test_")}
        test = second[0] if second else {k.removeprefix("test_"): v for k, v in first.items() if k not in train}
        if test:
            halves = samples_of(f"{path}: train", train), samples_of(f"{path}: test", test)
        else:
            halves = parted(samples_of(str(path), train), self.test_share, self.split_seed)
            if not len(halves[1]):
                raise DataError(f"{path}: {len(halves[0])} samples are too few to split; see data.test_share")
        return array_dataset(str(path), *halves, self.kind, {file.name: _sha256(file) for file in files})


def array_dataset(where: str, train: Samples, test: Samples, kind: Kind, files: Mapping[str, str]) -> Dataset:
    """A data set of arrays: what they are follows from their dtypes and shapes."""
    shape = _input_shape(where, train, test)
    images = "channels" in shape
    both = np.concatenate([train.targets, test.targets])
    targets = array_targets(where, both, "classes" if images and kind == "auto" else kind)
    mean, std = _pixel_scale(train.inputs) if images and train.inputs.dtype == np.uint8 else ((), ())
    train, test = (
        Samples(map_arrays(_as_model_input, half.inputs), values, half.groups)
        for half, values in zip((train, test), np.split(targets.values, [len(train)]), strict=True)
    )
    return targets.dataset(train, test, shape, mean=mean, std=std, files=files)


def samples_of(where: str, arrays: Mapping[str, Array]) -> Samples:
    """The samples that a file's arrays are."""
    for name in arrays:
        if name.partition(".")[0] not in PARTS:
            raise DataError(f"{where} has an array {name!r}; there may be: {', '.join(PARTS)}, test_inputs, …")
    several = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith("inputs.")}
    inputs = several or arrays.get("inputs")
    if inputs is None or "targets" not in arrays:
        part = "targets" if inputs is not None else "inputs"
        raise DataError(f"{where} has no array {part!r}; it has: {', '.join(arrays) or 'nothing'}")
    samples = Samples(inputs, arrays["targets"], arrays.get("clients"))
    check_samples(where, samples)
    return samples


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file, by name."""
    from safetensors.numpy import load_file  # needed for these files only

    if path.suffix not in SUFFIXES:
        raise DataError(f"{path}: is neither {' nor '.join(SUFFIXES)}; save it with numpy.savez")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path}: has more than {MOST_BYTES:,} bytes")
        return _read_npz(path) if path.suffix == ".npz" else load_file(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except EcgrError:
        raise
    except Exception as error:  # damaged files raise what their bytes happen to spell
        raise DataError(f"{path}: is not a whole {path.suffix} file of numbers ({str(error)[:80]})") from None


def _read_npz(path: Path) -> dict[str, Array]:
    with zipfile.ZipFile(path) as packed:
        if sum(entry.file_size for entry in packed.infolist()) > MOST_BYTES:
            raise DataError(f"{path}: has more than {MOST_BYTES:,} bytes unpacked")
    with np.load(path, allow_pickle=False) as opened:
        return dict(opened)


def _half_file(folder: Path, half: str) -> Path:
    found = [path for suffix in SUFFIXES if (path := folder / f"{half}{suffix}").is_file()]
    if not found:
        raise DataError(f"arrays: no {half}.npz or {half}.safetensors in {folder}; or name one file in data.root")
    return found[0]


def _input_shape(where: str, train: Samples, test: Samples) -> dict[str, int]:
    """What a model must know of the inputs of both halves."""
    shapes = [input_shape(half.inputs) for half in (train, test)]
    if not all(shapes):
        raise DataError(f"{where}: several inputs are tokens and what goes with them: inputs.tokens, inputs.mask")
    arrays = [half.inputs["tokens"] if isinstance(half.inputs, dict) else half.inputs for half in (train, test)]
    if arrays[0].shape[1:] != arrays[1].shape[1:]:
        raise DataError(f"{where}: inputs of shape {arrays[0].shape} to train on, {arrays[1].shape} to test on")
    for array in arrays if "vocabulary" in shapes[0] else ():
        if found := first_wrong("inputs", array, array < 0):
            raise DataError(f"{where}: {found}; tokens count from 0")
    return {key: max(size, shapes[1].get(key, size)) for key, size in shapes[0].items()}


def _as_model_input(array: Array) -> Array:
    """Floats as a model's float32, infinite where they are too large for it; whole numbers as they are."""
    with np.errstate(over="ignore"):
        return array.astype(np.float32) if array.dtype.kind == "f" else array


def _pixel_scale(images: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel, of pixels scaled to [0, 1]."""
    counts = np.stack([np.bincount(images[:, channel].ravel(), minlength=256) for channel in range(images.shape[1])])
    values = np.arange(256) / 255
    mean = counts @ values / counts.sum(axis=1)
    std = np.sqrt(np.maximum(counts @ values**2 / counts.sum(axis=1) - mean**2, 0))
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


VARIABLE = "ECGR_TASK"


@component
class Site:
    """The samples of this site alone, loaded by the Python file that $ECGR_TASK names: for federations."""

    kind: Kind = "auto"
    classes: Count | None = None  # where a site may lack some of them

    def folder(self) -> Path:
        """The site's file."""
        path = Path(os.environ.get(VARIABLE, "")).expanduser()
        if not path.is_file():
            problem = f"{path} is not a file" if os.environ.get(VARIABLE) else "not set"
            raise ConfigError(f"${VARIABLE}: {problem}; it names the Python file that loads this site's samples")
        return path

    def load(self) -> Dataset:
        path = self.folder()
        given = zip(("train", "test"), _halves(path), strict=True)
        train, test = (replace(as_samples(f"{path.name}: {name}", half), groups=None) for name, half in given)
        dataset = array_dataset(path.name, train, test, self.kind, files={})
        if self.classes is None:
            return dataset
        for where, samples in (("train", dataset.train), ("test", dataset.test)):
            check_labels(f"{path.name}: {where}", samples.targets, self.classes)
        names = tuple(map(str, range(self.classes)))
        return replace(dataset, shape={**dataset.shape, "classes": self.classes}, classes=names)


def _halves(path: Path) -> Sequence[Any]:
    """What the site's ``load`` gives to train and to test."""
    try:
        load = runpy.run_path(str(path), run_name="ecgr_site").get("load")
        if not callable(load):
            raise DataError(f"{path}: has no function `load`; it returns (inputs, targets) twice: to train and to test")
        halves = load()
    except EcgrError:
        raise
    except Exception as error:
        raise DataError(f"{path}: cannot load the samples ({one_line(error)})") from error
    if not isinstance(halves, tuple | list) or len(halves) != 2:
        raise DataError(f"{path}: load gives {type(halves).__name__}; give training samples and test samples")
    return halves
