"""Small data sets in the layouts of the real ones."""

import csv
import gzip
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Bytes = NDArray[np.uint8]


def random_images(count: int, *shape: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def labels_of(count: int, classes: int) -> Bytes:
    return (np.arange(count) % classes).astype(np.uint8)


def idx_images(images: Bytes) -> bytes:
    return struct.pack(">4I", 2051, *images.shape) + images.tobytes()


def idx_labels(labels: Bytes) -> bytes:
    return struct.pack(">2I", 2049, len(labels)) + labels.tobytes()


def idx_files(train: int = 40, test: int = 20) -> dict[str, bytes]:
    """The four files of a small MNIST."""
    return {
        "train-images-idx3-ubyte": idx_images(random_images(train, 28, 28, seed=1)),
        "train-labels-idx1-ubyte": idx_labels(labels_of(train, 10)),
        "t10k-images-idx3-ubyte": idx_images(random_images(test, 28, 28, seed=2)),
        "t10k-labels-idx1-ubyte": idx_labels(labels_of(test, 10)),
    }


def write_idx(root: Path, files: Mapping[str, bytes], folder: str = "MNIST/raw", *, packed: bool = False) -> Path:
    place = root / folder
    place.mkdir(parents=True)
    for name, content in files.items():
        path = place / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
    return place


def python2_pickle(entries: Mapping[str, object]) -> bytes:
    """A dict as Python 2 with numpy 1 pickled it in protocol 2: 8-bit strings, numpy.core, no _codecs.

    The official CIFAR files look like this; Python 3 cannot write it, so it is put together by hand.
    """

    def string(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text if len(text) < 256 else b"T" + struct.pack("<i", len(text)) + text

    def value(content: object) -> bytes:
        if isinstance(content, np.ndarray):
            shape = b"".join(b"J" + struct.pack("<i", size) for size in content.shape)
            made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + string(b"b") + b"\x87R"
            dtype = b"cnumpy\ndtype\n" + string(b"u1") + b"K\x00K\x01\x87R"
            dtype += b"(K\x03" + string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
            return made + b"(K\x01(" + shape + b"t" + dtype + b"\x89" + string(content.tobytes()) + b"tb"
        if isinstance(content, list):
            return b"](" + b"".join(value(item) for item in content) + b"e"
        if isinstance(content, int):
            return b"K" + bytes([content])
        assert isinstance(content, str)
        return string(content.encode())

    items = b"".join(string(key.encode()) + value(content) for key, content in entries.items())
    return b"\x80\x02}(" + items + b"u."


CIFAR10_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
CIFAR100_NAMES = [f"thing {number}" for number in range(100)]


def write_cifar10(root: Path, per_batch: int = 20) -> Path:
    """Pickled batches, every other one as Python 2 wrote it, the others in Python 3's protocols 2, 4 and 5."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for number in range(1, 6):
        batch = {"data": random_images(per_batch, 3072, seed=number), "labels": labels_of(per_batch, 10).tolist()}
        protocol = {2: 2, 4: 5}.get(number)
        content = python2_pickle(batch) if protocol is None else pickle.dumps(batch, protocol)
        (folder / f"data_batch_{number}").write_bytes(content)
    test = {b"data": random_images(per_batch, 3072, seed=9), b"labels": labels_of(per_batch, 10).tolist()}
    (folder / "test_batch").write_bytes(pickle.dumps(test, 4))
    (folder / "batches.meta").write_bytes(python2_pickle({"label_names": CIFAR10_NAMES}))
    return folder


def write_cifar100(root: Path, train: int = 100, test: int = 100) -> Path:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, count, seed in (("train", train, 1), ("test", test, 2)):
        batch = {"data": random_images(count, 3072, seed=seed), "fine_labels": labels_of(count, 100).tolist()}
        (folder / name).write_bytes(pickle.dumps(batch, 4))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": CIFAR100_NAMES}, 4))
    return folder


def write_picture(path: Path, seed: int = 0, side: int = 12) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(random_images(side, side, 3, seed=seed)).save(path)
    return path


CLASS_FOLDERS = {
    "colon_aca": "colon_image_sets/colon_aca",
    "colon_n": "colon_image_sets/colon_n",
    "lung_aca": "lung_image_sets/lung_aca",
    "lung_n": "lung_image_sets/lung_n",
    "lung_scc": "lung_image_sets/lung_scc",
}


def write_lc25000(
    root: Path, tiles: int = 5, per_tile: int = 4, side: int = 12, *, flat: bool = False, groups: bool = True
) -> Path:
    """Write the set and return its folder; picture k of a class comes from tile k modulo ``tiles``."""
    folder = root / "lung_colon_image_set"
    lines = []
    for number, (name, place) in enumerate(CLASS_FOLDERS.items()):
        for picture in range(tiles * per_tile):
            file = f"{name.replace('_', '')}{picture + 1}.jpeg"
            seed = 1000 * number + picture % tiles
            write_picture(folder / (name if flat else place) / file, seed=seed, side=side)
            lines.append([name, file, str(picture % tiles)])
    if groups:
        with (folder / "groups.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([["class", "file", "group"], *lines])
    return folder
