"""What thousands of runs of the paper's CIFAR-10 would take on N GPUs: on paper, from shares that are measured here.

``python -m benchmarks.projection`` trains one client for twenty steps, scores a shard of test images and does what the
server's process does in a round. A GPU takes over the steps, the regulation and the scoring, so many times as fast as a
core of this machine as one says; what the server's process does stays as it is, and bounds what a GPU is good for.
"""

import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.problems import random_dataset
from ecgr.config.experiment import load
from ecgr.runs.checkpoint import save_checkpoint
from ecgr.runs.record import Position
from ecgr.simulation.engines import one_thread
from ecgr.simulation.evaluate import SHARD, shards, summarise
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import Replies, finish_round, round_jobs, start
from ecgr.simulation.workspace import Workspace
from ecgr.tasks.partition import Partition

TRAIN, TEST = 50_000, 10_000
"""Images of CIFAR-10."""
STEPS, CLIENTS = 20, 10
RUNS, GPUS, FASTER = 10_000, (1, 8, 64, 512), (10, 100, 1000)


@dataclass(frozen=True)
class Round:
    """Seconds of one core in a round of one run."""

    steps: float
    regulation: float
    scoring: float
    server: float

    @property
    def total(self) -> float:
        return self.steps + self.regulation + self.scoring + self.server

    def on_gpu(self, faster: float) -> float:
        """Seconds where all but the server's part is so many times as fast."""
        return (self.total - self.server) / faster + self.server


def hours(each: float, rounds: int, runs: int, workers: int) -> float:
    """Runs do not wait for each other, and none is shorter than itself."""
    return max(runs / workers, 1) * rounds * each / 3600


def measure(steps: int = STEPS) -> tuple[Round, int]:
    """A round of ``paper/cifar10`` on random images, by its parts; and how many rounds a run has."""
    experiment = load("paper/cifar10")
    batch = experiment.federation.batch_size
    dealt = {"partition.name": "iid", "partition.clients": CLIENTS}
    whole = prepare(experiment.replace(dealt), random_dataset(CLIENTS * steps * batch, (3, 32, 32), test=SHARD))
    alone = replace(whole, partition=Partition(whole.partition.clients[:1]))
    workspace, beginning = Workspace(alone), start(alone)
    job, *_ = round_jobs(alone, beginning)
    shard, *_ = shards(alone, beginning.params, beginning.buffers)
    with one_thread():
        shard.run(workspace)  # the first steps of a process are slow
        began = time.process_time()
        result, _ = job.run(workspace)
        trained = time.process_time()
        shard.run(workspace)
        scored = time.process_time()
    answers = [replace(result, client=c) for c in range(CLIENTS)]
    evaluated = summarise(whole, [shard.run(workspace)])  # timed above

    with TemporaryDirectory() as folder:
        before = time.process_time()
        jobs = round_jobs(whole, beginning)
        after = finish_round(
            whole, beginning, jobs, Replies(answers, {}, []), lambda _: evaluated, time.perf_counter()
        ).snapshot
        save_checkpoint(Path(folder), after, Position(0, ""))
        server = time.process_time() - before
    clients = TRAIN / (steps * batch)
    regulation = result.metrics["regulation_seconds"]
    return Round(
        steps=(trained - began - regulation) * clients,
        regulation=regulation * clients,
        scoring=(scored - trained) * TEST / SHARD,
        server=server,
    ), experiment.federation.rounds


def shown(number: float) -> str:
    """Two digits are more than is known."""
    return f"{float(f'{number:.2g}'):,g} h"


def table(measured: Round, rounds: int) -> list[str]:
    """In Markdown."""
    columns = " | ".join(f"a GPU as fast as {faster:,} cores" for faster in FASTER)
    lines = [f"| GPUs | {columns} |", "|---" * (1 + len(FASTER)) + "|"]
    for gpus in GPUS:
        cells = (shown(hours(measured.on_gpu(faster), rounds, RUNS, gpus)) for faster in FASTER)
        lines.append(f"| {gpus} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    measured, rounds = measure()
    shares = ", ".join(
        f"{name} {getattr(measured, name):.3g} s ({100 * getattr(measured, name) / measured.total:.2g} %)"
        for name in ("steps", "regulation", "scoring", "server")
    )
    lines = [
        f"A round of paper/cifar10 on one core of {os.cpu_count()}: {shares}.",
        f"{RUNS:,} runs of {rounds} rounds on one such core: {hours(measured.total, rounds, RUNS, 1):,.0f} h.",
        "",
        *table(measured, rounds),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
