"""An experiment's share of a data set and its partition among the clients. Needs numpy, not torch."""

from pathlib import Path

import numpy as np

from ecgr.config.experiment import Experiment
from ecgr.errors import ConfigError
from ecgr.streams import stream
from ecgr.tasks.data import Dataset, hold_out, stratify
from ecgr.tasks.partition import (
    Groups,
    Partition,
    load_partition,
    partition_samples,
    read_group_names,
    top_up,
    without_held,
    without_small,
)


def chosen_share(experiment: Experiment, dataset: Dataset) -> Dataset:
    """The stratified share of ``dataset`` that ``data.fraction`` and ``data.test_fraction`` ask for.

    With ``data.validation``, that share of the training samples takes the place of the test samples.
    """
    settings, seed = experiment.data, experiment.run.seed
    chosen = stratify(dataset, settings.fraction, stream(seed, "fraction"), settings.test_fraction)
    return hold_out(chosen, settings.validation, stream(seed, "validation")) if settings.validation else chosen


def partition_of(experiment: Experiment, dataset: Dataset) -> Partition:
    """The experiment's partition of the training samples; every client has ``min_batches`` batches at least.

    Where samples are held out (``data.validation``), clients have what is left, be it less: what can be run with all
    samples can be tuned.
    """
    settings, samples, held = experiment.partition, len(dataset.train), dataset.held
    if settings.clients is not None and settings.clients > samples and held is None:
        raise ConfigError(f"partition.clients: {settings.clients} clients cannot share {samples} training samples")
    if settings.file is not None:
        partition = load_partition(Path(settings.file), samples if held is None else len(held))
        if held is not None:
            partition = without_held(partition, held)
        if settings.clients not in (None, len(partition)):
            raise ConfigError(
                f"partition.file: {settings.file} has {len(partition)} clients, partition.clients is {settings.clients}"
            )
    else:
        rng = stream(experiment.run.seed, "partition")
        partition = _drawn(experiment, dataset, rng)
        if isinstance(experiment.partitioner, Groups):
            minimum = (settings.min_batches or 0) * experiment.federation.batch_size
            partition = partition if held is not None else _whole(experiment, partition, minimum, dataset)
        else:
            minimum = _minimum(experiment, len(partition), samples)
            partition = top_up(partition, minimum, stream(experiment.run.seed, "top-up"))
    empty = [client for client, size in enumerate(partition.sizes()) if not size]
    if empty and settings.empty == "error" and held is None:
        raise ConfigError(
            f"partition: client {empty[0]} has no data ({len(empty)} such of {len(partition)});"
            ' raise partition.min_batches or set partition.empty = "skip"'
        )
    if len(empty) == len(partition):
        raise ConfigError("partition: no client has any data")
    return _reference(experiment, partition)


def _reference(experiment: Experiment, partition: Partition) -> Partition:
    """One client with all samples, or one of the clients by itself, where that is asked for."""
    settings = experiment.partition
    if settings.pooled:
        return Partition.of([np.concatenate(partition.clients)])
    if settings.alone is not None:
        able = [client for client, size in enumerate(partition.sizes()) if size]
        order = stream(experiment.run.seed, "alone").permutation(able)
        return Partition.of([partition.clients[order[settings.alone % len(order)]]])
    return partition


def _drawn(experiment: Experiment, dataset: Dataset, rng: np.random.Generator) -> Partition:
    """As the partitioner has it; where samples are held out, by the groups and for the clients that are left."""
    partitioner, samples, clients = experiment.partitioner, dataset.train, experiment.partition.clients
    if dataset.held is None or not isinstance(partitioner, Groups):
        most = None if dataset.held is None or clients is None else min(clients, len(samples))
        return partition_samples(partitioner, samples, clients if most is None else most, rng)
    file = getattr(partitioner, "groups", None)
    names = partitioner.names(samples) if file is None else read_group_names(file, len(dataset.held))[~dataset.held]
    left = len(np.unique(names))
    return partitioner.by_groups(names, left if clients is None else min(clients, left), rng)


def _minimum(experiment: Experiment, clients: int, samples: int) -> int:
    """The samples that ``min_batches`` gives each client; refused with what would fit where there are not so many."""
    batches, size = experiment.partition.min_batches, experiment.federation.batch_size
    share = samples // clients
    if batches is None:
        return min(size, share)
    if experiment.data.validation or clients * batches * size <= samples:
        return min(batches * size, share)
    fits = [f"partition.min_batches = {share // size}"]
    fits += [f"federation.batch_size = {share // batches}"] if share >= batches else []
    fits += [f"partition.clients = {samples // (batches * size)}"] if samples >= batches * size else []
    raise ConfigError(
        f"partition.min_batches: {clients} clients with at least {batches * size} samples each need"
        f" {clients * batches * size} samples, there are {samples}; this fits: {', or '.join(fits)}"
    )


def natural_note(experiment: Experiment, dataset: Dataset) -> str | None:
    """What to tell a person whose data have natural clients, where the partition does not go by them.

    Groups that are all on one side of the split (the tiles of a picture) are no clients.
    """
    groups, tested = dataset.train.groups, dataset.test.groups
    if groups is None or tested is None or isinstance(experiment.partitioner, Groups):
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
            f" have fewer than {minimum}, and groups stay whole; partition.min_batches ="
            f" {min(partition.sizes()) // experiment.federation.batch_size} fits, or leave such clients out with"
            ' partition.empty = "skip"'
        )
    return without_small(partition, minimum)
