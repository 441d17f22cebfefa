"""Picture files: which there are, and what they look like decoded to one size.

Only a few formats are opened, nothing outside the folder is followed, and a small file that would unpack to an
enormous picture is refused: pictures come from strangers.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ecgr.errors import DataError, IntegrityError, missing_extra
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
        raise DataError(f"{folder}: not a single picture ({', '.join(sorted(SUFFIXES))})")
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
        raise DataError(f"{path}: cannot be decoded ({str(error)[:120]}); mend or remove it") from None
    return np.ascontiguousarray(np.asarray(resized, dtype=np.uint8).transpose(2, 0, 1))


def decode_all(pictures: Sequence[Picture], side: int) -> Iterator[Images]:
    """The decoded pictures in order, some at a time, (n, 3, side, side)."""
    from concurrent.futures import ThreadPoolExecutor  # needed for pictures only

    paths = [picture.path for picture in pictures]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for start in range(0, len(paths), BLOCK):
            yield np.stack(list(pool.map(partial(decode, side=side), paths[start : start + BLOCK])))
