"""The documentation as a site: it builds without a warning, asks nobody for anything, and has every public name."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ecgr

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the site needs the extra docs")
    target = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "docs/generate.py"], cwd=ROOT, check=True, timeout=120)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?(https?:)?//", re.IGNORECASE)
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    assert [page.name for page in pages if loaded.search(page.read_text())] == []


def test_links_inside_the_site_lead_somewhere(site: Path) -> None:
    dead = [
        f"{page.name}: {target}"
        for page in site.rglob("*.html")
        if page.name != "404.html"  # its links are from the root, wherever it is shown
        for target in re.findall(r'(?:href|src)="([^"#]+)(?:#[^"]*)?"', page.read_text())
        if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists()
    ]
    assert dead == []


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "reference" / "api.html").read_text()
    public = [name for name in ecgr.__all__ if not name.startswith("__")]
    assert [name for name in public if f"ecgr.{name}" not in page] == []
