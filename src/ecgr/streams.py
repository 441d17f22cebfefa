"""Random streams: one independent generator for each (seed, purpose, round, client).

Nothing draws from a global generator, so a run's numbers do not depend on who trained where, in what order, or
whether the run was interrupted; and two runs that differ in the regulator alone see the same batches.
"""

import os
from zlib import crc32

import numpy as np
from numpy.typing import NDArray


def stream(seed: int, purpose: str, *position: int) -> np.random.Generator:
    """The generator for one purpose at one position (usually round and client).

    >>> [int(stream(0, "batches", 3, client).integers(1000)) for client in (1, 1, 2)]
    [675, 675, 484]
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(crc32(purpose.encode()), *position)))


def torch_seed(seed: int, purpose: str, *position: int) -> int:
    """A seed for torch's own generators, from the same family of streams."""
    return int(stream(seed, purpose, *position).integers(2**63))


class SystemNumbers:
    """Random numbers that nobody can predict or repeat: every bit is the operating system's (``os.urandom``).

    Normals are made by Box-Muller in float64. Each is half the sum of four, so that the gaps between floating point
    numbers do not tell a noised value from another ("Secure Random Sampling in Differential Privacy", 2021).
    """

    def random(self, size: int) -> NDArray[np.float64]:
        """Uniform in [0, 1), with 53 bits."""
        bits = np.frombuffer(os.urandom(8 * size), dtype=np.uint64) >> np.uint64(11)
        return bits.astype(np.float64) * 2.0**-53

    def standard_normal(self, size: int) -> NDArray[np.float64]:
        return (self._normals(size) + self._normals(size) + self._normals(size) + self._normals(size)) / 2

    def _normals(self, size: int) -> NDArray[np.float64]:
        half = (size + 1) // 2
        radius, angle = np.sqrt(-2 * np.log1p(-self.random(half))), 2 * np.pi * self.random(half)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]
