"""Entries that other packages offer: found by name, imported when they are named, one clear line if broken."""

import sys
from pathlib import Path

import pytest

from ecgr.errors import ConfigError
from ecgr.tables import Table

MODULE = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Halved:
    share: float = 0.5
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with a package that offers regulators."""
    (tmp_path / "halving.py").write_text(MODULE)
    folder = tmp_path / "halving_plugin-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: halving-plugin\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[ecgr.regulators]\nhalved = halving:Halved\nmissing = halving:Gone\nplain = halving:Halved\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "halving", raising=False)
    return tmp_path


def table() -> Table[object]:
    return Table("regulator", "regulators", {"plain": dict})


def test_an_entry_of_another_package_is_imported_when_it_is_named(installed: Path) -> None:
    found = table()
    assert {"plain", "halved", "missing"} <= set(found)
    assert "halving" not in sys.modules
    assert found["halved"]().share == 0.5  # type: ignore[attr-defined]
    assert (found.origin("halved"), found.origin("plain")) == ("halving-plugin", "ecgr")
    assert found["plain"] is dict  # ours goes before theirs
    assert found.name_of(found["halved"]()) == "halved"
    with pytest.raises(KeyError):
        found["nothing"]


def test_an_object_from_another_process_has_its_entry_s_name_here(installed: Path) -> None:
    import halving  # type: ignore[import-not-found]

    assert table().name_of(halving.Halved(share=0.1)) == "halved"
    assert table().name_of(3) is None


def test_a_broken_entry_is_one_line(installed: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        table()["missing"]
    assert str(caught.value).startswith("regulator 'missing' of the package halving-plugin cannot be loaded from")
    assert "\n" not in str(caught.value)


def test_two_packages_with_one_name_are_told_apart_by_nobody(installed: Path) -> None:
    folder = installed / "other_plugin-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: other-plugin\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[ecgr.regulators]\nhalved = halving:Halved\n")
    with pytest.raises(ConfigError, match=r"offered by several packages \(halving-plugin, other-plugin\)"):
        table()["halved"]
