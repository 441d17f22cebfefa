"""Federated algorithms as their papers print them: explicit loops over clients and steps, in float64.

The problem is the two-parameter model: scores (w0 x, w1 x) of a number x, cross-entropy, full-batch steps without
momentum. Its gradient for one sample is (softmax - one-hot) x.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Client:
    """A client's samples: numbers and labels."""

    x: Vector
    y: NDArray[np.int64]

    def gradient(self, w: Vector) -> Vector:
        """The mean gradient over all samples."""
        scores = np.outer(self.x, w)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        p = odds / odds.sum(axis=1, keepdims=True)
        p[np.arange(len(self.y)), self.y] -= 1.0
        mean: Vector = (p * self.x[:, None]).mean(axis=0)
        return mean


def scaffold(
    clients: Sequence[Client], rounds: int, steps: int, lr: float, *, uniform: bool
) -> tuple[list[Vector], Vector, list[Vector]]:
    """SCAFFOLD, algorithm 1, option II, full participation, global step 1.

    The model is averaged by examples, as this package does everywhere; the server's variate moves by shares of the
    examples, or by 1/N as printed (``uniform``).

    Returns:
        The global models after each round, c, and every c_i.
    """
    w, c = np.zeros(2), np.zeros(2)
    own = [np.zeros(2) for _ in clients]
    sizes = np.array([len(client.y) for client in clients], dtype=np.float64)
    models = []
    for _ in range(rounds):
        ends, changes = [], []
        for i, client in enumerate(clients):
            y = w.copy()
            for _ in range(steps):
                y = y - lr * (client.gradient(y) - own[i] + c)
            new = own[i] - c + (w - y) / (steps * lr)
            ends.append(y)
            changes.append(new - own[i])
            own[i] = new
        shares = sizes / sizes.sum()
        w = w + sum((p * (end - w) for p, end in zip(shares, ends, strict=True)), np.zeros(2))
        weights = np.full(len(clients), 1 / len(clients)) if uniform else shares
        c = c + sum((p * change for p, change in zip(weights, changes, strict=True)), np.zeros(2))
        models.append(w)
    return models, c, own


def momentum_weights(steps: int, momentum: float) -> Vector:
    """How often each of T gradients enters the update of heavy-ball SGD: run it on unit gradients and count."""
    counts = np.zeros(steps)
    for j in range(steps):
        velocity = 0.0
        for t in range(steps):
            velocity = momentum * velocity + (1.0 if t == j else 0.0)
            counts[j] += velocity
    return counts
