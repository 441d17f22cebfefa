"""The picture of the answer: where every method ended, on one axis with the references `alone` and `pooled`.

Worked out once as plain numbers; drawn with characters, as an SVG for the page and notebooks, and by `ecgr figures`.
The bar of a method is the 95 % interval of its difference to the baseline, put where the baseline ended: what crosses
the baseline's line is not shown to differ. A reference far from all methods would press them into one dot: it stands at
the edge, as an arrow with its score.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import groupby

from ecgr.analysis.comparison import Comparison
from ecgr.analysis.quantities import Quantity
from ecgr.report.table import result_rows
from ecgr.report.words import visible

ROW, TOP, WIDTH, LEFT, RIGHT = 26, 8, 400, 128, 388
"""Of the SVG: heights of a row and of the room above, its width, and where the axis begins and ends."""
LONGEST = 18
TICKS = 4
REACH = 2.0
"""A reference is on the axis if it is nearer to the methods than this many times what they cover."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A dot with its interval; ``kind`` is the verdict, ``baseline`` or ``reference``."""

    label: str
    score: float
    interval: tuple[float, float] | None
    kind: str


@dataclass(frozen=True, slots=True)
class Ends:
    """The marks of one setting, the baseline first, and what their axis covers."""

    setting: str
    metric: Quantity
    baseline: float
    marks: tuple[Mark, ...]

    @property
    def span(self) -> tuple[float, float]:
        """From the least to the greatest, a little wider; never wider than a share can be."""
        own = [end for mark in self.marks if mark.kind != "reference" for end in (mark.score, *(mark.interval or ()))]
        reach = REACH * (max(own) - min(own)) or math.inf
        beside = [mark.score for mark in self.marks if mark.kind == "reference"]
        places = [*own, *(score for score in beside if min(own) - reach <= score <= max(own) + reach)]
        low, high = min(places), max(places)
        room = 0.04 * (high - low) or 0.01 * abs(high) or 1.0
        return (max(low - room, 0.0), min(high + room, 1.0)) if self.metric.is_share else (low - room, high + room)

    def share(self, score: float) -> float:
        """Where a score lies on the axis, 0 to 1, at its edge if it lies beyond; better is to the right."""
        low, high = self.span
        share = min(max((score - low) / (high - low), 0.0), 1.0)
        return share if self.metric.larger_is_better else 1 - share

    def beyond(self, mark: Mark) -> int:
        """Whether a mark lies left (-1) or right (1) of the axis."""
        low, high = self.span
        side = int(mark.score > high) - int(mark.score < low)
        return side if self.metric.larger_is_better else -side

    def label(self, mark: Mark) -> str:
        """Its name, with the score of what is not on the axis."""
        return f"{mark.label} {self.metric.level(mark.score)}" if self.beyond(mark) else mark.label


def ends_of(comparison: Comparison) -> list[Ends]:
    """One for each setting in which something was compared."""
    found = []
    for setting, own in groupby(result_rows(comparison), key=lambda row: row.setting):
        base, *rows = own
        known = [row.pair.baseline_score for row in rows if row.pair and row.pair.baseline_score is not None]
        if known:
            marks = [Mark(row.method, row.score, row.interval, row.kind) for row in rows if row.score is not None]
            found.append(Ends(setting, base.metric, known[0], (Mark(base.method, known[0], None, base.kind), *marks)))
    return found


def to_svg(ends: Ends, colours: Mapping[str, int] | None = None) -> str:
    """Every text in it is escaped, and its colours are attributes, which a style sheet overrides, by ``colours``."""
    axis = TOP + ROW * len(ends.marks)

    def x(score: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * ends.share(score), 1)

    told = ", ".join(f"{mark.label} {ends.metric.level(mark.score)}" for mark in ends.marks)
    lines = [
        f'<svg class="ends" viewBox="0 0 {WIDTH} {axis + 20}" role="img" aria-label="{escape(f"Ends: {told}")}">',
        _line("axis", LEFT, axis, RIGHT, axis),
        _line("zero", x(ends.baseline), TOP - 4, x(ends.baseline), axis, 'stroke-dasharray="2 2"'),
    ]
    for tick, text in ticks(ends):
        place = f'x="{x(tick):.1f}" y="{axis + 15}" text-anchor="middle" font-size="10.5"'
        lines += [
            _line("axis", x(tick), axis, x(tick), axis + 3),
            f'<text {place} fill="currentColor">{escape(text)}</text>',
        ]
    for row, mark in enumerate(ends.marks):
        y = TOP + ROW * row + ROW // 2
        side, at, reference = ends.beyond(mark), x(mark.score), mark.kind == "reference"
        number = (colours or {}).get(mark.label, 0)
        kind = "reference" if reference else f"method-{0 if not number else 1 + (number - 1) % 5}"
        name = escape(one_line(ends.label(mark), LONGEST))
        lines += [
            f'<g class="{kind}"><title>{escape(f"{mark.label}: {ends.metric.level(mark.score)}, {mark.kind}")}</title>',
            f'<text x="0" y="{y + 4}" font-size="12" fill="currentColor">{name}</text>',
        ]
        if mark.interval is not None:
            left, right = sorted(map(x, mark.interval))
            lines.append(_line("interval", left, y, right, y, 'stroke-width="3"'))
        shape = f'circle cx="{at}" cy="{y}" r="4.5"'
        if side:
            shape = f'path d="M{at - 4 * side} {y - 5} L{at + 5 * side} {y} L{at - 4 * side} {y + 5} Z"'
        drawn = 'fill="none" stroke' if reference else "fill"
        lines.append(f'<{shape} {drawn}="currentColor"/></g>')
    return "\n".join([*lines, "</svg>"])


def _line(kind: str, x1: float, y1: float, x2: float, y2: float, more: str = "") -> str:
    places = f'x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"'
    return f'<line class="{kind}" {places} stroke="currentColor" {more}/>'.replace(" />", "/>")


def one_line(text: str, longest: int) -> str:
    """A name on one line, as it may be shown; its end is left out if it is long.

    >>> one_line("a long\\nname", 8)
    'a long …'
    """
    shown = " ".join(str(visible(text)).split())
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def ticks(ends: Ends) -> list[tuple[float, str]]:
    """Round numbers along the axis, written as they are shown.

    >>> [text for _, text in ticks(Ends("", Quantity(), 0.8, (Mark("a", 0.8, None, ""), Mark("b", 0.97, None, ""))))]
    ['80', '85', '90', '95']
    """
    low, high = ends.span
    scale = ends.metric.scale
    step = nice((high - low) * scale / TICKS)
    first, last = math.ceil(low * scale / step - 1e-9), math.floor(high * scale / step + 1e-9)
    return [(number * step / scale, f"{number * step:.6g}") for number in range(first, last + 1)]


def nice(value: float) -> float:
    """The next of 1, 2, 5, 10, … times a power of ten.

    >>> [nice(value) for value in (0.3, 1.2, 6.0)]
    [0.5, 2.0, 10.0]
    """
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= value * (1 - 1e-9))
