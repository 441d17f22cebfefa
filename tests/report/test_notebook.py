"""An answer in a notebook: the comparison's own table and pictures, and names that stay names."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ecgr
from ecgr.analysis.comparison import Comparison
from ecgr.report.answer import to_html
from ecgr.report.picture import ends_of, to_svg
from ecgr.report.words import advice, visible
from support.hostile import HOSTILE
from support.runs import write_run

ALLOWED = {
    *("div", "p", "strong", "table", "caption", "thead", "tbody", "tr", "th", "td"),
    *("svg", "g", "line", "text", "circle", "title"),
}


class Tags(HTMLParser):
    """Every element that a browser would make, every attribute of it, and the text between."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.names: list[str] = []
        self.attributes: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def answer_of(directory: Path, method: str = "ecgr", seeds: int = 7) -> ecgr.Answer:
    for seed in range(seeds):
        write_run(directory / f"n{seed}", regulator="none", seed=seed)
        write_run(directory / f"e{seed}", regulator=method, seed=seed, gain=0.05)
    return ecgr.compare([directory])


def test_a_notebook_shows_the_advice_the_table_and_the_picture(tmp_path: Path) -> None:
    answer = answer_of(tmp_path)
    told = Tags(answer._repr_html_())
    (pair,) = answer.pairs
    assert told.names.count("svg") == 1
    assert told.names.count("circle") == 2  # the baseline and the method
    assert {pair.method, pair.verdict, advice(answer)} <= set(told.texts)
    assert set(told.names) <= ALLOWED
    assert not {"class", "role"}.isdisjoint(told.attributes)


def test_the_picture_is_well_formed_and_the_pages_own(tmp_path: Path) -> None:
    answer = answer_of(tmp_path)
    (ends,) = ends_of(answer)
    drawing = ElementTree.fromstring(to_svg(ends))
    assert to_svg(ends) in answer._repr_html_()
    coloured = to_svg(ends, {"fedavg": 0, "fedavg+ecgr": 1})
    assert coloured in answer.report(tmp_path / "page.html").read_text()
    assert [group.findtext("text") for group in drawing.findall("g")] == [mark.label for mark in ends.marks]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_stays_a_name(tmp_path: Path, name: str) -> None:
    told = Tags(answer_of(tmp_path, name, seeds=2)._repr_html_())
    assert set(told.names) <= ALLOWED
    assert not [attribute for attribute in told.attributes if attribute.startswith("on")]
    assert re.search(re.escape(visible(name).strip()), " ".join(told.texts))


def test_nothing_compared_is_said() -> None:
    assert "Nothing" in to_html(Comparison("fedavg", ()))


def test_it_needs_no_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = answer_of(tmp_path)
    for module in ("jinja2", "markupsafe", "plotly", "matplotlib"):
        monkeypatch.setitem(sys.modules, module, None)
    assert "<svg" in answer._repr_html_()


def test_its_repr_is_a_line(tmp_path: Path) -> None:
    answer = answer_of(tmp_path)
    assert repr(answer) == f"Answer({answer.pairs[0].method} {answer.pairs[0].verdict})"
