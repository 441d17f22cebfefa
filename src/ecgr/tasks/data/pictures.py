"""Picture files: which there are, and what they look like decoded to one size.

Only a few formats are opened, nothing outside the folder is followed, and a small file that would unpack to an
enormous picture is refused: pictures come from strangers.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ecgr.errors import DataError, EnvironmentFault, IntegrityError, missing_extra
from ecgr.files import whole_file
from ecgr.tasks.data.dataset import Images

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})
FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
MOST_PIXELS = 50_000_000
BLOCK = 128  # pictures decoded between two writes: memory stays small, every core has work
FORMAT = 1  # raise it when decoding changes


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
    for path in folder.iterdir():
        if path.suffix.lower() in SUFFIXES and not path.name.startswith("."):
            if path.is_symlink():
                within(path, root)
            if not path.is_file():
                raise DataError(f"{path}: not a file")
            status = path.stat()
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
# The file is named by a hash of what was decoded (names, sizes, times of change, in order) and to what size, and by the
# hash of its pixels: a changed picture is another file, and one that was interrupted has no such name. A lock lets two
# processes that need the same file decode it once.


def decoded(pictures: Sequence[Picture], side: int) -> tuple[Images, str]:
    """The pictures decoded to ``side`` by ``side``, mapped from the cache, and the SHA-256 of their pixels."""
    from filelock import FileLock  # needed for pictures only

    folder, shape = cache_folder(), (len(pictures), 3, side, side)
    listing = "".join(f"{picture.name}\0{picture.size}\0{picture.changed}\n" for picture in pictures)
    name = hashlib.sha256(f"{FORMAT} {side}\n{listing}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
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


def cache_folder() -> Path:
    """Where decoded pictures are kept: ``$ECGR_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("ECGR_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path  # as in sets

    return user_cache_path("ecgr", appauthor=False)


def _write(path: Path, shape: tuple[int, int, int, int], pictures: Sequence[Picture]) -> Path:
    hashed = hashlib.sha256()
    with whole_file(path) as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for images in decode_all(pictures, shape[2]):
            file.write(images.data)
            hashed.update(images.data)
    return path.rename(path.with_stem(f"{path.stem}-{hashed.hexdigest()}"))


def rows(images: Images, start: int, stop: int) -> Images:
    """Some of the mapped pictures, mapped on their own: ``offset``, by which other processes map them, is theirs."""
    assert isinstance(images, np.memmap)
    offset = images.offset + start * int(np.prod(images.shape[1:]))
    return np.memmap(str(images.filename), np.uint8, mode="r", offset=offset, shape=(stop - start, *images.shape[1:]))
