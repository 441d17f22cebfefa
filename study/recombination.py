"""The best that a client can make of its own steps, if somebody told it where to go.

With the steps as rows of ``G``, ``K = G G^T`` and ``h = G m``, the cosine of ``c @ G`` with a target ``m`` is
``<h, c> / (sqrt(c K c) |m|)``. Its maximum over all ``c`` is at ``c = K^+ h``, over ``c >= 0`` at the non-negative
least squares solution of ``c @ G = m`` (docs/results/theory.md). No client knows such a target: this is a yardstick
for regulators, not one of them.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Vector = NDArray[np.float64]
RANK = 1e-10
"""Directions in which the steps reach less, squared and relative to the longest, are rounding."""


def best_weights(gram: Vector, inner: Vector, *, signed: bool) -> Vector | None:
    """One weight for each step; None where no combination points towards the target at all.

    Args:
        gram: ``<g_i, g_j>``, (T, T).
        inner: ``<g_i, m>``, (T,).
        signed: whether a step may count negatively.

    >>> best_weights(np.eye(2), np.array([1.0, 2.0]), signed=True).tolist()
    [1.0, 2.0]
    >>> best_weights(np.eye(2), np.array([1.0, -2.0]), signed=False).tolist()
    [1.0, 0.0]
    """
    lengths, axes = np.linalg.eigh(gram)
    reached = lengths > RANK * max(lengths[-1], 0.0)
    roots, axes = np.sqrt(lengths[reached]), axes[:, reached]
    target = (axes.T @ inner) / roots
    if signed:
        weights = axes @ (target / roots)
    else:
        weights, _ = nnls(roots[:, None] * axes.T, target)
    return weights if float(weights @ inner) > 0 else None


def cosine(gram: Vector, inner: Vector, weights: Vector, length: float) -> float:
    """Of ``weights @ G`` with a target of this length."""
    return float(weights @ inner) / (math.sqrt(weights @ gram @ weights) * length)
