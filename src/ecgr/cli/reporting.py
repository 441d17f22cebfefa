"""`ecgr report` and `ecgr figures`: what the records say, as a page and as figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ecgr.analysis.arms import Run, compare_finished, read_runs
from ecgr.analysis.collect import find_runs
from ecgr.cli.console import out
from ecgr.cli.options import Treatment

Directories = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories, or directories of them.")]


def report_command(
    directories: Directories,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The page; DIR/report.html by default.")
    ] = None,
    treatment: Treatment = None,
) -> None:
    """Write one self-contained HTML page about finished and unfinished runs."""
    from ecgr.report.page.html import write_report

    runs = _runs(directories, treatment)
    path = write_report(runs, compare_finished(runs), output or _beside(directories, "report.html"))
    out.print(str(path), markup=False, soft_wrap=True)


def figures_command(
    directories: Directories,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where to write; DIR/figures by default.")
    ] = None,
    treatment: Treatment = None,
) -> None:
    """Write the report's figures as PDF and PNG, and its table as LaTeX and CSV."""
    from ecgr.report.figures.write import write_figures

    runs = _runs(directories, treatment)
    directory = output or _beside(directories, "figures")
    written = write_figures(runs, compare_finished(runs), directory)
    out.print(f"{len(written)} files; {directory}", markup=False, soft_wrap=True)


def _runs(directories: Sequence[Path], treatment: Sequence[str] | None) -> list[Run]:
    return read_runs(find_runs(directories), treatment or ())


def _beside(directories: Sequence[Path], name: str) -> Path:
    """In the one directory given, or here if there are several."""
    return directories[0] / name if len(directories) == 1 else Path(name)
