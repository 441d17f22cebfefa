"""An experiment's share of a data set and its partition among the clients. Needs numpy, not torch."""

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ecgr.config.experiment import OWN, Experiment
from ecgr.errors import ConfigError
from ecgr.streams import stream
from ecgr.tasks.data import Dataset, hold_out, redrawn, set_aside, stratify
from ecgr.tasks.data.dataset import strata
from ecgr.tasks.metrics import as_metric
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

Owners: TypeAlias = NDArray[np.int64]


def chosen_share(experiment: Experiment, dataset: Dataset) -> Dataset:
    """The stratified share of ``dataset`` that ``data.fraction`` and ``data.test_fraction`` ask for.

    With ``data.redraw`` a data set that does not draw its split by a seed of its own is split anew before. With
    ``data.server_samples``, that number of training samples are the server's. With ``data.validation``, that share of
    those that are left takes the place of the test samples; where clients are scored on their own, it is a share of
    each client's (`divided`).
    """
    settings, seed = experiment.data, experiment.run.seed
    if settings.redraw and not draws_split(experiment.source):
        dataset = redrawn(dataset, seed)
    chosen = stratify(dataset, settings.fraction, stream(seed, "fraction"), settings.test_fraction)
    if settings.server_samples is not None:
        if experiment.partition.file is not None or getattr(experiment.partitioner, "groups", None) is not None:
            raise ConfigError(
                "data.server_samples: partition.file and partition.groups number all training samples;"
                " give the server's samples by Task(server=(X, y)) instead"
            )
        chosen = set_aside(chosen, settings.server_samples, stream(seed, "server samples"))
    if settings.validation and settings.score != OWN:
        chosen = hold_out(chosen, settings.validation, stream(seed, "validation"))
    if not experiment.partition.server:
        return chosen
    if chosen.server is None:
        raise ConfigError("partition.server: the server has no samples; leave it out")
    return replace(chosen, train=chosen.server)


def divided(experiment: Experiment, dataset: Dataset) -> tuple[Dataset, Partition, Owners | None]:
    """The experiment's share of the data, who trains on what of it, and the client of each test sample, -1 for none.

    The last is None where that is not known; where clients are scored on their own samples, that is refused. With
    ``partition.pooled`` one client has all samples, with ``partition.alone`` one of the clients trains by itself.
    """
    dataset, own, settings = chosen_share(experiment, dataset), experiment.data.score == OWN, experiment.partition
    partition = partition_of(experiment, dataset)
    owners = owners_of(dataset, partition) if own else None
    if own:
        dataset, partition, owners = held_by_each(experiment, dataset, partition, owners)
        if owners is None:
            raise ConfigError(
                "data.score: each client is to be scored on its own samples, and whose the test samples are is not"
                " known; set partition.test_share = 0.2, or give the ids of their clients as Task(test_clients=…)"
            )
    if settings.pooled:
        partition = Partition.of([np.concatenate(partition.clients)])
    elif settings.alone is not None:
        order = stream(experiment.run.seed, "alone").permutation(scorable(experiment, dataset, partition, owners))
        client = order[settings.alone % len(order)]
        partition = Partition.of([partition.clients[client]])
        if owners is not None:
            dataset = replace(dataset, test=dataset.test.take(np.flatnonzero(owners == client)))
            owners = owners[owners == client]
    return dataset, partition, owners if own else owners_of(dataset, partition)


def scorable(experiment: Experiment, dataset: Dataset, partition: Partition, owners: Owners | None) -> list[int]:
    """The clients that can train alone and be scored: on own samples, where the first metric has a value on these."""
    able = [client for client, size in enumerate(partition.sizes()) if size]
    if experiment.data.score != OWN or owners is None:
        return able
    least = 2 if getattr(as_metric((experiment.data.metrics or dataset.metrics)[0]), "varied", False) else 1
    targets = dataset.test.targets
    return [client for client in able if len(np.unique(targets[owners == client])) >= least]


def held_by_each(
    experiment: Experiment, dataset: Dataset, partition: Partition, owners: Owners | None, first: int = 0
) -> tuple[Dataset, Partition, Owners | None]:
    """Shares of every client's own samples in the place of the test samples (``partition.test_share``), and of these
    (``data.validation``): at least one sample of a client that has two, never all, its classes in their proportions.

    The draw depends on the seed, the client's number (from ``first``) and its samples alone: a site finds the same.
    """
    for name, share in (("test share", experiment.partition.test_share), ("validation", experiment.data.validation)):
        if share:
            rngs = (stream(experiment.run.seed, f"own {name}", first + client) for client in range(len(partition)))
            held = [part[_drawn_evenly(dataset.train.targets[part], share, next(rngs))] for part in partition]
            partition = Partition(tuple(np.setdiff1d(p, h) for p, h in zip(partition, held, strict=True)))
            dataset = replace(dataset, test=dataset.train.take(np.concatenate(held)))
            owners = np.repeat(np.arange(len(held), dtype=np.int64), [len(own) for own in held])
    return dataset, partition, owners


def _drawn_evenly(targets: NDArray[Any], share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Some samples at even distances in the order of their classes, each as likely as any other."""
    count = min(max(1, round(len(targets) * share)), len(targets) - 1)
    order = rng.permutation(len(targets))
    order = order[np.argsort(strata(targets[order]), kind="stable")] if count > 0 else order
    places = (np.arange(max(0, count)) + rng.random()) * len(targets) / max(1, count)
    return np.sort(order[places.astype(np.int64)])


def owners_of(dataset: Dataset, partition: Partition) -> Owners | None:
    """The client whose training samples come from the same group as a test sample, where groups are whole."""
    groups, of_test = dataset.train.groups, dataset.test.groups
    if groups is None or of_test is None:
        return None
    owner: dict[str, int] = {}
    for client, indices in enumerate(partition):
        for name in np.unique(groups[indices]).tolist():
            if owner.setdefault(name, client) != client:
                return None
    clients = np.array([owner.get(name, -1) for name in of_test.tolist()], dtype=np.int64)
    return clients if (clients >= 0).any() else None


def draws_split(source: Any) -> bool:
    """Whether a data set on disk draws its test samples by a seed; one that brings them has none to draw."""
    return hasattr(source, "split_seed") and not getattr(source, "brings_test", bool)()


def partition_of(experiment: Experiment, dataset: Dataset) -> Partition:
    """The experiment's partition of the training samples; every client has ``min_batches`` batches at least.

    Where samples are held out (``data.validation``), clients have what is left, be it less: what can be run with all
    samples can be tuned.
    """
    settings, samples, held = experiment.partition, len(dataset.train), dataset.held
    if settings.server:
        return Partition.of([np.arange(samples)])
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
    """The samples that ``min_batches`` gives each client; refused with what would fit where there are too few."""
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
