"""Random streams: one independent generator for each (seed, purpose, round, client).

Nothing draws from a global generator, so a run's numbers do not depend on who trained where, in what order, or
whether the run was interrupted; and two runs that differ in the regulator alone see the same batches.
"""

from zlib import crc32

import numpy as np


def stream(seed: int, purpose: str, *position: int) -> np.random.Generator:
    """The generator for one purpose at one position (usually round and client).

    >>> [int(stream(0, "batches", 3, client).integers(1000)) for client in (1, 1, 2)]
    [675, 675, 484]
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(crc32(purpose.encode()), *position)))


def torch_seed(seed: int, purpose: str, *position: int) -> int:
    """A seed for torch's own generators, from the same family of streams."""
    return int(stream(seed, purpose, *position).integers(2**63))
