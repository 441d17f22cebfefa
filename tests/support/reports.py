"""The page and the figures about some records, as the commands make them and as a browser would see them."""

import io
import json
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from ecgr.compare.analyse import analyse_runs
from ecgr.report.figures import write_figures
from ecgr.report.page import render, write_report
from ecgr.runs.record import RunRecord


def page_about(records: Sequence[RunRecord]) -> str:
    return render(analyse_runs(records))


def report_on(records: Sequence[RunRecord], path: Path) -> Path:
    return write_report(analyse_runs(records), path)


def figures_of(records: Sequence[RunRecord], directory: Path, *, everything: bool = False) -> list[Path]:
    return write_figures(analyse_runs(records), directory, everything=everything)


def printed(*parts: RenderableType, width: int = 80) -> str:
    """What a terminal without colours shows."""
    text = io.StringIO()
    Console(width=width, file=text, color_system=None).print(*parts, sep="")
    return text.getvalue()


class Page(HTMLParser):
    """What a browser would see, near enough: elements, their attributes' names, and the text between."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.links: list[str] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.policy = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag, tuple(name for name, _ in attrs)] += 1
        values = {name: value or "" for name, value in attrs}
        self.links += [value for name, value in values.items() if name in ("href", "src", "action", "data")]
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"]
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        where = {"script": self.scripts, "style": self.styles}.get(self._inside, self.texts)
        where.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)

    @property
    def data(self) -> dict[str, Any]:
        """The page's own data, as its scripts read it."""
        content: dict[str, Any] = json.loads(self.scripts[0])
        return content


def page(records: list[RunRecord]) -> Page:
    return Page(page_about(records))
