"""The `ecgr` command: its sub-commands, its exit codes, and one line for whatever goes wrong."""

import re
import sys
import traceback
from typing import Annotated

import typer
from typer import Option

from ecgr._version import __version__
from ecgr.cli import comparing, data, federating, listing, running
from ecgr.cli.console import Interrupted, complain, this_command, was_interrupted
from ecgr.cli.options import command
from ecgr.errors import EcgrError

USAGE_PROBLEM = typer.BadParameter.__mro__[2]
"""Click's base of everything wrong with a command line; typer brings a click of its own or uses the installed one."""

ARGUMENT = re.compile(r"^(out|resume|workers|engine|methods|baseline|seeds|tune|track): ")
"""Arguments of Python that are options here."""

WELCOME = """\
ecgr: what helps against non-IID clients in federated learning, and by how much.

See an answer, in under a minute:     ecgr demo
Compare on your own problem:          ecgr compare my_task.py:task --methods fedavg,fedacg,drift_correction
What can be chosen:                   ecgr list methods

Every command: ecgr --help"""

app = typer.Typer(
    name="ecgr",
    help="What helps against non-IID clients in federated learning, and by how much.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
command(app, "demo", "ecgr demo")(comparing.demo_command)
command(app, "run", "ecgr run quickstart --set regulator.beta=0.5", "ecgr run quickstart --resume")(running.run_command)
command(
    app,
    "compare",
    "ecgr compare quickstart --methods fedavg,fedavg+ecgr,fedacg,scaffold",
    "ecgr compare quickstart --methods fedavg,fedacg --tune optimizer.lr=0.003,0.01,0.03",
    "ecgr compare my_task.py:task --methods 'fedavg,scaffold(damping=0.5)/lookahead'",
    "ecgr compare runs/compare-quickstart",
)(comparing.compare_command)
command(app, "sweep", "ecgr sweep study/main --dry-run")(running.sweep_command)
command(app, "clean", "ecgr clean runs", "ecgr clean runs/compare-quickstart --yes")(running.clean_command)
command(app, "report", "ecgr report runs/compare-quickstart")(comparing.report_command)
command(app, "figures", "ecgr figures runs/compare-quickstart --output figures")(comparing.figures_command)
command(app, "partition", "ecgr partition --data digits --clients 10 --alpha 0.1")(data.partition_command)
command(app, "list", "ecgr list", "ecgr list methods")(listing.list_command)
app.add_typer(data.data_app, name="data")
app.add_typer(federating.federate_app, name="federate")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ecgr {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def common(
    context: typer.Context,
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, Option("--debug", help="Show a traceback for any error.")] = False,
) -> None:
    """What helps against non-IID clients in federated learning, and by how much."""
    if context.invoked_subcommand is None:
        typer.echo(WELCOME)


def run_command_line() -> int:
    """Run the given command and return its exit code."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        code = app(args=arguments, prog_name="ecgr", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            traceback.print_exc()
        lines, code = _explain(error)
        complain(*lines)
    else:
        if code == Interrupted.exit_code:  # typer makes an exit code of it before anybody can say anything
            complain(*_explain(KeyboardInterrupt())[0])
    return code if isinstance(code, int) else 0


def _explain(error: BaseException) -> tuple[list[str], int]:
    """What to say about an error, and the exit code."""
    if was_interrupted(error) and not isinstance(error, Interrupted):
        return [f"interrupted; what was written is kept; to run it again: {this_command()}"], Interrupted.exit_code
    if isinstance(error, EcgrError):
        return [ARGUMENT.sub(r"--\1: ", line) for line in str(error).splitlines()], error.exit_code
    if isinstance(error, USAGE_PROBLEM):
        message = getattr(error, "format_message", error.__str__)()
        message = re.sub(r"( Did you mean [^?]+\?)\1", r"\1", message)  # typer suggests, and so does a newer click
        return [f"{message.rstrip('.')} (see `ecgr --help`)"], 2
    if isinstance(error, typer.Abort):
        return ["aborted"], 1
    return [f"unexpected {type(error).__name__}: {error}; this is a bug, --debug shows where"], 1
