"""The answer as figures: differences with their intervals, best first, and length against direction."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ecgr.analysis.comparison import Comparison, Pair
from ecgr.analysis.length import LengthCurve
from ecgr.report.figures.panels import COLOURS, short_title
from ecgr.report.page.lengths import baseline_path, length_of, mean_knots, method_interval
from ecgr.report.page.numbers import axis_title
from ecgr.report.sentences import best_first

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TONES = {"better": "#00694d", "worse": "#a03c00", "equivalent": "#005a8d", "not trained yet": "#7b3a86"}
"""The page's colours of verdicts; the others are grey."""
OPEN = "0.35"


def compared_pairs(comparison: Comparison) -> list[Pair]:
    """The pairs that have a difference, best first."""
    return [pair for pair in best_first(comparison.pairs) if pair.primary.mean is not None]


def difference_rows(figure: "Figure", pairs: Sequence[Pair]) -> None:
    """A row for each pair: each seed as a dot, the mean with its interval, the colour by verdict."""
    ax = figure.subplots()
    quantity = pairs[0].metric
    scale = 100.0 if quantity.is_share else 1.0
    if margin := pairs[0].margin:
        ax.axvspan(-scale * margin, scale * margin, color="0.93", linewidth=0, zorder=0)
    ax.axvline(0, color="0.4", linewidth=0.8)
    several = len({pair.setting for pair in pairs}) > 1
    for row, pair in enumerate(pairs):
        _difference(ax, -row, pair, scale)
    names = [f"{pair.setting}, {pair.method}" if several and pair.setting else pair.method for pair in pairs]
    ax.set_yticks([-row for row in range(len(pairs))], [short_title(name) for name in names])
    ax.set_ylim(0.6 - len(pairs), 0.6)
    unit = quantity.difference_unit
    baselines = {pair.baseline_method for pair in pairs}
    against = short_title(baselines.pop()) if len(baselines) == 1 else "the baseline"
    name = quantity.name.replace("_", " ")
    ax.set_xlabel(f"difference to {against}, " + (f"{unit} of {name}" if unit else name))
    if not quantity.larger_is_better:
        ax.invert_xaxis()  # better is to the right
    ax.grid(axis="x")
    ax.set_axisbelow(True)


def length_panel(figure: "Figure", curve: LengthCurve, pairs: Sequence[Pair]) -> None:
    """The baseline's curve over the length of its steps with a band, and each method at its own length."""
    from matplotlib.ticker import FuncFormatter

    ax = figure.subplots()
    quantity, own = pairs[0].metric, baseline_path(curve)
    scale = 100.0 if quantity.is_share else 1.0
    lengths, mean, low, high = (list(column) for column in zip(*curve.band(), strict=True))
    lengths = [length / own for length in lengths]
    ax.fill_between(lengths, _scale(low, scale), _scale(high, scale), color=COLOURS[0], alpha=0.15, linewidth=0)
    ax.plot(lengths, _scale(mean, scale), color=COLOURS[0], label=short_title(curve.baseline_method))
    knots = mean_knots(curve)
    ax.plot([x for x, _ in knots], [scale * y for _, y in knots], "o", color=COLOURS[0], markersize=3)
    for pair in pairs:
        _method(ax, curve, pair, scale)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set(xlabel="length of all server steps, in units of the baseline's", ylabel=axis_title(quantity))
    ax.grid(axis="y")
    ax.set_axisbelow(True)
    ax.margins(x=0.12)
    ax.legend(loc="best")


def _difference(ax: "Axes", row: float, pair: Pair, scale: float) -> None:
    found, colour = pair.primary, TONES.get(pair.verdict, OPEN)
    seeds = [scale * value for value in found.differences if value is not None]
    ax.plot(seeds, [row + 0.16] * len(seeds), "o", markersize=2.5, color=colour, alpha=0.45, markeredgewidth=0)
    if found.interval is not None:
        ax.plot([scale * end for end in found.interval], [row - 0.1] * 2, color=colour, linewidth=1.6)
    ax.plot([scale * (found.mean or 0.0)], [row - 0.1], "D", markersize=4, color=colour)


def _method(ax: "Axes", curve: LengthCurve, pair: Pair, scale: float) -> None:
    value = pair.primary.regulated_mean
    if value is None:
        return
    own = baseline_path(curve)
    _, there, *_ = min(curve.band(), key=lambda row: abs(row[0] / own - length_of(pair)))
    up = 1 if value >= there else -1  # its name stands away from the curve
    colour, place = TONES.get(pair.verdict, OPEN), length_of(pair)
    if span := method_interval(pair):
        ax.plot([place, place], [scale * end for end in span], color=colour, linewidth=1.6)
    ax.plot([place], [scale * value], "D", markersize=4.5, color=colour)
    label: dict[str, Any] = {"xytext": (4, 7 * up), "textcoords": "offset points", "fontsize": 7, "color": colour}
    ax.annotate(short_title(pair.method), (place, scale * value), va="center", **label)


def _scale(values: Sequence[float], scale: float) -> list[float]:
    return [scale * value for value in values]
