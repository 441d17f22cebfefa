"""What the rule for verdicts finds and how often it errs, by simulation: ``python -m study.power`` draws the figure of
docs/reference/statistics.md.

Differences are normal, with a spread of one between seeds. The rule is computed for thousands of comparisons at once,
which a test holds against `ecgr.analysis.comparison.compare`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import special

from ecgr.analysis.pairs import LEVEL
from ecgr.analysis.power import ALPHA, POWER, power_of_design
from ecgr.analysis.statistics import ROUNDING, sign_flip_floor
from ecgr.report.figures.panels import COLOURS
from study.data import ROOT
from study.figures import save

Array = NDArray[np.float64]
FIGURE = ROOT / "docs" / "reference" / "images" / "power.png"
SEEDS = (6, 8, 10, 12)
ROWS = {1: "-", 5: "--"}
EFFECTS = np.arange(0, 3.01, 0.15)
SPREADS = np.geomspace(0.1, 4, 25)
COMPARISONS = 1000


@dataclass(frozen=True, slots=True)
class Judged:
    """Verdicts of many comparisons at once: an array of truths for each verdict, comparisons by rows."""

    better: NDArray[np.bool_]
    worse: NDArray[np.bool_]
    equivalent: NDArray[np.bool_]


def judge_all(differences: Array, margin: float) -> Judged:
    """The rule of `ecgr compare` for differences of shape (comparisons, rows, seeds)."""
    seeds, rows = differences.shape[2], differences.shape[1]
    mean = differences.mean(axis=2)
    error = differences.std(axis=2, ddof=1) / np.sqrt(seeds)
    beyond = np.abs(mean) > special.stdtrit(seeds - 1, (1 + LEVEL) / 2) * error
    shown = beyond & (_holm(_sign_flips(differences)) < ALPHA)
    within = special.stdtr(seeds - 1, (np.abs(mean) - margin) / error) < ALPHA
    enough = rows * sign_flip_floor(seeds) < ALPHA
    return Judged(shown & (mean > 0), shown & (mean < 0), within & ~shown & enough)


def _sign_flips(differences: Array) -> Array:
    """Two-sided p-values of the exact sign-flip test, for every row of every comparison."""
    flat = differences.reshape(-1, differences.shape[2])
    bits = np.arange(2 ** (flat.shape[1] - 1))[:, None] >> np.arange(flat.shape[1]) & 1
    signs = 1.0 - 2.0 * bits
    p = np.empty(len(flat))
    for start in range(0, len(flat), 256):
        own = flat[start : start + 256]
        far = np.abs(own.sum(axis=1)) - ROUNDING * np.abs(own).sum(axis=1)
        p[start : start + 256] = (np.abs(signs @ own.T) >= far).mean(axis=0)
    return p.reshape(differences.shape[:2])


def _holm(p: Array) -> Array:
    """Holm's correction over the rows of each comparison."""
    order = np.argsort(p, axis=1, kind="stable")
    steps = np.take_along_axis(p, order, axis=1) * np.arange(p.shape[1], 0, -1)
    corrected = np.empty_like(p)
    np.put_along_axis(corrected, order, np.minimum(1.0, np.maximum.accumulate(steps, axis=1)), axis=1)
    return corrected


def power_curves(rng: np.random.Generator, comparisons: int = COMPARISONS) -> Mapping[tuple[int, int], Array]:
    """By seeds and rows: how often the first row is found to be better, where it alone has each of the effects."""
    found = {}
    for seeds in SEEDS:
        for rows in ROWS:
            noise = rng.normal(0, 1, (comparisons, rows, seeds))
            first = np.eye(1, rows)[0][None, :, None]
            found[seeds, rows] = np.array(
                [judge_all(noise + effect * first, margin=0.01).better[:, 0].mean() for effect in EFFECTS]
            )
    return found


def equivalence_curves(rng: np.random.Generator, comparisons: int = COMPARISONS) -> Mapping[tuple[int, int], Array]:
    """By seeds and rows: how often two methods without a difference are found equivalent, by spread over margin."""
    found = {}
    for seeds in SEEDS:
        for rows in ROWS:
            noise = rng.normal(0, 1, (comparisons, rows, seeds))
            found[seeds, rows] = np.array(
                [judge_all(noise, margin=1 / spread).equivalent[:, 0].mean() for spread in SPREADS]
            )
    return found


def draw(figure: Figure) -> None:
    """Power on the left, equivalence on the right."""
    rng = np.random.default_rng(0)
    left, right = figure.subplots(1, 2, sharey=True)
    for ax, places, curves in (
        (left, EFFECTS, power_curves(rng)),
        (right, SPREADS, equivalence_curves(rng)),
    ):
        for (seeds, rows), shares in curves.items():
            colour = COLOURS[SEEDS.index(seeds)]
            label = f"{seeds} seeds, {rows} {'row' if rows == 1 else 'rows'}"
            ax.plot(places, 100 * shares, ROWS[rows], color=colour, label=label, linewidth=1.2)
    for seeds in SEEDS:
        for rows in ROWS:
            effect = power_of_design(seeds, rows).detectable
            if effect is not None and effect <= EFFECTS[-1]:
                left.plot([effect], [100 * POWER], "o", color=COLOURS[SEEDS.index(seeds)], markersize=3.5)
    left.axhline(100 * ALPHA, color="0.6", linewidth=0.8)
    left.set(xlabel="true effect, in spreads of the differences", ylabel="verdicts, %", title="found to be better")
    right.set(xlabel="spread of the differences, in margins", title="no effect: found equivalent", xscale="log")
    right.set_xticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
    for ax in (left, right):
        ax.grid(axis="y")
        ax.set_axisbelow(True)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(SEEDS))


def main(path: Path = FIGURE) -> None:
    """Draw the figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save(path, (7.2, 3.6), draw)


if __name__ == "__main__":
    main()
