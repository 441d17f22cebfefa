"""What the simulator's own code gives for the clients that took part, and no others."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from ecgr.config.experiment import Experiment
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import Replies, final_state, finish_round, round_jobs, score, start


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
        by = partial(score, problem, engine)
        snapshot = finish_round(problem, snapshot, jobs, replies, by, time.perf_counter()).snapshot
    return final_state(problem, snapshot)
