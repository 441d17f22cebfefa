"""The study's own figures, from the committed data: accuracy, differences with their intervals, maps of kept steps."""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from math import copysign
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from ecgr.analysis.comparison import Pair
from ecgr.analysis.metrics import RunSummary
from ecgr.files import write_atomically
from ecgr.report.figures.panels import COLOURS
from ecgr.report.figures.steps import DAMPED, KEPT
from ecgr.report.figures.write import STYLE
from ecgr.report.page.step_maps import by_client, kept_array
from ecgr.simulation.kept import Kept
from study.data import ALGORITHMS, DATASETS, REGULATORS, Compared, dataset_of
from study.positions import client_curve, step_curve

Draw = Callable[[Figure], None]
WIDEST = 6.0
"""Points on the axis of differences: one wide interval must not squeeze all others; an arrow shows a mean beyond."""


def save(path: Path, size: tuple[float, float], draw: Draw) -> None:
    """Draw and write a PNG, to the same bytes each time."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    write_atomically(path, buffer.getvalue())


def accuracy(main: Compared) -> Draw:
    """A panel for each data set and algorithm: mean over seeds, range as a band."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots(len(DATASETS), len(ALGORITHMS), squeeze=False, sharex="row", sharey="row")
        for row, (data, name) in zip(axes, DATASETS.items(), strict=True):
            for ax, (algorithm, title) in zip(row, ALGORITHMS.items(), strict=True):
                runs = [r for r in main.runs if dataset_of(r.setting) == data and r.algorithm == algorithm]
                for colour, regulator, label in zip(COLOURS, ("none", "ecgr"), ("plain", "ECGR"), strict=False):
                    _curve(ax, [r for r in runs if r.regulator == regulator], colour, label)
                if not runs:
                    ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color="0.5")
                ax.set_title(title if data == "mnist" else "")
                ax.grid(axis="y")
                ax.set_axisbelow(True)
            row[0].set_ylabel(f"{name}\naccuracy, %")
        for ax in axes[-1]:
            ax.set_xlabel("round")
        handles = {label: h for ax in axes.flat for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=2)

    return draw


def _curve(ax: Axes, runs: Sequence[RunSummary], colour: str, label: str) -> None:
    if not runs:
        return
    shares = 100 * np.array([run.values for run in runs], dtype=float)
    rounds = np.arange(1, shares.shape[1] + 1)
    ax.fill_between(rounds, shares.min(axis=0), shares.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    ax.plot(rounds, shares.mean(axis=0), color=colour, linestyle="--" if label == "plain" else "-", label=label)


def differences(pairs: Sequence[Pair], label: Callable[[Pair], str], claimed: bool) -> Draw:
    """A row for each pair: its mean difference with the interval, and each seed's as a dot."""

    def draw(figure: Figure) -> None:
        ax = figure.subplots()
        groups = dict.fromkeys(dataset_of(pair.setting) for pair in pairs)
        rows = [(data, pair) for data in groups for pair in pairs if dataset_of(pair.setting) == data]
        places, place, previous = [], 0.0, None
        for data, _ in rows:
            place -= 1.0 if data == previous or previous is None else 1.7
            places.append(place)
            previous = data
        if claimed:
            ax.axvspan(1, 2, color=COLOURS[2], alpha=0.13, linewidth=0, label="the paper's claim")
        ax.axvline(0, color="0.4", linewidth=0.8)
        for at, (_, pair) in zip(places, rows, strict=True):
            _difference(ax, at, pair)
        ax.set_yticks(places, [label(pair) for _, pair in rows])
        for data in groups:
            top = max(at for at, (own, _) in zip(places, rows, strict=True) if own == data)
            ax.annotate(DATASETS[data], (0.0, top + 0.62), xycoords=("axes fraction", "data"), fontweight="bold")
        ax.set(xlabel="difference to plain training, points of accuracy (mean of the last five rounds)")
        ax.set_ylim(min(places) - 0.7, 0.6)
        ax.set_xlim(max(ax.get_xlim()[0], -WIDEST), min(ax.get_xlim()[1], WIDEST))
        ax.grid(axis="x")
        ax.set_axisbelow(True)
        if claimed:
            figure.legend(loc="outside lower center")

    return draw


def _difference(ax: Axes, at: float, pair: Pair) -> None:
    found = pair.primary
    seeds = [100 * value for value in found.differences if value is not None]
    ax.plot(seeds, [at - 0.22] * len(seeds), "o", markersize=2, color="0.55", clip_on=True)
    if found.mean is None or found.interval is None:
        return
    low, high = found.interval
    colour = COLOURS[1] if found.excludes_zero else "0.25"
    ax.plot([100 * low, 100 * high], [at, at], color=colour, linewidth=1.4)
    ax.plot([100 * found.mean], [at], "s", markersize=4, color=colour)
    if abs(100 * found.mean) > WIDEST:
        ax.plot([copysign(WIDEST, found.mean)], [at], "<" if found.mean < 0 else ">", color=colour, clip_on=False)


def main_label(pair: Pair) -> str:
    """An algorithm's name and its number of seeds."""
    return f"{ALGORITHMS[pair.algorithm]} ({len(pair.seeds)} seeds)"


def control_label(pair: Pair) -> str:
    """What was done instead."""
    return f"{REGULATORS.get(pair.regulator, pair.regulator)} ({len(pair.seeds)} seeds)"


def maps(kept: Mapping[str, Sequence[Kept]]) -> Draw:
    """For each data set and alpha the map of the client with the most steps: filled cells were kept."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots(2, len(DATASETS), squeeze=False)
        shades = LinearSegmentedColormap.from_list("kept", [DAMPED, KEPT])
        for row, alpha in zip(axes, ("0.01", "1"), strict=True):
            for ax, (data, name) in zip(row, DATASETS.items(), strict=True):
                clients = by_client(kept[f"{data}-alpha-{alpha}"])
                client = max(clients, key=lambda number: max(entry.steps for entry in clients[number]))
                array = kept_array(clients[client])
                extent = (0.5, array.shape[1] + 0.5, 0.5, array.shape[0] + 0.5)
                ax.imshow(array, aspect="auto", origin="lower", interpolation="nearest", cmap=shades, extent=extent)
                ax.set_title(f"{name}, alpha {alpha}")
            row[0].set_ylabel("round")
        for ax in axes[-1]:
            ax.set_xlabel("step")

    return draw


def positions(kept: Mapping[str, Sequence[Kept]]) -> Draw:
    """Mean positions of kept steps over rounds, each step counting once, and each client; random choices in grey."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots(2, len(DATASETS), squeeze=False, sharey=True, sharex="col")
        for row, alpha in zip(axes, ("0.01", "1"), strict=True):
            for ax, (data, name) in zip(row, DATASETS.items(), strict=True):
                entries = kept[f"{data}-alpha-{alpha}"]
                steps, clients = step_curve(entries), client_curve(entries)
                grey = {"color": "0.88", "linewidth": 0, "label": "95 % of random choices"}
                ax.fill_between(steps["rounds"], steps["chance_low"], steps["chance_high"], **grey)
                ax.plot(steps["rounds"], steps["mean"], color=COLOURS[1], label="each kept step counts once")
                ax.plot(clients["rounds"], clients["mean"], ":", color="0.35", label="each client counts once")
                ax.set_title(f"{name}, alpha {alpha}")
                ax.set_ylim(0, 1)
            row[0].set_ylabel("mean position")
        for ax in axes[-1]:
            ax.set_xlabel("round")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)

    return draw
