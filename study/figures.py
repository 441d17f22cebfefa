"""Differences with their intervals, a row for each pair; the other pictures are kept as they were drawn at 65bc0ef."""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from study.pages import ROOT, pairs

IMAGES = ROOT / "docs" / "results" / "images"
DRAWN = {"differences": "earlier/main", "controls": "earlier/controls", "ablations": "earlier/ablations"}
BLUE, DARK, GREEN = "#0072b2", "#404040", "#009e73"
WIDEST = 6.0
"""Points on the axis: one wide interval must not squeeze all others; an arrow shows a mean outside."""


def rebuild() -> None:
    """Draw every figure."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, data in DRAWN.items():
        draw([pair for pair in pairs(data) if pair["interval"]], IMAGES / f"{name}.png", claim=name == "differences")


def draw(rows: list[Any], path: Path, claim: bool) -> None:
    """One row for each pair, grouped by problem, as a PNG with the same bytes each time."""
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(6.4, 0.9 + 0.22 * len(rows)), layout="constrained")
        ax = figure.subplots()
        if claim:
            ax.axvspan(1, 2, color=GREEN, alpha=0.13, linewidth=0)
        ax.axvline(0, color="0.4", linewidth=0.8)
        for at, pair in enumerate(rows):
            _row(ax, -at, pair)
        ax.set_yticks([-at for at in range(len(rows))], [_label(pair) for pair in rows])
        ends = [end for pair in rows for end in (*pair["interval"], *_single(pair))]
        ax.set_xlim(max(min(ends) - 0.2, -WIDEST), min(max(ends) + 0.2, WIDEST))
        ax.set_xlabel("difference to plain training, points")
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    path.write_bytes(buffer.getvalue())


def _label(pair: Any) -> str:
    return f"{pair['problem']}: {pair['method']} ({len(pair['seeds'])} seeds)"


def _single(pair: Any) -> list[float]:
    return [own - plain for plain, own in zip(pair["baseline_scores"], pair["method_scores"], strict=True)]


def _row(ax: Axes, at: float, pair: Any) -> None:
    low, high = pair["interval"]
    mean, colour = pair["difference"], BLUE if low > 0 or high < 0 else DARK
    single = _single(pair)
    ax.plot([low, high], [at, at], color=colour, linewidth=1.4)
    ax.plot(single, [at - 0.25] * len(single), ".", color="0.55", markersize=3)
    if abs(mean) > WIDEST:
        ax.plot([WIDEST if mean > 0 else -WIDEST], [at], ">" if mean > 0 else "<", color=colour, clip_on=False)
    else:
        ax.plot([mean], [at], "s", color=colour, markersize=4)
