"""What the commands print with: results to stdout, everything else to stderr."""

import json
import re
from collections.abc import Mapping
from typing import Any

from rich.console import Console

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """``text`` with control characters made visible, so that a name cannot steer the terminal.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return _CONTROL.sub(lambda match: repr(match.group())[1:-1], text)


def scores(row: Mapping[str, Any]) -> str:
    """A round's accuracy and loss; a record has null where the loss was not finite.

    >>> scores({"accuracy": 0.1, "loss": None})
    'accuracy 0.1000, loss not finite'
    """
    loss = "not finite" if row["loss"] is None else f"{row['loss']:.4f}"
    return f"accuracy {row['accuracy']:.4f}, loss {loss}"


def complain(*lines: str) -> None:
    """One line per problem, to stderr."""
    for line in lines:
        err.print(f"ecgr: {printable(line)}", markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """A value for programs to read."""
    out.print(json.dumps(value), markup=False, soft_wrap=True)
