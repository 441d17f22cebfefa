"""Exploratory-convergent gradient re-aggregation (ECGR), and its centred neighbour BHerd.

ECGR: "Local Gradient Regulation Stabilizes Federated Learning under Client Heterogeneity" (arXiv 2601.03584). The
steps whose running sum stays shortest are *convergent* and kept, the rest are *exploratory* and damped.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecgr.component import Fraction, PositiveFraction, Tensor, component
from ecgr.core.geometry import Geometry, Regulation
from ecgr.core.regulators.damping import damp, share, squared_length, weigh


@component
class ECGR:
    """Keep the steps that herd around zero, damp the others by beta, restore the norm.

    ``beta = 1`` leaves the update unchanged; ``beta = 0`` discards the exploratory steps.

    >>> ECGR(beta=0.5)(Geometry(gram=[[4.0, 0.0], [0.0, 1.0]])).kept
    (1,)
    """

    beta: Fraction = 0.2
    keep: PositiveFraction = 0.5

    def __call__(self, geometry: Geometry) -> Regulation:
        """Weigh the steps."""
        return damp(geometry, herd(geometry.gram, count=share(geometry.steps, self.keep)), self.beta)


@component
class SafeECGR:
    """ECGR with a damping that its error bound covers: beta is raised to |a|^2 / |b|^2 where it is smaller.

    a is the sum of the kept steps, b that of the others. If <c, mu> > 0 and a is better aligned with mu than b, the
    regulated update is closer to mu than the plain one for every such mu exactly from that beta on.

    >>> SafeECGR(beta=0.1)(Geometry(gram=[[1.0, 0.0], [0.0, 4.0]])).metrics["beta"]
    0.25
    """

    beta: Fraction = 0.2
    keep: PositiveFraction = 0.5

    def __call__(self, geometry: Geometry) -> Regulation:
        """Weigh the steps."""
        kept = herd(geometry.gram, count=share(geometry.steps, self.keep))
        beta = min(1.0, max(self.beta, _cover(geometry, kept)))
        return damp(geometry, kept, beta).with_metrics(beta=beta)


@component
class BHerd:
    """Keep the steps that herd around their mean, discard the others, restore the norm.

    >>> BHerd()(Geometry(gram=[[4.0, 0.0], [0.0, 1.0]])).coefficients
    tensor([1.1180, 0.0000], dtype=torch.float64)
    """

    keep: PositiveFraction = 0.5

    def __call__(self, geometry: Geometry) -> Regulation:
        """Weigh the steps."""
        return damp(geometry, herd_around_mean(geometry.gram, count=share(geometry.steps, self.keep)), beta=0.0)


def herd(gram: Tensor, count: int) -> list[int]:
    """Greedily pick ``count`` different steps whose running sum S stays shortest, in the order of choice.

    Adding step i changes ``|S|^2`` by ``2<S, g_i> + |g_i|^2``: both terms are read from ``gram``. Of equally good
    steps the first wins.

    >>> from ecgr.component import torch
    >>> G = torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, -1.5], [9.0, 9.0]])
    >>> herd(G @ G.T, count=2)
    [1, 2]
    """
    inner = np.asarray(gram, dtype=np.float64)
    return _shortest_sums(inner.diagonal(), inner.__getitem__, count)


def herd_around_mean(gram: Tensor, count: int) -> list[int]:
    """`herd` for the steps minus their mean; rows are centred as they are read, so that no second matrix is made.

    >>> from ecgr.component import torch
    >>> herd_around_mean(torch.tensor([[4.0, 0.0], [0.0, 1.0]]).double(), count=1)
    [0]
    """
    inner = gram.numpy()
    with_mean = gram.mean(dim=0).numpy()
    mean = gram.mean().numpy()
    lengths = inner.diagonal() - with_mean - with_mean + mean
    return _shortest_sums(lengths, lambda i: inner[i] - with_mean - with_mean[i] + mean, count)


def _shortest_sums(lengths: NDArray[Any], row: Callable[[int], NDArray[Any]], count: int) -> list[int]:
    """The greedy choice, from squared lengths and the inner products of one step with all."""
    if not 0 <= count <= len(lengths):
        raise ValueError(f"cannot pick {count} of {len(lengths)} steps")
    growth = lengths.copy()
    kept: list[int] = []
    for _ in range(count):
        best = int(growth.argmin())
        kept.append(best)
        growth += 2.0 * row(best)
        growth[best] = np.inf
    return kept


def _cover(geometry: Geometry, kept: list[int]) -> float:
    """|a|^2 / |b|^2 with a the sum of the kept steps and b that of the others; 1 where b is nothing."""
    chosen = weigh(geometry.steps, kept, 0.0)
    rest = squared_length(geometry.gram, 1.0 - chosen)
    return squared_length(geometry.gram, chosen) / rest if rest > 0 else 1.0
