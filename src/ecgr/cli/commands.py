"""How a command is added: plain help that ends with examples."""

from collections.abc import Callable
from typing import Any, TypeVar

import click
import typer
from typer.core import TyperCommand

F = TypeVar("F", bound=Callable[..., Any])


class PlainCommand(TyperCommand):
    """Help as it is meant: typer escapes brackets for rich's markup, which is not used here."""

    def get_help(self, ctx: click.Context) -> str:
        """The help without what only rich would take away."""
        return super().get_help(ctx).replace("\\[", "[")


def command(app: typer.Typer, name: str, *examples: str) -> Callable[[F], F]:
    """Make a function a command whose help shows ``examples``, one a line."""
    heading = "Example:" if len(examples) == 1 else "Examples:"
    epilog = "\n".join(["\b", heading, *(f"  {example}" for example in examples)])
    return app.command(name, cls=PlainCommand, epilog=epilog)
