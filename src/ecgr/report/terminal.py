"""A comparison on a terminal: a picture made of characters, and the table of results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from ecgr.analysis.pairs import Pair
from ecgr.analysis.verdicts import Comparison
from ecgr.report.table import results_table
from ecgr.report.words import best_first

STYLES = {
    "better": "green",
    "worse": "red",
    "equivalent": "cyan",
    "too few seeds": "yellow",
    "not trained yet": "yellow",
    "diverged": "red",
}
WIDTH = 80
LONGEST_NAME = 24
LEAST_AXIS = 16


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters that a picture is made of."""

    dot: str = "●"
    bar: str = "─"
    ends: tuple[str, str] = ("├", "┤")
    zero: str = "│"
    cut: str = "…"


UNICODE = Marks()
ASCII = Marks(dot="o", bar="-", ends=("|", "|"), zero=":", cut="~")


@dataclass(frozen=True, slots=True)
class Picture:
    """A dot and its interval for each method, best first, as wide as the terminal allows; in ASCII where it must be."""

    comparison: Comparison

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        marks = ASCII if options.ascii_only else UNICODE
        for line, pair in picture_lines(self.comparison, min(options.max_width, WIDTH), marks):
            yield Text(line, STYLES.get(pair.verdict, "") if pair else "dim", no_wrap=True)


def to_table(comparison: Comparison) -> Table:
    """The table of results; as plain text, whatever the names hold."""
    shown = results_table(comparison)
    table = Table(title=Text(shown.caption, "bold"), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in shown.columns:
        side: Literal["left", "right"] = "right" if column.numeric else "left"
        folded = column.label in ("method", "setting")  # numbers and verdicts never are
        table.add_column(Text(column.label), justify=side, overflow="fold", no_wrap=not folded, min_width=8 * folded)
    for row in shown.rows:
        table.add_row(*(Text(cell.text, STYLES.get(cell.text, "") if cell.style else "") for cell in row))
    return table


def picture_lines(comparison: Comparison, width: int = WIDTH, marks: Marks = UNICODE) -> list[tuple[str, Pair | None]]:
    """Each line with its pair; headings and axes have none. Pairs without a mean are left out."""
    pairs = [pair for pair in best_first(comparison.pairs) if pair.primary.mean is not None]
    lines: list[tuple[str, Pair | None]] = []
    settings = list(dict.fromkeys(pair.setting for pair in pairs))
    for setting in settings:
        own = [pair for pair in pairs if pair.setting == setting]
        if len(settings) > 1 and setting:
            lines.append((_cut(setting, width, marks), None))
        lines += _panel(own, width, marks)
    return lines


def _panel(pairs: Sequence[Pair], width: int, marks: Marks) -> list[tuple[str, Pair | None]]:
    """The pairs of one setting on one axis, and what the axis is below them."""
    quantity = pairs[0].metric
    longest = max(len(pair.method) for pair in pairs)
    verdicts = max(len(pair.verdict) for pair in pairs)
    changes = [quantity.change(pair.primary.mean) for pair in pairs]
    numbers = max(map(len, changes))
    names = max(6, min(longest, LONGEST_NAME, width - LEAST_AXIS - numbers - verdicts - 3))
    cells = max(LEAST_AXIS, width - names - numbers - verdicts - 3)
    low, high = _ends(pairs)
    lines: list[tuple[str, Pair | None]] = []
    for pair, change in zip(pairs, changes, strict=True):
        axis = _axis(pair, low, high, cells, marks)
        name = _cut(pair.method, names, marks).ljust(names)
        lines.append((_cut(f"{name} {axis} {change.rjust(numbers)} {pair.verdict}", width, marks), pair))
    side = "right" if quantity.larger_is_better else "left"
    unit = f", {quantity.difference_unit}" if quantity.difference_unit else ""
    scale = f"{quantity.change(low)} to {quantity.change(high)}"
    what = f"{quantity.name.replace('_', ' ')}{unit}: {scale}; better is {side}"
    lines.append((_cut(f"{' ' * names} {what}", width, marks), None))
    return lines


def _ends(pairs: Sequence[Pair]) -> tuple[float, float]:
    """What the axis covers: every interval, and zero."""
    places = [0.0]
    for pair in pairs:
        places += [pair.primary.mean or 0.0, *(pair.primary.interval or ())]
    low, high = min(places), max(places)
    return (low, high) if low < high else (-1.0, 1.0)


def _axis(pair: Pair, low: float, high: float, cells: int, marks: Marks) -> str:
    def cell(value: float) -> int:
        return round((value - low) / (high - low) * (cells - 1))

    row = [" "] * cells
    if pair.primary.interval is not None:
        left, right = map(cell, pair.primary.interval)
        row[left : right + 1] = marks.bar * (right - left + 1)
        row[left], row[right] = marks.ends
    row[cell(0.0)] = marks.zero if row[cell(0.0)] in (" ", marks.bar) else row[cell(0.0)]
    row[cell(pair.primary.mean or 0.0)] = marks.dot
    return "".join(row)


def _cut(text: str, width: int, marks: Marks) -> str:
    one_line = "".join(character if character.isprintable() else " " for character in text)
    return one_line if len(one_line) <= width else one_line[: width - 1] + marks.cut
