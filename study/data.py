"""The study's committed data: what the runs left, small enough to keep; everything else is made from it.

::

    docs/results/data/
      provenance.json                 commit, versions, cores
      main, controls, ablations, full, lc25000/  summaries.json, comparison.json, comparison.csv
      leaderboard-PROBLEM, demo, tuned-…/        the same of whole methods, with tuning.json and design.json
      ceiling/                        runs.json
      steps/                          findings.json, and a map of kept steps for each run
      collapse/                       findings.json
      precision/                      summaries.json, comparison.json, comparison.csv (docs/guide/scaling.md)
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ecgr.analysis.comparison import Comparison, Pair, compare
from ecgr.analysis.metrics import RunSummary
from ecgr.analysis.summaries import read_summaries
from ecgr.simulation.kept import Kept, unpack_kept
from study.boards import Board, boards
from study.ceiling_section import Ceiling
from study.ceiling_section import read as read_ceiling
from study.findings import Findings, read_findings

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
DATA = RESULTS / "data"
COMPARED = ("main", "controls", "ablations", "full", "lc25000")
EXTENSIONS = {"seeds": "main", "seeds_cifar": "main", "seeds_controls": "controls"}
"""Sweeps of further seeds, and what they extend."""
DATASETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
ALGORITHMS = {"fedavg": "FedAvg", "fedprox": "FedProx", "fednova": "FedNova", "scaffold": "SCAFFOLD"}

MATCHED, LONGER = "ecgr, step_control=match_plain", "none, server_lr=1.05"
EXAMINED = ("mnist", "cifar10")
"""The data sets with controls, ablations and the theory's quantities."""

REGULATORS = {
    "ecgr": "ECGR",
    MATCHED: "ECGR, plain step's length",
    LONGER: "plain, 5 % longer steps",
    "safe_ecgr": "ECGR with the safe beta",
    "random_half": "a random half",
    "first_half": "the first half",
    "last_half": "the last half",
    "smallest_norm": "the shortest half",
    "bherd": "BHerd's half",
}


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """One sweep's runs and what a comparison says of them."""

    runs: Sequence[RunSummary]
    comparison: Comparison

    @property
    def ordered(self) -> list[Pair]:
        """All pairs by data set, algorithm and regulator, in the order of the tables above."""

        def place(pair: Pair) -> tuple[int, int, int]:
            known = (list(DATASETS), list(ALGORITHMS), list(REGULATORS))
            names = (dataset_of(pair.setting), pair.algorithm.partition("(")[0], pair.regulator)
            data, algorithm, regulator = (
                own.index(name) if name in own else len(own) for own, name in zip(known, names, strict=True)
            )
            return data, algorithm, regulator

        return sorted(self.comparison.pairs, key=place)

    def pairs(self, data: str) -> list[Pair]:
        """The pairs of one data set."""
        return [pair for pair in self.ordered if dataset_of(pair.setting) == data]

    def pair(self, data: str, algorithm: str, regulator: str = "ecgr") -> Pair | None:
        """One pair, if it was run."""
        found = (p for p in self.pairs(data) if (p.algorithm, p.regulator) == (algorithm, regulator))
        return next(found, None)


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """All of it, read."""

    compared: Mapping[str, Compared]
    steps: Findings
    maps: Mapping[str, Sequence[Kept]]
    collapse: Findings
    provenance: Mapping[str, Any]
    later: Mapping[str, Sequence[str]]
    boards: Sequence[Board]
    ceiling: Ceiling | None


def load(folder: Path = DATA) -> Study:
    """Read the committed data; sweeps that are not there are left out."""
    return Study(
        compared={name: _read_comparison(folder / name) for name in COMPARED if (folder / name).is_dir()},
        steps=read_findings(folder / "steps" / "findings.json"),
        maps={path.stem: _map(path) for path in sorted((folder / "steps").glob("*.npz"))},
        collapse=read_findings(folder / "collapse" / "findings.json"),
        provenance=json.loads((folder / "provenance.json").read_text()),
        later={name: commits for name in COMPARED if (commits := _commits(folder / name)) is not None},
        boards=boards(folder),
        ceiling=read_ceiling(folder / "ceiling" / "runs.json"),
    )


def dataset_of(setting: str) -> str:
    """The data set that a comparison's setting names.

    >>> dataset_of("data.name=mnist, partition.alpha=1.0")
    'mnist'
    """
    return setting.removeprefix("data.name=").partition(",")[0]


def _commits(folder: Path) -> list[str] | None:
    """Of runs that came later, where their records say; None where there are only those of the first sweeps."""
    path = folder / "provenance.json"
    return list(json.loads(path.read_text(encoding="utf-8"))["commits"]) if path.is_file() else None


def _read_comparison(folder: Path) -> Compared:
    runs = read_summaries(folder / "summaries.json")
    return Compared(runs, compare(runs))


def _map(path: Path) -> list[Kept]:
    with np.load(path, allow_pickle=False) as file:
        return unpack_kept({name: file[name] for name in file.files})
