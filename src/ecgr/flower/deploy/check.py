"""`ecgr federate check`: what a site will find when it joins, found out at the site, before anything is sent."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ecgr.config.experiment import Experiment
from ecgr.errors import ConfigError
from ecgr.simulation.client import ClientJob
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.engines.pool import Lost
from ecgr.simulation.prepare import prepare_site
from ecgr.simulation.rounds import learning_rate, start
from ecgr.tasks.partition import Partition


@dataclass(frozen=True, slots=True)
class Found:
    """What a site holds, and what one step of training on it gave.

    Attributes:
        train, test: samples.
        shape: what a model must know of them.
        loss, metrics: what is trained and judged by.
        parameters: how many the model has.
        step_loss: of the first batch, before the step.
        step_norm: how far the step went.
    """

    train: int
    test: int
    shape: Mapping[str, int]
    loss: str
    metrics: tuple[str, ...]
    parameters: int
    step_loss: float
    step_norm: float


def check_site(experiment: Experiment, client: int) -> Found:
    """Load this machine's samples as the site of ``client`` and train one step on them."""
    clients = experiment.partition.clients
    if client < 0 or (clients is not None and client >= clients):
        raise ConfigError(f"--client: {client} does not fit; sites go from 0 to {(clients or 1) - 1}")
    dataset = experiment.source.load()
    problem = prepare_site(experiment, dataset, client)
    own = problem.partition.clients[client]
    batch = Partition((*problem.partition.clients[:client], own[: experiment.federation.batch_size]))
    short = replace(problem, partition=batch)
    snapshot, algorithm = start(short), experiment.algorithm
    job = ClientJob(
        client,
        0,
        learning_rate(short, 0),
        1,
        snapshot.params,
        snapshot.buffers,
        algorithm.broadcast(snapshot.server),
        algorithm.init_client(snapshot.params),
    )
    (answer,) = SerialEngine(short).map([job])
    assert not isinstance(answer, Lost), "nothing is lost in one process"
    result = answer[0]
    return Found(
        train=len(dataset.train),
        test=len(dataset.test),
        shape=dict(dataset.shape),
        loss=type(problem.loss).__name__,
        metrics=tuple(metric.name for metric in problem.metrics),
        parameters=problem.spec.size,
        step_loss=result.train_loss,
        step_norm=result.metrics["update_norm"],
    )


@contextmanager
def places(variables: Mapping[str, str]) -> Iterator[None]:
    """Look for data where a site would: these environment variables, for the length of a block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
