"""Both searches on the same steps in a process of its own: seconds of processor time, kept steps, the Gram's error.

Ours is also held against one float32 product of all steps with each other: twice its arithmetic, in the same kernels,
so that the ratio depends less on the machine's memory.

Most of the explicit search's time may go into fresh memory: what `torch.stack` returns at every step is given back to
the system and has to be had again, page by page. How much that costs depends on the machine and on what the process did
before. So the comparison that counts is made where the allocator keeps what was freed, and no page is ever given back.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.rows import environment, median_ratio, probe
from ecgr.core.regulators import herd
from ecgr.core.stores import DenseStore

KEEPS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**40), "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": "0"}


@dataclass(frozen=True, slots=True)
class Found:
    """Seconds of both searches, the share of steps that both keep, and the error of the Gram matrix.

    ``of_product``: ours over one product of all steps with each other.
    """

    explicit: float
    ours: float
    of_product: float
    common: float
    error: float

    @property
    def ratio(self) -> float:
        return self.explicit / self.ours


def search(T: int, d: int, repetitions: int, allocator: Mapping[str, str] | None = None) -> Found:
    """Both searches for half of T steps of d numbers, in a process with this allocator."""
    return Found(**probe("selection_probe", T, d, repetitions, variables={**environment(), **(allocator or {})}))


def explicit_search(steps: Tensor, count: int) -> list[int]:
    """The published method's, as its description reads: at every step, stack all candidate sums and measure them.

    Written from the description, to compare with; nothing of it is used.
    """
    total = torch.zeros_like(steps[0])
    left, kept = list(range(len(steps))), []
    for _ in range(count):
        candidates = torch.stack([total + steps[i] for i in left])
        best = left.pop(int(candidates.norm(dim=1).argmin()))
        kept.append(best)
        total = total + steps[best]
    return kept


def steps_like_training(T: int, d: int, seed: int = 0) -> Tensor:
    """A common direction that fades, under noise, with lengths that differ: no two candidates are nearly equal."""
    generator = torch.Generator().manual_seed(seed)
    drift = torch.randn(d, generator=generator)
    fading = torch.linspace(1.0, -0.4, T) + 0.3 * torch.randn(T, generator=generator)
    lengths = torch.exp(0.5 * torch.randn(T, generator=generator))
    rows = torch.randn(T, d, generator=generator)
    return rows.add_(fading[:, None] * drift).mul_(1e-3 * lengths[:, None])


def hold(steps: Tensor) -> DenseStore:
    store = DenseStore(steps.shape[1], steps=len(steps))
    for row in steps:
        store.append(row)
    return store


def gram_error(store: DenseStore, steps: Tensor) -> float:
    """The largest error of an entry, relative to the two steps' lengths."""
    exact = torch.zeros(len(steps), len(steps), dtype=torch.float64)
    for block in torch.split(steps, 65_536, dim=1):
        exact += block.double() @ block.double().T
    norms = exact.diagonal().sqrt()
    return float(((store.gram() - exact).abs() / (norms[:, None] * norms)).max())


def measured(T: int, d: int, repetitions: int) -> Found:
    torch.set_num_threads(1)
    steps = steps_like_training(T, d)
    store = hold(steps)
    kept = herd(store.gram(), T // 2)
    found = explicit_search(steps, T // 2) if repetitions > 1 else []  # the first one gets the memory
    explicit = _median_seconds(lambda: found.__setitem__(slice(None), explicit_search(steps, T // 2)), repetitions)
    ours, product = [], []
    for _ in range(9):
        ours.append(_seconds(lambda: herd(store.gram(), T // 2)))
        product.append(_seconds(lambda: steps @ steps.T))
    common = len(set(kept) & set(found)) / len(found)
    return Found(explicit, statistics.median(ours), median_ratio(ours, product), common, gram_error(store, steps))


def _median_seconds(work: Callable[[], Any], repetitions: int) -> float:
    return statistics.median(_seconds(work) for _ in range(repetitions))


def _seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(measured(*map(int, sys.argv[1:])))) + "\n")
