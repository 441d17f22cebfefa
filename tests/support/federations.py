"""Small federations in one process, and the replay of a recorded one."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ecgr.experiment.config import Experiment
from ecgr.flower import Guard, MemoryGrid, client_app, server_app
from ecgr.flower.apps.memory import Tamper, Ticks
from ecgr.runs.record import RunRecord
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import Replies, conclude, final_state, round_jobs, start

CLIENTS = 4


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


def replay(chosen: Experiment, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
    """The model that the simulator's own code gives for the recorded participation."""
    problem = prepare(chosen, chosen.source.load())
    engine, snapshot = SerialEngine(problem), start(problem)
    for row in rows:
        recorded = {client["client"] for client in row["clients"]}
        jobs = [job for job in round_jobs(problem, snapshot) if job.client in recorded]
        assert len(jobs) == len(recorded), "only sampled clients are used"
        answers: list[Any] = list(engine.map(jobs))
        states = {result.client: state for result, state in answers if state}
        replies = Replies([result for result, _ in answers], states, [])
        snapshot = conclude(problem, engine, snapshot, jobs, replies, time.perf_counter()).snapshot
    return final_state(problem, snapshot)
