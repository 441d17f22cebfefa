"""What the package says of itself is true wherever it is read."""

import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from ecgr import __version__

ROOT = Path(__file__).parents[1]


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("repository", [None, "https://example.org/ecgr/"])
def test_the_readme_of_an_index_page_has_no_link_into_nowhere(
    repository: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = ModuleType("hatchling.metadata.plugin.interface")  # there while a package is built, and only then
    monkeypatch.setattr(builder, "MetadataHookInterface", object, raising=False)
    monkeypatch.setitem(sys.modules, builder.__name__, builder)
    monkeypatch.syspath_prepend(str(ROOT))
    text = import_module("hatch_build").for_index((ROOT / "README.md").read_text(), repository)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert all(target.startswith("https://") for target in targets), targets
    assert ("docs/guide/start.md" in text) == ("docs/guide/start.md" in (ROOT / "README.md").read_text())
