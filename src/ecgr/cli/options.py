"""How a command is added, and the options that several commands share."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import click
import typer
from typer.core import TyperCommand

from ecgr.config.experiment import presets
from ecgr.errors import ConfigError

if TYPE_CHECKING:
    from ecgr.simulation.engines.ray import Cluster


F = TypeVar("F", bound=Callable[..., Any])


class PlainCommand(TyperCommand):
    """Plain help: typer escapes brackets for rich's markup, which is not used here."""

    def get_help(self, ctx: click.Context) -> str:
        return super().get_help(ctx).replace("\\[", "[")


def command(app: typer.Typer, name: str, *examples: str) -> Callable[[F], F]:
    """Make a function a command whose help shows ``examples``, one a line."""
    heading = "Example:" if len(examples) == 1 else "Examples:"
    epilog = "\n".join(["\b", heading, *(f"  {example}" for example in examples)])
    return app.command(name, cls=PlainCommand, epilog=epilog)


def preset_names(incomplete: str) -> list[str]:
    """For the shell's completion."""
    return [name for name in presets() if name.startswith(incomplete)]


ExperimentName = Annotated[
    str,
    typer.Argument(
        metavar="[PRESET or FILE]",
        help="A preset's name, a TOML file, or a task in a Python file: my_task.py:task.",
        autocompletion=preset_names,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a config key, e.g. regulator.beta=0.5."),
]
Out = Annotated[Path | None, typer.Option("--out", help="Where to write; runs/NAME by default.")]
Workers = Annotated[
    str, typer.Option("--workers", metavar="N", help="Processes, or auto: as many as there are cores. Same results.")
]
EngineName = Annotated[
    str | None,
    typer.Option("--engine", help="Where clients train: serial, pool or ray; serial by default for one worker."),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT",
        help="With --engine ray: a running cluster; by default RAY_ADDRESS, or a new one on this machine.",
    ),
]
CpusPerWorker = Annotated[
    float | None, typer.Option("--cpus-per-worker", metavar="N", help="With --engine ray: 1 by default.")
]
GpusPerWorker = Annotated[
    float | None, typer.Option("--gpus-per-worker", metavar="N", help="With --engine ray: e.g. 0.25; none by default.")
]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, …")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be run, and for how long; run nothing.")]
OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in the browser when it is written.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def chosen_engine(
    name: str | None, address: str | None, cpus: float | None, gpus: float | None
) -> "str | Cluster | None":
    """The engine that the options choose; a cluster's options need ``--engine ray``."""
    if name == "ray":
        from ecgr.simulation.engines.ray import Cluster  # loads torch

        return Cluster(address, cpus=1.0 if cpus is None else cpus, gpus=0.0 if gpus is None else gpus)
    given = {"--ray-address": address, "--cpus-per-worker": cpus, "--gpus-per-worker": gpus}
    for option, value in given.items():
        if value is not None:
            raise ConfigError(f"{option}: only for a Ray cluster; add --engine ray, or leave it out")
    return name


def overrides(assignments: list[str] | None) -> dict[str, Any]:
    """``KEY=VALUE`` pairs as dotted keys and TOML values; what is not a TOML value is text.

    >>> overrides(["run.seed=1", "data.name=digits", "regulator.beta=0.5"])
    {'run.seed': 1, 'data.name': 'digits', 'regulator.beta': 0.5}
    """
    result: dict[str, Any] = {}
    for assignment in assignments or []:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set: expected KEY=VALUE, for example regulator.beta=0.5, got {assignment!r}")
        result[key.strip()] = parse_value(value.strip())
    return result


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
