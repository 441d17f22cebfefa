"""What the pages say beside their code: links lead somewhere, tables have the numbers of the code and of the data."""

import re
from pathlib import Path

import pytest
from study.pages import LEADERBOARD, measured_problems, pairs

from ecgr.compare.analyse import analyse
from ecgr.config.catalogue import WHEN, cost_of
from ecgr.config.methods import Method
from ecgr.report.words import best_first
from ecgr.runs.record import to_json
from support.blocks import GENERATED, ROOT, pages

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")
MADE = {*GENERATED, *(f"docs/notebooks/{path.stem}.md" for path in ROOT.glob("examples/notebooks/*.ipynb"))}
"""Pages that only the site has."""


@pytest.mark.parametrize("page", [*pages(), "CHANGELOG.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    """To a file of the repository, and to a heading where it names it."""
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


PRIVACY = (ROOT / "docs/guide/privacy.md").read_text()
PRICES = sorted((ROOT / "docs/results/data/privacy").glob("*.json"))


@pytest.mark.parametrize("path", PRICES, ids=lambda path: path.stem)
def test_the_prices_of_privacy_are_those_of_the_data(path: Path) -> None:
    assert [price.stem for price in PRICES] == ["digits", "heart", "hospitals"]
    answer = analyse(path)
    rows = re.findall(rf"^\| {path.stem} \| `(.+?)` \| (.+?) \| (.+?) \| (.+?) \|$", PRIVACY, re.MULTILINE)
    spent = {run.method: run.privacy for run in answer.summaries}
    metric = answer.pairs[0].metric
    expected = [(answer.baseline, metric.number(answer.pairs[0].baseline_score), "-", "-")]
    for pair in best_first(answer.pairs):
        found, privacy = pair.difference, spent[pair.method]
        assert found is not None
        assert found.interval is not None
        assert privacy is not None
        low, high = sorted(-metric.gain(end) for end in found.interval)
        size = metric.amount(metric.gain(found.mean), (low, high))
        epsilon = "none" if privacy["epsilon"] is None else f"{privacy['epsilon']:.3g}"
        expected.append((pair.method, metric.number(pair.score), epsilon, f"{size} ({metric.range((low, high))})"))
    assert rows == expected, to_json([list(row) for row in expected], indent=1).decode()
    assert f"{len(answer.pairs[0].seeds)} seeds" in PRIVACY


METHODS = (ROOT / "docs/guide/which_method.md").read_text(encoding="utf-8").partition("## By method")[2]
ROWS = [line.strip("| ").split(" | ") for line in re.findall(r"(?m)^\|.*`.*\|$", METHODS)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[:-1]))
def test_the_guide_says_what_a_method_keeps_and_sends(row: list[str]) -> None:
    place = next(place for place, cell in enumerate(row) if cell.startswith(("`", "| `")))
    method, kept, traffic, measured, literature = row[place : place + 5]
    cost = cost_of(Method.of(method.strip("|` ")))
    assert kept == ("none" if not cost.stateful else f"{cost.client} vector{'s' if cost.client > 1 else ''}")
    more = [f"{count} more {way}" for count, way in ((cost.up - 1, "up"), (cost.down - 1, "down")) if count]
    assert traffic == (", ".join(more) or "as FedAvg")
    assert measured != "not yet" or re.search(r"arXiv \d{4}\.\d{5}", literature), "neither measured nor literature"


def test_the_catalogue_calls_measured_what_the_data_hold() -> None:
    found = [
        *(pairs(f"earlier/{name}") for name in LEADERBOARD),
        *(own["pairs"] for own in measured_problems().values()),
    ]
    there = {"fedavg", *(pair["method"] for own in found for pair in own)}
    assert {method for method, (_, evidence) in WHEN.items() if evidence == "measured"} <= there


def test_readme_is_short_and_comes_to_a_command_at_once() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 750
    assert len(text[: text.index("```")].split()) <= 150
