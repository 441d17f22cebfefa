"""Exploratory-convergent gradient re-aggregation (ECGR), and its centred neighbour BHerd.

ECGR: "Local Gradient Regulation Stabilizes Federated Learning under Client Heterogeneity" (arXiv 2601.03584). The
steps whose running sum stays shortest are *convergent* and kept, the rest are *exploratory* and damped.
"""

from dataclasses import replace

import numpy as np

from ecgr.component import Fraction, PositiveFraction, Tensor, component, torch
from ecgr.core.geometry import Geometry, Regulation
from ecgr.core.regulators.attenuation import attenuate, kept_count, squared_length


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
        kept = herd(geometry.gram, count=kept_count(geometry.steps, self.keep))
        return attenuate(geometry, kept, self.beta)


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
        kept = herd(geometry.gram, count=kept_count(geometry.steps, self.keep))
        chosen = torch.zeros_like(geometry.gram[0])
        chosen[kept] = 1.0
        rest = squared_length(geometry.gram, 1.0 - chosen)
        covered = squared_length(geometry.gram, chosen) / rest if rest > 0 else 1.0
        beta = min(1.0, max(self.beta, covered))
        regulation = attenuate(geometry, kept, beta)
        return replace(regulation, metrics={**regulation.metrics, "beta": beta})


@component
class BHerd:
    """Keep the steps that herd around their mean, discard the others, restore the norm.

    >>> BHerd()(Geometry(gram=[[4.0, 0.0], [0.0, 1.0]])).coefficients
    tensor([1.1180, 0.0000], dtype=torch.float64)
    """

    keep: PositiveFraction = 0.5

    def __call__(self, geometry: Geometry) -> Regulation:
        """Weigh the steps."""
        gram = geometry.gram
        rows = gram.mean(dim=0)
        centred = gram - rows - rows[:, None] + gram.mean()
        return attenuate(geometry, herd(centred, count=kept_count(geometry.steps, self.keep)), beta=0.0)


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
    if not 0 <= count <= len(inner):
        raise ValueError(f"cannot pick {count} of {len(inner)} steps")
    growth = inner.diagonal().copy()
    kept: list[int] = []
    for _ in range(count):
        best = int(growth.argmin())
        kept.append(best)
        growth += 2.0 * inner[best]
        growth[best] = np.inf
    return kept
