"""How long runs will take here: measured on a few of their own steps, not guessed.

For each kind of run (seeds alike) one client of medium size is trained once and a shard of the test images is scored;
a round is a number of steps and shards. Processor time is what counts, so that other work on the machine does not; what
a round costs beside its steps and shards is left out. An estimate is therefore a little low.

How much room they will take follows from the tensors of a model and of its checkpoint, and from how long lines are.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from ecgr.config.experiment import Experiment
from ecgr.core.regulators import Plain
from ecgr.runs.checkpoint import GENERATIONS
from ecgr.simulation.client import ClientJob
from ecgr.simulation.engines import one_thread
from ecgr.simulation.evaluate import shards
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import Snapshot, final_state, round_jobs, start
from ecgr.simulation.workspace import Problem, Workspace
from ecgr.tasks.data import Dataset
from ecgr.tasks.partition import Partition

Clock = Callable[[], float]
REPEATS = 5
LINE, OF_CLIENT, OF_REGULATED = 350, 170, 340
"""Bytes of a round's line in a record, of it for each client, and where its update is regulated."""


class RunCost(NamedTuple):
    """What one run takes: seconds and bytes of the record for each round, bytes of the model and of checkpoints."""

    seconds: float
    record: int
    model: int
    checkpoints: int


def cost_of_run(experiment: Experiment, dataset: Dataset, clock: Clock = time.process_time) -> RunCost:
    """What a run takes: of one client's training and one shard's evaluation, and of the tensors that it keeps."""
    problem = prepare(experiment, dataset)
    beginning, sizes = start(problem), problem.partition.sizes()
    jobs = round_jobs(problem, beginning)
    model = sum(tensor.nbytes for tensor in final_state(problem, beginning).values())
    server = sum(tensor.nbytes for tensor in beginning.server.values())
    client = sum(tensor.nbytes for tensor in experiment.algorithm.init_client(beginning.params).values())
    clients = client * sum(size > 0 for size in sizes)
    copies = 3 if experiment.run.served == "average" else 1
    return RunCost(
        seconds=_seconds_per_round(problem, beginning, jobs, clock),
        record=LINE + len(jobs) * (OF_CLIENT if isinstance(experiment.regulator, Plain) else OF_REGULATED),
        model=model,
        checkpoints=GENERATIONS * (copies * model + server + clients),
    )


def _seconds_per_round(problem: Problem, beginning: Snapshot, jobs: Sequence[ClientJob], clock: Clock) -> float:
    sizes, workspace = problem.partition.sizes(), Workspace(problem)
    jobs = jobs or round_jobs(problem, beginning, [sizes.index(max(sizes))])
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


def calibrate(
    experiments: Iterable[Experiment], watch: Callable[[str], None], clock: Clock = time.process_time
) -> dict[str, RunCost]:
    """Costs by `Experiment.key`; data sets are read once; ``watch`` hears of each kind as its turn comes."""
    datasets: dict[object, Dataset] = {}
    measured: dict[str, RunCost] = {}
    for key, experiment in {experiment.key(): experiment for experiment in experiments}.items():
        config = experiment.to_dict()
        watch(f"{config['data']['name']}, {config['algorithm']['name']}, {config['regulator']['name']}")
        if experiment.source not in datasets:
            datasets[experiment.source] = experiment.source.load()
        measured[key] = cost_of_run(experiment, datasets[experiment.source], clock)
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
