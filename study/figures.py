"""Differences with their intervals, and the leaderboard; the other pictures are kept as they were drawn at 65bc0ef."""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from study.pages import PROBLEMS, ROOT, measured_problems, pairs

IMAGES = ROOT / "docs" / "results" / "images"
DRAWN = {"differences": "earlier/main", "controls": "earlier/controls", "ablations": "earlier/ablations"}
BLUE, DARK, GREEN = "#0072b2", "#404040", "#009e73"
WIDEST = 6.0
"""Points on the axis: one wide interval must not squeeze all others; an arrow shows a mean outside."""
NO_FACTOR, LOWEST = 0.4, 8.0
"""Where a method without a factor of speed is drawn; how many points below FedAvg the axis of the leaderboard ends."""


def rebuild() -> None:
    """Draw every figure."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    draw_leaders(IMAGES / "leaders.png")
    for name, data in DRAWN.items():
        draw([pair for pair in pairs(data) if pair["interval"]], IMAGES / f"{name}.png", claim=name == "differences")


def draw_leaders(path: Path) -> None:
    """End against speed, a panel for each problem of the leaderboard, as a PNG with the same bytes each time."""
    there = measured_problems()
    if not there:
        return
    methods = dict.fromkeys(pair["method"] for found in there.values() for pair in found["pairs"])
    colours = dict(zip(methods, mpl.colormaps["tab10"].colors, strict=False))  # type: ignore[attr-defined]
    columns = min(4, len(there))
    lines = -(-len(there) // columns)
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(2.4 * columns, 2.3 * lines + 0.6), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False).ravel()
        for ax, (name, found) in zip(panels, there.items(), strict=False):
            scale = 100 if found["metric"]["name"] == "accuracy" else 1
            ax.axhline(0, color="0.6", linewidth=0.8)
            ax.axvline(1, color="0.6", linewidth=0.8)
            for pair in found["pairs"]:
                if pair["difference"] is None:
                    continue
                mean, (low, high) = (
                    scale * pair["difference"]["mean"],
                    [scale * b for b in pair["difference"]["interval"]],
                )
                speed = pair["speed"] if pair["speed"] and pair["speed"]["factor"] else None
                x = speed["factor"] if speed else NO_FACTOR * 1.035 ** (list(methods).index(pair["method"]) - 5)
                own = {"color": colours[pair["method"]], "linewidth": 1.0}
                ax.plot([x, x], [max(low, -LOWEST), high], **own)
                if speed:
                    ax.plot(speed["interval"], [max(mean, -LOWEST)] * 2, **own)
                mark = "v" if mean < -LOWEST else "o" if pair["levelled_off"] else "s"
                ax.plot(
                    [x],
                    [max(mean, -LOWEST)],
                    mark,
                    color=own["color"],
                    markersize=4,
                    fillstyle="full" if speed else "none",
                )
            ax.axvspan(NO_FACTOR / 1.3, NO_FACTOR * 1.3, color="0.93", linewidth=0, zorder=0)
            ax.set_xlim(NO_FACTOR / 1.4, 8)
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            ax.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if value in (2, 3, 5) else "")
            ax.set_title(PROBLEMS[name][0].replace(", ", "\n", 1), fontsize=8)
            ax.set_xlabel("times sooner than FedAvg")
            ax.set_ylabel("end, points" if scale == 100 else f"end, {found['metric']['name']}")
        for ax in panels[len(there) :]:
            ax.remove()
        handles = [Line2D([], [], marker="o", linestyle="", color=colours[m], label=m) for m in methods if m in colours]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)), frameon=False)
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    path.write_bytes(buffer.getvalue())


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
