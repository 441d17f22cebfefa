"""Ways of dealing labelled samples out to clients."""

from typing import Literal

import numpy as np

from ecgr.components import Positive, component
from ecgr.data.dataset import Labels
from ecgr.data.partition import Partition


@component
class IID:
    """Equal shares of a random permutation: clients that resemble each other."""

    def __call__(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the samples out."""
        return Partition.of(np.array_split(rng.permutation(len(labels)), clients))


@component
class Dirichlet:
    """For each class, proportions over the clients from Dir(alpha): the smaller alpha, the more unlike they are.

    ``remainder = "deal"`` deals every sample out; ``"drop"`` leaves out what rounding down leaves over.

    >>> labels = np.repeat(np.arange(10), 20)
    >>> sum(Dirichlet(alpha=0.1)(labels, 4, np.random.default_rng(0)).sizes())
    200
    """

    alpha: Positive = 0.1
    remainder: Literal["deal", "drop"] = "deal"

    def __call__(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the samples out."""
        parts: list[list[int]] = [[] for _ in range(clients)]
        for label in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == label))
            counts = self._counts(rng.dirichlet(np.full(clients, self.alpha)), len(members))
            for part, share in zip(parts, np.split(members, np.cumsum(counts)), strict=False):
                part.extend(share.tolist())
        return Partition.of(parts)

    def _counts(self, shares: np.ndarray, total: int) -> np.ndarray:
        """Whole numbers in proportion to ``shares``; what is left over goes to the largest remainders."""
        exact = shares * total
        counts = np.floor(exact).astype(np.int64)
        if self.remainder == "deal":
            left = total - int(counts.sum())
            counts[np.argsort(counts - exact, kind="stable")[:left]] += 1
        return counts
