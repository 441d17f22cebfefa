"""What comes after the selection of steps, the same for every regulator: damp the others, restore the length.

All of it reads the Gram matrix and makes vectors of T numbers: a long round has no room for a second T x T matrix.
"""

from collections.abc import Sequence

from ecgr.component import Tensor, torch
from ecgr.core.geometry import Geometry, Regulation, identity

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
