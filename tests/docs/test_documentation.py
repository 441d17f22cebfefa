"""The documentation as a site: it builds without a warning, asks nobody for anything, and has every public name."""

import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the site needs the extra docs")
    target = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "docs/generate.py"], cwd=ROOT, check=True, timeout=120)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    """By a page, or by a style at once; what a script could ask for only on a page that says so is not."""
    linked = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?(https?:)?//", re.IGNORECASE)
    imported = re.compile(r"@import|url\(\s*[\"']?(?:https?:)?//", re.IGNORECASE)
    pages = {page.name: page.read_text() for page in site.rglob("*.html")}
    assert len(pages) > 10
    assert [name for name, text in pages.items() if linked.search(text) or "fonts.googleapis" in text] == []
    assert [sheet.name for sheet in site.rglob("*.css") if imported.search(sheet.read_text())] == []


def test_links_inside_the_site_lead_somewhere(site: Path) -> None:
    pages = {page: page.read_text() for page in site.rglob("*.html") if page.name != "404.html"}  # that: from the root
    anchors = {page.resolve(): set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for page, text in pages.items()}
    dead = []
    for page, text in pages.items():
        for target, anchor in re.findall(r'(?:href|src)="([^"#]*)(?:#([^"]*))?"', text):
            if re.match(r"[a-z]+:", target):
                continue
            place = (page.parent / unquote(target)).resolve() if target else page.resolve()
            there = place.exists() and (not anchor or place not in anchors or unquote(anchor) in anchors[place])
            dead += [] if there else [f"{page.name}: {target}#{anchor}"]
    assert dead == []


@pytest.mark.parametrize("module", ["ecgr", "ecgr.testing", "ecgr.flower"])
def test_the_reference_has_every_public_name(site: Path, module: str) -> None:
    page = (site / "reference" / "api.html").read_text()
    public = [name for name in import_module(module).__all__ if not name.startswith("__")]
    assert len(public) >= 3
    tables = [name for name in public if isinstance(getattr(import_module(module), name), Mapping)]
    missing = [name for name in public if name not in tables and f'id="{module}.{name}"' not in page]
    assert missing == []
    assert [name for name in tables if f"<code>{module}.{name}</code>" not in page] == []


def test_the_notebooks_are_on_the_site(site: Path) -> None:
    for notebook in (ROOT / "examples" / "notebooks").glob("*.ipynb"):
        assert (site / "notebooks" / notebook.name).read_bytes() == notebook.read_bytes()
        assert (site / "notebooks" / f"{notebook.stem}.html").is_file()
