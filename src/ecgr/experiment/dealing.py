"""Who gets what: an experiment's share of a data set, dealt out to its clients. Needs numpy, not torch."""

from pathlib import Path

from ecgr.errors import ConfigError
from ecgr.experiment.config import Experiment
from ecgr.streams import stream
from ecgr.tasks.data import Dataset, stratified
from ecgr.tasks.partitioners import Partition, deal_out, load_partition, top_up


def chosen_share(experiment: Experiment, dataset: Dataset) -> Dataset:
    """The stratified share of ``dataset`` that ``data.fraction`` and ``data.test_fraction`` ask for."""
    settings = experiment.data
    return stratified(dataset, settings.fraction, stream(experiment.run.seed, "fraction"), settings.test_fraction)


def deal(experiment: Experiment, dataset: Dataset) -> Partition:
    """The experiment's partition of the training samples, nobody poorer than its rule allows."""
    settings, samples = experiment.partition, len(dataset.train)
    if settings.clients > samples:
        raise ConfigError(f"partition.clients: {settings.clients} clients cannot share {samples} training samples")
    if settings.file is not None:
        partition = load_partition(Path(settings.file), samples)
        if len(partition) != settings.clients:
            raise ConfigError(
                f"partition.file: {settings.file} deals to {len(partition)} clients, not {settings.clients}"
            )
    else:
        rng = stream(experiment.run.seed, "partition")
        partition = deal_out(experiment.partitioner, dataset.train, settings.clients, rng)
        minimum = settings.min_batches * experiment.federation.batch_size
        partition = top_up(partition, minimum, stream(experiment.run.seed, "top-up"))
    empty = [client for client, size in enumerate(partition.sizes()) if not size]
    if empty and settings.empty == "error":
        raise ConfigError(
            f"partition: client {empty[0]} has no data ({len(empty)} such of {len(partition)});"
            ' raise partition.min_batches or set partition.empty = "skip"'
        )
    if len(empty) == len(partition):
        raise ConfigError("partition: no client has any data")
    return partition
