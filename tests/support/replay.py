"""What the simulator's own code gives for the clients that took part, and no others."""

import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from ecgr.config.experiment import Experiment
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import Replies, Snapshot, final_state, finish_round, round_jobs, score, start
from ecgr.simulation.workspace import Problem


def replay(chosen: Experiment, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
    """The model that the simulator's own code gives for the recorded participation."""
    problem = prepare(chosen, chosen.source.load())
    used = [{client["client"] for client in row["clients"]} for row in rows]
    return final_state(problem, replayed(problem, used))


def replayed(problem: Problem, used: Sequence[Collection[int]]) -> Snapshot:
    """What the simulator makes of the clients that were used in each round."""
    engine, snapshot = SerialEngine(problem), start(problem)
    for clients in used:
        jobs = [job for job in round_jobs(problem, snapshot) if job.client in clients]
        assert len(jobs) == len(clients), "only sampled clients are used"
        answers: list[Any] = list(engine.map(jobs))
        states = {result.client: state for result, state in answers if state}
        replies = Replies([result for result, _ in answers], states, [])
        by = partial(score, problem, engine)
        snapshot = finish_round(problem, snapshot, jobs, replies, by, time.perf_counter()).snapshot
    return snapshot
