"""Comparisons of whole methods that were run and kept, each in a folder of docs/results/data, with what made them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecgr.analysis.comparison import Comparison, compare
from ecgr.analysis.metrics import RunSummary
from ecgr.analysis.summaries import read_summaries
from ecgr.runs.design import read_design
from study.problems import LEADERBOARD, PROBLEMS

TUNED = (
    "ecgr compare study/bases/{} --methods fedavg,drift_correction --seeds 10 --tune optimizer.lr=0.003,0.01,0.03"
    " --set schedule.name=cosine --set federation.rounds=15"
)
OTHERS: Mapping[str, tuple[str, str]] = {
    "demo": ("The demo: digits, ten clients, alpha 0.05", "ecgr demo"),
    "tuned-mnist": ("Two methods on MNIST, alpha 0.01, smaller batches", TUNED.format("mnist")),
    "tuned-fashion_mnist": ("Two methods on Fashion-MNIST, alpha 0.01, smaller batches", TUNED.format("fashion_mnist")),
}
"""Comparisons of fewer methods: title and command."""


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """One comparison of methods on one problem."""

    name: str
    title: str
    command: str
    runs: Sequence[RunSummary]
    comparison: Comparison
    tuning: Mapping[str, Any]
    commits: Sequence[str]

    @property
    def on_leaderboard(self) -> bool:
        """Whether all methods took part."""
        return self.name.startswith(f"{LEADERBOARD}-")

    @property
    def anchor(self) -> str:
        """Where its section is on the page."""
        kept = (letter for letter in self.title.lower() if letter.isalnum() or letter in " -_")
        return "".join(kept).replace(" ", "-")


def boards(folder: Path) -> list[Board]:
    """Those whose data are there, the leaderboard first."""
    return [_read(folder / name, title, command) for name, title, command in known() if (folder / name).is_dir()]


def known() -> Iterator[tuple[str, str, str]]:
    """Folder, title and command of every comparison of methods, run or not."""
    yield from ((f"{LEADERBOARD}-{key}", own.title, own.command) for key, own in PROBLEMS.items())
    yield from ((name, title, command) for name, (title, command) in OTHERS.items())


def _read(place: Path, title: str, command: str) -> Board:
    runs, design = read_summaries(place / "summaries.json"), read_design(place)
    baseline = None if design is None else design.baseline
    return Board(
        place.name,
        title,
        command,
        runs,
        compare(runs, baseline, by="method"),
        json.loads((place / "tuning.json").read_text(encoding="utf-8")),
        json.loads((place / "provenance.json").read_text(encoding="utf-8"))["commits"],
    )
