"""The result pages are what their templates and the committed data make of them."""

import json
import re
from statistics import fmean

import pytest
from study.pages import DATA, PAGES, ROOT, render

EARLIER = sorted(path.stem for path in (DATA / "earlier").glob("*.json"))
pytestmark = pytest.mark.nightly
SUMMARIES = ("docs/results/paper.md", "docs/results/methods.md", "docs/results/earlier.md", "docs/results/theory.md")


@pytest.mark.parametrize("template", PAGES)
def test_a_page_is_up_to_date(template: str) -> None:
    assert (ROOT / PAGES[template]).read_text(encoding="utf-8") == render(template), "`make results` writes it"


@pytest.mark.parametrize("page", SUMMARIES)
def test_a_page_begins_with_a_summary_of_at_most_200_words(page: str) -> None:
    first = re.split(r"(?m)^## ", (ROOT / page).read_text(encoding="utf-8"))[0]
    assert first.splitlines()[2].startswith("**Summary.**")
    assert len(first.split()) <= 210, "with the title"


@pytest.mark.parametrize("name", EARLIER)
def test_a_difference_is_that_of_its_scores(name: str) -> None:
    for pair in json.loads((DATA / "earlier" / f"{name}.json").read_text(encoding="utf-8")).get("pairs", ()):
        if pair["difference"] is not None and "method_scores" in pair:
            own = fmean(pair["method_scores"]) - fmean(pair["baseline_scores"])
            assert own == pytest.approx(pair["difference"], abs=0.02)
            assert len(pair["method_scores"]) == len(pair["baseline_scores"]) == len(pair["seeds"])
            assert pair["interval"] is None or pair["interval"][0] <= pair["difference"] <= pair["interval"][1]


def test_the_theory_page_names_tests_that_exist() -> None:
    named = re.findall(
        r"`([a-z]+(?:_[a-z]+){3,})`", (ROOT / "docs" / "results" / "theory.md").read_text(encoding="utf-8")
    )
    there = (ROOT / "tests" / "study" / "test_theory.py").read_text(encoding="utf-8")
    assert len(named) >= 16
    assert [name for name in named if f"def test_{name}(" not in there] == []
