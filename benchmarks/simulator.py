"""Seconds per round of paper/mnist (FedAvg, no regulation, two workers) against the bare limit."""

from collections.abc import Iterator

from benchmarks.bare_loop import BareLoop
from benchmarks.problems import random_dataset, rounds_on
from benchmarks.rows import Row, at_most, interleaved, median_ratio
from ecgr.config.experiment import load
from ecgr.errors import DataError
from ecgr.simulation.engines import open_engine
from ecgr.simulation.prepare import prepare

NAME = "simulator: seconds per round / hand-written two-process loop, paper/mnist"
LIMIT = 1.12


def rows(quick: bool) -> Iterator[Row]:
    experiment = load("paper/mnist", {"regulator.name": "none", "data.fraction": 0.25 if quick else 1.0})
    try:
        images, dataset = "", experiment.source.load()
    except DataError:  # the time of a step does not depend on what is in a picture
        images, dataset = "; MNIST is not here: random images", random_dataset(60_000, (1, 28, 28), test=10_000)
    problem = prepare(experiment, dataset)
    bare = BareLoop(problem)
    try:
        with open_engine(problem, workers=2) as engine:
            ours = rounds_on(engine, problem)
            ours()
            bare.round()
            mine, limit = interleaved(3 if quick else 5, ours, bare.round)
    finally:
        bare.close()
    note = f"{sorted(mine)[len(mine) // 2]:.2f} s against {sorted(limit)[len(limit) // 2]:.2f} s{images}"
    yield at_most(NAME, median_ratio(mine, limit), LIMIT, note)
