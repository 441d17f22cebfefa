"""The result pages are what their templates and the committed data make of them, and README says what they found."""

import json
import re
from statistics import fmean

import pytest
from study.pages import (
    DATA,
    PAGES,
    ROOT,
    SKEW,
    ends_in_front,
    factors,
    in_front,
    measured_problems,
    own_pairs,
    pairs,
    raised,
    render,
    signed,
)

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


def test_readme_says_of_the_papers_protocol_what_the_data_say() -> None:
    higher, runs = raised("earlier/full")
    mnist, fashion = (difference("full", problem=problem) for problem in ("MNIST", "Fashion-MNIST"))
    assert f"in {higher} of {runs} paired runs ({mnist} points on MNIST, {fashion} on Fashion-MNIST)" in README
    methods = ("fedavg+ecgr", "fedavg+ecgr, server step as long as plain")
    gain, held = (difference("controls", problem="MNIST", method=method) for method in methods)
    assert f"its gain of {gain} points became {held} with the server's step held" in README


def test_readme_says_what_was_ahead_of_a_tuned_fedavg() -> None:
    correction, dyn = "drift_correction", "feddyn"
    front, of = in_front(correction)
    assert f"on {front} of {of} problems with label skew" in README
    assert f"({ends_in_front(correction)} points, {factors(correction)} times sooner)" in README
    assert f"`feddyn` on {in_front(dyn)[0]}, server momentum on {in_front('fedavgm(server_momentum=0.5)')[0]}" in README
    ecgr = [pair["verdict"] for pair in own_pairs("fedavg+ecgr", SKEW)]
    assert {*ecgr} == {"ahead", "behind", "inconclusive"}
    told = f"ahead on {ecgr.count('ahead')} ({ends_in_front('fedavg+ecgr')}) and behind on {ecgr.count('behind')}"
    assert f"ECGR was {told}" in README
    assert f"{ecgr.count('ahead')} of {of} problems" in README, "the first screen"
    rising = [pair["rising"] for name in SKEW for pair in measured_problems()[name]["pairs"]]
    assert all("fedavg" in own for own in rising), "README says that FedAvg was still improving"
    lost = [
        own_pairs(*each)[0]["difference"]["by_seed"] for each in ((correction, ["digits"]), ("fedacg", ["mnist01"]))
    ]
    assert all(min(own.values()) < -0.1 for own in lost), "README says that some seeds collapsed"
