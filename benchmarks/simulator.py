"""Seconds per round of paper/mnist (FedAvg, no regulation, two workers) against the bare limit."""

from collections.abc import Iterator

from benchmarks.bare_loop import BareLoop
from benchmarks.rows import Row, at_most, interleaved, median_ratio, not_measured
from ecgr.config import load
from ecgr.engines import open_engine
from ecgr.errors import EcgrError
from ecgr.simulation import Snapshot, play_round, start
from ecgr.workspace import prepare

NAME = "simulator: seconds per round / hand-written two-process loop, paper/mnist"
LIMIT = 1.10


def rows(quick: bool) -> Iterator[Row]:
    try:
        experiment = load("paper/mnist", {"regulator.name": "none", "data.fraction": 0.25 if quick else 1.0})
        problem = prepare(experiment, experiment.source.load())
    except EcgrError as error:
        yield not_measured(NAME, LIMIT, "at most", str(error))
        return
    bare = BareLoop(problem)
    try:
        with open_engine(problem, workers=2) as engine:
            state: list[Snapshot] = [start(problem)]

            def ours() -> None:
                state[0] = play_round(problem, engine, state[0]).snapshot

            ours()
            bare.round()
            mine, limit = interleaved(3 if quick else 5, ours, bare.round)
    finally:
        bare.close()
    note = f"{sorted(mine)[len(mine) // 2]:.2f} s against {sorted(limit)[len(limit) // 2]:.2f} s"
    yield at_most(NAME, median_ratio(mine, limit), LIMIT, note)
