"""Which client holds which samples: ways to partition a data set, and partitions as files. Needs numpy, not torch.

A partitioner is a pure function of (labels, clients, rng); a `Partition` is a list of index arrays. That nobody is left
too poor to train is seen to afterwards: clients that were drawn are topped up, natural ones are left as they are, or
left out.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ecgr.component import Count, Positive, component
from ecgr.errors import ConfigError, DataError
from ecgr.files import write_atomically
from ecgr.tables import Table
from ecgr.tasks.data.dataset import Labels, strata
from ecgr.tasks.data.sets import read_text
from ecgr.tasks.data.tables import parse_table
from ecgr.tasks.samples import Samples

Indices = NDArray[np.int64]
GroupNames = NDArray[np.str_]


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """For each client, the sorted indices of its training samples; every sample belongs to at most one client."""

    clients: tuple[Indices, ...]

    @classmethod
    def of(cls, parts: Sequence[Sequence[int] | Indices]) -> "Partition":
        """Sort the parts and check that no sample is in two of them."""
        clients = tuple(np.sort(np.asarray(part, dtype=np.int64)) for part in parts)
        used = np.concatenate([*clients, np.empty(0, dtype=np.int64)])
        if len(np.unique(used)) != len(used):
            raise ConfigError("partition: a sample belongs to more than one client")
        return cls(clients)

    def __len__(self) -> int:
        return len(self.clients)

    def __iter__(self) -> Iterator[Indices]:
        return iter(self.clients)

    def sizes(self) -> list[int]:
        return [len(indices) for indices in self.clients]

    def histogram(self, labels: Labels, classes: int) -> NDArray[np.int64]:
        """Samples by client and class, (clients, classes)."""
        return np.stack([np.bincount(labels[indices], minlength=classes) for indices in self.clients])


class Partitioner(Protocol):
    """An entry of ``PARTITIONERS``: a frozen dataclass, its own configuration, and a pure function."""

    def __call__(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Partition the samples."""


def partition_samples(
    partitioner: Partitioner, samples: Samples, clients: int | None, rng: np.random.Generator
) -> Partition:
    """By their groups if the partitioner asks for them, else by their classes.

    ``clients = None`` means all there are: one for each group.
    """
    if isinstance(partitioner, Groups):
        names = partitioner.names(samples)
        return partitioner.by_groups(names, clients or len(np.unique(names)), rng)
    if clients is None:
        raise ConfigError("partition.clients: missing; give the number of clients")
    return partitioner(strata(samples.targets), clients, rng)


def without_small(partition: Partition, minimum: int) -> Partition:
    """Clients with fewer than ``minimum`` samples get none: what is a client by nature is not topped up.

    >>> without_small(Partition.of([range(10), [10]]), 4).sizes()
    [10, 0]
    """
    return Partition(tuple(part if len(part) >= minimum else part[:0] for part in partition))


def without_held(partition: Partition, held: NDArray[np.bool_]) -> Partition:
    """A partition of all samples as one of those that are not held out, numbered anew.

    >>> [part.tolist() for part in without_held(Partition.of([[0, 1], [2, 3]]), np.array([False, True, False, False]))]
    [[0], [1, 2]]
    """
    number = np.cumsum(~held) - 1
    return Partition.of([number[part[~held[part]]] for part in partition])


def top_up(partition: Partition, minimum: int, rng: np.random.Generator) -> Partition:
    """Give every client at least ``minimum`` samples, drawn at random from whoever has most.

    >>> parts = Partition.of([range(10), [10]])
    >>> top_up(parts, 4, np.random.default_rng(0)).sizes()
    [7, 4]
    """
    if minimum * len(partition) > sum(partition.sizes()):
        asked = f"{len(partition)} clients with at least {minimum} samples each"
        raise ConfigError(f"partition.min_batches: {asked}, there are {sum(partition.sizes())} samples in all")
    parts = [rng.permutation(indices) for indices in partition]
    for poor in range(len(parts)):
        while len(parts[poor]) < minimum:
            rich = max(range(len(parts)), key=lambda client: len(parts[client]))
            spare = max(1, min(minimum - len(parts[poor]), len(parts[rich]) - minimum))
            parts[poor] = np.concatenate([parts[poor], parts[rich][:spare]])
            parts[rich] = parts[rich][spare:]
    return Partition.of(parts)


@component
class IID:
    """Equal shares of a random permutation: clients that resemble each other."""

    def __call__(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        return Partition.of(np.array_split(rng.permutation(len(labels)), clients))


@component
class Dirichlet:
    """For each class, proportions over the clients from Dir(alpha): the smaller alpha, the more heterogeneous they are.

    ``remainder = "deal"`` gives every sample to a client; ``"drop"`` leaves out what rounding down leaves over.

    >>> labels = np.repeat(np.arange(10), 20)
    >>> sum(Dirichlet(alpha=0.1)(labels, 4, np.random.default_rng(0)).sizes())
    200
    """

    alpha: Positive = 0.1
    remainder: Literal["deal", "drop"] = "deal"

    def __call__(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
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
        count = clients * self.classes_per_client
        if count > len(labels):
            raise ConfigError(
                f"partition.classes_per_client: {count} shards need as many samples, there are {len(labels)}"
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
        counts = apportion(rng.dirichlet(np.full(clients, self.alpha)), len(labels))
        return Partition.of(np.split(rng.permutation(len(labels)), np.cumsum(counts)[:-1]))


@component
class Groups:
    """What belongs together stays together: all samples of a group (a site, a patient, a tile) go to one client.

    The groups come from ``groups``, a file with one name for each training sample (a JSON list, or a CSV with the
    column ``group``), or else from the data set, where it knows them. With as many groups as clients, or no number of
    clients, each client is a group, in the order of the names. With more groups, they are assigned in random order,
    each to the client with the fewest samples. Nobody is topped up with the samples of others: a client with fewer
    than ``min_batches`` batches is refused, or left out with ``empty = "skip"``.

    >>> sites = np.array(["a", "b", "b", "c"])
    >>> [client.tolist() for client in Groups().by_groups(sites, 3, np.random.default_rng(0))]
    [[0], [1, 2], [3]]
    """

    groups: str | None = None

    def __call__(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        return self.by_groups(self.names(Samples(labels, labels)), clients, rng)

    def names(self, samples: Samples) -> GroupNames:
        """The groups of the file, or else of the data set."""
        if self.groups is not None:
            return read_group_names(self.groups, len(samples))
        if samples.groups is None:
            advice = "name a JSON or CSV file with one group for each training sample"
            raise ConfigError(f"partition.groups: this data set does not say what its samples are from; {advice}")
        names: GroupNames = samples.groups
        return names

    def by_groups(self, groups: GroupNames, clients: int, rng: np.random.Generator) -> Partition:
        """Whole groups, each to one client."""
        names, group_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        if len(names) < clients:
            advice = "leave partition.clients out for one client a group"
            raise ConfigError(
                f"partition.clients: {clients} clients cannot share {len(names)} groups, which stay whole; {advice}"
            )
        owner, load = np.arange(len(names)), np.zeros(clients, dtype=np.int64)
        if len(names) > clients:
            for group in rng.permutation(len(names)):
                owner[group] = np.argmin(load)
                load[owner[group]] += sizes[group]
        return Partition.of([np.flatnonzero(owner[group_of] == client) for client in range(clients)])


def apportion(shares: NDArray[np.float64], total: int, *, deal: bool = True) -> NDArray[np.int64]:
    """Whole numbers in proportion to ``shares``; what rounding down leaves over goes to the largest remainders.

    >>> apportion(np.array([0.5, 0.3, 0.2]), 9).tolist()
    [4, 3, 2]
    """
    exact = shares * total
    counts = np.floor(exact).astype(np.int64)
    if deal:
        left = total - int(counts.sum())
        counts[np.argsort(counts - exact, kind="stable")[:left]] += 1
    return counts


# A partition as a file: JSON that can be read, shared, and used by another program.
# ``{"clients": [[0, 3], [1]], "samples": 4}``: the indices of each client's samples, and how many samples there are.


def save_partition(path: Path, partition: Partition, samples: int | None = None) -> None:
    """Write ``partition``; the file is complete or not there.

    ``samples`` is how many there are in all; it has to be given where the partition leaves some out.
    """
    used = sum(partition.sizes())
    samples = used if samples is None else samples
    if any(indices[-1] >= samples for indices in partition if len(indices)):
        raise ConfigError(f"partition: leaves samples out ({used:,} are used); save_partition needs how many there are")
    content = {"clients": [indices.tolist() for indices in partition], "samples": samples}
    write_atomically(path, json.dumps(content).encode() + b"\n")


def load_partition(path: Path, samples: int) -> Partition:
    """Read a partition of ``samples`` samples; whatever is wrong with it is a `ConfigError` that says where."""

    def wrong(what: str) -> ConfigError:
        return ConfigError(f"partition.file: {path} {what}")

    content = _parsed("partition.file", path, json.loads)
    if not isinstance(content, dict) or set(content) != {"clients", "samples"} or type(content["clients"]) is not list:
        raise wrong('must hold {"clients": [[…], …], "samples": N} and nothing else')
    if type(content["samples"]) is not int or content["samples"] != samples:
        raise wrong(f"is for {str(content['samples'])[:40]} samples, the data set has {samples:,}")
    owner: dict[int, int] = {}
    for client, indices in enumerate(content["clients"]):
        if not isinstance(indices, list):
            raise wrong(f"client {client} is not a list")
        for index in indices:
            if type(index) is not int or not 0 <= index < samples:
                raise wrong(f"client {client} has {str(index)[:40]!r}, indices go from 0 to {samples - 1}")
            if index in owner:
                raise wrong(f"client {client} has sample {index}, which client {owner[index]} has too")
            owner[index] = client
    if not owner:
        raise wrong("gives no client a sample")
    return Partition.of(content["clients"])


def read_group_names(file: str, samples: int) -> GroupNames:
    """The group of each training sample, in order: a JSON list, or the column ``group`` of a CSV file."""
    key, path = "partition.groups", Path(file).expanduser()
    if path.suffix.lower() == ".json":
        names = _parsed(key, path, json.loads)
        if not isinstance(names, list):
            raise ConfigError(f"{key}: {path} must hold a list of group names")
        places = [f"at index {index}" for index in range(len(names))]
    else:
        table = _parsed(key, path, lambda text: parse_table(path, text))
        if "group" not in table.columns:
            raise ConfigError(f"{key}: {path} has no column 'group'")
        names, places = table["group"].tolist(), [f"in line {line}" for _, line in table.index]
    for name, place in zip(names, places, strict=True):
        if type(name) not in (str, int) or name == "":
            raise ConfigError(f"{key}: {path} has no name or whole number {place}")
    if len(names) != samples:
        raise ConfigError(f"{key}: {path} has {len(names):,} groups, there are {samples:,} training samples")
    return np.array([str(name) for name in names])


def _parsed(key: str, path: Path, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(read_text(path)[0])
    except DataError as error:
        raise ConfigError(f"{key}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{key}: {path} is not JSON ({str(error)[:80]})") from None


PARTITIONERS: Table[Partitioner] = Table(
    "partitioner",
    "partitioners",
    {"iid": IID, "dirichlet": Dirichlet, "shards": Shards, "quantity": Quantity, "groups": Groups},
)
