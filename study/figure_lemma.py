"""The figure of docs/results/theory.md: the lemma's counterexample, and where the repaired theorem holds."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ecgr.report.figures.panels import COLOURS

Array = NDArray[np.float64]
SIZE = (6.9, 2.9)
"""Inches."""
WORSE, BETTER = COLOURS[0], COLOURS[1]
BORDERS = {"60°": ("o", 1 / 3), "90°": ("s", 1 / 2), "120°": ("^", 2 / 3)}
"""Angles between a and b, as shares of 180°, at which the border is looked for, and their marks."""


def alignment(beta: Array) -> Array:
    """Align(x + beta y, z) of the counterexample x = (1, 0), y = (0, 1), z = (1, 0.9).

    >>> alignment(np.array([0.0, 0.9, 1.0])).round(4).tolist()
    [0.7433, 1.0, 0.9986]
    """
    found: Array = (1 + 0.9 * beta) / (np.sqrt(1 + beta**2) * np.sqrt(1.81))
    return found


def worst_case(beta: Array, ratio: Array, angle: float, count: int = 61) -> Array:
    """The smallest cos(v, mu) - cos(c, mu) over ``count`` directions mu that the repaired theorem admits.

    ``ratio`` is |a|^2 / |b|^2 and ``angle`` lies between a and b. The first axis is their bisector, the second points
    to a's side. A mu in this plane is admitted from the bisector, where Align(a, mu) = Align(b, mu), to the
    perpendicular of c, where <c, mu> = 0; both ends are among the directions tried.

    >>> worst_case(np.array([0.2, 0.25, 0.5]), np.array([0.25, 0.25, 0.25]), np.pi / 2).round(3).tolist()
    [-0.03, 0.0, 0.051]
    """
    a = np.sqrt(ratio)  # |b| = 1
    towards = np.cos(angle / 2), np.sin(angle / 2)
    turn_v = np.arctan2((a - beta) * towards[1], (a + beta) * towards[0])
    turn_c = np.arctan2((a - 1) * towards[1], (a + 1) * towards[0])
    last = turn_c + np.pi / 2
    turns = np.linspace(0, 1, count).reshape(-1, *[1] * last.ndim) * last
    found: Array = (np.cos(turns - turn_v) - np.cos(turns - turn_c)).min(axis=0)
    return found


def border(ratio: float, angle: float) -> float:
    """The smallest beta, to three digits, from which on the worst case is none.

    >>> border(0.25, np.pi / 3)
    0.25
    """
    beta = np.linspace(0, 1, 1001)
    return float(beta[np.argmax(worst_case(beta, np.full_like(beta, ratio), angle) >= -1e-12)])


def draw(figure: Figure) -> None:
    """Draw both panels."""
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.25])
    _counterexample(left)
    _repair(figure, right)


def _counterexample(ax: Axes) -> None:
    """The alignment against beta."""
    beta = np.linspace(0, 1, 201)
    grows = beta <= 0.9
    ax.plot(beta[grows], alignment(beta[grows]), color=WORSE)
    ax.plot(beta[~grows], alignment(beta[~grows]), color=BETTER)
    ax.plot(0.9, 1.0, "o", color="black", markersize=4)
    ax.annotate(
        "largest at β = 0.9",
        (0.9, 1.0),
        (0.88, 1.035),
        ha="right",
        va="center",
        arrowprops={"arrowstyle": "-", "linewidth": 0.6, "shrinkB": 3},
    )
    ax.text(0.42, 0.86, "grows: damping y\nloses alignment", color=WORSE)
    ax.text(0.42, 0.75, "x = (1, 0), y = (0, 1)\nz = (1, 0.9)", color="0.35", fontsize=7)
    ax.axhline(float(alignment(np.array(1.0))), color="0.5", linewidth=0.6, linestyle=":")
    ax.text(0.02, 0.99, "plain sum, β = 1", color="0.35", va="top", fontsize=7)
    ax.set(
        xlim=(0, 1.01),
        ylim=(0.72, 1.06),
        xlabel="β",
        ylabel="Align(x + βy, z)",
        title="The lemma says: decreasing on [0, 1]",
    )


def _repair(figure: Figure, ax: Axes) -> None:
    """The worst case over beta and |a|^2 / |b|^2, and the border between its signs."""
    beta, ratio = np.meshgrid(np.linspace(0, 1, 241), np.linspace(0.0025, 1.2, 241))
    colours = LinearSegmentedColormap.from_list("worst", [WORSE, "white", BETTER])
    levels = np.linspace(-0.3, 0.3, 13)
    filled = ax.contourf(beta, ratio, worst_case(beta, ratio, np.pi / 2), levels=levels, cmap=colours)
    bar = figure.colorbar(filled, ax=ax, ticks=[-0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3])
    bar.set_label("worst cos(v, µ) - cos(c, µ)")
    bar.outline.set_visible(False)
    ax.plot([0, 1], [0, 1], color="black")
    for number, (name, (mark, share)) in enumerate(BORDERS.items()):
        places = [0.1 + 0.08 * number + 0.24 * step for step in range(4)]
        found = [border(place, share * np.pi) for place in places if place < 1]
        ax.plot(found, places[: len(found)], mark, color="black", markersize=3.5, label=name, markerfacecolor="white")
    ax.text(0.30, 0.80, "can increase\nthe error", ha="center", va="center")
    ax.text(0.73, 0.15, "always reduces\nthe error", ha="center", va="center")
    ax.text(0.5, 1.1, "|a| > |b|: no β < 1 is safe", ha="center", va="center", fontsize=7)
    ax.axhline(1, color="black", linewidth=0.6, linestyle=":")
    ax.legend(title="border found,\nby angle of a, b", title_fontsize=7, loc="lower right", bbox_to_anchor=(1.02, 0.22))
    ax.set(xlim=(0, 1), ylim=(0, 1.2), xlabel="β", ylabel="|a|² / |b|²", title="The repair: β ≥ |a|² / |b|²")
