"""What a site holds, tried before anything is sent: loaded, and trained for one step."""

from dataclasses import replace
from typing import Any

from ecgr.config.experiment import Experiment
from ecgr.errors import ConfigError
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.engines.pool import Lost
from ecgr.simulation.prepare import prepare_site
from ecgr.simulation.rounds import round_jobs, start
from ecgr.tasks.partition import Partition


def check_client(client: int, clients: int | None) -> None:
    """Refuse a number that is no client's."""
    if client < 0 or (clients is not None and client >= clients):
        raise ConfigError(f"partition-id: {client}, allowed 0 to {(clients or 1) - 1}")


def check_site(experiment: Experiment, client: int) -> dict[str, Any]:
    """Load this machine's samples as the site of ``client``, train one step on them, and say what was found."""
    check_client(client, experiment.partition.clients)
    dataset = experiment.source.load()
    problem = prepare_site(experiment, dataset, client)
    own = problem.partition.clients[client]
    batch = Partition((*problem.partition.clients[:client], own[: experiment.federation.batch_size]))
    short = replace(problem, partition=batch)
    (job,) = round_jobs(short, start(short), [client])
    (outcome,) = SerialEngine(short).map([job])
    assert not isinstance(outcome, Lost), "nothing is lost in one process"
    result = outcome[0]
    return {
        "files": sorted(dataset.provenance.files),
        "train": len(dataset.train),
        "test": len(dataset.test),
        "shape": dict(dataset.shape),
        "loss": type(problem.loss).__name__,
        "metrics": [metric.name for metric in problem.metrics],
        "parameters": problem.spec.size,
        "step_loss": result.train_loss,
        "step_norm": result.metrics["update_norm"],
    }
