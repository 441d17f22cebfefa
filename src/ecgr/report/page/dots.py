"""The small picture of a pair as an SVG: a dot a seed, the interval, the mean; on the page and in a notebook.

Its colours are presentation attributes, which any style sheet overrides: the page has one, a notebook needs none.
"""

from collections.abc import Mapping
from html import escape
from typing import Any

SIZE = {"width": 340, "height": 62, "left": 14, "right": 326, "dots": 14, "bar": 30, "axis": 44}
"""Of a picture; dots, bar and axis are heights from the top."""


def to_svg(picture: Mapping[str, Any]) -> str:
    """The picture that `ecgr.report.page.answers` has worked out; every text in it is escaped."""
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


def _line(kind: str, start: tuple[float, float], end: tuple[float, float], more: str = "") -> str:
    places = f'x1="{start[0]}" y1="{start[1]}" x2="{end[0]}" y2="{end[1]}"'
    return f'<line class="{kind}" {places} stroke="currentColor" {more}/>'.replace(" />", "/>")
