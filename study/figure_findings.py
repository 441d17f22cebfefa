"""The findings' figures, with matplotlib: from plain data alone, so that a file of it is enough to draw them again."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ecgr.analysis.collect import find_runs
from ecgr.files import write_atomically
from ecgr.report.figures.panels import COLOURS, Drawing, panel_grid, whole_rounds
from ecgr.report.figures.write import write_drawings
from study.figure_buffers import buffers_height, buffers_panels, columns_of
from study.findings import Findings, findings, to_text
from study.labels import Entry, sort_entries, titles, wrap_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REGULATED, OTHER = COLOURS[1], COLOURS[0]
PALETTE = (REGULATED, OTHER, *COLOURS[2:])
DASHES = ("-", (0, (4, 1.5)), ":", "-.")
CHANCE = "0.88"
NOISY = 20
"""Rounds from which on the theory's curves are running means: shares of ten clients jump by tenths."""

Series = Callable[[Entry], NDArray[np.float64]]


def write_findings(runs: Path, directory: Path) -> list[Path]:
    """``findings.json`` of the runs in or below ``runs``, and its figures; the paths written."""
    found = findings(find_runs([runs]))
    written = write_drawings(directory, finding_figures(found))
    write_atomically(directory / "findings.json", to_text(found).encode())
    return [*written, directory / "findings.json"]


def finding_figures(found: Findings) -> Iterator[Drawing]:
    """The figures that there is data for."""
    if entries := sort_entries(found.get("positions", ())):
        panels = len(set(titles(entries)))
        yield "positions", lambda width: 0.45 + 1.5 * panel_grid(panels, width)[0], partial(positions, entries=entries)
    if entries := sort_entries(found.get("theory", ())):
        yield "theory", lambda width: 4.3 if width > 5 else 5.9, partial(theory, entries=entries)
    if columns := columns_of(found.get("buffers", ())):
        yield "buffers", partial(buffers_height, columns=columns), partial(buffers_panels, columns=columns)


def positions(figure: "Figure", entries: Sequence[Entry]) -> None:
    """A panel for each setting: the mean position of kept steps over rounds, a line for each seed, and chance."""
    names = titles(entries)
    panels = list(dict.fromkeys(names))
    rows, columns = panel_grid(len(panels), figure.get_figwidth())
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
    shown: dict[str, Any] = {}
    for place, (ax, panel) in enumerate(zip(axes.flat, panels, strict=False)):
        for entry in (entry for entry, name in zip(entries, names, strict=True) if name == panel):
            rounds, low, high = (entry[key] for key in ("rounds", "chance_low", "chance_high"))
            shown["95 % of random choices"] = ax.fill_between(rounds, low, high, color=CHANCE, linewidth=0)
            marker = "o" if len(rounds) == 1 else None
            (shown["kept steps"],) = ax.plot(rounds, entry["mean"], color=REGULATED, linewidth=0.9, marker=marker)
        whole_rounds(ax)
        ax.set(ylim=(0, 1), yticks=(0, 0.5, 1), title=wrap_title(panel, figure.get_figwidth() / columns))
        if place % columns == 0:
            ax.set_ylabel("mean position")
        if place >= len(panels) - columns:
            ax.set_xlabel("round")
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=2)


def theory(figure: "Figure", entries: Sequence[Entry]) -> None:
    """What held and how large it was, round by round; colours are data sets where there are several, else runs.

    Runs of different lengths are drawn to one: learning rates follow the part of the run that is done.
    """
    wide = figure.get_figwidth() > 5
    axes = figure.subplots(*((2, 3) if wide else (3, 2)), sharex=True)
    panels: tuple[tuple[str, Series, Callable[[Axes], None]], ...] = (
        ("assumption held,\nshare of clients", _series("assumption"), _shares),
        ("conclusion held,\nshare of clients", _series("conclusion"), _shares),
        ("|a|² / |b|²,\nmedian of clients", _series("squared_ratio"), partial(_against_beta, entries=entries)),
        ("length of the average,\n|G'| / |G|", _series("norm_ratio"), partial(_level, at=1.0)),
        ("plain average,\ncos(G, mu)", _series("cos_before"), partial(_level, at=0.0)),
        ("gain in cosine,\ncos(G', mu) - cos(G, mu)", _gain, partial(_level, at=0.0)),
    )
    styles = _styles(entries)
    planned = [int(entry["config"].get("federation.rounds", entry["series"]["rounds"][-1])) for entry in entries]
    windows = [2 * max(1, count // 40) + 1 if count >= NOISY else 1 for count in planned]
    alike = len(set(planned)) == 1
    lines: dict[str, Any] = {}
    for ax, (title, series, prepare) in zip(axes.flat, panels, strict=True):
        if alike:
            whole_rounds(ax)
        prepare(ax)
        ax.set_title(title)
        for entry, (name, style), count, window in zip(entries, styles, planned, windows, strict=True):
            rounds = np.array(entry["series"]["rounds"]) / (1 if alike else count)
            marker = "o" if len(rounds) == 1 else None
            (line,) = ax.plot(rounds, running_mean(series(entry), window), linewidth=1.0, marker=marker, **style)
            lines.setdefault(name, line)
    for ax in axes[-1]:
        means = f" (running means of {' or '.join(map(str, sorted(set(windows))))})" if max(windows) > 1 else ""
        ax.set_xlabel(f"{'round' if alike else 'part of the run'}{means}")
    columns = min(len(lines), 4 if wide else 2)
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=columns)


def running_mean(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Means over ``window`` rounds around each; fewer at the ends, and where values are missing.

    >>> running_mean(np.array([1.0, 2.0, 6.0, np.nan]), 3)
    array([1.5, 3. , 4. , 6. ])
    """
    there = ~np.isnan(values)
    ones = np.ones(window)
    sums, counts = (np.convolve(each, ones, mode="full") for each in (np.where(there, values, 0.0), there))
    half = window // 2
    inner = slice(half, half + len(values))
    means = np.full(len(values), np.nan)
    np.divide(sums[inner], counts[inner], out=means, where=counts[inner] > 0.5)
    return means


def _series(key: str) -> Series:
    return lambda entry: np.array(entry["series"][key], dtype=np.float64)


def _gain(entry: Entry) -> NDArray[np.float64]:
    return _series("cos_after")(entry) - _series("cos_before")(entry)


def _styles(entries: Sequence[Entry]) -> list[tuple[str, dict[str, Any]]]:
    """Each entry's title and how its lines look: colours by data set, dashes within one; or colours if there is one."""
    names = titles(entries)
    data = [str(entry["config"].get("data.name")) for entry in entries]
    sets = list(dict.fromkeys(data))
    rest = [name.removeprefix(own) for name, own in zip(names, data, strict=True)]
    kinds = list(dict.fromkeys(rest))
    if len(sets) == 1:
        places = [(kinds.index(each), kinds.index(each) // len(PALETTE)) for each in rest]
    else:
        places = [(sets.index(own), kinds.index(each)) for own, each in zip(data, rest, strict=True)]
    return [
        (name, {"color": PALETTE[colour % len(PALETTE)], "linestyle": DASHES[dash % len(DASHES)]})
        for name, (colour, dash) in zip(names, places, strict=True)
    ]


def _shares(ax: "Axes") -> None:
    _level(ax, at=0.5)
    ax.set(ylim=(-0.03, 1.03), yticks=(0, 0.5, 1))


def _against_beta(ax: "Axes", entries: Sequence[Entry]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))  # the style sets no mathematics
    betas = {entry["config"].get("regulator.beta") for entry in entries}
    for beta in sorted(beta for beta in betas if beta):  # a logarithm has no place for beta = 0
        _level(ax, at=beta)
        ax.annotate(
            f"beta {beta}",
            xy=(0.99, beta),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="center",
            fontsize=7,
            bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8},
        )


def _level(ax: "Axes", at: float) -> None:
    ax.axhline(at, color="0.6", linewidth=0.7, zorder=0)
