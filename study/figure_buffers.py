"""BatchNorm's buffers over rounds, with matplotlib: from plain data alone.

One column for each setting, in the order of how far its factor fell; in it accuracy, smallest variance and factor, a
line for each treatment of the buffers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ecgr.report.figures.panels import COLOURS, whole_rounds
from study.buffers import DIVERGES
from study.labels import Entry, titles, wrap_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TREATMENT = "run.buffers"
DASHES = ((0, (4, 1.5)), "-", ":")
LINEAR = 0.01
"""Variances nearer to zero than this are drawn on a linear scale, so that the axis can pass through zero."""
MOST_DECADES = 4
"""Marks beside zero on the axis of variances, about."""

Limits = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of panels: which series, its name, its limits from the least and the largest value, its marks."""

    key: str
    name: str
    limits: Callable[[float, float], Limits]
    marks: Callable[["Axes", Limits], None]
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Column:
    """The runs of one setting."""

    title: str
    entries: tuple[Entry, ...]

    @property
    def treatments(self) -> set[str]:
        """How their buffers were treated."""
        return {_treatment(entry) for entry in self.entries}

    @property
    def lowest(self) -> float:
        """The smallest factor of any round."""
        return min(_present(self.entries, "factor"), default=0.0)


def columns_of(entries: Sequence[Entry]) -> list[Column]:
    """The settings worth a column: buffers were treated in several ways, or were multiplied by less than zero.

    Averaged buffers alone never are, so that a figure of them would show nothing.
    """
    named = list(zip(titles(entries, without={TREATMENT}), entries, strict=True))
    columns = [Column(title, tuple(e for t, e in named if t == title)) for title in dict.fromkeys(t for t, _ in named)]
    shown = (column for column in columns if len(column.treatments) > 1 or column.lowest < 0)
    return sorted(shown, key=lambda column: (column.lowest, column.title))


def buffers_height(width: float, columns: Sequence[Column]) -> float:
    """Inches that the columns need, wrapped to the width."""
    return 0.4 + 3.4 * math.ceil(len(columns) / _beside(len(columns), width))


def buffers_panels(figure: "Figure", columns: Sequence[Column]) -> None:
    """Draw the columns, wrapped where they do not fit beside each other."""
    beside = _beside(len(columns), figure.get_figwidth())
    blocks = math.ceil(len(columns) / beside)
    axes = figure.subplots(blocks * len(ROWS), beside, squeeze=False)
    treatments = sorted({name for column in columns for name in column.treatments})
    lines: dict[str, Any] = {}
    for number, row in enumerate(ROWS):
        values = [row.scale * value for column in columns for value in _present(column.entries, row.key)]
        limits = row.limits(min(values, default=0.0), max(values, default=0.0))
        for place, column in enumerate(columns):
            ax = axes[place // beside * len(ROWS) + number, place % beside]
            whole_rounds(ax)
            row.marks(ax, limits)
            for entry in column.entries:
                index = treatments.index(_treatment(entry))
                style: dict[str, Any] = {
                    "color": COLOURS[index % len(COLOURS)],
                    "linestyle": DASHES[index % len(DASHES)],
                }
                series = row.scale * np.array(entry[row.key], dtype=np.float64)
                (line,) = ax.plot(entry["rounds"], series, linewidth=1.0, zorder=3 - 0.1 * index, **style)
                lines[f"buffers: {_treatment(entry)}"] = line
            ax.set_ylim(limits)
            first, last = place % beside == 0, number == len(ROWS) - 1
            ax.tick_params(labelleft=first, labelbottom=last)
            ax.set(ylabel=row.name if first else "", xlabel="round" if last else "")
            if number == 0:
                ax.set_title(wrap_title(column.title, figure.get_figwidth() / beside))
    for ax in axes[-len(ROWS) :, len(columns) - (blocks - 1) * beside :].flat:
        ax.set_visible(False)
    figure.legend([lines[name] for name in sorted(lines)], sorted(lines), loc="outside lower center", ncols=len(lines))
    figure.align_ylabels()


def decades(low: float, high: float) -> list[float]:
    """Zero and a few powers of ten to each side, as far as the values go.

    >>> decades(-0.2, 0.05), decades(-30.0, 0.5), decades(-1e6, 2e6)
    ([-0.1, -0.01, 0.0, 0.01], [-10.0, -0.1, 0.0, 0.1], [-10000.0, -0.1, 0.0, 0.1, 10000.0])
    """
    first = round(math.log10(LINEAR))
    up, down = (math.floor(math.log10(max(reach, LINEAR))) for reach in (high, -low))
    stride = math.ceil((up + down - 2 * first + 2) / MOST_DECADES)
    first += stride > 1  # the marks next to zero would touch its own
    return sorted(
        [*(-(10.0**power) for power in range(first, down + 1, stride)), 0.0]
        + [10.0**power for power in range(first, up + 1, stride)]
    )


def _accuracy_limits(low: float, high: float) -> Limits:
    return 0.0, max(1.05 * high, 1.0)


def _variance_limits(low: float, high: float) -> Limits:
    return min(1.6 * low, -LINEAR), max(1.6 * high, LINEAR)


def _factor_limits(low: float, high: float) -> Limits:
    return min(low, DIVERGES) - 0.25, max(high, 0.0) + 0.25


def _grid(ax: "Axes", limits: Limits) -> None:
    ax.grid(axis="y", linewidth=0.4, color="0.88")
    ax.set_axisbelow(True)


def _through_zero(ax: "Axes", limits: Limits) -> None:
    from matplotlib.ticker import Formatter, FuncFormatter, NullLocator

    ax.set_yscale("symlog", linthresh=LINEAR, linscale=0.5)
    ax.set_yticks(decades(*limits))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: Formatter.fix_minus(f"{value:g}")))
    ax.axhspan(limits[0], 0, color="0.94", linewidth=0, zorder=0)
    ax.axhline(0, color="0.6", linewidth=0.7, zorder=0)
    _say(ax, "negative")


def _diverging(ax: "Axes", limits: Limits) -> None:
    ax.axhspan(limits[0], DIVERGES, color="0.94", linewidth=0, zorder=0)
    ax.axhline(DIVERGES, color="0.6", linewidth=0.7, zorder=0)
    _say(ax, "diverges")


def _say(ax: "Axes", text: str) -> None:
    """In the lower left corner, where curves that fall have not arrived yet."""
    ax.text(0.03, 0.05, text, transform=ax.transAxes, fontsize=6.5, color="0.35")


ROWS = (
    Row("accuracy", "test\naccuracy, %", _accuracy_limits, _grid, scale=100.0),
    Row("smallest_variance", "smallest\nvariance", _variance_limits, _through_zero),
    Row("factor", "factor", _factor_limits, _diverging),
)


def _beside(count: int, width: float) -> int:
    return min(count, 4 if width > 5 else 3)


def _treatment(entry: Entry) -> str:
    return str(entry["config"].get(TREATMENT, "average"))


def _present(entries: Sequence[Entry], key: str) -> list[float]:
    return [value for entry in entries for value in entry[key] if value is not None]
