"""Runs SCAFFOLD with many or few clients in a process of its own; prints its peak memory and seconds per round."""

import json
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch

from benchmarks.memory_probe import peak
from benchmarks.problems import SHAPES, problem, random_dataset
from ecgr.runs.runner import play
from ecgr.simulation.engines import open_engine
from ecgr.simulation.rounds import simulate

PARTICIPANTS, BATCH = 20, 16


def main(clients: int, samples: int, rounds: int, participants: int) -> None:
    torch.set_num_threads(1)
    chosen = problem(
        "lenet",
        samples=samples,
        clients=clients,
        batch_size=BATCH,
        algorithm__name="scaffold",
        regulator__name="none",
        federation__participation=participants / clients,
        federation__rounds=rounds,
    )
    moments: list[float] = []

    def played(snapshot):  # type: ignore[no-untyped-def]
        with open_engine(chosen, 1) as engine:
            yield from simulate(chosen, engine, snapshot)

    with tempfile.TemporaryDirectory() as directory:
        dataset = random_dataset(10, SHAPES["lenet"], test=10)
        play(
            chosen,
            dataset,
            Path(directory),
            played,
            resume=False,
            every=1,
            watch=lambda row: moments.append(time.perf_counter()),  # after the checkpoint of the round
        )
    seconds = [after - before for before, after in pairwise(moments)]
    sys.stdout.write(json.dumps({"peak": peak(), "seconds": statistics.median(seconds or [0.0])}) + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
