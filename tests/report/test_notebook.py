"""An answer in a notebook, and the small pictures: the comparison's own numbers, and names that stay names."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ecgr
from ecgr.analysis.comparison import Comparison
from ecgr.report.answer import to_html
from ecgr.report.page_data import page_data
from ecgr.report.picture import ends_of, to_svg
from ecgr.report.table import tuning_table
from ecgr.report.words import advice, cautions, visible
from support.findings import made_up, tuning_of
from support.hostile import HOSTILE
from support.reports import Page
from support.runs import write_comparison_runs

ALLOWED = {
    *("div", "p", "strong", "table", "caption", "thead", "tbody", "tr", "th", "td"),
    *("svg", "g", "line", "text", "circle", "title"),
}


def answer_of(directory: Path) -> ecgr.Answer:
    write_comparison_runs(directory, seeds=7, gain=0.05)
    return ecgr.compare([directory])


def test_a_notebook_shows_advice_table_and_picture_and_needs_no_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = answer_of(tmp_path)
    for module in ("jinja2", "markupsafe", "plotly", "matplotlib"):
        monkeypatch.setitem(sys.modules, module, None)
    told = Page(answer._repr_html_())
    (pair,) = answer.pairs
    names = Counter(tag for tag, _ in told.elements.elements())
    assert (names["svg"], names["circle"]) == (1, 2)  # the baseline and the method
    assert {pair.method, pair.verdict, advice(answer)} <= set(told.texts)
    assert set(names) <= ALLOWED
    assert repr(answer) == f"Answer({pair.method} {pair.verdict})"
    assert "Nothing" in to_html(Comparison("fedavg", ()))


def test_the_picture_is_well_formed_and_the_pages_own(tmp_path: Path) -> None:
    answer = answer_of(tmp_path)
    (ends,) = ends_of(answer)
    drawing = ElementTree.fromstring(to_svg(ends))
    assert to_svg(ends) in answer._repr_html_()
    coloured = to_svg(ends, {"fedavg": 0, "fedavg+ecgr": 1})
    assert coloured in answer.report(tmp_path / "page.html").read_text()
    assert [group.findtext("text") for group in drawing.findall("g")] == [mark.label for mark in ends.marks]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_stays_a_name(name: str) -> None:
    told = Page(to_html(made_up({name: 0.03}, seeds=2)))
    assert {tag for tag, _ in told.elements} <= ALLOWED
    assert not [name for _, names in told.elements for name in names if name.startswith("on")]
    assert visible(name).strip() in " ".join(told.texts)


def test_tuning_is_shown_with_every_trial_and_how_sure_the_choice_is() -> None:
    sure, unsure = (
        replace(made_up({"a": 0.03}), tuning={"fedavg": tuning_of(4), "a": tuning_of(agreeing)}) for agreeing in (4, 1)
    )
    drawn = page_data({}, sure)["trials"]["methods"]
    dots = [[0.01, 50.0, False], [0.1, 80.0, True], [1.0, None, False]]
    assert [(own["label"], own["dots"]) for own in drawn] == [("fedavg", dots), ("a", dots)]
    assert page_data({}, made_up({"a": 0.03}))["trials"] is None
    shown = tuning_table(unsure)
    assert shown is not None
    rows = [[cell.text for cell in row] for row in shown.rows]
    assert rows == [["fedavg", "lr 0.1", "3", "4 of 4"], ["a", "lr 0.1", "3", "1 of 4"]]
    assert [line for line in cautions(unsure) if line.startswith("a: other tuning seeds")]
    assert not [line for line in cautions(sure) if "tuning seeds" in line]
    assert tuning_table(made_up({"a": 0.03})) is None
