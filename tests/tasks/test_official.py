"""How a set on disk compares with the official one, and what `ecgr data list` and `verify` are told."""

import hashlib
import re
from pathlib import Path

import pytest

from ecgr.errors import ConfigError, DataError
from ecgr.tasks.data import DATASETS, Mnist
from ecgr.tasks.data import idx as idx_module
from ecgr.tasks.data.fetch import available, verify
from ecgr.tasks.data.files import Digest
from ecgr.tasks.data.official import OFFICIAL, OfficialSet, assess
from support.image_sets import idx_files, write_cifar10, write_cifar100_binary, write_idx

A, B = Digest("a" * 64, "a" * 32), Digest("b" * 64, "b" * 32)
KNOWN = OfficialSet(10, 5, {"train": f"sha256:{'a' * 64}", "test": f"md5:{'b' * 32}"})


def test_the_four_answers() -> None:
    def status(train: int, test: int, /, **digests: Digest) -> str:
        return assess("x", KNOWN, digests, train, test).status

    assert status(10, 5, train=A, test=B) == "official"
    assert status(10, 5, train=B, test=B) == "reordered"
    assert status(10, 5, train=A, test=A) == "reordered"
    assert status(9, 5, train=B, test=B) == "reduced"
    assert status(10, 4, train=A, test=B) == "reduced"
    assert status(10, 5, train=A, test=B, extra=A) == "whole"


def test_only_what_is_not_official_is_noted() -> None:
    assert assess("x", KNOWN, {"train": A, "test": B}, 10, 5).notes == ()
    assert "other bytes in train" in assess("x", KNOWN, {"train": B, "test": B}, 10, 5).notes[0]
    assert assess("x", KNOWN, {}, 9, 4).notes == ("reduced: 9 of 10 training images", "reduced: 4 of 5 test images")


def test_more_than_there_are_is_another_set() -> None:
    with pytest.raises(DataError, match="11 training images, the official set has 10"):
        assess("x", KNOWN, {}, 11, 5)


def test_a_file_is_known_by_its_content_not_by_its_packing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = idx_files()
    content = {name: f"sha256:{hashlib.sha256(file).hexdigest()}" for name, file in files.items()}
    monkeypatch.setattr(idx_module, "OFFICIAL", {"mnist": OfficialSet(40, 20, content, "MNIST/raw")})
    write_idx(tmp_path / "plain", files)
    write_idx(tmp_path / "packed", files, packed=True)
    for form in ("plain", "packed"):
        assert verify("mnist", str(tmp_path / form)).status == "official"
        assert Mnist(root=str(tmp_path / form)).load().notes == ()
    path = tmp_path / "plain" / "MNIST/raw/train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert verify("mnist", str(tmp_path / "plain")).status == "reordered"


def test_verify_reads_everything(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    assert verify("cifar10", str(tmp_path)).counts == {"train": 100, "test": 20}
    (folder / "test_batch").write_bytes((folder / "test_batch").read_bytes()[:-1])
    with pytest.raises(DataError, match="test_batch"):
        verify("cifar10", str(tmp_path))


def test_verify_knows_what_there_is() -> None:
    with pytest.raises(ConfigError, match="'cifar'; there are: digits, mnist"):
        verify("cifar")


def test_the_list_has_every_set_with_one_line_and_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECGR_DATA", str(tmp_path))
    write_cifar100_binary(tmp_path)
    rows = {row.name: row for row in available()}
    assert list(rows) == list(DATASETS)
    assert all(row.description and "\n" not in row.description for row in rows.values())
    found = {name: row.place for name, row in rows.items() if row.place}
    assert found == {"digits": "installed", "cifar100": str(tmp_path / "cifar-100-binary")}


def test_the_table_is_complete() -> None:
    """Hashes have their length, and what is fetched is what is read."""
    for official in OFFICIAL.values():
        for known in official.content.values():
            assert re.fullmatch("sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", known)
        for download in official.downloads:
            assert re.fullmatch("[0-9a-f]{64}", download.sha256)
            assert all(url.startswith("http") and url.endswith(download.file) for url in download.mirrors)
        if official.downloads:
            assert {file.removesuffix(".gz") for file in official.files} >= set(official.content)
    assert set(OFFICIAL) == {"mnist", "fashion_mnist", "cifar10", "cifar100", "heart_disease", "shakespeare"}
