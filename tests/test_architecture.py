"""The page for whoever picks this up names what there is: every folder of the package, and no path that is gone."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
DRAWINGS, _, _ = PAGE.partition("## Where do I change")
FOLDERS = sorted(path.parent.name for path in (ROOT / "src/ecgr").glob("*/__init__.py"))


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:src|tests|study|docs)/[\w/.]+)`", PAGE))))
def test_a_path_on_the_page_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\b((?:" + "|".join(FOLDERS) + r")/\w[\w/.]*)", DRAWINGS))))
def test_a_path_in_a_drawing_exists(path: str) -> None:
    assert (ROOT / "src/ecgr" / path).exists()


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_is_drawn(folder: str) -> None:
    assert f"{folder}/" in PAGE
