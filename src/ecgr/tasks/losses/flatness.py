"""A loss of a class prior on a client that has one class: how much there is left to learn from."""

from typing import Any

import numpy as np

from ecgr.component import Tensor, torch

FLAT = 0.5
"""Below this share of cross entropy's gradient a person is told."""


def flatness_note(loss: Any, class_counts: Any) -> str | None:
    """What to say where clients of one class get next to no gradient from ``loss``.

    Args:
        loss: an entry of ``LOSSES``; without ``for_client`` there is nothing to say.
        class_counts: samples by client and class.
    """
    if getattr(loss, "for_client", None) is None:
        return None
    counts = np.asarray(class_counts)
    single = (counts > 0).sum(axis=1) == 1
    if not single.any():
        return None
    first = torch.as_tensor(counts[int(single.argmax())])
    target = first.argmax().reshape(1)
    left = _gradient(loss.for_client(first), target, len(first)) / _gradient(loss.evaluation, target, len(first))
    if left >= FLAT:
        return None
    clients = int((counts.sum(axis=1) > 0).sum())
    return (
        f"{int(single.sum())} of {clients} clients hold one class, and {type(loss).__name__} leaves them"
        f" {left:.0%} of the gradient; it is meant for milder skew"
    )


def _gradient(loss: Any, target: Tensor, classes: int) -> float:
    """The length of a loss's gradient at equal scores."""
    scores = torch.zeros(1, classes, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(scores, target), scores)
    return float(gradient.norm())
