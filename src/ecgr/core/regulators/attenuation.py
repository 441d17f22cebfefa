"""What comes after the choice of steps, the same for every regulator: damp the rest, restore the norm."""

from collections.abc import Sequence

from ecgr.component import Tensor, torch
from ecgr.core.geometry import Geometry, Regulation, identity

NEGLIGIBLE = 1e-12  # squared length, relative to that of the steps laid end to end: below it lies rounding only


def kept_count(steps: int, keep: float) -> int:
    """How many of ``steps`` to keep: the share ``keep``, rounded down, at least one.

    >>> [kept_count(t, 0.5) for t in (1, 2, 3, 47)]
    [1, 1, 1, 23]
    """
    return max(1, int(steps * keep + 1e-9))  # 0.29 of 100 is 29, though 100 * 0.29 is a little less


def attenuate(geometry: Geometry, kept: Sequence[int], beta: float) -> Regulation:
    """Weigh kept steps by 1 and the others by ``beta``, then rescale to the length of the plain sum.

    Steps that cancel to nothing have no direction to rescale: the plain update stays, and ``unregulated = 1`` says so.

    >>> attenuate(Geometry(gram=[[1.0, 0.0], [0.0, 1.0]]), kept=[0], beta=0.0).coefficients
    tensor([1.4142, 0.0000], dtype=torch.float64)
    """
    gram = geometry.gram
    weights = torch.full_like(gram[0], beta)
    weights[list(kept)] = 1.0
    norms = gram.diagonal().clamp(min=0).sqrt()
    length = squared_length(gram, weights)
    if length <= NEGLIGIBLE * float(weights @ norms) ** 2:
        return identity(geometry.steps, unregulated=1.0)
    plain = squared_length(gram, torch.ones_like(weights))
    gamma = (plain / length) ** 0.5
    metrics = {
        "gamma": gamma,
        "coherence": plain**0.5 / float(norms.sum()),
        "position": (sum(kept) / len(kept) + 0.5) / geometry.steps,
        "unregulated": 0.0,
    }
    return Regulation(weights * gamma, tuple(kept), metrics, weights)


def squared_length(gram: Tensor, weights: Tensor) -> float:
    """``|sum w_i g_i|^2``, from the inner products alone."""
    return max(0.0, float(weights @ gram @ weights))
