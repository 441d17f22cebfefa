"""How long runs will take here: measured on a few of their own steps, not guessed.

For each kind of run (seeds alike) one client of medium size is trained once and a shard of the test images is scored;
a round is so many steps and shards. Processor time is what counts, so that other work on the machine does not; what a
round costs beside its steps and shards is left out. An estimate is therefore a little low.

How much room they will take follows from the tensors of a model and of its checkpoint, and from how long lines are.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from ecgr.config.experiment import Experiment
from ecgr.core.regulators import Plain
from ecgr.runs.checkpoint import GENERATIONS
from ecgr.simulation.engines import one_thread
from ecgr.simulation.evaluate import shards
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import final_state, round_jobs, start
from ecgr.simulation.workspace import Problem, Workspace
from ecgr.tasks.data import Dataset
from ecgr.tasks.partition import Partition

Clock = Callable[[], float]
REPEATS = 5
LINE, OF_CLIENT, OF_REGULATED = 350, 170, 340
"""Bytes of a round's line in a record, of it for each client, and where its update is regulated."""


class Cost(NamedTuple):
    """What one run takes: seconds and bytes of the record for each round, bytes of the model and of checkpoints."""

    seconds: float
    record: int
    model: int
    checkpoints: int


def seconds_per_round(experiment: Experiment, dataset: Dataset, clock: Clock = time.process_time) -> float:
    """The time of one round in one process, from one client's training and one shard's evaluation."""
    problem = prepare(experiment, dataset)
    workspace, beginning = Workspace(problem), start(problem)
    sizes = problem.partition.sizes()
    jobs = round_jobs(problem, beginning) or round_jobs(problem, beginning, [sizes.index(max(sizes))])
    scoring = list(shards(problem, beginning.params, beginning.buffers))
    middle = min(jobs, key=lambda job: abs(job.cost - median(other.cost for other in jobs)))
    with one_thread():
        middle.run(workspace)  # the first steps of a process are slow, and not what a long run is made of
        began = clock()
        middle.run(workspace)
        trained = clock()
        scoring[0].run(workspace)
        scored = clock()
    samples = sum(job.cost for job in jobs) / max(1, middle.cost)
    images = sum(shard.cost for shard in scoring) / scoring[0].cost
    return (trained - began) * samples + (scored - trained) * images


def room(experiment: Experiment, dataset: Dataset) -> tuple[int, int, int]:
    """Bytes of a line of the record, of the model, and of the checkpoints that are kept while it can go on."""
    problem = prepare(experiment, dataset)
    beginning = start(problem)
    model = sum(tensor.nbytes for tensor in final_state(problem, beginning).values())
    server = sum(tensor.nbytes for tensor in beginning.server.values())
    client = sum(tensor.nbytes for tensor in experiment.algorithm.init_client(beginning.params).values())
    copies = 3 if experiment.run.served == "average" else 1
    present = len(round_jobs(problem, beginning))
    line = LINE + present * (OF_CLIENT if isinstance(experiment.regulator, Plain) else OF_REGULATED)
    clients = client * sum(size > 0 for size in problem.partition.sizes())
    return line, model, GENERATIONS * (copies * model + server + clients)


def calibrate(
    experiments: Iterable[Experiment], watch: Callable[[str], None], clock: Clock = time.process_time
) -> dict[str, Cost]:
    """Costs by `Experiment.key`; data sets are read once; ``watch`` hears of each kind as its turn comes."""
    datasets: dict[object, Dataset] = {}
    measured: dict[str, Cost] = {}
    for key, experiment in {experiment.key(): experiment for experiment in experiments}.items():
        config = experiment.to_dict()
        watch(f"{config['data']['name']}, {config['algorithm']['name']}, {config['regulator']['name']}")
        if experiment.source not in datasets:
            datasets[experiment.source] = experiment.source.load()
        dataset = datasets[experiment.source]
        measured[key] = Cost(seconds_per_round(experiment, dataset, clock), *room(experiment, dataset))
    return measured


def precision_note(problem: Problem, clock: Clock | None = None) -> str | None:
    """What a step in ``run.precision`` takes here, compared with one in float32; None where it is float32.

    The shortest of a few steps with a client's first batch each; no more are taken once a second is over.
    """
    precision = problem.experiment.run.precision
    if precision == "float32":
        return None
    clock = clock or (time.process_time if problem.device == "cpu" else time.perf_counter)
    batch = max(problem.partition.clients, key=len)[: problem.experiment.federation.batch_size]
    own = replace(problem, partition=Partition((batch,)), test_clients=None)
    plain = replace(own.experiment, run=replace(own.experiment.run, precision="float32"))
    spaces = [Workspace(own), Workspace(replace(own, experiment=plain))]
    (job,) = round_jobs(own, start(own), [0])
    times: list[list[float]] = [[], []]
    began = clock()
    with one_thread():
        while len(times[0]) < REPEATS and (not times[0] or clock() - began < 1):
            for space, own_times in zip(spaces, times, strict=True):
                before = clock()
                job.run(space)
                own_times.append(clock() - before)
    ratio = min(times[0]) / min(times[1])
    slower = "; float32 is faster" if ratio > 1 else ""
    return f"{precision}: a step takes {ratio:.2f} of float32's time here{slower}"
