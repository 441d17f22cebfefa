"""An experiment's share of a data set and its partition among the clients. Needs numpy, not torch."""

from pathlib import Path

from ecgr.config.experiment import Experiment
from ecgr.errors import ConfigError
from ecgr.streams import stream
from ecgr.tasks.data import Dataset, hold_out, stratify
from ecgr.tasks.partition import GroupPartitioner, Partition, load_partition, partition_samples, top_up, without_small


def chosen_share(experiment: Experiment, dataset: Dataset) -> Dataset:
    """The stratified share of ``dataset`` that ``data.fraction`` and ``data.test_fraction`` ask for.

    With ``data.validation``, that share of the training samples takes the place of the test samples.
    """
    settings, seed = experiment.data, experiment.run.seed
    chosen = stratify(dataset, settings.fraction, stream(seed, "fraction"), settings.test_fraction)
    return hold_out(chosen, settings.validation, stream(seed, "validation")) if settings.validation else chosen


def partition_of(experiment: Experiment, dataset: Dataset) -> Partition:
    """The experiment's partition of the training samples; every client has ``min_batches`` batches at least."""
    settings, samples = experiment.partition, len(dataset.train)
    if settings.clients is not None and settings.clients > samples:
        raise ConfigError(f"partition.clients: {settings.clients} clients cannot share {samples} training samples")
    if settings.file is not None:
        partition = load_partition(Path(settings.file), samples)
        if settings.clients not in (None, len(partition)):
            raise ConfigError(
                f"partition.file: {settings.file} has {len(partition)} clients, partition.clients is {settings.clients}"
            )
    else:
        rng = stream(experiment.run.seed, "partition")
        partition = partition_samples(experiment.partitioner, dataset.train, settings.clients, rng)
        minimum = settings.min_batches * experiment.federation.batch_size
        if isinstance(experiment.partitioner, GroupPartitioner):
            partition = _whole(experiment, partition, minimum, dataset)
        else:
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


def natural_note(experiment: Experiment, dataset: Dataset) -> str | None:
    """What to tell a person whose data have natural clients, where the partition does not go by them.

    Groups that are all on one side of the split (the tiles of a picture) are no clients.
    """
    groups, tested = dataset.train.groups, dataset.test.groups
    if groups is None or tested is None or isinstance(experiment.partitioner, GroupPartitioner):
        return None
    natural = set(groups.tolist())
    if experiment.partition.file is not None or not natural & set(tested.tolist()):
        return None
    name = experiment.to_dict()["partition"]["name"]
    return (
        f"the data have {len(natural):,} natural clients, and partition.name = {name!r} mixes their samples;"
        ' partition.name = "groups" keeps them'
    )


def _whole(experiment: Experiment, partition: Partition, minimum: int, dataset: Dataset) -> Partition:
    """Natural clients as they are; those with fewer than ``minimum`` samples are refused, or left out if asked to."""
    small = [client for client, size in enumerate(partition.sizes()) if size < minimum]
    if small and experiment.partition.empty == "error":
        first = partition.clients[small[0]]
        names = [] if dataset.train.groups is None else sorted(set(dataset.train.groups[first].tolist()))
        who = f"client {small[0]}" + (f" ({names[0]})" if len(names) == 1 else "")
        raise ConfigError(
            f"partition.min_batches: {who} has {len(first)} training samples, {len(small)} of {len(partition)} clients"
            f" have fewer than {minimum}, and groups stay whole; lower partition.min_batches or federation.batch_size,"
            ' or leave such clients out with partition.empty = "skip"'
        )
    return without_small(partition, minimum)
