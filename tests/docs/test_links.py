"""Links between the pages as they stand in the repository: each leads to a file, and to a heading where it names it."""

import re
from pathlib import Path

import pytest

from support.blocks import GENERATED, ROOT, pages

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")
MADE = {*GENERATED, *(f"docs/notebooks/{path.stem}.md" for path in ROOT.glob("examples/notebooks/*.ipynb"))}
"""Pages that only the site has."""


@pytest.mark.parametrize("page", [*pages(), "CHANGELOG.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    text = re.sub(r"(?ms)^```.*?^```|`[^`\n]+`", "", (ROOT / page).read_text())
    dead = []
    for target in (found[1] or found[2] for found in LINK.finditer(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        there = place.exists() or str(place.relative_to(ROOT)) in MADE
        if there and anchor and place.suffix == ".md" and place.exists():
            there = anchor in headings(place)
        dead += [] if there else [target]
    assert dead == []


def headings(page: Path) -> set[str]:
    """Names of headings as links have them."""
    found = re.findall(r"(?m)^#+ (.+)$", page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}
