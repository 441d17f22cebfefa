"""`ecgr list`: the tables, one line an entry."""

from collections.abc import Callable, Mapping
from inspect import getdoc
from typing import Any

from rich.table import Table

from ecgr.algorithms import ALGORITHMS, SERVER_RULES
from ecgr.cli.console import out, print_json
from ecgr.cli.options import Json
from ecgr.core.regulators import REGULATORS
from ecgr.experiment.config import presets
from ecgr.experiment.optimizers import OPTIMIZERS
from ecgr.experiment.schedules import SCHEDULES
from ecgr.experiment.schema import parameters_of
from ecgr.tasks.data import DATASETS
from ecgr.tasks.losses import LOSSES
from ecgr.tasks.metrics import METRICS
from ecgr.tasks.models import MODELS
from ecgr.tasks.partitioners import PARTITIONERS

TABLES: Mapping[str, Mapping[str, Callable[..., Any]]] = {
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
    rows = {
        title: [
            {
                "name": name,
                "what": (getdoc(entry) or "").splitlines()[0],
                "parameters": list(parameters_of(entry)),
            }
            for name, entry in table.items()
        ]
        for title, table in TABLES.items()
    }
    if as_json:
        print_json({**rows, "presets": list(presets())})
        return
    for title, entries in rows.items():
        table = Table("name", "what", "parameters", title=title, title_justify="left", box=None, pad_edge=False)
        for row in entries:
            table.add_row(str(row["name"]), str(row["what"]), ", ".join(row["parameters"]))
        out.print(table)
        out.print()
    out.print("presets: " + ", ".join(presets()), markup=False, soft_wrap=True)
