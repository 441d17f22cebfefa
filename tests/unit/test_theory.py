"""What the paper's theory says, checked: the lemma that is false, the equivalence that is true, the bound that holds.

a is the sum of the kept steps, b that of the others, c = a + b, v = a + beta b, gamma = |c| / |v|, mu any vector.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ecgr.geometry import Geometry
from ecgr.regulators import REGULATORS, herd

Vector = NDArray[np.float64]
seeds = st.integers(0, 2**32 - 1)
betas = st.floats(0, 1)


def cosine(x: Vector, y: Vector) -> float:
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


def drawn(seed: int, count: int, size: int = 4) -> list[Vector]:
    return list(np.random.default_rng(seed).normal(size=(count, size)))


def test_the_monotonicity_lemma_has_a_counterexample() -> None:
    """x is better aligned with z than y, yet f(beta) = <x + beta y, z> / |x + beta y| grows up to beta = 0.9."""
    x, y, z = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, 0.9])
    assert cosine(x, z) > cosine(y, z)

    def f(beta: float) -> float:
        u = x + beta * y
        return float(u @ z / np.linalg.norm(u))

    values = [f(beta) for beta in np.linspace(0, 0.9, 10)]
    assert all(later > earlier for earlier, later in pairwise(values))
    assert f(1.0) < f(0.9)


@given(seeds, betas)
def test_the_error_shrinks_exactly_if_the_direction_improves(seed: int, beta: float) -> None:
    """|gamma v - mu| < |c - mu| iff cos(v, mu) > cos(c, mu), since both vectors have the length of c."""
    a, b, mu = drawn(seed, 3)
    c, v = a + b, a + beta * b
    regulated = v * np.linalg.norm(c) / np.linalg.norm(v)
    improvement = cosine(v, mu) - cosine(c, mu)
    assume(abs(improvement) > 1e-9)
    assert (np.linalg.norm(regulated - mu) < np.linalg.norm(c - mu)) == (improvement > 0)


@given(seeds, st.floats(0, 1))
def test_from_the_covered_beta_on_the_conclusion_holds(seed: int, share: float) -> None:
    """If <c, mu> > 0, Align(a, mu) > Align(b, mu) and |a|^2 / |b|^2 <= beta < 1, then cos(v, mu) > cos(c, mu)."""
    a, b, mu = drawn(seed, 3)
    if np.linalg.norm(a) > np.linalg.norm(b):
        a, b = b, a
    covered = float(a @ a / (b @ b))
    beta = covered + share * (1 - covered)
    assume(beta < 0.999 and (a + b) @ mu > 1e-6 and cosine(a, mu) > cosine(b, mu) + 1e-6)
    assert cosine(a + beta * b, mu) > cosine(a + b, mu)


@given(seeds, st.floats(0, 0.95))
def test_below_the_covered_beta_some_gradient_contradicts_the_conclusion(seed: int, share: float) -> None:
    """For every beta below |a|^2 / |b|^2 there is a mu for which the assumption holds and the conclusion does not.

    Just inside the assumption's border, mu is nearly orthogonal to a/|a| - b/|b|; within the plane of a and b that is
    the bisector direction a/|a| + b/|b|, and there the conclusion fails.
    """
    a, b = drawn(seed, 2)
    if np.linalg.norm(a) > np.linalg.norm(b):
        a, b = b, a
    units = a / np.linalg.norm(a), b / np.linalg.norm(b)
    assume(abs(float(units[0] @ units[1])) < 0.9 and np.linalg.norm(a) < 0.9 * np.linalg.norm(b))
    beta = share * float(a @ a / (b @ b))
    mu = units[0] + units[1] + 1e-7 * (units[0] - units[1])
    assert (a + b) @ mu > 0
    assert cosine(a, mu) > cosine(b, mu)
    assert cosine(a + beta * b, mu) < cosine(a + b, mu)


@given(seeds)
def test_the_better_aligned_half_is_the_longer_one(seed: int) -> None:
    """Align(a, c) > Align(b, c) iff |a| > |b|: so herding keeps the half less aligned with the client's own update."""
    a, b = drawn(seed, 2)
    c = a + b
    gap = float(np.linalg.norm(a) - np.linalg.norm(b))
    assume(abs(gap) > 1e-9 and abs(float(a @ b)) < np.linalg.norm(a) * np.linalg.norm(b) * (1 - 1e-9))
    assert (cosine(a, c) > cosine(b, c)) == (gap > 0)


@given(seeds, st.integers(2, 20), st.floats(0, 1))
def test_safe_ecgr_damps_no_more_than_the_bound_covers(seed: int, steps: int, beta: float) -> None:
    G = np.random.default_rng(seed).normal(size=(steps, 6)) + 0.5
    gram = torch.from_numpy(G @ G.T)
    regulation = REGULATORS["safe_ecgr"](beta=beta)(Geometry(gram=gram))
    kept = herd(gram, count=max(1, steps // 2))
    a = G[kept].sum(axis=0)
    b = G.sum(axis=0) - a
    expected = min(1.0, max(beta, float(a @ a / (b @ b))))
    assert regulation.metrics["beta"] == pytest.approx(expected, rel=1e-9)
    exploratory = [i for i in range(steps) if i not in kept]
    ratio = regulation.coefficients[exploratory] / regulation.coefficients[kept[0]]
    assert ratio.numpy() == pytest.approx(np.full(len(exploratory), expected), rel=1e-9)
