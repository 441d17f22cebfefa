"""What ``run.precision = "bf16"`` is worth: processor time of whole rounds of the paper's CNN against float32.

Training, regulation, aggregation and evaluation count; as in CIFAR-10 there is one test image to five trained ones.
"""

import time
from collections.abc import Iterator
from statistics import median

from benchmarks.problems import problem
from benchmarks.rows import Row, at_least
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.rounds import play_round, start

NAME = "precision: seconds per round, float32 / bf16, cnn of width 1, batches of 16"
LIMIT = 1.4


def rows(quick: bool) -> Iterator[Row]:
    samples = 160 if quick else 320
    problems = [
        problem("cnn", samples=samples, clients=2, batch_size=16, test=samples // 5, run__precision=precision)
        for precision in ("float32", "bf16")
    ]
    engines, snapshots = [SerialEngine(chosen) for chosen in problems], [start(chosen) for chosen in problems]
    times: list[list[float]] = [[], []]
    for _ in range(4):  # the first round of a process is slow, and left out
        for i, chosen in enumerate(problems):
            began = time.process_time()
            snapshots[i] = play_round(chosen, engines[i], snapshots[i]).snapshot
            times[i].append(time.process_time() - began)
    exact, half = times[0][1:], times[1][1:]
    ratio = median(a / b for a, b in zip(exact, half, strict=True))
    yield at_least(NAME, ratio, LIMIT, f"{median(exact):.2f} s against {median(half):.2f} s of processor time")
