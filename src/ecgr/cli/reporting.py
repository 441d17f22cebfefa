"""`ecgr report` and `ecgr figures`: what the records say, as a page and as figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ecgr.cli.console import say
from ecgr.cli.next_steps import open_page
from ecgr.cli.options import OpenPage

Directories = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories, or directories of them.")]


def report_command(
    directories: Directories,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="The page; DIR/report.html by default."),
    ] = None,
    open_it: OpenPage = False,
) -> None:
    """Write one self-contained HTML page about finished and unfinished runs."""
    from ecgr.compare.analyse import analyse_runs
    from ecgr.report.page import write_report

    path = write_report(analyse_runs(directories), output or _beside(directories, "report.html"))
    say(str(path))
    if open_it:
        open_page(path)


def figures_command(
    directories: Directories,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where to write; DIR/figures by default.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also a panel for each value of what varies, and which steps were kept.")
    ] = False,
) -> None:
    """Write the answer as figures (PDF and PNG), and its table as LaTeX and CSV."""
    from ecgr.compare.analyse import analyse_runs
    from ecgr.report.figures import write_figures

    directory = output or _beside(directories, "figures")
    written = write_figures(analyse_runs(directories), directory, everything=everything)
    say(f"{len(written)} files; {directory}")


def _beside(directories: Sequence[Path], name: str) -> Path:
    """In the one directory given, or here if there are several."""
    return directories[0] / name if len(directories) == 1 else Path(name)
