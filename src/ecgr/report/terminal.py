"""A comparison on a terminal: advice, the table, a picture of characters, the references, cautions.

At most 25 lines of 80 columns where there are few methods; the statistics, and what else there is to say,
are one option away.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ecgr.analysis.comparison import Comparison
from ecgr.report.picture import Ends, Mark, ends_of, one_line
from ecgr.report.table import Table as Shown
from ecgr.report.table import results_table, tuning_table
from ecgr.report.words import advice, best_first, cautions, details, sentence, worth

STYLES = {
    "better": "green",
    "ahead": "green",
    "worse": "red",
    "behind": "red",
    "equal": "cyan",
    "too few seeds": "yellow",
    "diverged": "red",
    "reference": "dim",
}
WIDTH, LINES = 80, 24
"""Of the answer, with a line to spare for where the page is."""
LONGEST_NAME = 24
LEAST_AXIS = 16
MOST_ROWS = 7
"""A picture of more rows than this would push the advice off the screen."""


ASCII = str.maketrans("●○◂▸─├┤│…", "ox<>-||:~")
"""What a picture is drawn with where a terminal has no other characters."""


def answer_parts(
    comparison: Comparison, arguments: Sequence[str] = (), everything: bool = False
) -> Iterator[RenderableType]:
    """What is printed, from the first line on; ``arguments`` are those of the command that made the runs."""
    first = advice(comparison)
    yield Text(first, "bold")
    shown = 0
    if comparison.pairs:
        table = to_table(results_table(comparison, references=False))
        shown = len(Console(width=WIDTH).render_lines(table))  # long names take several lines
        yield table
    yield Picture(comparison)
    lines = [*worth(comparison, everything), *(f"- {line}" for line in cautions(comparison, arguments))]
    rows = sum(len(panel.marks) for panel in ends_of(comparison))
    left = LINES - len(_wrapped(first)) - shown - (rows if rows <= MOST_ROWS else 0)
    while lines and (everything or len(_wrapped(lines[0])) <= left - (len(lines) > 1)):
        left -= len(_wrapped(lines[0]))
        yield Text(lines.pop(0))
    if lines:
        yield Text(f"- {len(lines)} more with --details")
    if everything:
        for pair in best_first(comparison.pairs):
            yield Text(f"{sentence(pair)} {details(pair, comparison.family)}".rstrip())
        if (tuned := tuning_table(comparison)) is not None:
            yield to_table(tuned)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH)


@dataclass(frozen=True, slots=True)
class Picture:
    """A dot and its interval for each method, as wide as the terminal allows; in ASCII where it must be."""

    comparison: Comparison

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        panels = ends_of(self.comparison)
        if sum(len(panel.marks) for panel in panels) <= MOST_ROWS:
            for line, kind in picture_lines(panels, min(options.max_width, WIDTH)):
                drawn = line.translate(ASCII) if options.ascii_only else line
                yield Text(drawn, STYLES.get(kind, "dim" if not kind else ""), no_wrap=True)


def to_table(shown: Shown) -> Table:
    """A table for rich; as plain text, whatever the names hold."""
    table = Table(title=Text(shown.caption), title_justify="left", box=None, padding=(0, 1, 0, 0))
    for column in shown.columns:
        side: Literal["left", "right"] = "right" if column.numeric else "left"
        folded = column.label in ("method", "setting")  # numbers and verdicts never are
        table.add_column(Text(column.label), justify=side, overflow="fold", no_wrap=not folded, min_width=8 * folded)
    for row in shown.rows:
        table.add_row(*(Text(cell.text, STYLES.get(cell.text, "") if cell.style else "") for cell in row))
    return table


def picture_lines(panels: Sequence[Ends], width: int = WIDTH) -> list[tuple[str, str]]:
    """Each line with the verdict that gives it its colour; headings and axes have none."""
    lines: list[tuple[str, str]] = []
    for panel in panels:
        if len(panels) > 1 and panel.setting:
            lines.append((one_line(panel.setting, width), ""))
        lines += _panel(panel, width)
    return lines


def _panel(panel: Ends, width: int) -> Iterator[tuple[str, str]]:
    names = max(6, min(max(len(mark.label) for mark in panel.marks), LONGEST_NAME, width - LEAST_AXIS - 1))
    cells = width - names - 1
    beside = [mark for mark in panel.marks if mark.kind == "reference"]
    for mark in panel.marks:
        if mark not in beside:
            row = _axis(panel, mark, cells)
            for ring in beside if mark.kind == "baseline" else ():
                row[_cell(panel, ring.score, cells)] = _reference(panel, ring)
            yield f"{one_line(mark.label, names).ljust(names)} {''.join(row)}".rstrip(), mark.kind
    left, right = (panel.metric.level(end) for end in sorted(panel.span, key=panel.metric.gain))
    named: dict[str, list[str]] = {}
    for mark in beside:
        named.setdefault(_reference(panel, mark), []).append(panel.label(mark))
    legend = "  ".join(f"{sign} {', '.join(names)}" for sign, names in named.items())
    room = cells - len(left) - len(right)
    between, below = (legend, "") if len(legend) + 2 <= room else ("", legend)
    yield f"{' ' * names} {left}{between.center(room)}{right}", ""
    if below:
        yield below[:width].rjust(width), ""


def _reference(panel: Ends, mark: Mark) -> str:
    """A ring, or an arrow at the edge."""
    return {-1: "◂", 0: "○", 1: "▸"}[panel.beyond(mark)]


def _cell(panel: Ends, score: float, cells: int) -> int:
    return round(panel.share(score) * (cells - 1))


def _axis(panel: Ends, mark: Mark, cells: int) -> list[str]:
    row = [" "] * cells
    if mark.interval is not None:
        left, right = sorted(_cell(panel, end, cells) for end in mark.interval)
        row[left : right + 1] = "─" * (right - left + 1)
        row[left], row[right] = "├┤"
    zero = _cell(panel, panel.baseline, cells)
    row[zero] = "│" if row[zero] in " ─" else row[zero]
    row[_cell(panel, mark.score, cells)] = "●"
    return row
