"""What is there to be compared: runs, or their summaries, in a directory that may know how."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ecgr.analysis.collect import find_runs, read_runs
from ecgr.analysis.metrics import RunSummary
from ecgr.runs.design import ARMS, LENGTH, Design, read_design
from ecgr.runs.record import RunRecord


@dataclass(frozen=True, eq=False)
class Material:
    """What is there to be compared, runs or their summaries, and the directory that it lies in."""

    records: Sequence[RunRecord] = ()
    length: Sequence[RunRecord] = ()
    summaries: Sequence[RunSummary] = ()
    directory: Path | None = None


def runs_in(directory: Path) -> Material:
    """The runs in or below a directory; of a comparison those that its design names."""
    design = read_design(directory)
    if design is None:
        return Material(find_runs([directory]), directory=directory)
    records, length = (
        [RunRecord.open(directory / folder / name) for name in names]
        for folder, names in ((ARMS, design.runs), (LENGTH, design.length))
    )
    return Material(records, length, directory=directory)


def design_of(material: Material, baseline: str | None, treatment: Sequence[str]) -> Design:
    """The design that is kept with the material, with what was asked for instead."""
    kept = read_design(material.directory) if material.directory is not None else None
    design = kept or Design()
    if baseline is not None:
        summaries = material.summaries or [run.summary for run in read_runs(material.records, treatment)]
        by_regulator = baseline in {run.regulator for run in summaries}
        design = replace(design, baseline=baseline, by="regulator" if by_regulator else "method")
    return replace(design, treatment=tuple(treatment)) if treatment else design
