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


def metrics_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """A round's metrics, the one that decides first; older records have accuracy alone."""
    return dict(row["metrics"]) if "metrics" in row else {"accuracy": row["accuracy"]}


def scores(row: Mapping[str, Any]) -> str:
    """A round's first metric and loss; a record has null where one is not finite.

    >>> scores({"metrics": {"auc": 0.9, "accuracy": 0.8}, "loss": 0.5}), scores({"accuracy": 0.1, "loss": None})
    ('auc 0.9000, loss 0.5000', 'accuracy 0.1000, loss not finite')
    """
    first = next(iter(metrics_of(row).items()))
    return ", ".join(
        f"{name} not finite" if value is None else f"{name} {value:.4f}"
        for name, value in (first, ("loss", row["loss"]))
    )


def summary(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a program is told of a round."""
    others = {name: row[name] for name in ("loss", "train_loss", "worst_client")}
    return {"round": row["round"], **metrics_of(row), **others}


def complain(*lines: str) -> None:
    """One line per problem, to stderr."""
    for line in lines:
        err.print(f"ecgr: {printable(line)}", markup=False, soft_wrap=True)


def say(line: str) -> None:
    """A line of the result, as it is, whatever its length and brackets."""
    out.print(line, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """A value for programs to read."""
    say(json.dumps(value))
