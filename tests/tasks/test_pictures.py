"""Pictures: listing, decoding, and the cache that is never half there."""

import hashlib
import io
import os
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ecgr.tasks.data.pictures as reader
from ecgr.errors import DataError, EnvironmentFault, IntegrityError
from ecgr.tasks.data.dataset import Images
from ecgr.tasks.data.pictures import (
    MOST_PIXELS,
    Picture,
    decode,
    decode_all,
    decoded,
    list_pictures,
    rows,
)
from support.image_sets import random_images, write_picture


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ECGR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pictures(tmp_path: Path) -> list[Picture]:
    for number in range(5):
        write_picture(tmp_path / "set" / f"{number}.png", seed=number)
    return list_pictures(tmp_path / "set", tmp_path / "set")


def png_claiming(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is enormous."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "bmp", "webp", "PNG"])
def test_every_format_is_decoded_to_colour_and_size(tmp_path: Path, suffix: str) -> None:
    Image.new("L", (20, 10), 77).save(tmp_path / f"grey.{suffix}")
    image = decode(list_pictures(tmp_path, tmp_path)[0].path, 8)
    assert (image.shape, image.dtype, image.flags.c_contiguous) == ((3, 8, 8), np.dtype(np.uint8), True)
    assert abs(image.astype(int) - 77).max() <= 2


def test_channels_come_first_and_pixels_stay_where_they_are(tmp_path: Path) -> None:
    pixels = random_images(9, 9, 3)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_array_equal(decode(tmp_path / "a.png", 9), pixels.transpose(2, 0, 1))


def test_pictures_are_listed_by_name_and_nothing_else_is(tmp_path: Path) -> None:
    for name in ("b.png", "a.jpg", ".hidden.png", "._a.png"):
        write_picture(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not a picture")
    assert [picture.name for picture in list_pictures(tmp_path, tmp_path)] == ["a.jpg", "b.png"]


def test_a_link_out_of_the_folder_is_refused_and_one_within_is_not(tmp_path: Path) -> None:
    outside, root = write_picture(tmp_path / "secret.png"), tmp_path / "root"
    write_picture(root / "a.png")
    (root / "b.png").symlink_to(root / "a.png")
    assert len(list_pictures(root, root)) == 2
    (root / "c.png").symlink_to(outside)
    with pytest.raises(IntegrityError, match=r"c\.png: a link that leads out of") as caught:
        list_pictures(root, root)
    assert caught.value.exit_code == 4


def test_a_linked_class_folder_is_refused_too(tmp_path: Path) -> None:
    write_picture(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "cats").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(IntegrityError, match="cats"):
        list_pictures(tmp_path / "root" / "cats", tmp_path / "root")


def test_a_damaged_picture_is_named(tmp_path: Path) -> None:
    stream = io.BytesIO()
    Image.fromarray(random_images(64, 64, 3)).save(stream, "JPEG")
    truncated = stream.getvalue()[: len(stream.getvalue()) // 2]
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    for content in (b"", b"<html>not found</html>", truncated, b"GIF89a" + bytes(100), postscript):
        (tmp_path / "bad.jpg").write_bytes(content)
        with pytest.raises(DataError, match=r"bad\.jpg: cannot be decoded"):
            decode(tmp_path / "bad.jpg", 8)


@pytest.mark.parametrize("side", [8_000, 10_000, 60_000], ids=["ours", "Pillow warns", "Pillow refuses"])
def test_a_decompression_bomb_is_refused(tmp_path: Path, side: int) -> None:
    assert side * side > MOST_PIXELS
    (tmp_path / "bomb.png").write_bytes(png_claiming(side, side))
    with pytest.raises(IntegrityError, match=r"bomb\.png: refused"):
        decode(tmp_path / "bomb.png", 8)


def test_without_pillow_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(EnvironmentFault, match=r"extra 'data': pip install 'pandas"):
        decode(tmp_path / "a.png", 8)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how many pictures are decoded."""
    counts: list[int] = []

    def counted(pictures: Sequence[Picture], side: int) -> Iterator[Images]:
        counts.append(len(pictures))
        return decode_all(pictures, side)

    monkeypatch.setattr(reader, "decode_all", counted)
    return counts


def test_a_second_load_decodes_nothing(cache: Path, pictures: list[Picture], monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counting(monkeypatch)
    (first, known), (second, again) = decoded(pictures, 8), decoded(pictures, 8)
    assert counts == [5]
    assert known == again == hashlib.sha256(first.tobytes()).hexdigest()
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, np.stack([decode(picture.path, 8) for picture in pictures]))
    assert sorted(path.suffix for path in cache.iterdir()) == [".lock", ".npy"]


def test_rows_are_mapped_where_their_offset_says(cache: Path, pictures: list[Picture]) -> None:
    """Whoever maps the file again by (path, offset, shape), as worker processes do, gets the same pictures."""
    some = rows(decoded(pictures, 8)[0], 3, 5)
    assert isinstance(some, np.memmap)
    again = np.memmap(str(some.filename), some.dtype, mode="r", offset=some.offset, shape=some.shape)
    np.testing.assert_array_equal(again, np.stack([decode(picture.path, 8) for picture in pictures[3:]]))


def test_another_size_order_or_picture_is_another_file(
    cache: Path, pictures: list[Picture], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = counting(monkeypatch)
    decoded(pictures, 8)
    decoded(pictures, 9)
    decoded(pictures[::-1], 8)
    write_picture(pictures[0].path, seed=99)
    os.utime(pictures[0].path, ns=(1, 1))
    changed = list_pictures(pictures[0].path.parent, pictures[0].path.parent)
    assert counts == [5, 5, 5]
    np.testing.assert_array_equal(decoded(changed, 8)[0][0], decode(pictures[0].path, 8))
    assert counts == [5, 5, 5, 5]


@pytest.mark.parametrize("reason", [KeyboardInterrupt, OSError(28, "No space left on device"), DataError("3.png")])
def test_interrupted_writing_leaves_nothing_that_looks_whole(
    cache: Path, pictures: list[Picture], monkeypatch: pytest.MonkeyPatch, reason: BaseException | type[BaseException]
) -> None:

    def interrupted(pictures: Sequence[Picture], side: int) -> Iterator[Images]:
        yield next(decode_all(pictures, side))
        raise reason

    monkeypatch.setattr(reader, "decode_all", interrupted)
    with pytest.raises((KeyboardInterrupt, EnvironmentFault, DataError)):
        decoded(pictures, 8)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]
    monkeypatch.undo()
    monkeypatch.setenv("ECGR_CACHE", str(cache))
    assert len(decoded(pictures, 8)[0]) == 5


SPOILT: dict[str, Callable[[Path], object]] = {
    "killed before its name": lambda path: path.rename(path.with_stem(path.stem.rpartition("-")[0])),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "emptied": lambda path: path.write_bytes(b""),
    "of another shape": lambda path: np.save(path, np.zeros((4, 3, 8, 8), dtype=np.uint8)),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_a_file_that_is_not_whole_is_made_again(
    cache: Path, pictures: list[Picture], monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], object]
) -> None:
    expected = np.array(decoded(pictures, 8)[0])
    (path,) = cache.glob("*.npy")
    spoil(path)
    counts = counting(monkeypatch)
    np.testing.assert_array_equal(decoded(pictures, 8)[0], expected)
    assert counts == [5]
    assert list(cache.glob("*.npy")) == [path]


def test_too_little_room_is_said_before_decoding(
    cache: Path, pictures: list[Picture], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type(shutil.disk_usage("/"))(1000, 900, 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    counts = counting(monkeypatch)
    with pytest.raises(EnvironmentFault, match=r"960 bytes of decoded pictures \(100 bytes are free\).*ECGR_CACHE"):
        decoded(pictures, 8)
    assert counts == []


def test_a_cache_that_cannot_be_made_is_named(
    tmp_path: Path, pictures: list[Picture], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ECGR_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(EnvironmentFault, match="set ECGR_CACHE"):
        decoded(pictures, 8)
