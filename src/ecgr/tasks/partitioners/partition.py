"""What every way of dealing samples out to clients has in common.

A partitioner is a pure function of (labels, clients, rng); a `Partition` is a list of index arrays. That nobody is left
too poor to train is seen to afterwards: clients that were drawn are topped up, natural ones are left as they are, or
left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ecgr.errors import ConfigError
from ecgr.tasks.data.dataset import Labels, strata
from ecgr.tasks.samples import Samples

Indices = NDArray[np.int64]
GroupNames = NDArray[np.str_]


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """For each client, the sorted indices of its training samples; every sample belongs to at most one client."""

    clients: tuple[Indices, ...]

    @classmethod
    def of(cls, parts: Sequence[Sequence[int] | Indices]) -> "Partition":
        """Sort the parts and check that nobody shares a sample."""
        clients = tuple(np.sort(np.asarray(part, dtype=np.int64)) for part in parts)
        dealt = np.concatenate([*clients, np.empty(0, dtype=np.int64)])
        if len(np.unique(dealt)) != len(dealt):
            raise ConfigError("partition: a sample belongs to more than one client")
        return cls(clients)

    def __len__(self) -> int:
        return len(self.clients)

    def __iter__(self) -> Iterator[Indices]:
        return iter(self.clients)

    def sizes(self) -> list[int]:
        """Samples a client."""
        return [len(indices) for indices in self.clients]

    def histogram(self, labels: Labels, classes: int) -> NDArray[np.int64]:
        """Samples by client and class, (clients, classes)."""
        return np.stack([np.bincount(labels[indices], minlength=classes) for indices in self.clients])


class Partitioner(Protocol):
    """An entry of ``PARTITIONERS``: a frozen dataclass, its own configuration, and a pure function."""

    def __call__(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the samples out."""
        ...


@runtime_checkable
class GroupPartitioner(Protocol):
    """A partitioner that deals out by what each sample was taken from: its clients are natural, never topped up."""

    def names(self, samples: Samples) -> GroupNames:
        """The group of each sample."""
        ...

    def by_groups(self, groups: GroupNames, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the samples out by their groups."""
        ...


def deal_out(partitioner: Partitioner, samples: Samples, clients: int | None, rng: np.random.Generator) -> Partition:
    """Deal samples out: by their groups if the partitioner asks for them, else by their classes.

    ``clients = None`` means all there are: one for each group.
    """
    if isinstance(partitioner, GroupPartitioner):
        names = partitioner.names(samples)
        return partitioner.by_groups(names, clients or len(np.unique(names)), rng)
    if clients is None:
        raise ConfigError("partition.clients: missing; say how many clients there are to be")
    return partitioner(strata(samples.targets), clients, rng)


def without_small(partition: Partition, minimum: int) -> Partition:
    """Clients with fewer than ``minimum`` samples get none: what is a client by nature is not topped up.

    >>> without_small(Partition.of([range(10), [10]]), 4).sizes()
    [10, 0]
    """
    return Partition(tuple(part if len(part) >= minimum else part[:0] for part in partition))


def top_up(partition: Partition, minimum: int, rng: np.random.Generator) -> Partition:
    """Give every client at least ``minimum`` samples, drawn at random from whoever has most.

    >>> parts = Partition.of([range(10), [10]])
    >>> top_up(parts, 4, np.random.default_rng(0)).sizes()
    [7, 4]
    """
    if minimum * len(partition) > sum(partition.sizes()):
        raise ConfigError(
            f"partition.min_batches: {len(partition)} clients with at least {minimum} samples each need"
            f" {minimum * len(partition)} samples, there are {sum(partition.sizes())};"
            " lower partition.min_batches, partition.clients or federation.batch_size"
        )
    parts = [rng.permutation(indices) for indices in partition]
    for poor in range(len(parts)):
        while len(parts[poor]) < minimum:
            rich = max(range(len(parts)), key=lambda client: len(parts[client]))
            spare = max(1, min(minimum - len(parts[poor]), len(parts[rich]) - minimum))
            parts[poor] = np.concatenate([parts[poor], parts[rich][:spare]])
            parts[rich] = parts[rich][spare:]
    return Partition.of(parts)
