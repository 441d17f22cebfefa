"""The answer as figures for a paper, with matplotlib: PDF and PNG, one and two columns wide, and its table beside them.

By default the answer (where each method ended, beside its curve with the round of arrival), and the curves of all
settings. On request also a panel for each value of what varies, and which steps were kept. The same records give the
same files.
"""

import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ecgr.analysis.comparison import Comparison
from ecgr.analysis.records import MethodRuns, flat, group_runs, varying_keys
from ecgr.errors import DataError, EnvironmentFault, missing_extra
from ecgr.files import make_directory, write_atomically
from ecgr.report.page_data import arrivals, axis_title, by_client, colour_numbers, kept_array
from ecgr.report.picture import Ends, ends_of, one_line
from ecgr.report.table import to_csv, to_latex
from ecgr.simulation.kept import Kept

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.figure import Figure

WIDTHS = {"one-column": 3.35, "two-column": 6.9}
"""Inches, as in most two-column journals."""
STYLE = Path(__file__).parent / "templates" / "figures.mplstyle"
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#b8a000", "#4d4d4d")
"""Okabe and Ito's, the baseline's first; told apart with any colour vision."""
DASHES = ("--", "-", "-", ":", "-.", (0, (6, 1)))
GREY = "0.35"
KEPT, DAMPED = "#0072b2", "#e7ebee"
COMPONENTS = ("data.name", "model.name", "algorithm.name", "regulator.name", "partition.name", "federation.rounds")
"""Keys that make another experiment rather than an ablation of one."""
LONGEST_NAME, LONGEST_TITLE = 80, 44
MOST_MAPS = 12
"""Clients whose kept steps are drawn."""

Drawing = tuple[str, Callable[["Figure"], None]]
"""A figure's name, and how to draw it on a figure whose width is given; it chooses the height."""
Panel = tuple[str, Sequence[MethodRuns]]
"""A title and what is drawn under it."""


def write_figures(comparison: Comparison, directory: Path, *, everything: bool = False) -> list[Path]:
    """Write the figures and the table of a comparison into ``directory``; the paths written."""
    if not any(run.rounds for run in comparison.runs):
        raise DataError("nothing to draw: no run has finished a round")
    groups = group_runs(comparison.runs, comparison.baseline)
    more = _details(groups, comparison.baseline) if everything else ()
    written = write_drawings(directory, [*_answers(groups, comparison), *more])
    for name, text in (("table.csv", to_csv(comparison)), ("table.tex", to_latex(comparison))):
        written.append(directory / name)
        write_atomically(written[-1], text.encode())
    return written


def write_drawings(directory: Path, drawings: Iterable[Drawing]) -> list[Path]:
    """Write every drawing in both widths and both forms."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("drawing figures", "report") from None
    make_directory(directory)
    written = []
    with mpl.rc_context(fname=STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script that the font lacks
        for name, draw in drawings:
            for columns, width in WIDTHS.items():
                figure = Figure(figsize=(width, width), layout="constrained")
                draw(figure)
                for form in ("pdf", "png"):
                    buffer = BytesIO()
                    metadata = {"CreationDate": None} if form == "pdf" else {"Software": None}
                    figure.savefig(buffer, format=form, metadata=metadata)
                    written.append(directory / f"{name}-{columns}.{form}")
                    write_atomically(written[-1], buffer.getvalue())
    return written


def answer_panels(
    figure: "Figure", ends: Ends, methods: Sequence[MethodRuns], arrived: Mapping[str, tuple[float, float]]
) -> None:
    """Where each method ended; in the same colour its curve, and the round in which it gets to the baseline's end."""
    wide, rows = figure.get_figwidth() > 5, 0.7 + 0.28 * len(ends.marks)
    figure.set_figheight(max(2.2, rows) if wide else 2.2 + rows)
    left, right = figure.subplots(1, 2) if wide else figure.subplots(2, 1, height_ratios=(2, 3))
    colours = colour_numbers((own.method for own in methods), ends.marks[0].label)
    scale = ends.metric.scale
    left.axvline(scale * ends.baseline, color="0.4", linewidth=0.8, linestyle=":")
    for row, mark in enumerate(ends.marks):
        colour = _colour(colours.get(mark.label, -1))  # references are not among the runs
        if mark.interval is not None:
            left.plot([scale * end for end in mark.interval], [-row] * 2, color=colour, linewidth=1.6)
        hollow = {"markerfacecolor": "white"} if mark.kind == "reference" else {}
        place, side = min(max(mark.score, ends.span[0]), ends.span[1]), ends.beyond(mark)
        left.plot([scale * place], [-row], "o><"[side], markersize=4.5, color=colour, clip_on=False, **hollow)
    left.set_xlim(*(scale * end for end in ends.span))
    left.set_yticks(
        [-row for row in range(len(ends.marks))],
        [one_line(ends.label(mark), 32 if wide else 22) for mark in ends.marks],
    )
    left.set_ylim(0.6 - len(ends.marks), 0.6)
    left.set_xlabel(axis_title(ends.metric))
    if not ends.metric.larger_is_better:
        left.invert_xaxis()  # better is to the right
    left.grid(axis="x")
    for own in methods:
        line = _curve(right, own, colours[own.method])
        if line is not None and own.method in arrived:
            number, target = arrived[own.method]
            right.plot([number], [target], "o", markersize=5, color=line.get_color(), mfc="white", zorder=3)
    whole_numbers(right.xaxis)
    right.set(xlabel="round", ylabel=axis_title(ends.metric))
    right.grid(axis="y")


def panel_grid(count: int, width: float) -> tuple[int, int]:
    """Rows and columns of panels that fit a width in inches.

    >>> panel_grid(4, 6.9), panel_grid(4, 3.35), panel_grid(1, 6.9)
    ((1, 4), (2, 2), (1, 1))
    """
    columns = min(count, 4 if width > 5 else 2)
    return math.ceil(count / columns), columns


def whole_numbers(axis: "XAxis | YAxis") -> None:
    """Mark whole rounds and steps only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(4, integer=True))


def curve_panels(figure: "Figure", panels: Sequence[Panel], baseline: str) -> None:
    """One panel for each group of methods, with one legend."""
    colours = colour_numbers((own.method for _, methods in panels for own in methods), baseline)
    lines: dict[str, Any] = {}
    axes = _panels(figure, "round", [axis_title(methods[0].runs[0].summary.metric) for _, methods in panels])
    for ax, (title, methods) in zip(axes, panels, strict=True):
        for own in methods:
            line = _curve(ax, own, colours[own.method])
            if line is not None:
                lines.setdefault(one_line(own.method, LONGEST_TITLE), line)
        ax.set_title(one_line(title, LONGEST_TITLE))
        ax.grid(axis="y")
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=min(4, len(lines)))


def _panels(figure: "Figure", below: str, beside: Sequence[str]) -> list["Axes"]:
    """Axes in rows, named at the edges."""
    rows, columns = panel_grid(len(beside), figure.get_figwidth())
    figure.set_figheight(0.35 + 1.55 * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False, sharex=True).flat)
    for place, (ax, name) in enumerate(zip(axes, beside, strict=False)):
        whole_numbers(ax.xaxis)
        if place % columns == 0:
            ax.set_ylabel(name)
        if place >= len(beside) - columns:
            ax.set_xlabel(below)
            ax.tick_params(labelbottom=True)
    for ax in axes[len(beside) :]:
        ax.set_visible(False)
    return axes[: len(beside)]


def ablations(methods: Sequence[MethodRuns]) -> dict[str, list[Panel]]:
    """For each parameter that varies a panel for each of its values, other parameters at their most frequent value."""
    drawn = [(own, flat(own.runs[0].record.config)) for own in methods if any(run.rounds for run in own.runs)]
    configs = [config for _, config in drawn]
    keys = [key for key in varying_keys(configs) if key not in COMPONENTS]
    usual = {key: Counter(repr(c[key]) for c in configs if key in c).most_common(1)[0][0] for key in keys}
    found: dict[str, list[Panel]] = {}
    for key in keys:
        fixed = {other: value for other, value in usual.items() if other != key}
        near = [(own, c) for own, c in drawn if all(repr(c[o]) == value for o, value in fixed.items() if o in c)]
        values = {repr(config[key]): config[key] for _, config in near if key in config}
        if len(values) > 1:
            found[key] = [
                (f"{key} = {value}", [own for own, config in near if config.get(key, value) == value])
                for value in sorted(values.values(), key=lambda value: (str(type(value)), value))
            ]
    return found


def kept_maps(figure: "Figure", entries: Sequence[Kept]) -> None:
    """A map for each client, of many for those with the most steps: columns are steps, rows rounds, filled was kept."""
    from matplotlib.colors import ListedColormap

    clients = by_client(entries)
    shown = sorted(sorted(clients, key=lambda client: -max(entry.steps for entry in clients[client]))[:MOST_MAPS])
    first, last = min(entry.round for entry in entries), max(entry.round for entry in entries)
    width = max(entry.steps for client in shown for entry in clients[client])
    for ax, client in zip(_panels(figure, "step", ["round"] * len(shown)), shown, strict=True):
        rows = np.full((last - first + 1, width), np.nan)  # white where there was no step
        own = kept_array(clients[client])
        rows[[entry.round - first for entry in clients[client]], : own.shape[1]] = own
        ax.imshow(
            rows,
            aspect="auto",
            origin="lower",
            interpolation="nearest",
            cmap=ListedColormap([DAMPED, KEPT]),
            vmin=0,
            vmax=1,
            extent=(0.5, width + 0.5, first - 0.5, last + 0.5),
        )
        whole_numbers(ax.yaxis)
        ax.set_title(f"client {client}")


def draw_partition(counts: NDArray[np.int64], classes: Sequence[str], path: Path, title: str) -> None:
    """Write a heat map of samples by client and class, with each client's total beside it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("a picture of a partition", "report") from None
    clients, width = counts.shape
    size = max(6, 3.5 + 0.45 * min(width, 30)), max(2.8, 1.2 + 0.3 * min(clients, 60))
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    grid, bars = figure.subplots(1, 2, width_ratios=(4, 1), sharey=True)
    drawn = np.ma.masked_equal(counts, 0)
    image = grid.imshow(drawn, aspect="auto", cmap="viridis_r", interpolation="nearest")
    figure.colorbar(image, ax=[grid, bars], label="samples of the class")
    grid.set(xlabel="class", ylabel="client", title=title)
    if width <= 30:
        grid.set_xticks(range(width), classes, rotation=0 if all(len(c) < 3 for c in classes) else 60)
    if clients <= 60:
        grid.set_yticks(range(clients))
    bars.barh(range(clients), counts.sum(axis=1), color="#4477aa")
    bars.set(xlabel="samples a client")
    bars.tick_params(labelleft=False)
    make_directory(path.parent)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise EnvironmentFault(f"cannot write {path}: {error}") from None


def _answers(groups: Mapping[str, Sequence[MethodRuns]], comparison: Comparison) -> Iterator[Drawing]:
    found = ends_of(comparison)
    for ends in found:
        name = "answer" if len(found) == 1 else f"answer-{_slug(ends.setting)}"
        arrived = arrivals(comparison, ends.setting)
        draw = partial(answer_panels, ends=ends, methods=groups[ends.setting], arrived=arrived)
        yield name, draw
    shown = [panel for panel in groups.items() if any(run.rounds for own in panel[1] for run in own.runs)]
    yield "curves", partial(curve_panels, panels=shown, baseline=comparison.baseline)


def _details(groups: Mapping[str, Sequence[MethodRuns]], baseline: str) -> Iterator[Drawing]:
    """A panel for each value of what varies, and which steps were kept."""
    methods = [own for each in groups.values() for own in each]
    for key, values in ablations(methods).items():
        yield f"ablation-{_slug(key)}", partial(curve_panels, panels=values, baseline=baseline)
    for own in methods:
        entries = next((found for run in own.counted if (found := run.record.kept())), None)
        if entries:
            yield f"kept-{_slug(own.label)}", partial(kept_maps, entries=entries)


def _slug(text: str) -> str:
    """A file name from a label; a long one is cut and ends with a hash, so that no two labels share a name.

    >>> _slug("data.name=digits, fedavg, ecgr(beta=0.2)"), _slug(100 * "x")[-12:]
    ('data.name-digits-fedavg-ecgr-beta-0.2', 'xxx-5e0e5d8f')
    """
    name = re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.") or "run"
    mark = crc32(text.encode(errors="backslashreplace"))
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{mark:08x}"


def _colour(number: int) -> str:
    """The baseline has the first, references are grey."""
    return GREY if number < 0 else COLOURS[0 if number == 0 else 1 + (number - 1) % (len(COLOURS) - 1)]


def _curve(ax: "Axes", own: MethodRuns, number: int) -> Any:
    """The mean of a method's runs in a band that holds the middle half; None if there is nothing to draw."""
    runs = [run for run in own.counted if run.rounds]
    if not runs:
        return None
    length = min(len(run.rounds) for run in runs)
    rounds = [row["round"] for row in runs[0].rounds[:length]]
    values = runs[0].summary.metric.scale * np.array([run.summary.values[:length] for run in runs], dtype=np.float64)
    colour = _colour(number)
    marker = "o" if length == 1 else None
    if len(runs) > 1:
        ax.fill_between(rounds, *np.nanquantile(values, (0.25, 0.75), axis=0), color=colour, alpha=0.13, linewidth=0)
    dash = DASHES[number % len(DASHES)]
    return ax.plot(rounds, values.mean(axis=0), color=colour, linestyle=dash, marker=marker)[0]
