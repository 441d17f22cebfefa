"""The page and the figures about some records, as the commands make them."""

from collections.abc import Sequence
from pathlib import Path

from ecgr.compare.analyse import analyse_runs
from ecgr.report.figures import write_figures
from ecgr.report.page import render, write_report
from ecgr.runs.record import RunRecord


def page_about(records: Sequence[RunRecord]) -> str:
    return render(analyse_runs(records))


def report_on(records: Sequence[RunRecord], path: Path) -> Path:
    return write_report(analyse_runs(records), path)


def figures_of(records: Sequence[RunRecord], directory: Path, *, everything: bool = False) -> list[Path]:
    return write_figures(analyse_runs(records), directory, everything=everything)
