"""Ways of dealing labelled samples out to clients."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ecgr.component import Count, Positive, component
from ecgr.errors import ConfigError
from ecgr.tasks.data.dataset import Labels
from ecgr.tasks.data.group_file import read_group_names
from ecgr.tasks.partitioners.partition import GroupNames, Partition
from ecgr.tasks.samples import Samples


@component
class IID:
    """Equal shares of a random permutation: clients that resemble each other."""

    def __call__(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the samples out."""
        return Partition.of(np.array_split(rng.permutation(len(labels)), clients))


@component
class Dirichlet:
    """For each class, proportions over the clients from Dir(alpha): the smaller alpha, the more unlike they are.

    ``remainder = "deal"`` deals every sample out; ``"drop"`` leaves out what rounding down leaves over.

    >>> labels = np.repeat(np.arange(10), 20)
    >>> sum(Dirichlet(alpha=0.1)(labels, 4, np.random.default_rng(0)).sizes())
    200
    """

    alpha: Positive = 0.1
    remainder: Literal["deal", "drop"] = "deal"

    def __call__(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the samples out."""
        parts: list[list[int]] = [[] for _ in range(clients)]
        for label in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == label))
            shares = rng.dirichlet(np.full(clients, self.alpha))
            counts = apportion(shares, len(members), deal=self.remainder == "deal")
            for part, share in zip(parts, np.split(members, np.cumsum(counts)), strict=False):
                part.extend(share.tolist())
        return Partition.of(parts)


@component
class Shards:
    """The samples sorted by label, cut into equal shards, ``classes_per_client`` shards a client.

    McMahan et al. 2017, with 2. A shard that spans the border of two classes holds both, so a client can see up to
    twice as many classes, as in the original.

    >>> labels = np.repeat(np.arange(4), 10)
    >>> Shards(classes_per_client=2)(labels, 2, np.random.default_rng(0)).sizes()
    [20, 20]
    """

    classes_per_client: Count = 2

    def __call__(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the samples out."""
        count = clients * self.classes_per_client
        if count > len(labels):
            raise ConfigError(
                f"partition.classes_per_client: {clients} clients with {self.classes_per_client} shards each"
                f" need {count} samples, there are {len(labels)}"
            )
        mixed = rng.permutation(len(labels))
        shards = np.array_split(mixed[np.argsort(labels[mixed], kind="stable")], count)
        hands = rng.permutation(count).reshape(clients, self.classes_per_client)
        return Partition.of([np.concatenate([shards[shard] for shard in hand]) for hand in hands])


@component
class Quantity:
    """Clients that resemble each other but have unequal amounts: sizes in proportion to one draw from Dir(alpha).

    >>> sum(Quantity(alpha=0.5)(np.zeros(100, dtype=np.int64), 4, np.random.default_rng(0)).sizes())
    100
    """

    alpha: Positive = 0.5

    def __call__(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the samples out."""
        counts = apportion(rng.dirichlet(np.full(clients, self.alpha)), len(labels))
        return Partition.of(np.split(rng.permutation(len(labels)), np.cumsum(counts)[:-1]))


@component
class Groups:
    """What belongs together stays together: all samples of a group (a site, a patient, a tile) go to one client.

    The groups come from ``groups``, a file with one name for each training sample (a JSON list, or a CSV with the
    column ``group``), or else from the data set, where it knows them. With as many groups as clients, or no number of
    clients, each client is a group, in the order of the names. With more groups, they are dealt in random order, each
    to whoever has least. Nobody is topped up with the samples of others: a client with fewer than ``min_batches``
    batches is refused, or left out with ``empty = "skip"``.

    >>> sites = np.array(["a", "b", "b", "c"])
    >>> [client.tolist() for client in Groups().by_groups(sites, 3, np.random.default_rng(0))]
    [[0], [1, 2], [3]]
    """

    groups: str | None = None

    def __call__(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the samples out by the groups of the file."""
        return self.by_groups(self.names(Samples(labels, labels)), clients, rng)

    def names(self, samples: Samples) -> GroupNames:
        """The groups of the file, or else of the data set."""
        if self.groups is not None:
            return read_group_names(self.groups, len(samples))
        if samples.groups is None:
            raise ConfigError(
                "partition.groups: this data set does not say what its samples were taken from;"
                " name a JSON or CSV file with one group for each training sample"
            )
        names: GroupNames = samples.groups
        return names

    def by_groups(self, groups: GroupNames, clients: int, rng: np.random.Generator) -> Partition:
        """Deal whole groups out."""
        names, group_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        if len(names) < clients:
            raise ConfigError(
                f"partition.clients: {clients} clients cannot share {len(names)} groups, which stay whole;"
                " leave partition.clients out for one client a group"
            )
        if len(names) == clients:
            owner = np.arange(clients)
        else:
            owner, load = np.zeros(len(names), dtype=np.int64), np.zeros(clients, dtype=np.int64)
            for group in rng.permutation(len(names)):
                owner[group] = np.argmin(load)
                load[owner[group]] += sizes[group]
        return Partition.of([np.flatnonzero(owner[group_of] == client) for client in range(clients)])


def apportion(shares: NDArray[np.float64], total: int, *, deal: bool = True) -> NDArray[np.int64]:
    """Whole numbers in proportion to ``shares``; what rounding down leaves over is dealt to the largest remainders.

    >>> apportion(np.array([0.5, 0.3, 0.2]), 9).tolist()
    [4, 3, 2]
    """
    exact = shares * total
    counts = np.floor(exact).astype(np.int64)
    if deal:
        left = total - int(counts.sum())
        counts[np.argsort(counts - exact, kind="stable")[:left]] += 1
    return counts
