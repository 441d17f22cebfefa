"""Regulators: pure functions from the geometry of a client's steps to one weight per step.

All of them but ``none`` select a part of the steps, damp the others and restore the norm of the plain update. They
differ in the selection alone, so that comparing them says what it is worth.

ECGR (exploratory-convergent gradient re-aggregation): "Local Gradient Regulation Stabilizes Federated Learning under
Client Heterogeneity" (arXiv 2601.03584). The steps whose running sum stays shortest are *convergent* and kept, the rest
are *exploratory* and damped. BHerd is its centred neighbour; the controls choose steps that ECGR's argument does not
suggest: if one of them does as well, the gain is not in the choice.

All of it reads the Gram matrix and makes vectors of T numbers: a long round has no room for a second T x T matrix.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ecgr.component import Fraction, PositiveFraction, Tensor, component, torch
from ecgr.core.geometry import Geometry, Regulation, Regulator, identity
from ecgr.tables import Table


@component
class Plain:
    """Upload the plain update: no regulation, nothing recorded."""

    def __call__(self, geometry: Geometry) -> Regulation:
        return identity(geometry.steps)


@component
class Damping:
    """Keep a share of the steps, damp the others by ``beta``, restore the norm; a subclass says which steps."""

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"beta": (0.05, 1.0)}
    beta: Fraction = 0.2
    keep: PositiveFraction = 0.5

    def __call__(self, geometry: Geometry) -> Regulation:
        return damp(geometry, self.select(geometry, share(geometry.steps, self.keep)), self.beta)

    def select(self, geometry: Geometry, count: int) -> Sequence[int]:
        """The ``count`` steps to keep."""
        raise NotImplementedError


@component
class ECGR(Damping):
    """Keep the steps that herd around zero, damp the others by beta, restore the norm.

    ``beta = 1`` leaves the update unchanged; ``beta = 0`` discards the exploratory steps.

    >>> ECGR(beta=0.5)(Geometry(gram=[[4.0, 0.0], [0.0, 1.0]])).kept
    (1,)
    """

    def select(self, geometry: Geometry, count: int) -> Sequence[int]:
        return herd(geometry.gram, count)


@component
class SafeECGR(ECGR):
    """ECGR with a damping that its error bound covers: beta is raised to |a|^2 / |b|^2 where it is smaller.

    a is the sum of the kept steps, b that of the others. If <c, mu> > 0 and a is better aligned with mu than b, the
    regulated update is closer to mu than the plain one for every such mu exactly from that beta on.

    >>> SafeECGR(beta=0.1)(Geometry(gram=[[1.0, 0.0], [0.0, 4.0]])).metrics["beta"]
    0.25
    """

    def __call__(self, geometry: Geometry) -> Regulation:
        kept = self.select(geometry, share(geometry.steps, self.keep))
        beta = min(1.0, max(self.beta, _cover(geometry, kept)))
        return damp(geometry, kept, beta).with_metrics(beta=beta)


@component
class BHerd:
    """Keep the steps that herd around their mean, discard the others, restore the norm.

    >>> BHerd()(Geometry(gram=[[4.0, 0.0], [0.0, 1.0]])).coefficients
    tensor([1.1180, 0.0000], dtype=torch.float64)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"keep": (0.25, 1.0)}
    keep: PositiveFraction = 0.5

    def __call__(self, geometry: Geometry) -> Regulation:
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


def _cover(geometry: Geometry, kept: Sequence[int]) -> float:
    """|a|^2 / |b|^2 with a the sum of the kept steps and b that of the others; 1 where b is nothing."""
    chosen = weigh(geometry.steps, kept, 0.0)
    rest = squared_length(geometry.gram, 1.0 - chosen)
    return squared_length(geometry.gram, chosen) / rest if rest > 0 else 1.0


@component
class RandomHalf(Damping):
    """Keep random steps. The choice depends on ``seed`` and the steps themselves, so it is pure and varies by round."""

    seed: int = 0

    def select(self, geometry: Geometry, count: int) -> Sequence[int]:
        """The first of a random order, drawn from the bytes of the matrix."""
        rng = np.random.default_rng([self.seed % 2**32, crc32(np.ascontiguousarray(geometry.gram).data)])
        kept: list[int] = rng.permutation(geometry.steps)[:count].tolist()
        return kept


@component
class FirstHalf(Damping):
    """Keep the first steps of the round."""

    def select(self, geometry: Geometry, count: int) -> Sequence[int]:
        return range(count)


@component
class LastHalf(Damping):
    """Keep the last steps of the round."""

    def select(self, geometry: Geometry, count: int) -> Sequence[int]:
        return range(geometry.steps - count, geometry.steps)


@component
class SmallestNorm(Damping):
    """Keep the shortest steps."""

    def select(self, geometry: Geometry, count: int) -> Sequence[int]:
        """The shortest ones, the earlier first where they are equal."""
        return geometry.gram.diagonal().argsort(stable=True)[:count].tolist()


@component
class MostAligned(Damping):
    """Keep the steps with the largest cosine to the mean step."""

    def select(self, geometry: Geometry, count: int) -> Sequence[int]:
        """Those with the largest cosine, the earlier first where they are equal."""
        norms = geometry.gram.diagonal().clamp(min=0).sqrt()
        # <g_i, mean> / |g_i| orders steps as the cosine does; a zero step has no direction and counts as orthogonal.
        alignment = geometry.gram.mean(dim=1) / norms.where(norms > 0, 1.0)
        return alignment.argsort(descending=True, stable=True)[:count].tolist()


NEGLIGIBLE = 1e-12  # squared length, relative to that of the steps laid end to end: below it lies rounding only


def share(steps: int, keep: float) -> int:
    """How many of ``steps`` to keep: the share ``keep``, rounded down, at least one.

    >>> [share(t, 0.5) for t in (1, 2, 3, 47)]
    [1, 1, 1, 23]
    """
    return max(1, int(steps * keep + 1e-9))  # 0.29 of 100 is 29, though 100 * 0.29 is a little less


def damp(geometry: Geometry, kept: Sequence[int], beta: float) -> Regulation:
    """Weight 1 for the kept steps, ``beta`` for the others; the plain update's length is restored.

    >>> damp(Geometry(gram=[[1.0, 0.0], [0.0, 1.0]]), kept=[0], beta=0.0).coefficients
    tensor([1.4142, 0.0000], dtype=torch.float64)
    """
    return restore(geometry, weigh(geometry.steps, kept, beta), kept)


def weigh(steps: int, kept: Sequence[int], beta: float) -> Tensor:
    """1 for the kept steps, ``beta`` for the others.

    >>> weigh(3, kept=[1], beta=0.5).tolist()
    [0.5, 1.0, 0.5]
    """
    weights = torch.full((steps,), beta, dtype=torch.float64)
    weights[list(kept)] = 1.0
    return weights


def restore(geometry: Geometry, weights: Tensor, kept: Sequence[int]) -> Regulation:
    """The weighted sum of the steps at the length of the plain one.

    Steps that cancel to nothing have no direction to rescale: the plain update stays, and ``unregulated = 1`` says so.

    >>> restore(Geometry(gram=[[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.5, 0.5]).double(), kept=[0]).metrics["gamma"]
    2.0
    """
    gram = geometry.gram
    norms = gram.diagonal().clamp(min=0).sqrt()
    length = squared_length(gram, weights)
    if length <= NEGLIGIBLE * float(weights @ norms) ** 2:
        return identity(geometry.steps, unregulated=1.0)
    plain = squared_length(gram, torch.ones_like(weights))
    metrics = {
        "gamma": (plain / length) ** 0.5,
        "coherence": plain**0.5 / float(norms.sum()),
        "position": (sum(kept) / len(kept) + 0.5) / geometry.steps,
        "unregulated": 0.0,
    }
    return Regulation(weights, restore=True, kept=tuple(kept), metrics=metrics)


def squared_length(gram: Tensor, weights: Tensor) -> float:
    """``|sum w_i g_i|^2``, from the inner products alone."""
    return max(0.0, float(weights @ gram @ weights))


REGULATORS: Table[Regulator] = Table(
    "regulator",
    "regulators",
    {
        "none": Plain,
        "ecgr": ECGR,
        "safe_ecgr": SafeECGR,
        "random_half": RandomHalf,
        "first_half": FirstHalf,
        "last_half": LastHalf,
        "smallest_norm": SmallestNorm,
        "most_aligned": MostAligned,
        "bherd": BHerd,
    },
)
