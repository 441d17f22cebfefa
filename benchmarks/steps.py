"""Made-up steps that are like those of training."""

import torch
from torch import Tensor

from ecgr.core.stores import DenseStore


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
