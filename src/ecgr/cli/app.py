"""The `ecgr` command: its sub-commands, its exit codes, and one line for whatever goes wrong."""

import sys
import traceback
from typing import Annotated, NoReturn

import typer

from ecgr._version import __version__
from ecgr.cli import benching, data, federating, listing, reporting, running, sweeping
from ecgr.cli.console import complain
from ecgr.errors import EcgrError

INTERRUPTED = 130
USAGE_PROBLEM = typer.BadParameter.__mro__[2]
"""Click's base of everything wrong with a command line; typer brings a click of its own or uses the installed one."""

app = typer.Typer(
    name="ecgr",
    help="Local gradient regulation for federated learning.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(running.run_command)
app.command("compare")(sweeping.compare_command)
app.command("sweep")(sweeping.sweep_command)
app.command("report")(reporting.report_command)
app.command("figures")(reporting.figures_command)
app.command("partition")(data.partition_command)
app.add_typer(data.data_app, name="data")
app.add_typer(federating.federate_app, name="federate")
app.command("bench")(benching.bench_command)
app.command("list")(listing.list_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ecgr {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback for any error.")] = False,
) -> None:
    """Local gradient regulation for federated learning."""


def main() -> NoReturn:
    """Run the command line and exit with its documented code."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"] or ["--help"]
    try:
        code = app(args=arguments, standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            traceback.print_exc()
        lines, code = _explained(error)
        complain(*lines)
    sys.exit(code if isinstance(code, int) else 0)


def _explained(error: BaseException) -> tuple[list[str], int]:
    """What to say about an error, and the exit code."""
    if isinstance(error, EcgrError):
        return str(error).splitlines(), error.exit_code
    if isinstance(error, USAGE_PROBLEM):
        message = getattr(error, "format_message", error.__str__)()
        return [f"{message.rstrip('.')} (see `ecgr --help`)"], 2
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return ["interrupted; the same command, `ecgr run` with --resume, goes on from the last round"], INTERRUPTED
    return [f"unexpected {type(error).__name__}: {error}; this is a bug, --debug shows where"], 1
