"""The result pages are what their templates and the committed data make of them, and README says what they found."""

import json
import re
from statistics import fmean

import pytest
from study.pages import DATA, PAGES, ROOT, SKEWED, better_on, is_rising, pairs, raised, render, signed

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
    named = re.findall(r"`([a-z]+(?:_[a-z]+){3,})`", (ROOT / "docs/results/theory.md").read_text(encoding="utf-8"))
    there = (ROOT / "tests/study/test_theory.py").read_text(encoding="utf-8")
    assert len(named) >= 16
    assert [name for name in named if f"def test_{name}(" not in there] == []


README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def difference(name: str, **wanted: str) -> str:
    (pair,) = pairs(f"earlier/{name}", **wanted)
    return signed(pair["difference"])


def test_readme_says_of_the_papers_protocol_and_of_a_tuned_fedavg_what_the_data_say() -> None:
    higher, runs = raised("earlier/full")
    mnist, fashion = (difference("full", problem=problem) for problem in ("MNIST", "Fashion-MNIST"))
    assert f"in {higher} of {runs} paired runs ({mnist} points on MNIST, {fashion} on Fashion-MNIST)" in README
    methods = ("fedavg+ecgr", "fedavg+ecgr, server step as long as plain")
    gain, held = (difference("controls", problem="MNIST", method=method) for method in methods)
    assert f"its gain of {gain} points became {held} with the server's step held" in README
    assert f"shown better on {better_on('fedavg+ecgr', (*SKEWED, 'heart'))} problems" in README


def test_readme_says_what_was_ahead() -> None:
    momentum, correction = "fedavgm(server_momentum=0.5)", "drift_correction"
    assert f"on {better_on(momentum)} and {better_on(correction)} problems with label skew" in README
    better = [pair for name in SKEWED for pair in pairs(f"earlier/{name}", verdict="better")]
    ahead = [pair for pair in better if pair["method"] in (momentum, correction)]
    ends = sorted(pair["difference"] for pair in ahead)
    rounds = sorted({pair["rounds"] for pair in ahead})
    assert f"by {ends[0]:.1f} to {ends[-1]:.1f} points after {rounds[0]} to {rounds[-1]} rounds" in README
    assert all(map(is_rising, SKEWED)), "README says that FedAvg was still improving"
