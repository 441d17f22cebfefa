"""torch's own generators, which initial weights and dropout draw from: seeded for a block, untouched outside of it.

``torch.manual_seed`` keeps a stack trace of every call for devices that are not in use yet; here only those that are
there are seeded.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from ``seed`` inside the block; the CPU's generator goes on afterwards as if nothing had been.

    >>> before = torch.get_rng_state()
    >>> with seeded(3):
    ...     first = torch.rand(2)
    >>> with seeded(3):
    ...     torch.equal(torch.rand(2), first)
    True
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """
    generator = torch.default_generator
    state = generator.get_state()
    try:
        generator.manual_seed(seed)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(seed)
        yield
    finally:
        generator.set_state(state)
