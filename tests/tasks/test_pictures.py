"""Pictures in folders: listed, decoded once into a cache that is never half there, split without crossing a group."""

import hashlib
import io
import os
import re
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import ecgr.tasks.data.pictures as reader
from ecgr.errors import ConfigError, DataError, EnvironmentFault, IntegrityError
from ecgr.simulation.workspace import Held, MappedFile
from ecgr.tasks.data import LC25000, ImageFolder, verify
from ecgr.tasks.data.dataset import Images
from ecgr.tasks.data.pictures import (
    CLASSES,
    MOST_PIXELS,
    decode,
    decode_all,
    decoded,
    list_pictures,
    nearest_subset,
)
from support.image_sets import random_images, write_lc25000, write_picture


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ECGR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    for number in range(5):
        write_picture(tmp_path / "set" / f"{number}.png", seed=number)
    return list_pictures(tmp_path / "set", tmp_path / "set")


def of_set(pictures: list[Path], side: int = 8) -> tuple[Images, str]:
    return decoded(pictures, pictures[0].parent, side)


def png_claiming(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is enormous."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "webp", "PNG"])
def test_every_format_is_decoded_to_colour_and_size(tmp_path: Path, suffix: str) -> None:
    Image.new("L", (20, 10), 77).save(tmp_path / f"grey.{suffix}")
    image = decode(list_pictures(tmp_path, tmp_path)[0], 8)
    assert (image.shape, image.dtype, image.flags.c_contiguous) == ((3, 8, 8), np.dtype(np.uint8), True)
    assert abs(image.astype(int) - 77).max() <= 2
    pixels = random_images(9, 9, 3)
    Image.fromarray(pixels).save(tmp_path / "exact.png")
    np.testing.assert_array_equal(decode(tmp_path / "exact.png", 9), pixels.transpose(2, 0, 1))


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
    (root / "cats").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(IntegrityError, match="cats"):
        list_pictures(root / "cats", root)


def test_a_damaged_picture_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    Image.fromarray(random_images(64, 64, 3)).save(stream, "JPEG")
    truncated = stream.getvalue()[: len(stream.getvalue()) // 2]
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    for content in (b"", b"<html>not found</html>", truncated, b"GIF89a" + bytes(100), postscript):
        (tmp_path / "bad.jpg").write_bytes(content)
        with pytest.raises(DataError, match=r"bad\.jpg: cannot be decoded"):
            decode(tmp_path / "bad.jpg", 8)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(EnvironmentFault, match=r"extra 'data': pip install 'pandas"):
        decode(tmp_path / "bad.jpg", 8)


@pytest.mark.parametrize("side", [8_000, 10_000, 60_000], ids=["ours", "Pillow warns", "Pillow refuses"])
def test_a_decompression_bomb_is_refused(tmp_path: Path, side: int) -> None:
    assert side * side > MOST_PIXELS
    (tmp_path / "bomb.png").write_bytes(png_claiming(side, side))
    with pytest.raises(IntegrityError, match=r"bomb\.png: refused"):
        decode(tmp_path / "bomb.png", 8)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pictures were decoded, time by time."""
    counts: list[int] = []

    def counted(pictures: Sequence[Path], side: int) -> Iterator[Images]:
        counts.append(len(pictures))
        return decode_all(pictures, side)

    monkeypatch.setattr(reader, "decode_all", counted)
    return counts


def test_a_second_load_decodes_nothing(cache: Path, pictures: list[Path], counts: list[int]) -> None:
    (first, known), (second, again) = of_set(pictures), of_set(pictures)
    assert counts == [5]
    assert known == again == hashlib.sha256(first.tobytes()).hexdigest()
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, np.stack([decode(picture, 8) for picture in pictures]))
    assert sorted(path.suffix for path in cache.iterdir()) == [".lock", ".npy"]


def test_another_size_order_or_picture_is_another_file(pictures: list[Path], counts: list[int]) -> None:
    of_set(pictures)
    of_set(pictures, 9)
    of_set(pictures[::-1])
    write_picture(pictures[0], seed=99)
    os.utime(pictures[0], ns=(1, 1))
    changed = list_pictures(pictures[0].parent, pictures[0].parent)
    assert counts == [5, 5, 5]
    np.testing.assert_array_equal(of_set(changed)[0][0], decode(pictures[0], 8))
    assert counts == [5, 5, 5, 5]


@pytest.mark.parametrize("reason", [KeyboardInterrupt, OSError(28, "No space left on device"), DataError("3.png")])
def test_interrupted_writing_leaves_nothing_that_looks_whole(
    cache: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch, reason: BaseException | type[BaseException]
) -> None:

    def interrupted(pictures: Sequence[Path], side: int) -> Iterator[Images]:
        yield next(decode_all(pictures, side))
        raise reason

    monkeypatch.setattr(reader, "decode_all", interrupted)
    with pytest.raises((KeyboardInterrupt, EnvironmentFault, DataError)):
        of_set(pictures)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]
    monkeypatch.undo()
    monkeypatch.setenv("ECGR_CACHE", str(cache))
    assert len(of_set(pictures)[0]) == 5


SPOILT: dict[str, Callable[[Path], object]] = {
    "killed before its name": lambda path: path.rename(path.with_stem(path.stem.rpartition("-")[0])),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "emptied": lambda path: path.write_bytes(b""),
    "of another shape": lambda path: np.save(path, np.zeros((4, 3, 8, 8), dtype=np.uint8)),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_a_file_that_is_not_whole_is_made_again(
    cache: Path, pictures: list[Path], counts: list[int], spoil: Callable[[Path], object]
) -> None:
    expected = np.array(of_set(pictures)[0])
    (path,) = cache.glob("*.npy")
    spoil(path)
    np.testing.assert_array_equal(of_set(pictures)[0], expected)
    assert counts == [5, 5]
    assert list(cache.glob("*.npy")) == [path]


def test_a_cache_without_room_or_place_is_named(
    tmp_path: Path, pictures: list[Path], counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type(shutil.disk_usage("/"))(1000, 900, 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(EnvironmentFault, match=r"960 bytes of decoded pictures \(100 bytes are free\).*ECGR_CACHE"):
        of_set(pictures)
    assert counts == []
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ECGR_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(EnvironmentFault, match="set ECGR_CACHE"):
        of_set(pictures)


def write_classes(folder: Path, **counts: int) -> Path:
    for name, count in counts.items():
        for number in range(count):
            write_picture(folder / name / f"{number:03}.png", seed=crc32(f"{name}{number}".encode()))
    return folder


def test_one_folder_is_split_evenly_by_class(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "set", dog=10, cat=5)
    dataset = ImageFolder(root=str(root), image_size=12).load()
    assert dataset.classes == ("cat", "dog")
    assert dataset.train.targets.tolist() == [0] * 4 + [1] * 8
    assert dataset.test.targets.tolist() == [0] + [1] * 2
    expected = [decode(root / name, 12) for name in ("cat/004.png", "dog/004.png", "dog/009.png")]
    np.testing.assert_array_equal(dataset.test.inputs, np.stack(expected))
    np.testing.assert_array_equal(dataset.train.inputs[4], decode(root / "dog/000.png", 12))
    assert isinstance(dataset.train.inputs, np.memmap)
    assert isinstance(Held.of(dataset.test).inputs, MappedFile)
    np.testing.assert_array_equal(Held.of(dataset.test).open().inputs.numpy(), dataset.test.inputs)  # as workers do
    assert dataset.train.inputs.flags.c_contiguous
    assert dataset.mean == (0.485, 0.456, 0.406)
    assert set(dataset.files) == {"names", "pixels"}


def test_groups_stay_on_one_side_also_where_they_span_classes(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "set", cat=20, dog=20)
    lines = [f"{name},{i:03}.png,{i % 5 if name == 'cat' else i % 7}" for name in ("cat", "dog") for i in range(20)]
    (root / "groups.csv").write_text("\n".join(["class,file,group", *lines]))
    dataset = ImageFolder(root=str(root), image_size=8).load()
    train, test = set(dataset.train.groups), set(dataset.test.groups)
    assert (train | test, train & test) == (set("0123456"), set())
    assert 2 <= np.bincount(dataset.test.targets).min() <= np.bincount(dataset.test.targets).max() <= 6
    assert set(dataset.files) == {"names", "pixels", "groups.csv"}


def test_train_and_test_folders_are_taken_as_they_are(tmp_path: Path) -> None:
    write_classes(tmp_path / "set" / "train", a=3, b=2)
    root = write_classes(tmp_path / "set" / "test", a=1, b=4).parent
    dataset = ImageFolder(root=str(root), image_size=8).load()
    assert (dataset.train.targets.tolist(), dataset.test.targets.tolist()) == ([0, 0, 0, 1, 1], [0, 1, 1, 1, 1])


def test_what_cannot_be_learnt_from_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at least two classes"):
        ImageFolder(root=str(write_classes(tmp_path / "one", a=3))).load()
    with pytest.raises(DataError, match=r"4 pictures to train on and 0 to test on.*data\.test_share"):
        ImageFolder(root=str(write_classes(tmp_path / "few", a=2, b=2))).load()
    write_classes(tmp_path / "other" / "train", a=3, b=2)
    write_classes(tmp_path / "other" / "test", a=1, c=4)
    with pytest.raises(DataError, match="class 'b' is not in both"):
        ImageFolder(root=str(tmp_path / "other")).load()
    with pytest.raises(ConfigError, match=r"data\.root"):
        ImageFolder().load()
    with pytest.raises(DataError, match="not a folder"):
        ImageFolder(root=str(tmp_path / "none")).load()
    (write_classes(tmp_path / "empty", a=5, b=5) / "c").mkdir()
    with pytest.raises(DataError, match="c: no pictures"):
        ImageFolder(root=str(tmp_path / "empty")).load()


def test_verify_finds_the_damaged_picture_and_keeps_nothing(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "set", a=5, b=5)
    report = verify("image_folder", str(root))
    assert (report.status, report.counts) == ("whole", {"train": 8, "test": 2})
    (root / "b" / "002.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"b/002\.png"):
        verify("image_folder", str(root))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("flat", [False, True], ids=["as distributed", "class folders directly"])
def test_pictures_of_a_tile_stay_on_one_side(tmp_path: Path, flat: bool) -> None:
    write_lc25000(tmp_path, tiles=5, per_tile=4, flat=flat)
    dataset = LC25000(root=str(tmp_path), image_size=8).load()
    assert dataset.classes == CLASSES
    assert np.bincount(dataset.train.targets).tolist() == [16] * 5
    assert np.bincount(dataset.test.targets).tolist() == [4] * 5
    assert not set(dataset.train.groups) & set(dataset.test.groups)
    assert len(set(dataset.train.groups)) == 20
    assert dataset.notes == ("reduced: 100 of 25,000 pictures",)
    assert set(dataset.files) == {"names", "pixels", "groups.csv"}
    assert dataset.std == (0.229, 0.224, 0.225)


def test_groups_go_with_their_pictures(tmp_path: Path) -> None:
    """Pictures of one tile are equal in the generated set, those of different tiles are not."""
    write_lc25000(tmp_path, tiles=5, per_tile=4)
    first, second = (LC25000(root=str(tmp_path), image_size=8).load() for _ in range(2))
    assert set(first.test.groups) == set(second.test.groups), "the split is always the same"
    train = first.train
    assert train.groups is not None
    for group in set(train.groups):
        members = train.inputs[train.groups == group]
        assert len(members) == 4
        assert (members == members[0]).all()
    assert len(np.unique(train.inputs.reshape(len(train), -1), axis=0)) == 20
    (tmp_path / "lung_colon_image_set/lung_image_sets/lung_n/lungn7.jpeg").unlink()
    assert verify("lc25000", str(tmp_path)).details == ("reduced: 99 of 25,000 pictures",)  # more groups than pictures
    (tmp_path / "lung_colon_image_set/groups.csv").unlink()
    with pytest.raises(DataError, match=r"no groups\.csv in .*class,file,group.*near-copies of training pictures"):
        LC25000(root=str(tmp_path)).load()


@pytest.mark.parametrize("place", ["", "LC25000"])
def test_the_set_is_found_in_its_usual_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    folder = write_lc25000(tmp_path / place)
    (folder / "groups.csv").rename(folder.parent / "groups.csv")
    monkeypatch.setenv("ECGR_DATA", str(tmp_path))
    assert LC25000().folder() == folder
    assert len(LC25000(image_size=8).load().train) == 80
    (folder.parent / "groups.csv").rename(folder / "groups.csv")
    assert len(LC25000(root=str(folder), image_size=8).load().train) == 80


BAD_GROUPS = {
    "other columns": (lambda text: text.replace("class,", "klass,", 1), "line 1 is 'klass,file,group'"),
    "unknown class": (lambda text: text.replace("colon_n,", "colon_x,", 1), "colon_x"),
    "no group": (lambda text: text.replace("colonaca2.jpeg,1", "colonaca2.jpeg,", 1), "line 3"),
    "twice the same": (lambda text: text + "colon_aca,colonaca1.jpeg,0\n", "colonaca1.jpeg a second time"),
    "picture left out": (lambda text: text.replace("colonaca2.jpeg", "colonaca2000.jpeg", 1), "colonaca2.jpeg"),
    "one tile": (lambda text: re.sub(r",\d+$", ",0", text, flags=re.MULTILINE), "come from one group"),
}


@pytest.mark.parametrize(("spoil", "says"), BAD_GROUPS.values(), ids=BAD_GROUPS.keys())
def test_bad_groups_are_a_data_error(tmp_path: Path, spoil: object, says: str) -> None:
    path = write_lc25000(tmp_path) / "groups.csv"
    assert callable(spoil)
    path.write_bytes(spoil(path.read_text().replace("\r\n", "\n")).encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=says):
        LC25000(root=str(tmp_path), image_size=8).load()


@given(st.lists(st.integers(1, 9), min_size=2, max_size=8), st.floats(0.01, 0.99))
def test_the_subset_is_as_near_as_whole_groups_allow(sizes: list[int], share: float) -> None:
    """Against the slow oracle: all subsets that are neither empty nor everything."""
    groups = {str(number): size for number, size in enumerate(sizes)}
    target = share * sum(sizes)
    chosen = nearest_subset(groups, target)
    proper = [subset for count in range(1, len(sizes)) for subset in combinations(sizes, count)]
    best = min(abs(sum(subset) - target) for subset in proper)
    assert 0 < len(chosen) < len(sizes)
    assert abs(sum(groups[name] for name in chosen) - target) == best
