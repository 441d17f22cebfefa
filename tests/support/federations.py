"""Small federations in one process."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from ecgr.cli.federating import federate_app
from ecgr.config.experiment import Experiment
from ecgr.flower import Guard, MemoryGrid, client_app, server_app
from ecgr.flower.fleet import Fleet, Listed
from ecgr.flower.memory import Tamper
from ecgr.flower.server import Federation
from ecgr.flower.site import app_for
from ecgr.runs.record import RunRecord
from ecgr.runs.runner import run
from ecgr.simulation.workspace import Problem
from support.commands import assert_same_run

CLIENTS = 4


class Ticks:
    """A clock that only sleeping moves: deadlines without waiting, and the same on every machine."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        """Seconds slept."""
        return self._seconds

    def sleep(self, seconds: float) -> None:
        """Move on at once."""
        self._seconds += seconds


def experiment(algorithm: str, regulator: str = "ecgr", changes: Mapping[str, Any] | None = None) -> Experiment:
    """Four unlike clients, three of whom take part in a round."""
    return Experiment.from_dict(
        {
            "data": {"name": "digits", "fraction": 0.25},
            "partition": {"name": "dirichlet", "clients": CLIENTS, "alpha": 0.5, "min_batches": 2},
            "model": {"name": "net"},
            "algorithm": {"name": algorithm},
            "regulator": {"name": regulator},
            "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
            "federation": {"rounds": 3, "batch_size": 32, "participation": 0.75},
        }
    ).replace(changes or {})


def nodes(root: Path, clients: Sequence[int] = range(CLIENTS)) -> list[dict[str, Any]]:
    """One node a client, its state below ``root``."""
    return [{"partition-id": client, "state-dir": str(root / f"site-{client}")} for client in clients]


def federation(chosen: Problem, root: Path, guard: Guard | None = None, **options: Any) -> Federation:
    """What plays a problem's rounds with a site for each of its clients."""
    sites = [{"partition-id": client, "state-dir": str(root)} for client in range(len(chosen.partition))]
    memory = MemoryGrid(app_for(lambda *_: (chosen, {})), sites, **options)
    fleet = Fleet(memory, clock=Ticks()).expect(chosen, {})
    return Federation(chosen, fleet, guard or Guard(), "run", memory.run_id)


def federate(
    chosen: Experiment,
    out: Path,
    *,
    app: Any = None,
    sites: Sequence[Mapping[str, Any]] | None = None,
    tamper: Tamper | None = None,
    arrival: Sequence[int] | None = None,
    listed: Sequence[Listed] = (),
    **server: Any,
) -> RunRecord:
    """Both apps to the end of the run: nodes with the configs ``sites``; ``listed`` and ``server`` for the server."""
    here = nodes(out.parent / "sites", range(chosen.partition.clients or 0)) if sites is None else sites
    app = app or client_app(chosen, local_data=server.get("local_data", False))
    memory = MemoryGrid(app, here, tamper=tamper, arrival=arrival)
    memory.serve(server_app(chosen, out, sites=listed, **{"clock": Ticks(), **server}))
    return RunRecord.open(out)


def federating(*arguments: str | Path, answer: str = "") -> Result:
    """`ecgr federate` in this process."""
    return CliRunner().invoke(federate_app, [*map(str, arguments)], input=answer)


def write_federation(folder: Path) -> Path:
    """The files of two sites on several machines."""
    sites = ["--site", "cleveland=100", "--site", "va=100", "--local-data"]
    told = federating("init", "--server", "fl.example.org", "--out", folder, *sites)
    assert told.exit_code == 0, told.output
    assert (folder / "README.md").read_text() in told.output
    return folder


def weights(out: Path) -> bytes:
    """The model of a run, byte for byte."""
    return (out / "model.safetensors").read_bytes()


def federate_as_run(chosen: Experiment, root: Path, **options: Any) -> RunRecord:
    """A federation in ``root / "federated"`` that has the weights and the rows of a run in ``root / "simulated"``."""
    run(chosen, root / "simulated")
    record = federate(chosen, root / "federated", **options)
    assert_same_run(root / "federated", root / "simulated")
    return record
