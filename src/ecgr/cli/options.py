"""How a command is added, and the options that several commands share."""

import tomllib
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import click
import typer
from typer import Argument, Option
from typer.core import TyperCommand

from ecgr.config.experiment import presets
from ecgr.errors import ConfigError

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
    Argument(
        metavar="[PRESET or FILE]",
        help="A preset's name, a TOML file, or a task in a Python file: my_task.py:task.",
        autocompletion=preset_names,
    ),
]
Set = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change a config key, e.g. regulator.beta=0.5.")
]
Out = Annotated[Path | None, Option("--out", help="Where to write; runs/NAME by default.")]
Workers = Annotated[
    str, Option("--workers", metavar="N", help="Processes, or auto: as many as there are cores. Same results.")
]
Resume = Annotated[bool, Option("--resume", help="Continue an interrupted run, or start it.")]
Track = Annotated[
    str | None, Option("--track", metavar="TRACKER", help="Also write for a tracker: mlflow, wandb or tensorboard.")
]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would be run, and for how long; run nothing.")]
OpenPage = Annotated[bool, Option("--open", help="Open the page in the browser when it is written.")]
Json = Annotated[bool, Option("--json", help="Print the result as JSON.")]


def gathered(**makers: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of each maker; what it makes of them is the command's argument of that name."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own, theirs = signature(function), {name: signature(make).parameters for name, make in makers.items()}

        @wraps(function)
        def call(**given: Any) -> None:
            made = {name: make(**{key: given.pop(key) for key in theirs[name]}) for name, make in makers.items()}
            function(**given, **made)

        options = [each for name, one in own.parameters.items() for each in theirs.get(name, {name: one}).values()]
        named = [each.replace(kind=each.KEYWORD_ONLY) for each in options]
        call.__signature__ = own.replace(parameters=named)  # type: ignore[attr-defined]  # which typer reads
        return call

    return decorate


Work = dict[str, Any]
"""Who trains, as `run`, `run_all` and `compare` take it."""


def work_of(
    workers: Workers = "auto",
    engine: Annotated[
        str | None, Option(help="Where clients train: serial, pool or ray; serial by default for one worker.")
    ] = None,
    ray_address: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT",
            help="With --engine ray: a running cluster; by default RAY_ADDRESS, or a new one on this machine.",
        ),
    ] = None,
    cpus_per_worker: Annotated[float | None, Option(metavar="N", help="With --engine ray: 1 by default.")] = None,
    gpus_per_worker: Annotated[
        float | None, Option(metavar="N", help="With --engine ray: e.g. 0.25; none by default.")
    ] = None,
    device: Annotated[str, Option(help="cpu, cuda, cuda:1, …")] = "cpu",
) -> Work:
    """The options of whatever trains; a cluster's need ``--engine ray``."""
    chosen: Any = engine
    if engine == "ray":
        from ecgr.simulation.engines.ray import Cluster  # loads torch

        cpus, gpus = cpus_per_worker, gpus_per_worker
        chosen = Cluster(ray_address, cpus=1.0 if cpus is None else cpus, gpus=0.0 if gpus is None else gpus)
    else:
        given = {"ray-address": ray_address, "cpus-per-worker": cpus_per_worker, "gpus-per-worker": gpus_per_worker}
        for option in (name for name, value in given.items() if value is not None):
            raise ConfigError(f"--{option}: only for a Ray cluster; add --engine ray, or leave it out")
    return {"workers": workers, "engine": chosen, "device": device}


def overrides(assignments: list[str] | None) -> dict[str, Any]:
    """``KEY=VALUE`` pairs as dotted keys and TOML values; what is not a TOML value is text.

    >>> overrides(["run.seed=1", "data.name=digits", "regulator.beta=0.5"])
    {'run.seed': 1, 'data.name': 'digits', 'regulator.beta': 0.5}
    """
    return {key: parse_value(value) for key, value in assigned(assignments, "--set", "KEY=VALUE", "regulator.beta=0.5")}


def assigned(assignments: list[str] | None, option: str, form: str, example: str) -> Iterator[tuple[str, str]]:
    """The keys and values that an option gives."""
    for assignment in assignments or []:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"{option}: expected {form}, for example {example}, got {assignment!r}")
        yield key.strip(), value.strip()


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
