"""Picture files: which there are, and what they look like decoded to one size.

Only a few formats are opened, nothing outside the folder is followed, and a small file that would unpack to an
enormous picture is refused: pictures come from strangers.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ecgr.errors import DataError, EnvironmentFault, IntegrityError, missing_extra
from ecgr.files import whole_file, write_atomically
from ecgr.tasks.data.dataset import Images

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})
FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
MOST_PIXELS = 50_000_000
BLOCK = 128  # pictures decoded between two writes: memory stays small, every core has work


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture file as it lies there: enough to notice that it changed.

    ``name`` is its path below the folder of the set, with forward slashes.
    """

    path: Path
    name: str
    size: int
    changed: int


def list_pictures(folder: Path, root: Path) -> list[Picture]:
    """The pictures right in ``folder``, by name; other files are passed over.

    Raises:
        DataError: there is none.
        IntegrityError: one is a link that leads out of ``root``.
    """
    within(folder, root)
    pictures = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if Path(entry.name).suffix.lower() not in SUFFIXES or entry.name.startswith("."):
                continue
            path = folder / entry.name
            if entry.is_symlink():
                within(path, root)
            if not entry.is_file():
                raise DataError(f"{path}: not a file")
            status = entry.stat()
            pictures.append(Picture(path, path.relative_to(root).as_posix(), status.st_size, status.st_mtime_ns))
    if not pictures:
        raise DataError(f"{folder}: no pictures ({', '.join(sorted(SUFFIXES))})")
    return sorted(pictures, key=lambda picture: picture.name)


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


def decode_all(pictures: Sequence[Picture], side: int) -> Iterator[Images]:
    """The decoded pictures in order, some at a time, (n, 3, side, side)."""
    from concurrent.futures import ThreadPoolExecutor  # needed for pictures only

    paths = [picture.path for picture in pictures]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for start in range(0, len(paths), BLOCK):
            yield np.stack(list(pool.map(partial(decode, side=side), paths[start : start + BLOCK])))


# Decoded pictures kept on disk as one array, so that a set is decoded once and never fills the memory.
#
# The file is named by a hash of what was decoded (names, sizes, times of change, in order) and to what size: a changed
# picture is another file. It is written beside its final name, flushed to the disk and renamed, and its hash follows
# last; what was interrupted is never taken for whole. A lock lets two processes that need the same file decode it once.

FORMAT = 1  # part of the name; raise it when decoding changes


@dataclass(frozen=True, slots=True)
class DecodedPictures:
    """A complete file of decoded pictures."""

    path: Path
    sha256: str
    shape: tuple[int, int, int, int]
    offset: int

    def rows(self, start: int, stop: int) -> Images:
        """Pictures ``start`` to ``stop``, mapped from the disk on their own, so that ``offset`` is theirs."""
        row = int(np.prod(self.shape[1:]))
        shape = (stop - start, *self.shape[1:])
        return np.memmap(self.path, np.uint8, mode="r", offset=self.offset + start * row, shape=shape)


def cache_folder() -> Path:
    """Where decoded pictures are kept: ``$ECGR_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("ECGR_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path  # as in locate

    return user_cache_path("ecgr", appauthor=False)


def decoded(pictures: Sequence[Picture], side: int) -> DecodedPictures:
    """The pictures decoded to ``side`` by ``side``, from the cache if they are there."""
    from filelock import FileLock  # needed for pictures only

    path = cache_folder() / f"pictures-{_key(pictures, side)}.npy"
    shape = (len(pictures), 3, side, side)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            return _complete(path, shape) or _write(path, shape, pictures)
    except OSError as error:
        needed = int(np.prod(shape))
        raise EnvironmentFault(
            f"{path.parent}: cannot keep {needed:,} bytes of decoded pictures ({error.strerror or error});"
            " make room or set ECGR_CACHE to another folder"
        ) from None


def _key(pictures: Sequence[Picture], side: int) -> str:
    listing = "".join(f"{picture.name}\0{picture.size}\0{picture.changed}\n" for picture in pictures)
    return hashlib.sha256(f"{FORMAT} {side}\n{listing}".encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _complete(path: Path, shape: tuple[int, int, int, int]) -> DecodedPictures | None:
    """The file if it is there, whole and of this shape."""
    hash_file = path.with_suffix(".sha256")
    if not (path.is_file() and hash_file.is_file()):
        return None
    sha256 = hash_file.read_text(encoding="ascii", errors="replace")
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        return None
    try:
        images = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError):
        return None
    if images.shape != shape or images.dtype != np.uint8 or not images.flags.c_contiguous:
        return None
    return DecodedPictures(path, sha256, shape, images.offset)


def _write(path: Path, shape: tuple[int, int, int, int], pictures: Sequence[Picture]) -> DecodedPictures:
    needed, free = int(np.prod(shape)), shutil.disk_usage(path.parent).free
    if needed > free:
        raise OSError(None, f"{free:,} bytes are free")
    hash_file = path.with_suffix(".sha256")
    hash_file.unlink(missing_ok=True)
    hashed = hashlib.sha256()
    with whole_file(path) as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        offset = file.tell()
        for images in decode_all(pictures, shape[2]):
            file.write(images.data)
            hashed.update(images.data)
    write_atomically(hash_file, hashed.hexdigest().encode())
    return DecodedPictures(path, hashed.hexdigest(), shape, offset)
