"""Pictures in folders, one folder a class: any set of one's own, and LC25000; decoded once, and kept.

``groups.csv``, where there is one, says what each picture was made from (a patient, a tissue tile): all pictures of a
group are on one side of the split, because a model that was trained on one of them knows the others.

Only a few formats are opened, nothing outside the folder is followed, and a small file that would unpack to an
enormous picture is refused: pictures come from strangers.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import compress, groupby
from operator import not_
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from ecgr.component import component
from ecgr.errors import DataError, EnvironmentFault, IntegrityError, missing_extra
from ecgr.files import whole_file
from ecgr.tasks.data.dataset import Dataset, Images, Share, image_dataset
from ecgr.tasks.data.sets import cache_folder, data_root, missing, own_path, read_text
from ecgr.tasks.data.tables import parse_table
from ecgr.tasks.samples import Samples

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})
FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
MOST_PIXELS = 50_000_000
BLOCK = 128  # pictures decoded between two writes: memory stays small, every core has work
FORMAT = 1  # raise it when decoding changes


def list_pictures(folder: Path, root: Path) -> list[Path]:
    """The pictures right in ``folder``, by name; other files are passed over.

    Raises:
        DataError: there is none.
        IntegrityError: one is a link that leads out of ``root``.
    """
    within(folder, root)
    pictures = []
    for path in folder.iterdir():
        if path.suffix.lower() in SUFFIXES and not path.name.startswith("."):
            if path.is_symlink():
                within(path, root)
            if not path.is_file():
                raise DataError(f"{path}: not a file")
            pictures.append(path)
    if not pictures:
        raise DataError(f"{folder}: no pictures ({', '.join(sorted(SUFFIXES))})")
    return sorted(pictures)


def within(path: Path, root: Path) -> None:
    """Refuse a path that leads out of ``root``."""
    if not path.resolve().is_relative_to(root.resolve()):
        raise IntegrityError(f"{path}: a link that leads out of {root}; put the pictures themselves there")


def decode(path: Path, side: int) -> Images:
    """One picture in colour, ``side`` by ``side``, as (3, side, side)."""
    try:
        from PIL import Image  # an optional dependency, and slow to import
    except ImportError:
        raise missing_extra("reading pictures", "data") from None
    bombs = (Image.DecompressionBombError, Image.DecompressionBombWarning)
    try:
        with Image.open(path, formats=FORMATS) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise Image.DecompressionBombError(f"{picture.width}x{picture.height} pixels")
            resized = picture.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
    except bombs as error:
        raise IntegrityError(f"{path}: refused, more than {MOST_PIXELS:,} pixels ({error})") from None
    except Exception as error:  # decoders raise what they like: OSError, SyntaxError, ValueError, struct.error
        raise DataError(f"{path}: cannot be decoded ({str(error)[:120]}); repair or remove it") from None
    return np.ascontiguousarray(np.asarray(resized, dtype=np.uint8).transpose(2, 0, 1))


def decode_all(pictures: Sequence[Path], side: int) -> Iterator[Images]:
    """The decoded pictures in order, some at a time, (n, 3, side, side)."""
    from concurrent.futures import ThreadPoolExecutor  # needed for pictures only

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for start in range(0, len(pictures), BLOCK):
            yield np.stack(list(pool.map(partial(decode, side=side), pictures[start : start + BLOCK])))


# Decoded pictures kept on disk as one array, so that a set is decoded once and never fills the memory.
#
# The file is named by a hash of what was decoded (names, sizes, times of change, in order) and to what size, and by the
# hash of its pixels: a changed picture is another file, and one that was interrupted has no such name. A lock lets two
# processes that need the same file decode it once.


def decoded(pictures: Sequence[Path], root: Path, side: int) -> tuple[Images, str]:
    """The pictures decoded to ``side`` by ``side``, mapped from the cache, and the SHA-256 of their pixels."""
    from filelock import FileLock  # needed for pictures only

    folder, shape = cache_folder(), (len(pictures), 3, side, side)
    found = zip(_names(pictures, root), (picture.stat() for picture in pictures), strict=True)
    listing = "".join(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n" for name, status in found)
    name = sha256(f"{FORMAT} {side}\n{listing}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
    needed = int(np.prod(shape))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"pictures-{name}.lock"):
            for path in folder.glob(f"pictures-{name}-*.npy"):
                with suppress(ValueError, EOFError):  # which a damaged file raises
                    images = np.load(path, mmap_mode="r", allow_pickle=False)
                    if images.shape == shape and images.dtype == np.uint8:
                        return images, path.stem.rpartition("-")[2]
                path.unlink()
            free = shutil.disk_usage(folder).free
            if needed > free:
                raise OSError(None, f"{free:,} bytes are free")
            path = _write(folder / f"pictures-{name}.npy", shape, pictures)
            return np.load(path, mmap_mode="r"), path.stem.rpartition("-")[2]
    except OSError as error:
        raise EnvironmentFault(
            f"{folder}: cannot keep {needed:,} bytes of decoded pictures ({error.strerror or error});"
            " make room or set ECGR_CACHE to another folder"
        ) from None


def _write(path: Path, shape: tuple[int, int, int, int], pictures: Sequence[Path]) -> Path:
    hashed = sha256()
    with whole_file(path) as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for images in decode_all(pictures, shape[2]):
            file.write(images.data)
            hashed.update(images.data)
    return path.rename(path.with_stem(f"{path.stem}-{hashed.hexdigest()}"))


ImageSize = Annotated[int, Field(ge=8, le=1024)]
Pictures = list[Path]
"""Class by class; a picture's class is called as its folder."""
Groups = Mapping[Path, str]
"""The group of each picture."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
COLUMNS = ["class", "file", "group"]
SPLIT_SEED = 25_000  # which groups are for testing is part of the data set, not of an experiment


@component
class ImageFolder:
    """Your own pictures: root/CLASS/*.png, or root/train/CLASS/ and root/test/CLASS/.

    Without ``train/`` and ``test/``, ``test_share`` of each class is for testing: whole groups where ``groups.csv``
    names them, else evenly spaced in the order of the names, so that adding a class changes nothing for the others.
    """

    root: str | None = None
    image_size: ImageSize = 224
    test_share: Share = 0.2
    name: ClassVar[str] = "image_folder"
    known: ClassVar[int] = 0  # how many pictures the official set has
    numbered_in_class: ClassVar[bool] = False  # groups of two classes may have one name

    def folder(self) -> Path:
        return own_path(self.name, self.root, "the folder that has one folder of pictures a class", "a folder")

    def load(self) -> Dataset:
        """List, decode (once) and map the pictures: training pictures first, so that each half is contiguous."""
        train, test, groups, files = self._halves()
        pictures = [*train, *test]
        pixels, pixels_hash = decoded(pictures, self.folder(), self.image_size)
        classes, labels = np.unique([picture.parent.name for picture in pictures], return_inverse=True)
        samples = Samples(pixels, labels, None if groups is None else [groups[picture] for picture in pictures])
        halves = samples.take(slice(len(train))), samples.take(slice(len(train), None))
        names = "".join(f"{name}\n" for name in _names(pictures, self.folder())).encode("utf-8", "surrogateescape")
        files = {"pixels": pixels_hash, "names": sha256(names).hexdigest(), **files}
        notes = self._notes(len(pictures))
        return image_dataset(*halves, tuple(classes.tolist()), IMAGENET_MEAN, IMAGENET_STD, files=files, notes=notes)

    def check(self) -> tuple[str, tuple[str, ...], dict[str, int]]:
        """Decode every picture to find the damaged ones; keep none."""
        train, test, *_ = self._halves()
        for _block in decode_all([*train, *test], self.image_size):
            pass
        notes = self._notes(len(train) + len(test))
        return "reduced" if notes else "whole", notes, {"train": len(train), "test": len(test)}

    def class_folders(self) -> list[Path]:
        """The folders of the classes, in the order of their labels."""
        return _folders(self.folder())

    def groups_file(self) -> Path | None:
        """``groups.csv``, where there is one."""
        file = self.folder() / "groups.csv"
        return file if file.is_file() else None

    def _notes(self, pictures: int) -> tuple[str, ...]:
        return () if pictures >= self.known else (f"reduced: {pictures:,} of {self.known:,} pictures",)

    def _halves(self) -> tuple[Pictures, Pictures, Groups | None, dict[str, str]]:
        """Pictures to train on and to test on; their groups where these are known; the hash of ``groups.csv``."""
        root, groups, files = self.folder(), None, {}
        if (root / "train").is_dir() and (root / "test").is_dir():
            train, test = (_listed(_folders(root / half), root) for half in ("train", "test"))
            if odd := {picture.parent.name for picture in train} ^ {picture.parent.name for picture in test}:
                raise DataError(f"{root}: class {min(odd)!r} is not in both train/ and test/")
        else:
            pictures, file = _listed(self.class_folders(), root), self.groups_file()
            if file is not None:
                groups, files["groups.csv"] = self._groups(file, pictures)
            train, test = split(pictures, self.test_share, groups)
        if not train or not test:
            counts = f"{len(train)} pictures to train on and {len(test)} to test on"
            raise DataError(f"{root}: {counts}; add pictures or change data.test_share")
        return train, test, groups, files

    def _groups(self, path: Path, pictures: Pictures) -> tuple[Groups, str]:
        """What ``groups.csv`` says of every picture, and the file's hash."""
        text, file_hash = read_text(path)
        table, classes = parse_table(path, text), {picture.parent.name for picture in pictures}
        if list(table.columns) != COLUMNS:
            raise DataError(f"{path}: line 1 is {','.join(table.columns)[:80]!r}, it must be {','.join(COLUMNS)!r}")
        found: dict[tuple[str, str], str] = {}
        for (_, line), (label, file, group) in zip(table.index, table.to_numpy(), strict=True):
            if label not in classes or not file or not group:
                raise DataError(f"{path}: line {line}: {f'{label},{file},{group}'[:80]!r} is no class, file and group")
            if (label, file) in found:
                raise DataError(f"{path}: line {line} names {label},{file} a second time")
            found[label, file] = f"{label}/{group}" if self.numbered_in_class else group
        keys = {picture: (picture.parent.name, picture.name) for picture in pictures}
        for label, file in keys.values():
            if (label, file) not in found:
                raise DataError(f"{path}: has no line for {label},{file}")
        return {picture: found[key] for picture, key in keys.items()}, file_hash


def split(pictures: Pictures, share: float, groups: Groups | None = None) -> tuple[Pictures, Pictures]:
    """Take ``share`` of each class for testing: evenly spaced, or whole groups.

    >>> pictures = [Path(name) for name in "0123456789"]
    >>> ["".join(picture.name for picture in half) for half in split(pictures, 0.2)]
    ['01235678', '49']
    """
    testing: list[bool] = []
    side: dict[str, bool] = {}
    for label, members in groupby(pictures, key=lambda picture: picture.parent.name):
        own = list(members)
        if groups is None:
            marks = np.floor(np.arange(1, len(own) + 1) * share + 1e-9)
            testing += (np.diff(marks, prepend=0) > 0).tolist()
            continue
        of = [groups[picture] for picture in own]
        sizes = Counter(of)
        if len(sizes) < 2:
            raise DataError(f"{label}: all pictures come from one group ({of[0]}); they cannot be split")
        undecided = {group: size for group, size in sizes.items() if group not in side}
        wanted = share * len(own) - sum(size for group, size in sizes.items() if side.get(group))
        chosen = nearest_subset(undecided, wanted) if len(undecided) > 1 else set()
        side |= {group: group in chosen for group in undecided}
        testing += [side[group] for group in of]
    return list(compress(pictures, map(not_, testing))), list(compress(pictures, testing))


def nearest_subset(sizes: Mapping[str, int], target: float) -> set[str]:
    """Some, not all, of the groups, with a total as near to ``target`` as whole groups allow.

    The groups are first brought into a fixed random order: of the many subsets with the best total, the one taken then
    depends neither on their names nor on their sizes. Bit s of ``reachable[i]`` says that the first i groups have a
    subset of total s.

    >>> sorted(nearest_subset({"a": 5, "b": 3, "c": 2}, 4.9))
    ['a']
    """
    names = np.random.default_rng(SPLIT_SEED).permutation(sorted(sizes)).tolist()
    reachable = [1]
    for name in names:
        reachable.append(reachable[-1] | reachable[-1] << sizes[name])
    whole = sum(sizes.values())
    totals = [total for total in range(1, whole) if reachable[-1] >> total & 1]
    total = min(totals, key=lambda total: (abs(total - target), total))
    chosen = set()
    for i in reversed(range(len(names))):
        if not reachable[i] >> total & 1:
            chosen.add(names[i])
            total -= sizes[names[i]]
    return chosen


def _folders(folder: Path) -> list[Path]:
    found = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if len(found) < 2:
        raise DataError(f"{folder}: {len(found)} folders, there must be one for each of at least two classes")
    return found


def _listed(folders: Sequence[Path], root: Path) -> Pictures:
    return [picture for folder in folders for picture in list_pictures(folder, root)]


def _names(pictures: Sequence[Path], root: Path) -> list[str]:
    """Where pictures are below the folder of the set, with forward slashes."""
    return [picture.relative_to(root).as_posix() for picture in pictures]


CLASSES = ("colon_aca", "colon_n", "lung_aca", "lung_n", "lung_scc")
PLACES = ("lung_colon_image_set", "LC25000/lung_colon_image_set", "LC25000", ".")


@component
class LC25000(ImageFolder):
    """25,000 pictures of lung and colon tissue in 5 classes; all pictures of a tile on one side of the split.

    Borkowski et al., "Lung and Colon Cancer Histopathological Image Dataset (LC25000)", arXiv 1912.12142: made from
    about 1,250 tiles by turning and mirroring, so ``groups.csv`` has to say the tile of every picture; tiles are
    numbered within a class. ``image_size`` is the paper's 224; its published code uses 128.
    """

    name: ClassVar[str] = "lc25000"
    known: ClassVar[int] = 25_000
    numbered_in_class: ClassVar[bool] = True

    def folder(self) -> Path:
        """The folder that has the five classes, in their two organ folders or directly."""
        base = data_root(self.root)
        for place in PLACES:
            if _lc25000_classes(base / place):
                return base / place
        wanted = f"{PLACES[0]}/ with the folders {', '.join(CLASSES)}"
        raise missing(self.name, wanted, base, "unpack LC25000 there (it cannot be fetched)")

    def class_folders(self) -> list[Path]:
        return _lc25000_classes(self.folder())

    def groups_file(self) -> Path:
        """In the folder of the set or, if that is below the data folder, in the one above it."""
        folder = self.folder()
        for place in (folder,) if folder == data_root(self.root) else (folder, folder.parent):
            if (place / "groups.csv").is_file():
                return place / "groups.csv"
        why = "without the tile of each picture near-copies of training pictures would be test pictures"
        raise DataError(f"lc25000: no groups.csv in {folder} (columns class,file,group); {why}")


def _lc25000_classes(folder: Path) -> list[Path]:
    """The five class folders as they are distributed, or directly; empty where they are not all there."""
    nested = [folder / f"{name.partition('_')[0]}_image_sets" / name for name in CLASSES]
    direct = [folder / name for name in CLASSES]
    return next((found for found in (nested, direct) if all(path.is_dir() for path in found)), [])
