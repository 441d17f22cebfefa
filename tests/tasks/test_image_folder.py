"""Pictures in folders, one folder a class."""

from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from ecgr.errors import ConfigError, DataError, IntegrityError
from ecgr.tasks.data import ImageFolder, verify
from ecgr.tasks.data.pictures import decode
from support.image_sets import write_picture


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECGR_CACHE", str(tmp_path / "cache"))


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
    assert dataset.train.inputs.flags.c_contiguous
    assert dataset.mean == (0.485, 0.456, 0.406)
    assert set(dataset.files) == {"names", "pixels"}


def test_the_share_is_kept_in_every_class(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "set", a=20, b=40)
    for share in (0.05, 0.25, 0.9):
        dataset = ImageFolder(root=str(root), image_size=8, test_share=share).load()
        np.testing.assert_array_equal(np.bincount(dataset.test.targets), [round(20 * share), round(40 * share)])


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


def test_a_link_out_of_the_set_is_refused(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "set", a=5, b=5)
    (root / "a" / "stolen.png").symlink_to(write_picture(tmp_path / "secret.png"))
    with pytest.raises(IntegrityError, match=r"stolen\.png"):
        ImageFolder(root=str(root)).load()


@pytest.mark.parametrize("field", [{"image_size": 7}, {"image_size": 1025}, {"test_share": 0.0}, {"test_share": 1.0}])
def test_absurd_settings_are_refused(field: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(field))):
        ImageFolder(**field)
