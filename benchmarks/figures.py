"""Figures of speed, and docs/results/performance.md with all numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import Any

from benchmarks import scale
from benchmarks.page import page
from benchmarks.rows import ROOT, Row
from benchmarks.selection_probe import KEEPS_MEMORY, search
from ecgr.report.figures import COLOURS

RESULTS = ROOT / "docs" / "results"
BY_STEPS, LENET = (20, 40, 80, 160, 320), 61_706
BY_SIZE, STEPS = (10_000, LENET, 250_000, 1_167_872), 100


@dataclass(frozen=True, slots=True)
class Series:
    """Seconds by what they were measured against."""

    label: str
    values: Mapping[int, float]


def selection_series(sizes: Mapping[int, tuple[int, int]]) -> list[Series]:
    """Both searches for each (T, d), by the number on the axis."""
    found = {x: search(T, d, 2, KEEPS_MEMORY) for x, (T, d) in sizes.items()}
    return [
        Series("explicit search", {x: one.explicit for x, one in found.items()}),
        Series("Gram matrix and herding", {x: one.ours for x, one in found.items()}),
    ]


def write(rows: list[Row], facts: dict[str, Any], quick: bool) -> None:
    """Measure what the figures show, draw them and write the page."""
    by_steps = selection_series({T: (T, LENET) for T in BY_STEPS[: 3 if quick else None]})
    by_size = selection_series({d: (STEPS, d) for d in BY_SIZE[: 2 if quick else None]})
    clients = [
        Series("all of them take part", scale.everyone(quick)),
        Series("10 of them take part", scale.by_population(quick)),
    ]
    images = RESULTS / "images"
    images.mkdir(parents=True, exist_ok=True)
    draw(
        images / "performance-selection.png",
        (by_steps, f"steps T, with d = {LENET:,} (LeNet)", "seconds to select half of the steps"),
        (by_size, f"numbers d, with T = {STEPS}", "seconds to select half of the steps"),
    )
    draw(images / "performance-clients.png", (clients, "clients (SCAFFOLD, 30 samples each)", "seconds per round"))
    (RESULTS / "performance.md").write_text(page(rows, facts, clients[1].values, quick), encoding="utf-8")


def draw(path: Path, *panels: tuple[list[Series], str, str]) -> None:
    """One panel for each list of series, both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator

    figure, axes = plt.subplots(1, len(panels), figsize=(5.0 * len(panels), 3.4), layout="constrained", squeeze=False)
    for axis, (series, x_label, y_label) in zip(axes[0], panels, strict=True):
        for one, colour, marker in zip(series, COLOURS, "so", strict=False):
            axis.loglog(
                list(one.values), list(one.values.values()), f"{marker}-", color=colour, label=one.label, markersize=5
            )
        ticks = sorted({x for one in series for x in one.values})
        axis.set_xticks(ticks, [_short(x) for x in ticks])
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if _decades(series) < 2 else (1,)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axis.minorticks_off()
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel(x_label)
        axis.set_ylabel(y_label)
        axis.legend(frameon=False)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(figure)


def _decades(series: list[Series]) -> float:
    values = [y for one in series for y in one.values.values()]
    return log10(max(values) / min(values))


def _short(number: int) -> str:
    """1,167,872 is 1.17 M, 61,706 is 62 k."""
    if number >= 1_000_000:
        return f"{number / 1e6:.3g} M"
    return f"{number / 1000:.0f} k" if number >= 10_000 else f"{number:,}"
