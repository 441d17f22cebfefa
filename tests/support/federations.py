"""Small federations in one process."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ecgr.config.experiment import Experiment
from ecgr.flower import Guard, MemoryGrid, client_app, server_app
from ecgr.flower.fleet import Fleet
from ecgr.flower.memory import Tamper
from ecgr.flower.server import Federation
from ecgr.flower.site import app_for
from ecgr.runs.record import RunRecord
from ecgr.simulation.workspace import Problem

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


def grid(
    chosen: Experiment, root: Path, *, tamper: Tamper | None = None, arrival: Sequence[int] | None = None
) -> MemoryGrid:
    """A Grid whose nodes keep their states below ``root``."""
    return MemoryGrid(client_app(chosen), nodes(root), tamper=tamper, arrival=arrival)


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
    tamper: Tamper | None = None,
    arrival: Sequence[int] | None = None,
    guard: Guard | None = None,
) -> RunRecord:
    """Both apps to the end of the run."""
    grid(chosen, out.parent / "sites", tamper=tamper, arrival=arrival).serve(
        server_app(chosen, out, guard=guard, clock=Ticks())
    )
    return RunRecord.open(out)
