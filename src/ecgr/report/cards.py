"""Cards: a sentence for each method, best first, with a small picture of what it rests on.

A picture is worked out as plain numbers and drawn as an SVG, for the page and for a notebook: a dot a seed, the
interval, the mean, the strip in which a difference is of no practical interest. Pictures of one metric share their
axis, and better is always to the right.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ecgr.analysis.pairs import Pair, Verdict
from ecgr.analysis.verdicts import Comparison
from ecgr.report.table import verdict_class
from ecgr.report.words import best_first, count, details, sentence

MARKS: dict[Verdict, str] = {
    "better": "▲",
    "worse": "▼",
    "equivalent": "=",
    "inconclusive": "?",
    "too few seeds": "…",
    "not trained yet": "○",
    "diverged": "✕",
}
"""A verdict's sign, so that it is told by more than its colour and its word."""
SIZE = {"width": 340, "height": 62, "left": 14, "right": 326, "dots": 14, "bar": 30, "axis": 44}
"""Of a picture; dots, bar and axis are heights from the top."""
TICKS = 4
"""About as many marks on an axis."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From a difference to a place in the picture, and the marks of its axis."""

    low: float
    high: float
    flipped: bool
    factor: float

    def place(self, value: float) -> float:
        """Where a difference lies, in the picture's units."""
        share = (value - self.low) / (self.high - self.low)
        return round(SIZE["left"] + (SIZE["right"] - SIZE["left"]) * (1 - share if self.flipped else share), 1)

    def marks(self) -> list[dict[str, Any]]:
        """Round numbers along the axis, written as they are shown."""
        step = _nice((self.high - self.low) * self.factor / TICKS)
        first = math.ceil(self.low * self.factor / step - 1e-9)
        last = math.floor(self.high * self.factor / step + 1e-9)
        return [
            {"x": self.place(number * step / self.factor), "text": f"{number * step:+.6g}" if number else "0"}
            for number in range(first, last + 1)
        ]


def cards(comparison: Comparison) -> list[dict[str, Any]]:
    """A card for each pair: settings in the order in which they come, in each the best first."""
    scales = {name: _scale(own) for name, own in _by_metric(comparison.pairs).items()}
    return [
        {
            "method": pair.method,
            "verdict": "nothing to compare" if _says_nothing(pair) else pair.verdict,
            "class": "nothing" if _says_nothing(pair) else verdict_class(pair),
            "mark": "" if _says_nothing(pair) else MARKS[pair.verdict],
            "sentence": sentence(pair),
            "details": details(pair),
            "note": pair.note,
            "picture": None if pair.primary.mean is None else _picture(pair, scales[pair.metric.name]),
        }
        for pair in best_first(comparison.pairs)
    ]


def to_svg(picture: Mapping[str, Any]) -> str:
    """A picture; every text in it is escaped, and its colours are attributes, which any style sheet overrides."""
    axis, bar = SIZE["axis"], SIZE["bar"]
    strip, mean = picture["strip"], picture["mean"]
    lines = [
        f'<svg class="small" viewBox="0 0 {SIZE["width"]} {SIZE["height"]}" role="img"'
        f' aria-label="{escape(picture["alt"])}">',
        f'<rect class="strip" x="{strip["x"]}" y="4" width="{strip["width"]}" height="{axis - 4}"'
        ' fill="currentColor" fill-opacity="0.08"/>',
        _line("axis", (SIZE["left"], axis), (SIZE["right"], axis)),
    ]
    for mark in picture["marks"]:
        lines += [
            _line("axis", (mark["x"], axis), (mark["x"], axis + 3)),
            f'<text x="{mark["x"]}" y="{axis + 14}" text-anchor="middle" font-size="10.5" fill="currentColor">'
            f"{escape(mark['text'])}</text>",
        ]
    lines.append(_line("zero", (picture["zero"], 4), (picture["zero"], axis), 'stroke-dasharray="2 2"'))
    lines += [
        f'<circle class="seed" cx="{dot["x"]}" cy="{SIZE["dots"]}" r="3.6" fill="currentColor" fill-opacity="0.45">'
        f"<title>{escape(dot['text'])}</title></circle>"
        for dot in picture["dots"]
    ]
    if picture["interval"]:
        low, high = picture["interval"]
        lines.append(_line("interval", (low, bar), (high, bar), 'stroke-width="3"'))
    lines.append(f'<path class="mean" d="M {mean} {bar - 5} l 5 5 l -5 5 l -5 -5 z" fill="currentColor"/>')
    return "\n".join([*lines, "</svg>"])


def _says_nothing(pair: Pair) -> bool:
    return pair.primary.mean is None and pair.verdict != "diverged"


def _by_metric(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        if pair.primary.mean is not None:
            found.setdefault(pair.metric.name, []).append(pair)
    return found


def _scale(pairs: Sequence[Pair]) -> Scale:
    """An axis for all of them, with zero on it and a little room at its ends."""
    ends = [0.0]
    for pair in pairs:
        ends += [value for value in pair.primary.differences if value is not None]
        ends += pair.primary.interval or ()
        ends += [-1.5 * (pair.margin or 0.0), 1.5 * (pair.margin or 0.0)]
    low, high = min(ends), max(ends)
    room = 0.04 * (high - low) or 1.0
    metric = pairs[0].metric
    return Scale(low - room, high + room, not metric.larger_is_better, 100.0 if metric.is_share else 1.0)


def _picture(pair: Pair, scale: Scale) -> dict[str, Any]:
    found, metric = pair.primary, pair.metric
    known = [(seed, value) for seed, value in zip(pair.seeds, found.differences, strict=True) if value is not None]
    margin = pair.margin or 0.0
    edges = sorted(scale.place(end) for end in (-margin, margin))
    interval = None if found.interval is None else sorted(scale.place(end) for end in found.interval)
    unit = f" {metric.difference_unit}" if metric.difference_unit else ""
    spread = "" if found.interval is None else f", interval {metric.range(found.interval)}"
    return {
        "alt": f"{pair.method} against {pair.baseline}: mean {metric.change(found.mean)}{unit}{spread};"
        f" one dot for each of {count(len(known), 'seed')}",
        "unit": metric.difference_unit or metric.name.replace("_", " "),
        "zero": scale.place(0.0),
        "strip": {"x": edges[0], "width": round(edges[1] - edges[0], 1)},
        "dots": [
            {"x": scale.place(value), "text": f"seed {seed}: {metric.change(value)}{unit}"} for seed, value in known
        ],
        "interval": interval,
        "mean": scale.place(found.mean or 0.0),
        "marks": scale.marks(),
    }


def _nice(value: float) -> float:
    """The next of 1, 2, 5, 10, … times a power of ten.

    >>> [_nice(value) for value in (0.3, 1.2, 6.0)]
    [0.5, 2.0, 10.0]
    """
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= value * (1 - 1e-9))


def _line(kind: str, start: tuple[float, float], end: tuple[float, float], more: str = "") -> str:
    places = f'x1="{start[0]}" y1="{start[1]}" x2="{end[0]}" y2="{end[1]}"'
    return f'<line class="{kind}" {places} stroke="currentColor" {more}/>'.replace(" />", "/>")
