"""Where data sets are looked for, and what is said when they are not there."""

from pathlib import Path

import pytest

from ecgr.errors import ConfigError, DataError
from ecgr.tasks.data import LC25000, Cifar10, ImageFolder, Mnist
from ecgr.tasks.data.files import data_root, find_folder


def test_the_component_comes_before_the_environment_and_that_before_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECGR_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    assert data_root("/srv/data") == Path("/srv/data")
    assert data_root() == tmp_path
    monkeypatch.delenv("ECGR_DATA")
    assert data_root().name == "ecgr"
    assert data_root() != tmp_path


def test_the_first_folder_that_is_there_is_taken(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    assert find_folder("x", ("a", "b", "c"), str(tmp_path)) == tmp_path / "b"


@pytest.mark.parametrize(
    ("source", "wanted", "advice"),
    [
        (Mnist, "MNIST/raw/", "ecgr data fetch mnist"),
        (Cifar10, "cifar-10-batches-py/ or cifar-10-batches-bin/", "ecgr data fetch cifar10"),
        (LC25000, "lung_colon_image_set/", "cannot be fetched"),
    ],
)
def test_a_missing_set_says_what_where_and_what_to_do_in_one_line(
    source: type[Mnist], wanted: str, advice: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        source(root=str(tmp_path)).load()
    message = str(caught.value)
    assert "\n" not in message
    for part in (wanted, str(tmp_path), advice, "data.root", "ECGR_DATA"):
        assert part in message


def test_a_set_without_one_of_its_files_names_it(tmp_path: Path) -> None:
    (tmp_path / "MNIST/raw").mkdir(parents=True)
    with pytest.raises(DataError, match="train-images-idx3-ubyte is missing"):
        Mnist(root=str(tmp_path)).load()


def test_image_folder_has_no_default_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.root"):
        ImageFolder().load()
    with pytest.raises(DataError, match="not a folder"):
        ImageFolder(root=str(tmp_path / "none")).load()
