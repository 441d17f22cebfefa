"""A loss of a class prior on a client that has one class: how much there is left to learn from."""

from typing import Any

import numpy as np

from ecgr.component import Tensor, torch
from ecgr.tasks.losses.cross_entropy import CrossEntropy
from ecgr.tasks.losses.protocol import evaluation_of

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


def softmax_note(loss: Any, outputs: Tensor) -> str | None:
    """What to say where a model gives probabilities to a loss that takes their softmax again.

    >>> softmax_note(CrossEntropy(), torch.tensor([[-0.2, 1.2]])) is None
    True
    """
    own = getattr(loss, "function", evaluation_of(loss))
    kinds = (CrossEntropy, torch.nn.CrossEntropyLoss)
    if not (isinstance(own, kinds) or own is torch.nn.functional.cross_entropy):
        return None
    if outputs.ndim < 2 or outputs.shape[1] < 2 or not bool((outputs >= 0).all()):
        return None
    if not bool(((outputs.sum(dim=1) - 1).abs() < 1e-4).all()):
        return None
    return (
        "the model's outputs are probabilities (each sample's sum to 1), and cross_entropy expects logits;"
        " leave the softmax out"
    )


def _gradient(loss: Any, target: Tensor, classes: int) -> float:
    """The length of a loss's gradient at equal scores."""
    scores = torch.zeros(1, classes, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(scores, target), scores)
    return float(gradient.norm())
