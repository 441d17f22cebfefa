"""Selection by the Gram matrix against the explicit search: how much faster, the same steps, how exact."""

import statistics
from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.explicit_search import explicit_search
from benchmarks.rows import Row, at_least, at_most, interleaved, median_ratio, shown
from benchmarks.selection_probe import probe
from benchmarks.steps import hold, steps_like_training
from ecgr.core.regulators import herd
from ecgr.core.stores import DenseStore

SIZES = {(160, 61_706): 35.0, (100, 1_167_872): 60.0}


def rows(quick: bool) -> Iterator[Row]:
    for (T, d), limit in SIZES.items():
        if quick and d > 100_000:
            continue
        steps = steps_like_training(T, d)
        store = hold(steps)
        kept: dict[str, list[int]] = {}

        def ours(store: DenseStore = store, T: int = T, kept: dict[str, list[int]] = kept) -> None:
            kept["ours"] = herd(store.gram(), T // 2)

        def explicit(steps: Tensor = steps, T: int = T, kept: dict[str, list[int]] = kept) -> None:
            kept["explicit"] = explicit_search(steps, T // 2)

        ours()
        fast, slow = interleaved(5 if d < 100_000 else 3, ours, explicit)
        where = f"T = {T}, d = {d:,}"
        yield at_least(
            f"selection: explicit search / ours, {where}",
            median_ratio(slow, fast),
            limit,
            f"{statistics.median(slow):.2f} s against {statistics.median(fast):.3f} s",
        )
        slow_kept, fast_kept = probe(T, d)
        yield shown(
            f"selection: the same where freed memory is kept, {where}",
            slow_kept / fast_kept,
            f"{slow_kept:.2f} s against {fast_kept:.3f} s",
        )
        yield at_least(f"selection: kept steps in common, {where}", _common(kept), 1.0)
        yield at_most(f"selection: error of the Gram matrix, {where}", gram_error(store, steps), 1e-6)


def _common(kept: dict[str, list[int]]) -> float:
    return len(set(kept["ours"]) & set(kept["explicit"])) / len(kept["explicit"])


def gram_error(store: DenseStore, steps: Tensor) -> float:
    """The largest error of an entry, relative to the two steps' lengths."""
    exact = torch.zeros(len(steps), len(steps), dtype=torch.float64)
    for block in torch.split(steps, 65_536, dim=1):
        exact += block.double() @ block.double().T
    norms = exact.diagonal().sqrt()
    return float(((store.gram() - exact).abs() / (norms[:, None] * norms)).max())
