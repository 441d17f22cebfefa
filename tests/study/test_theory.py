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

from ecgr.core.geometry import Geometry
from ecgr.core.regulators import REGULATORS, herd

Vector = NDArray[np.float64]
seeds = st.integers(0, 2**32 - 1)
betas = st.floats(0, 1)


def cosine(x: Vector, y: Vector) -> float:
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


def unit(x: Vector) -> Vector:
    return x / float(np.linalg.norm(x))


def drawn(seed: int, count: int, size: int = 4) -> list[Vector]:
    return list(np.random.default_rng(seed).normal(size=(count, size)))


def halves(seed: int) -> tuple[Vector, Vector]:
    """A shorter a and a longer b, not close to parallel."""
    a, b = sorted(drawn(seed, 2), key=lambda x: float(np.linalg.norm(x)))
    assume(abs(cosine(a, b)) < 0.9 and np.linalg.norm(a) < 0.9 * np.linalg.norm(b))
    return a, b


def slope(x: Vector, y: Vector, z: Vector, beta: float) -> float:
    """M(beta), the numerator of f'(beta), as the paper writes it."""
    u = x + beta * y
    return float((y @ z) * (u @ u) - (u @ z) * (u @ y))


def error(update: Vector, mu: Vector) -> float:
    return float(np.linalg.norm(update - mu))


def regulated(a: Vector, b: Vector, beta: float) -> Vector:
    """``gamma v``."""
    return unit(a + beta * b) * np.linalg.norm(a + b)


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
    assert [slope(x, y, z, beta) for beta in (0.0, 0.5, 0.9, 1.0)] == pytest.approx([0.9, 0.4, 0.0, -0.1])


def test_the_counterexample_contradicts_the_theorem_too() -> None:
    """With a = x, b = y, mu = z and beta = 0.2 the error grows from 0.1 to 0.733."""
    a, b, mu = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, 0.9])
    assert cosine(a, mu) > cosine(b, mu)
    assert error(a + b, mu) == pytest.approx(0.1)
    assert error(regulated(a, b, 0.2), mu) == pytest.approx(0.733, abs=1e-3)


@given(seeds, betas)
def test_the_numerator_of_the_slope_is_linear_in_beta(seed: int, beta: float) -> None:
    """M(beta) = <y,z>|x|^2 - <x,z><x,y> + beta (<y,z><x,y> - <x,z>|y|^2): the squares of beta cancel."""
    x, y, z = drawn(seed, 3)
    linear = (y @ z) * (x @ x) - (x @ z) * (x @ y) + beta * ((y @ z) * (x @ y) - (x @ z) * (y @ y))
    assert slope(x, y, z, beta) == pytest.approx(float(linear), abs=1e-9)


def test_the_slope_at_one_may_be_positive() -> None:
    """The paper's steps 2 and 3 claim M(1) < 0. For x = (2, 0) M(beta) = 3.6 - 2 beta: f grows on all of [0, 1]."""
    x, y, z = np.array([2.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, 0.9])
    assert cosine(x, z) > cosine(y, z)
    assert slope(x, y, z, 1.0) == pytest.approx(1.6)
    for beta in np.linspace(0, 0.99, 12):
        assert error(regulated(x, y, beta), z) > error(x + y, z)


@given(seeds, betas)
def test_the_error_shrinks_exactly_if_the_update_turns_towards_mu(seed: int, beta: float) -> None:
    """|gamma v - mu| < |c - mu| iff cos(v, mu) > cos(c, mu), iff <gamma v - c, mu> > 0: both have the length of c."""
    a, b, mu = drawn(seed, 3)
    c, update = a + b, regulated(a, b, beta)
    improvement = cosine(a + beta * b, mu) - cosine(c, mu)
    assume(abs(improvement) > 1e-9)
    assert (error(update, mu) < error(c, mu)) == (improvement > 0)
    assert (float((update - c) @ mu) > 0) == (improvement > 0)


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
    a, b = halves(seed)
    beta = share * float(a @ a / (b @ b))
    mu = unit(a) + unit(b) + 1e-7 * (unit(a) - unit(b))
    assert (a + b) @ mu > 0
    assert cosine(a, mu) > cosine(b, mu)
    assert cosine(a + beta * b, mu) < cosine(a + b, mu)


@given(seeds)
def test_at_the_covered_beta_the_lengths_change_places(seed: int) -> None:
    """At beta = |a|^2 / |b|^2, gamma v is |b| a/|a| + |a| b/|b|: c mirrored at the bisector of a and b.

    So there the conclusion is the assumption, for every mu, whatever the sign of <c, mu>.
    """
    a, b = halves(seed)
    longer, shorter = float(np.linalg.norm(b)), float(np.linalg.norm(a))
    update = regulated(a, b, shorter**2 / longer**2)
    assert update == pytest.approx(longer * unit(a) + shorter * unit(b), rel=1e-9)
    for mu in drawn(seed + 1, 20):
        assert (error(update, mu) < error(a + b, mu)) == (cosine(a, mu) > cosine(b, mu))


@given(seeds, st.floats(0, 0.99))
def test_a_longer_kept_half_is_never_covered(seed: int, beta: float) -> None:
    """With |a| >= |b| the bound is 1 or more: every beta < 1 has a mu that contradicts it."""
    b, a = halves(seed)
    for kept in (a, unit(a) * np.linalg.norm(b)):
        mu = unit(a) + unit(b) + 1e-7 * (unit(a) - unit(b))
        assert (kept + b) @ mu > 0
        assert cosine(kept, mu) > cosine(b, mu)
        assert cosine(kept + beta * b, mu) < cosine(kept + b, mu)


@given(seeds, st.floats(0.05, 0.95))
def test_above_the_covered_beta_the_plain_update_has_to_point_along_mu(seed: int, share: float) -> None:
    """Without <c, mu> > 0 the conclusion fails for every beta but |a|^2 / |b|^2 itself: take mu behind the bisector."""
    a, b = halves(seed)
    covered = float(a @ a / (b @ b))
    beta = covered + share * (1 - covered)
    mu = -(unit(a) + unit(b)) + 1e-7 * (unit(a) - unit(b))
    assert (a + b) @ mu < 0
    assert cosine(a, mu) > cosine(b, mu)
    assert cosine(a + beta * b, mu) < cosine(a + b, mu)


@given(seeds, st.floats(1.1, 10))
def test_parallel_halves_leave_nothing_to_conclude(seed: int, times: float) -> None:
    """With b along a, or against it and longer, no mu meets both conditions; against it and shorter, nothing turns."""
    a = drawn(seed, 1)[0]
    for b in (times * a, -times * a):
        for mu in drawn(seed + 1, 20):
            assert not ((a + b) @ mu > 0 and cosine(a, mu) > cosine(b, mu) + 1e-12)
    against = -a / times
    assert regulated(a, against, 0.2) == pytest.approx(a + against, rel=1e-9)


@given(seeds)
def test_the_better_aligned_half_is_the_longer_one(seed: int) -> None:
    """Align(a, c) > Align(b, c) iff |a| > |b|: their difference is (1 - cos(a, b)) (|a| - |b|) / |c|."""
    a, b = drawn(seed, 2)
    c = a + b
    difference = (1 - cosine(a, b)) * (np.linalg.norm(a) - np.linalg.norm(b)) / np.linalg.norm(c)
    assert cosine(a, c) - cosine(b, c) == pytest.approx(float(difference), abs=1e-9)
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


@given(seeds, st.integers(2, 20), st.floats(0, 1))
def test_safe_ecgr_reduces_the_error_wherever_the_assumption_holds(seed: int, steps: int, beta: float) -> None:
    G = np.random.default_rng(seed).normal(size=(steps, 6)) + 0.5
    regulation = REGULATORS["safe_ecgr"](beta=beta)(Geometry(gram=torch.from_numpy(G @ G.T)))
    c, update = G.sum(axis=0), regulation.coefficients.numpy() @ G
    a = G[list(regulation.kept)].sum(axis=0)
    if regulation.metrics["beta"] > 0.999:
        assert error(update, c) < 1e-2 * np.linalg.norm(c)
        return
    for mu in drawn(seed + 1, 20, size=6):
        if c @ mu > 1e-6 and cosine(a, mu) > cosine(c - a, mu) + 1e-6:
            assert error(update, mu) < error(c, mu)


def test_herding_mostly_keeps_the_shorter_half() -> None:
    """Greedy, and so not always: of these four steps it keeps a = (1, 1.5), while the others cancel."""
    G = np.array([[1.0, 0.0], [0.0, 1.5], [2.0, 3.0], [-2.0, -3.0]])
    assert herd(torch.from_numpy(G @ G.T), count=2) == [0, 1]
    rng, shorter = np.random.default_rng(0), 0
    for _ in range(200):
        G = rng.normal(size=(int(rng.integers(2, 24)), 10))
        a = G[herd(torch.from_numpy(G @ G.T), count=len(G) // 2)].sum(axis=0)
        shorter += bool(np.linalg.norm(a) < np.linalg.norm(G.sum(axis=0) - a))
    assert shorter >= 190


def test_equal_norms_of_the_clients_leave_the_average_free() -> None:
    """Clients (1, 1) and (1, -1) that keep their first step alone: no norm changes, yet the mean grows by sqrt(2)."""
    plain, kept = [], []
    for second in (1.0, -1.0):
        G = np.array([[1.0, 0.0], [0.0, second]])
        regulation = REGULATORS["first_half"](beta=0.0)(Geometry(gram=torch.from_numpy(G @ G.T)))
        plain.append(G.sum(axis=0))
        kept.append(regulation.coefficients.numpy() @ G)
        assert np.linalg.norm(kept[-1]) == pytest.approx(float(np.linalg.norm(plain[-1])))
    assert np.linalg.norm(np.mean(kept, axis=0)) == pytest.approx(2**0.5)
    assert np.linalg.norm(np.mean(plain, axis=0)) == pytest.approx(1.0)
