"""Every method on every problem of the leaderboard: differences to the tuned FedAvg as a map, and a profile."""

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ecgr.analysis.comparison import Pair
from study.boards import Board
from study.figures import Draw
from study.methods_page import BASELINE, ranked, scale, shortfalls
from study.problems import METHODS, TITLES

MOST = 8.0
"""Points at which the colour is full."""
FARTHEST = 15.0
"""Points below the best on the profile's axis; an arrow stands for what lies beyond."""
MARKERS = "osD^vPX*<>hp"


HEIGHT = 1.6 + 0.28 * len(METHODS)
"""Inches: a row a method, and room for the problems' names."""


def method_map(boards: Sequence[Board]) -> Draw:
    """Rows: methods; columns: problems; framed where the verdict is better or worse."""
    methods = [method for method in METHODS if method != BASELINE]
    found = [{pair.method: pair for pair in board.comparison.pairs} for board in boards]
    values = np.array([[_points(own.get(method)) for own in found] for method in methods], dtype=float)

    def draw(figure: Figure) -> None:
        ax = figure.subplots()
        ax.imshow(np.ma.masked_invalid(values), cmap="RdBu", vmin=-MOST, vmax=MOST, aspect="auto")
        for row, method in enumerate(methods):
            for column, own in enumerate(found):
                pair = own.get(method)
                if pair is None or np.isnan(values[row, column]):
                    said = "not run" if pair is None else pair.verdict
                    ax.text(column, row, said, ha="center", va="center", color="0.5")
                    continue
                colour = "white" if abs(values[row, column]) > 0.7 * MOST else "black"
                ax.text(column, row, f"{values[row, column]:+.1f}", ha="center", va="center", color=colour)
                if pair.verdict in ("better", "worse"):
                    ax.add_patch(Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, fill=False, linewidth=1.2))
        ax.set_yticks(range(len(methods)), [TITLES[method] for method in methods])
        ax.set_xticks(
            range(len(boards)), [board.title.replace(", ", ",\n") for board in boards], rotation=30, ha="right"
        )

    return draw


def profile(boards: Sequence[Board]) -> Draw:
    """A row for each method, the safest choice first: how far it ended below the best of each problem."""
    found = {board.title: shortfalls(board) for board in boards}
    methods = ranked(boards)

    def draw(figure: Figure) -> None:
        ax = figure.subplots()
        for problem, (title, own) in enumerate(found.items()):
            rows = [(min(own[name], FARTHEST), row) for row, name in enumerate(methods) if name in own]
            marker = MARKERS[problem % len(MARKERS)]
            ax.plot(*zip(*rows, strict=True), marker, markersize=5, alpha=0.75, label=title, clip_on=False)
        for row, name in enumerate(methods):
            values = [own[name] for own in found.values() if name in own]
            if not values:
                ax.text(FARTHEST / 2, row, "diverged", ha="center", va="center", color="0.4")
                continue
            ax.plot([min(fmean(values), FARTHEST)] * 2, [row - 0.35, row + 0.35], color="black", linewidth=2)
            if max(values) > FARTHEST:
                ax.text(FARTHEST + 0.3, row, f"→ {max(values):.0f}", va="center", color="0.4")
        ax.set_yticks(range(len(methods)), [TITLES[name] for name in methods])
        ax.set_ylim(len(methods) - 0.4, -0.6)
        ax.set_xlim(-0.3, FARTHEST)
        ax.set_xlabel("points below the best method of a problem; the bar is the mean over problems")
        ax.grid(axis="x")
        ax.set_axisbelow(True)
        figure.legend(loc="outside lower center", ncols=2)

    return draw


def _points(pair: Pair | None) -> float:
    if pair is None or pair.primary.mean is None:
        return float("nan")
    return scale(pair.metric) * pair.metric.gain(pair.primary.mean)
