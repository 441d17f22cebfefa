"""`ecgr list`: the tables, one line an entry."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from inspect import getdoc
from typing import Annotated, Any

from rich.padding import Padding
from rich.text import Text
from typer import Argument

from ecgr.algorithms import ALGORITHMS, SERVER_RULES
from ecgr.algorithms.parts import PARTS
from ecgr.cli.console import out, print_json, print_table, say
from ecgr.cli.options import Json
from ecgr.config.experiment import presets
from ecgr.config.methods import NOTATION
from ecgr.config.optimizers import OPTIMIZERS, SCHEDULES
from ecgr.config.registry import parameters_of
from ecgr.core.regulators import REGULATORS
from ecgr.errors import ConfigError
from ecgr.tables import OURS, Table, unknown
from ecgr.tasks.data import DATASETS
from ecgr.tasks.losses import LOSSES
from ecgr.tasks.metrics import METRICS
from ecgr.tasks.models import MODELS
from ecgr.tasks.partition import PARTITIONERS

CHOICES: Sequence[Table[Any]] = (
    ALGORITHMS, SERVER_RULES, REGULATORS, MODELS, LOSSES, METRICS, DATASETS, PARTITIONERS, OPTIMIZERS, SCHEDULES,
    *PARTS.values(),
)  # fmt: skip
TABLES: Mapping[str, Table[Any]] = {table.group.removeprefix("ecgr."): table for table in CHOICES}
METHODS = "methods"
NOTES = (
    f"A method is written {NOTATION}.",
    "up, down: vectors of the model's size a client and round, in brackets with a regulator; client, server: kept from"
    " round to round, N for each of the clients; passes: forward and backward a step. A client that keeps something is"
    " stateful: it must take part again.",
    "measured: tuned, with paired seeds, in docs/results/methods.md; our screening: smaller runs that were not kept;"
    " literature: claimed there.",
)


def kinds(incomplete: str) -> list[str]:
    """For the shell's completion."""
    return [kind for kind in (METHODS, *TABLES, "presets") if kind.startswith(incomplete)]


def list_command(
    kind: Annotated[
        str | None, Argument(metavar="[KIND]", help="One table, or methods with their costs.", autocompletion=kinds)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what can be chosen: methods, algorithms, regulators, models, data sets, presets, …"""
    if kind is not None and kind not in kinds(""):
        raise ConfigError(unknown("list", kind, kinds(""), kind="table"))
    if kind == METHODS:
        _list_methods(as_json)
        return
    rows = {title: [_row(table, name) for name in table] for title, table in TABLES.items() if kind in (None, title)}
    names = list(presets()) if kind in (None, "presets") else []
    if as_json:
        print_json({**rows, **({"presets": names} if names else {})})
        return
    for title, entries in rows.items():
        left_out = {"from"} if all(row["from"] == OURS for row in entries) else set()
        shown = [{**row, "parameters": ", ".join(row["parameters"])} for row in entries]
        print_table([{k: v for k, v in row.items() if k not in left_out} for row in shown], title)
        out.print()
    if names:
        say("presets: " + ", ".join(names))


def _row(table: Table[Any], name: str) -> dict[str, Any]:
    """An entry: what it is, its parameters, its package; or why it cannot be loaded."""
    try:
        entry = table[name]
        what, parameters = (getdoc(entry) or "").partition("\n")[0], list(parameters_of(entry))
    except ConfigError as error:
        what, parameters = str(error), []
    return {"name": name, "what": what, "parameters": parameters, "from": table.origin(name)}


def _list_methods(as_json: bool) -> None:
    """Notation, cost and use of each method."""
    from ecgr.config.catalogue import method_catalogue  # loads torch: costs are counted

    methods = method_catalogue()
    if as_json:
        print_json([{**asdict(method), "stateful": method.cost.stateful} for method in methods])
        return
    rows = [("method", "up", "down", "client", "server", "passes")]
    for method in methods:
        cost = method.cost
        up = str(cost.up) + (f" ({cost.up_regulated})" if cost.up_regulated != cost.up else "")
        server = str(cost.server) + (" + N" * cost.server_per_client)
        passes = f"{cost.forward}+{cost.backward}"
        rows.append((method.notation, up, str(cost.down), str(cost.client), server, passes))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    say(lines[0])
    for line, method in zip(lines[1:], methods, strict=True):  # a name is never cut: it is there to be copied
        say(line)
        out.print(Padding(Text(f"{method.helps} ({method.evidence})"), (0, 0, 0, 4)))
    for line in NOTES:
        say(line)
