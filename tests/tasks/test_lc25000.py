"""LC25000: no tile on both sides of the split, and no guessing where tiles are not known."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecgr.errors import DataError
from ecgr.tasks.data import LC25000, verify
from ecgr.tasks.data.pictures import CLASSES, nearest_subset
from support.image_sets import write_lc25000


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECGR_CACHE", str(tmp_path / "cache"))


def tiles(groups: object) -> set[str]:
    assert isinstance(groups, np.ndarray)
    return set(groups.tolist())


@pytest.mark.parametrize("flat", [False, True], ids=["as distributed", "class folders directly"])
def test_pictures_of_a_tile_stay_on_one_side(tmp_path: Path, flat: bool) -> None:
    write_lc25000(tmp_path, tiles=5, per_tile=4, flat=flat)
    dataset = LC25000(root=str(tmp_path), image_size=8).load()
    assert dataset.classes == CLASSES
    assert np.bincount(dataset.train.targets).tolist() == [16] * 5
    assert np.bincount(dataset.test.targets).tolist() == [4] * 5
    assert not tiles(dataset.train.groups) & tiles(dataset.test.groups)
    assert len(tiles(dataset.train.groups)) == 20
    assert dataset.notes == ("reduced: 100 of 25,000 pictures",)
    assert set(dataset.files) == {"names", "pixels", "groups.csv"}
    assert dataset.std == (0.229, 0.224, 0.225)


def test_groups_go_with_their_pictures(tmp_path: Path) -> None:
    """Pictures of one tile are equal in the generated set, those of different tiles are not."""
    write_lc25000(tmp_path, tiles=5, per_tile=4)
    first, second = (LC25000(root=str(tmp_path), image_size=8).load() for _ in range(2))
    assert tiles(first.test.groups) == tiles(second.test.groups), "the split is always the same"
    train = first.train
    assert train.groups is not None
    for group in tiles(train.groups):
        members = train.inputs[train.groups == group]
        assert len(members) == 4
        assert (members == members[0]).all()
    assert len(np.unique(train.inputs.reshape(len(train), -1), axis=0)) == 20


@pytest.mark.parametrize("place", ["", "LC25000"])
def test_the_set_is_found_in_its_usual_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    folder = write_lc25000(tmp_path / place)
    (folder / "groups.csv").rename(folder.parent / "groups.csv")
    monkeypatch.setenv("ECGR_DATA", str(tmp_path))
    assert LC25000().folder() == folder
    assert len(LC25000(image_size=8).load().train) == 80
    (folder.parent / "groups.csv").rename(folder / "groups.csv")
    assert len(LC25000(root=str(folder), image_size=8).load().train) == 80


def test_without_tiles_it_is_not_used_and_the_message_says_why(tmp_path: Path) -> None:
    write_lc25000(tmp_path, groups=False)
    with pytest.raises(DataError, match=r"no groups\.csv in .*class,file,group.*near-copies of training pictures"):
        LC25000(root=str(tmp_path)).load()


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


def test_groups_may_know_pictures_that_are_not_there(tmp_path: Path) -> None:
    (write_lc25000(tmp_path) / "lung_image_sets/lung_n/lungn7.jpeg").unlink()
    assert verify("lc25000", str(tmp_path)).details == ("reduced: 99 of 25,000 pictures",)


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
