"""The page and the figures about some records, as the commands make them."""

from collections.abc import Sequence
from pathlib import Path

from ecgr.analysis.arms import compare_finished, read_runs
from ecgr.report.figures.write import write_figures
from ecgr.report.page.html import render, write_report
from ecgr.runs.record import RunRecord


def page_about(records: Sequence[RunRecord]) -> str:
    runs = read_runs(records)
    return render(runs, compare_finished(runs))


def report_on(records: Sequence[RunRecord], path: Path) -> Path:
    runs = read_runs(records)
    return write_report(runs, compare_finished(runs), path)


def figures_of(records: Sequence[RunRecord], directory: Path, *, everything: bool = False) -> list[Path]:
    runs = read_runs(records)
    return write_figures(runs, compare_finished(runs), directory, everything=everything)
