"""How long runs will take here: measured on a few of their own steps, not guessed.

For each kind of run (seeds alike) one client of medium size is trained once and a shard of the test images is scored;
a round is so many steps and shards. Processor time is what counts, so that other work on the machine does not; what a
round costs beside its steps and shards is left out. An estimate is therefore a little low.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import median

from ecgr.config.experiment import Experiment
from ecgr.simulation.engines import one_thread
from ecgr.simulation.evaluate import shards
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import round_jobs, start
from ecgr.simulation.workspace import Problem, Workspace
from ecgr.tasks.data import Dataset
from ecgr.tasks.partition import Partition

Clock = Callable[[], float]
REPEATS = 5


def seconds_per_round(experiment: Experiment, dataset: Dataset, clock: Clock = time.process_time) -> float:
    """The time of one round in one process, from one client's training and one shard's evaluation."""
    problem = prepare(experiment, dataset)
    workspace, beginning = Workspace(problem), start(problem)
    jobs = round_jobs(problem, beginning)
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
) -> dict[str, float]:
    """Seconds a round by `Experiment.key`; data sets are read once; ``watch`` hears of each kind as its turn comes."""
    datasets: dict[object, Dataset] = {}
    measured: dict[str, float] = {}
    for key, experiment in {experiment.key(): experiment for experiment in experiments}.items():
        config = experiment.to_dict()
        watch(f"{config['data']['name']}, {config['algorithm']['name']}, {config['regulator']['name']}")
        if experiment.source not in datasets:
            datasets[experiment.source] = experiment.source.load()
        measured[key] = seconds_per_round(experiment, datasets[experiment.source], clock)
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
    job = round_jobs(own, start(own))[0]
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
