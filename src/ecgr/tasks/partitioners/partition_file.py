"""A partition as a file: JSON that can be read, shared, and used by another program.

``{"clients": [[0, 3], [1]], "samples": 4}``: the indices of each client's samples, and how many samples there are.
"""

import json
from pathlib import Path

from ecgr.errors import ConfigError
from ecgr.files import write_atomically
from ecgr.tasks.partitioners.partition import Partition

MOST_BYTES = 256 << 20


def save_partition(path: Path, partition: Partition, samples: int | None = None) -> None:
    """Write ``partition``; the file is complete or not there.

    ``samples`` is how many there are to deal out; it has to be given where the partition leaves some out.
    """
    dealt = sum(partition.sizes())
    samples = dealt if samples is None else samples
    if max((int(indices[-1]) for indices in partition if len(indices)), default=-1) >= samples:
        raise ConfigError(
            f"partition: leaves samples out ({dealt:,} dealt); save_partition needs to know how many there are"
        )
    content = {"clients": [indices.tolist() for indices in partition], "samples": samples}
    write_atomically(path, json.dumps(content).encode() + b"\n")


def load_partition(path: Path, samples: int) -> Partition:
    """Read a partition of ``samples`` samples; whatever is wrong with it is a `ConfigError` that says where."""
    content = _json(path)
    if (
        not isinstance(content, dict)
        or set(content) != {"clients", "samples"}
        or not isinstance(content["clients"], list)
    ):
        raise _wrong(path, 'must hold {"clients": [[…], …], "samples": N} and nothing else')
    if type(content["samples"]) is not int or content["samples"] != samples:
        raise _wrong(path, f"is for {str(content['samples'])[:40]} samples, the data set has {samples:,}")
    owner: dict[int, int] = {}
    for client, indices in enumerate(content["clients"]):
        if not isinstance(indices, list):
            raise _wrong(path, f"client {client} is not a list")
        for index in indices:
            if type(index) is not int or not 0 <= index < samples:
                raise _wrong(
                    path, f"client {client} has {str(index)[:40]!r}, indices are whole numbers from 0 to {samples - 1}"
                )
            if index in owner:
                raise _wrong(path, f"client {client} has sample {index}, which client {owner[index]} has too")
            owner[index] = client
    if not owner:
        raise _wrong(path, "deals out nothing")
    return Partition.of(content["clients"])


def _json(path: Path) -> object:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _wrong(path, f"cannot be read ({error.strerror})") from None
    if len(text) > MOST_BYTES:
        raise _wrong(path, f"has more than {MOST_BYTES:,} bytes")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, f"is not JSON ({str(error)[:80]})") from None


def _wrong(path: Path, what: str) -> ConfigError:
    return ConfigError(f"partition.file: {path} {what}")
