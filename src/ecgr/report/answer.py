"""The answer that a comparison gives: to print, to read, to write, to look at in a notebook."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from html import escape
from io import StringIO
from pathlib import Path

from rich.console import Console, Group

from ecgr.analysis.comparison import Comparison
from ecgr.analysis.summaries import summaries_json
from ecgr.errors import ConfigError, EnvironmentFault
from ecgr.files import make_directory, write_atomically
from ecgr.report.page import write_report
from ecgr.report.picture import ends_of, to_svg
from ecgr.report.table import results_table, to_csv
from ecgr.report.table import to_json as comparison_json
from ecgr.report.terminal import answer_parts
from ecgr.report.words import advice, best_first, cautions, visible, worth
from ecgr.runs.record import to_json

WIDTH = 80


class Answer(Comparison):
    """What a comparison found, to be shown: ``print`` gives advice, a table and cautions, a notebook a picture, too."""

    def to_json(self) -> str:
        """The text of ``comparison.json``; its keys are described in ``docs/reference/statistics.md``."""
        return to_json(comparison_json(self), indent=2).decode()

    def report(self, path: str | Path) -> Path:
        """Write the page about the runs and this comparison to ``path``, which it returns."""
        if not self.runs:
            raise ConfigError("report: a comparison of summaries has no runs to report on; compare their directories")
        return write_report(self, Path(path))

    def write(self, directory: Path, warn: Callable[[str], None]) -> "Answer":
        """Write all files of the comparison into ``directory``; the same answer, which knows where they are."""
        make_directory(directory)
        write_atomically(directory / "comparison.json", self.to_json().encode())
        write_atomically(directory / "comparison.csv", to_csv(self).encode())
        write_atomically(directory / "summaries.json", summaries_json(self.summaries).encode())
        if self.runs:
            try:
                self.report(directory / "report.html")
            except EnvironmentFault as error:  # the numbers are there; without the extra only the page is missing
                warn(f"note: no report page: {error}")
        return replace(self, directory=directory)

    def __rich__(self) -> Group:
        return Group(*answer_parts(self))

    def _repr_html_(self) -> str:
        return to_html(self)

    def __repr__(self) -> str:
        found = ", ".join(f"{pair.method} {pair.verdict}" for pair in best_first(self.pairs))
        return f"Answer({found or 'nothing compared'})"

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=WIDTH, color_system=None, force_jupyter=False).print(self)  # a text there, too
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def to_html(comparison: Comparison) -> str:
    """An answer in a notebook: a piece of HTML that stands by itself, without an extra, a style sheet or a script.

    Every name is escaped, and control characters are made visible.
    """
    if not comparison.pairs:
        return "<p>Nothing was compared.</p>"
    shown = results_table(comparison)
    sides = ["right" if column.numeric else "left" for column in shown.columns]

    def told(text: str) -> str:
        return escape(visible(text))

    def row(tag: str, texts: Iterable[str]) -> str:
        cells = zip(sides, texts, strict=True)
        return "".join(f'<{tag} style="text-align: {side}">{told(text)}</{tag}>' for side, text in cells)

    return "\n".join(
        [
            '<div class="ecgr-answer tex2jax_ignore mathjax_ignore">',  # a dollar in a name is no formula
            f"<p><strong>{told(advice(comparison))}</strong></p>",
            *(f'<div style="max-width: 560px">{visible(to_svg(ends))}</div>' for ends in ends_of(comparison)),
            "<table>",
            f'<caption style="text-align: left">{told(shown.caption)}</caption>',
            f"<thead><tr>{row('th', [column.label for column in shown.columns])}</tr></thead>",
            "<tbody>",
            *(f"<tr>{row('td', [cell.text for cell in cells])}</tr>" for cells in shown.rows),
            "</tbody></table>",
            *(f"<p>{told(line)}</p>" for line in [*worth(comparison, everything=False), *cautions(comparison)]),
            "</div>",
        ]
    )
