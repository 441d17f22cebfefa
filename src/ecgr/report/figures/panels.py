"""The primary metric over rounds in panels, with matplotlib: the mean over seeds, and each seed thin behind it."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ecgr.analysis.arms import Arm, Group
from ecgr.analysis.labels import flat, varying_keys
from ecgr.report.page.drawings import colour_numbers
from ecgr.report.page.numbers import axis_title
from ecgr.report.visible import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#b8a000", "#4d4d4d")
"""Okabe and Ito's, the baseline's first; told apart with any colour vision."""
DASHES = ("--", "-", "-", ":", "-.", (0, (6, 1)))
COMPONENTS = ("data.name", "model.name", "algorithm.name", "regulator.name", "partition.name", "federation.rounds")
"""Keys that make another experiment rather than an ablation of one."""
LONGEST_TITLE = 44

Drawing = tuple[str, Callable[[float], float], Callable[["Figure"], None]]
"""A figure's name, its height for a width in inches, and how to draw it."""


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """A title and the arms to draw under it."""

    label: str
    arms: tuple[Arm, ...]


def ablations(groups: Sequence[Group]) -> dict[str, list[Panel]]:
    """For each parameter that varies a panel for each of its values, other parameters at their most frequent value."""
    arms = [arm for group in groups for arm in group.arms if any(run.rounds for run in arm.runs)]
    configs = {id(arm): flat(arm.runs[0].record.config) for arm in arms}
    keys = [key for key in varying_keys(list(configs.values())) if key not in COMPONENTS]
    usual = {key: Counter(repr(c[key]) for c in configs.values() if key in c).most_common(1)[0][0] for key in keys}

    def fits(arm: Arm, fixed: Sequence[str]) -> bool:
        config = configs[id(arm)]
        return all(repr(config[key]) == usual[key] for key in fixed if key in config)

    found = {}
    for key in keys:
        near = [arm for arm in arms if fits(arm, [other for other in keys if other != key])]
        values = dict.fromkeys(configs[id(arm)][key] for arm in near if key in configs[id(arm)])
        panels = [
            Panel(f"{key} = {value}", tuple(arm for arm in near if configs[id(arm)].get(key, value) == value))
            for value in sorted(values, key=lambda value: (str(type(value)), value))
        ]
        if len(panels) > 1:
            found[key] = panels
    return found


def panel_grid(count: int, width: float) -> tuple[int, int]:
    """Rows and columns of panels that fit a width in inches.

    >>> panel_grid(4, 6.9), panel_grid(4, 3.35), panel_grid(1, 6.9)
    ((1, 4), (2, 2), (1, 1))
    """
    columns = min(count, 4 if width > 5 else 2)
    return math.ceil(count / columns), columns


def whole_rounds(ax: "Axes") -> None:
    """Mark whole rounds only."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))


def curve_panels(figure: "Figure", panels: Sequence[Group | Panel], baseline: str) -> None:
    """Draw one panel for each group of arms, with one legend."""
    rows, columns = panel_grid(len(panels), figure.get_figwidth())
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True)
    colours = colour_numbers(panels, baseline)
    alone = len(panels) == 1
    lines: dict[str, Any] = {}
    for place, (ax, panel) in enumerate(zip(axes.flat, panels, strict=False)):
        for arm in panel.arms:
            line = _curve(ax, arm, colours[arm.name])
            if line is not None:
                lines.setdefault(short_title(arm.method if alone else arm.name), line)
        whole_rounds(ax)
        ax.set_title(short_title(panel.label))
        ax.grid(axis="y", linewidth=0.4, color="0.88")
        ax.set_axisbelow(True)
        if place % columns == 0:
            ax.set_ylabel(axis_title(panel.arms[0].runs[0].summary.metric))
        if place >= len(panels) - columns:
            ax.set_xlabel("round")
            ax.tick_params(labelbottom=True)
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=min(4, len(lines)))


def short_title(text: str) -> str:
    """A label on one line, as it may be shown, cut if it is long."""
    line = " ".join(str(visible(text)).split())
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1] + "…"


def _curve(ax: "Axes", arm: Arm, number: int) -> Any:
    """The mean of the arm's runs, and behind it each of them; None if there is nothing to draw."""
    runs = [run for run in arm.counted if run.rounds]
    if not runs:
        return None
    length = min(len(run.rounds) for run in runs)
    rounds = [row["round"] for row in runs[0].rounds[:length]]
    scale = 100.0 if runs[0].summary.metric.is_share else 1.0
    values = scale * np.array([run.summary.values[:length] for run in runs], dtype=np.float64)
    colour = COLOURS[number if number < len(COLOURS) else 1 + (number - 1) % (len(COLOURS) - 1)]
    marker = "o" if length == 1 else None
    if len(runs) > 1:
        ax.plot(rounds, values.T, color=colour, alpha=0.3, linewidth=0.4, marker=marker)
    dash = DASHES[number % len(DASHES)]
    return ax.plot(rounds, values.mean(axis=0), color=colour, linestyle=dash, marker=marker)[0]
