"""`ecgr report` and `ecgr figures`: what the records say, as a page and as figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ecgr.cli.console import say
from ecgr.cli.next_steps import open_page
from ecgr.cli.options import OpenPage, Treatment

if TYPE_CHECKING:
    from ecgr.analysis.arms import Run
    from ecgr.analysis.comparison import Comparison

Directories = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories, or directories of them.")]


def report_command(
    directories: Directories,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="The page; DIR/report.html by default."),
    ] = None,
    treatment: Treatment = None,
    open_it: OpenPage = False,
) -> None:
    """Write one self-contained HTML page about finished and unfinished runs."""
    from ecgr.report.page.html import write_report

    path = write_report(*_compare(directories, treatment), output or _beside(directories, "report.html"))
    say(str(path))
    if open_it:
        open_page(path)


def figures_command(
    directories: Directories,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where to write; DIR/figures by default.")
    ] = None,
    treatment: Treatment = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also a panel for each value of what varies, and which steps were kept.")
    ] = False,
) -> None:
    """Write the answer as figures (PDF and PNG), and its table as LaTeX and CSV."""
    from ecgr.report.figures.write import write_figures

    directory = output or _beside(directories, "figures")
    written = write_figures(*_compare(directories, treatment), directory, everything=everything)
    say(f"{len(written)} files; {directory}")


def _compare(directories: Sequence[Path], treatment: Sequence[str] | None) -> "tuple[list[Run], Comparison]":
    """The runs there, and the comparison of those that are finished."""
    from ecgr.analysis.arms import compare_finished, read_runs
    from ecgr.analysis.material import design_of, runs_in

    found = [runs_in(directory) for directory in directories]
    design = design_of(found[0], None, treatment or ())
    records, length = ([record for each in found for record in getattr(each, name)] for name in ("records", "length"))
    runs = read_runs(records, design.treatment, tuned=design.tuned, length=length)
    return runs, compare_finished(runs, design.baseline, design.by)


def _beside(directories: Sequence[Path], name: str) -> Path:
    """In the one directory given, or here if there are several."""
    return directories[0] / name if len(directories) == 1 else Path(name)
