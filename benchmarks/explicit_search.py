"""The published method's search, as its description reads: at every step, stack all candidate sums and measure them.

Written from the description, to compare with; nothing of it is used.
"""

import torch
from torch import Tensor


def explicit_search(steps: Tensor, count: int) -> list[int]:
    """Greedily pick ``count`` rows whose running sum stays shortest, building every candidate sum explicitly."""
    total = torch.zeros_like(steps[0])
    left, kept = list(range(len(steps))), []
    for _ in range(count):
        candidates = torch.stack([total + steps[i] for i in left])
        best = left.pop(int(candidates.norm(dim=1).argmin()))
        kept.append(best)
        total = total + steps[best]
    return kept
