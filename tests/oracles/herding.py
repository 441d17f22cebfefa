"""The paper's selection and re-aggregation written on vectors, one line of the text after the other, in float64.

Nothing here knows of Gram matrices: a candidate is stacked on the running sum and its length is measured.
"""

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float64]


def greedy_herding(steps: Vectors, count: int) -> list[int]:
    """``count`` times: of the steps not yet taken, the one that leaves the running sum shortest; ties: lowest index.

    Lengths are compared squared, so that integer-valued steps compare exactly.
    """
    total = np.zeros(steps.shape[1])
    kept: list[int] = []
    for _ in range(count):
        best, best_length = -1, np.inf
        for i in range(len(steps)):
            if i in kept:
                continue
            candidate = total + steps[i]
            length = float(candidate @ candidate)
            if length < best_length:
                best, best_length = i, length
        kept.append(best)
        total = total + steps[best]
    return kept


def greedy_excess(steps: Vectors, kept: list[int]) -> float:
    """By how much, at worst, a choice was longer than the best one at that point, relative to the longest step squared.

    Zero for the greedy choice itself; of the order of rounding for one that differs in exact ties alone.
    """
    scale = max(float((steps * steps).sum(axis=1).max()), np.finfo(float).tiny)
    total = np.zeros(steps.shape[1])
    worst = 0.0
    for position, chosen in enumerate(kept):
        free = [i for i in range(len(steps)) if i not in kept[:position]]
        sums = total + steps[free]
        lengths = (sums * sums).sum(axis=1)
        worst = max(worst, float(lengths[free.index(chosen)] - lengths.min()) / scale)
        total = total + steps[chosen]
    return worst


def half(steps: int) -> int:
    """k = max(1, floor(T / 2))."""
    return max(1, steps // 2)


def at_length_of(direction: Vectors, plain: Vectors) -> Vectors:
    """``direction`` with the length of ``plain``; ``plain`` itself where there is no direction."""
    length = float(np.linalg.norm(direction))
    return plain if length == 0 else direction * (float(np.linalg.norm(plain)) / length)


def ecgr_update(steps: Vectors, beta: float) -> Vectors:
    """Sum of the kept steps plus ``beta`` times the sum of the others, rescaled to the length of the plain update."""
    kept = greedy_herding(steps, half(len(steps)))
    rest = [i for i in range(len(steps)) if i not in kept]
    return at_length_of(steps[kept].sum(axis=0) + beta * steps[rest].sum(axis=0), steps.sum(axis=0))


def bherd_kept(steps: Vectors) -> list[int]:
    """Herding around the mean: the same greedy choice for the steps minus their mean."""
    return greedy_herding(steps - steps.mean(axis=0), half(len(steps)))


def bherd_update(steps: Vectors) -> Vectors:
    """Sum of the steps that herd around the mean, rescaled to the length of the plain update."""
    return at_length_of(steps[bherd_kept(steps)].sum(axis=0), steps.sum(axis=0))
