"""Figures of speed and memory, and docs/results/performance.md with all numbers."""

from typing import Any

import torch

from benchmarks import scale
from benchmarks.explicit_search import explicit_search
from benchmarks.rows import ROOT, Row, seconds
from benchmarks.selection import recorded, steps_like_training
from ecgr.regulators import herd

RESULTS = ROOT / "docs" / "results"
IMAGES = RESULTS / "images"
BY_STEPS = (20, 40, 80, 160, 320)
BY_SIZE = (10_000, 61_706, 250_000, 1_167_872)


def selection_seconds(T: int, d: int, with_explicit: bool) -> tuple[float, float | None]:
    steps = steps_like_training(T, d)
    store = recorded(steps)
    store.gram()
    ours = min(seconds(lambda: herd(store.gram(), T // 2)) for _ in range(3))
    return ours, seconds(lambda: explicit_search(steps, T // 2)) if with_explicit else None


def write(rows: list[Row], facts: dict[str, Any], quick: bool) -> None:
    """Draw both figures and write the page."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    torch.set_num_threads(1)
    IMAGES.mkdir(parents=True, exist_ok=True)
    population = scale.by_population(quick)
    steps = {T: selection_seconds(T, 61_706, T <= 160) for T in (BY_STEPS[:3] if quick else BY_STEPS)}
    sizes = {d: selection_seconds(100, d, d <= 250_000) for d in (BY_SIZE[:2] if quick else BY_SIZE)}

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axis, measured, label in ((axes[0], steps, "steps T, at d = 61,706"), (axes[1], sizes, "size d, at T = 100")):
        axis.loglog(list(measured), [ours for ours, _ in measured.values()], "o-", label="Gram matrix and herding")
        slow = {x: value for x, (_, value) in measured.items() if value is not None}
        axis.loglog(list(slow), list(slow.values()), "s--", label="explicit search")
        axis.set_xlabel(label)
        axis.set_ylabel("seconds")
        axis.legend()
    figure.savefig(IMAGES / "selection.png", dpi=150, metadata={"Software": None})
    plt.close(figure)

    figure, axis = plt.subplots(figsize=(4.8, 3.4), layout="constrained")
    axis.semilogx(list(population), list(population.values()), "o-")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("clients, of whom 10 take part (SCAFFOLD, 30 samples each)")
    axis.set_ylabel("seconds per round")
    figure.savefig(IMAGES / "population.png", dpi=150, metadata={"Software": None})
    plt.close(figure)
    (RESULTS / "performance.md").write_text(page(rows, facts, population, quick), encoding="utf-8")


def page(rows: list[Row], facts: dict[str, Any], population: dict[int, float], quick: bool) -> str:
    from ecgr.cli.benching import number

    command = "ecgr bench --figures" + (" --quick" if quick else "")
    lines = [
        "# Performance",
        "",
        f"Written by `{command}` on {facts['date']}: commit `{facts['commit']}`, {facts['cores']} cores"
        f" ({facts['processor']}), Python {facts['python']}, torch {facts['torch']}, load average {facts['load']}"
        f" at the end, {facts['seconds']} seconds.",
        "",
        "Every number is a ratio of two things measured in turn in one run, or a share of the same round; medians of"
        " several repetitions. Seconds beside them are of this machine. Everything ran on the CPU with one thread a"
        " process; the code is the same on a GPU (stores and products stay on the device of the model), which was not"
        " measured here.",
        "",
        "| what | measured | threshold | met | |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        threshold = "" if row.limit is None else f"{row.bound} {number(row.limit)}"
        met = {True: "yes", False: "**no**", None: ""}[row.passed]
        lines.append(f"| {row.name} | {number(row.value)} | {threshold} | {met} | {row.note} |")
    lines += [
        "",
        "## Selection",
        "",
        "![Seconds of selection against T and d](images/selection.png)",
        "",
        "The explicit search builds all candidate sums at every step, T^2 d / 4 numbers in all; the Gram matrix needs"
        " T^2 d / 2 multiply-adds in matrix products, and the search on it is negligible.",
        "",
        "## Population",
        "",
        "![Seconds per round against clients](images/population.png)",
        "",
        "| clients | " + " | ".join(f"{n:,}" for n in population) + " |",
        "|---|" + "---|" * len(population),
        "| seconds per round | " + " | ".join(f"{s:.3f}" for s in population.values()) + " |",
        "",
        "Ten clients take part in every round. What the others remember lies on disk, one file a client.",
        "",
    ]
    return "\n".join(lines)
