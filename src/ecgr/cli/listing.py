"""`ecgr list`: the tables, one line an entry."""

from collections.abc import Mapping
from inspect import getdoc
from typing import Any

from rich.markup import escape
from rich.table import Table as Grid

from ecgr.algorithms import ALGORITHMS, SERVER_RULES
from ecgr.cli.console import out, print_json
from ecgr.cli.options import Json
from ecgr.core.regulators import REGULATORS
from ecgr.errors import ConfigError
from ecgr.experiment.config import presets
from ecgr.experiment.optimizers import OPTIMIZERS
from ecgr.experiment.schedules import SCHEDULES
from ecgr.experiment.schema import parameters_of
from ecgr.tables import OURS, Table
from ecgr.tasks.data import DATASETS
from ecgr.tasks.losses import LOSSES
from ecgr.tasks.metrics import METRICS
from ecgr.tasks.models import MODELS
from ecgr.tasks.partitioners import PARTITIONERS

TABLES: Mapping[str, Table[Any]] = {
    "algorithms": ALGORITHMS,
    "server_rules": SERVER_RULES,
    "regulators": REGULATORS,
    "models": MODELS,
    "losses": LOSSES,
    "metrics": METRICS,
    "datasets": DATASETS,
    "partitioners": PARTITIONERS,
    "optimizers": OPTIMIZERS,
    "schedules": SCHEDULES,
}


def list_command(as_json: Json = False) -> None:
    """Show what there is to choose from: algorithms, regulators, models, data sets, partitioners, presets."""
    rows = {title: [_row(table, name) for name in table] for title, table in TABLES.items()}
    if as_json:
        print_json({**rows, "presets": list(presets())})
        return
    for title, entries in rows.items():
        columns = ("name", "what", "parameters", *(("from",) if any(row["from"] != OURS for row in entries) else ()))
        table = Grid(*columns, title=title, title_justify="left", box=None, pad_edge=False)
        for row in entries:
            cells = {**row, "parameters": ", ".join(row["parameters"])}
            table.add_row(*(escape(str(cells[column])) for column in columns))
        out.print(table)
        out.print()
    out.print("presets: " + ", ".join(presets()), markup=False, soft_wrap=True)


def _row(table: Table[Any], name: str) -> dict[str, Any]:
    """An entry: what it is, what it takes, the package it comes from; of one that is broken, why."""
    try:
        entry = table[name]
        what, parameters = (getdoc(entry) or "").partition("\n")[0], list(parameters_of(entry))
    except ConfigError as error:
        what, parameters = str(error), []
    return {"name": name, "what": what, "parameters": parameters, "from": table.origin(name)}
