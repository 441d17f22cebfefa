"""`herd`, `ECGR` and `BHerd` on the Gram matrix equal the paper's explicit search on vectors."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecgr.core.geometry import Geometry, Regulator
from ecgr.core.regulators import ECGR, REGULATORS, BHerd, herd
from ecgr.core.stores import DenseStore
from oracles.herding import bherd_kept, bherd_update, ecgr_update, greedy_excess, greedy_herding, half
from support.quick import examples
from support.stepsets import ALL, EXACT, GENERIC, Steps, make, seeds

SETS_PER_EXAMPLE = 8


def gram_of(steps: Steps) -> torch.Tensor:
    return torch.from_numpy(steps @ steps.T)


def update_of(regulator: Regulator, steps: Steps) -> Steps:
    """``coefficients @ G`` in float64."""
    regulated: Steps = regulator(Geometry(gram=gram_of(steps))).coefficients.numpy() @ steps
    return regulated


def assert_close(actual: Steps, expected: Steps, steps: Steps, tolerance: float = 1e-9) -> None:
    """Equal relative to the total length of the steps: cancelling steps leave rounding of that size."""
    scale = float(np.linalg.norm(steps, axis=1).sum())
    assert float(np.linalg.norm(actual - expected)) <= tolerance * max(scale, np.finfo(float).tiny)


@examples(400)
@given(kind=st.sampled_from(sorted({**GENERIC, **EXACT})), seed=seeds, T=st.integers(1, 24), d=st.integers(1, 12))
def test_herd_equals_the_explicit_greedy_search_on_thousands_of_small_sets(
    kind: str, seed: int, T: int, d: int
) -> None:
    """400 examples of 8 sets each: 3,200 sets, whole-number ones full of exact ties among them."""
    for offset in range(SETS_PER_EXAMPLE):
        # One dimension makes every real-valued set a set of near-ties in sign only; whole numbers cover it exactly.
        steps = make(kind, seed + offset, T, d if kind in EXACT else max(d, 2))
        assert herd(gram_of(steps), half(T)) == greedy_herding(steps, half(T))


@examples(100)
@given(kind=st.sampled_from(sorted(ALL)), seed=seeds, T=st.integers(1, 24), d=st.integers(1, 12))
def test_herd_is_greedy_to_rounding_on_every_kind_of_set_and_for_every_count(
    kind: str, seed: int, T: int, d: int
) -> None:
    for offset in range(SETS_PER_EXAMPLE):
        steps = make(kind, seed + offset, T, d)
        for count in {0, 1, half(T), T}:
            kept = herd(gram_of(steps), count)
            assert len(kept) == count == len(set(kept))
            assert greedy_excess(steps, kept) <= 1e-12


@pytest.mark.slow
@examples(60)
@given(
    kind=st.sampled_from(sorted({**GENERIC, **EXACT})),
    seed=seeds,
    T=st.integers(60, 200),
    d=st.integers(1000, 5000),
)
def test_herd_equals_the_explicit_greedy_search_on_large_sets(kind: str, seed: int, T: int, d: int) -> None:
    steps = make(kind, seed, T, d)
    assert herd(gram_of(steps), half(T)) == greedy_herding(steps, half(T))


@examples(12)
@given(kind=st.sampled_from(sorted({**GENERIC, **EXACT})), seed=seeds, T=st.integers(1, 80), d=st.integers(2, 5000))
def test_the_gram_matrix_of_recorded_steps_herds_as_the_steps_do(kind: str, seed: int, T: int, d: int) -> None:
    """The same through float32 storage and blockwise sums: what is stored is what the search sees."""
    stored = DenseStore(d)
    rows = torch.from_numpy(make(kind, seed, T, d)).float()
    for row in rows:
        stored.append(row)
    assert herd(stored.gram(), half(T)) == greedy_herding(rows.double().numpy(), half(T))


@examples(150)
@given(
    kind=st.sampled_from(sorted({**GENERIC, **EXACT})),
    seed=seeds,
    T=st.integers(1, 24),
    d=st.integers(2, 12),
    beta=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
)
def test_ecgr_equals_the_explicit_update(kind: str, seed: int, T: int, d: int, beta: float) -> None:
    """Betas are sums of powers of two, so that whole-number steps which cancel do so exactly in both computations."""
    for offset in range(SETS_PER_EXAMPLE):
        steps = make(kind, seed + offset, T, d)
        assert_close(update_of(ECGR(beta=beta), steps), ecgr_update(steps, beta), steps)


def test_ecgr_by_hand() -> None:
    """Four steps in the plane, beta = 1/2.

    Steps: g0 = (3, 0), g1 = (0, 1), g2 = (0, -2), g3 = (4, 4). k = 2.
    First pick: the shortest, g1 (length 1). Second: |g1 + g0|^2 = 10, |g1 + g2|^2 = 1, |g1 + g3|^2 = 41: g2.
    Kept sum a = (0, -1), rest b = (7, 4), v = a + b/2 = (3.5, 1), plain c = (7, 3).
    |c|^2 = 58, |v|^2 = 13.25, so the update is (3.5, 1) * sqrt(58 / 13.25).
    """
    steps = np.array([[3.0, 0.0], [0.0, 1.0], [0.0, -2.0], [4.0, 4.0]])
    regulation = ECGR(beta=0.5)(Geometry(gram=gram_of(steps)))
    gamma = (58 / 13.25) ** 0.5
    assert regulation.kept == (1, 2)
    np.testing.assert_allclose(regulation.coefficients.numpy() @ steps, [3.5 * gamma, gamma], rtol=1e-14)
    assert regulation.metrics["gamma"] == pytest.approx(gamma, rel=1e-14)


@examples(100)
@given(kind=st.sampled_from(sorted(GENERIC)), seed=seeds, T=st.integers(3, 24), d=st.integers(2, 12))
def test_bherd_equals_the_explicit_centred_search(kind: str, seed: int, T: int, d: int) -> None:
    for offset in range(SETS_PER_EXAMPLE):
        steps = make(kind, seed + offset, T, d)
        regulation = BHerd()(Geometry(gram=gram_of(steps)))
        assert list(regulation.kept) == bherd_kept(steps)
        assert_close(regulation.coefficients.numpy() @ steps, bherd_update(steps), steps)


@examples(60)
@given(kind=st.sampled_from(sorted(EXACT)), seed=seeds, T=st.sampled_from([2, 4, 8, 16]), d=st.integers(1, 12))
def test_bherd_breaks_exact_ties_by_the_lowest_index(kind: str, seed: int, T: int, d: int) -> None:
    """With T a power of two the mean of whole numbers is exact, so ties are exact."""
    for offset in range(SETS_PER_EXAMPLE):
        steps = make(kind, seed + offset, T, d)
        regulation = BHerd()(Geometry(gram=gram_of(steps)))
        if not regulation.metrics["unregulated"]:
            assert list(regulation.kept) == bherd_kept(steps)


@examples(60)
@given(kind=st.sampled_from(sorted(GENERIC)), seed=seeds, T=st.integers(2, 24), d=st.integers(2, 12))
def test_safe_ecgr_damps_by_no_less_than_its_bound_covers(kind: str, seed: int, T: int, d: int) -> None:
    """beta is raised to |a|^2 / |b|^2 where that is larger, at most to 1; a and b are the sums of the two halves."""
    steps = make(kind, seed, T, d)
    kept = greedy_herding(steps, half(T))
    a = steps[kept].sum(axis=0)
    b = steps.sum(axis=0) - a
    beta = min(1.0, max(0.2, float(a @ a) / float(b @ b)))
    regulation = REGULATORS["safe_ecgr"](beta=0.2)(Geometry(gram=gram_of(steps)))
    assert regulation.metrics["beta"] == pytest.approx(beta, rel=1e-9)
    assert_close(regulation.coefficients.numpy() @ steps, ecgr_update(steps, beta), steps)


def test_herding_makes_the_kept_half_the_shorter_one_and_so_the_less_aligned() -> None:
    """With c = a + b, cos(a, c) > cos(b, c) exactly where |a| > |b|, and herding gives |a| < |b|."""
    for seed in range(50):
        steps = make("drift", seed, 20, 30)
        kept = herd(gram_of(steps), 10)
        a = steps[kept].sum(axis=0)
        b = steps.sum(axis=0) - a
        c = a + b
        cosines = [float(x @ c / np.linalg.norm(x) / np.linalg.norm(c)) for x in (a, b)]
        assert np.linalg.norm(a) < np.linalg.norm(b)
        assert cosines[0] < cosines[1]


@pytest.mark.parametrize("count", [-1, 4])
def test_herd_refuses_to_pick_more_steps_than_there_are(count: int) -> None:
    with pytest.raises(ValueError, match=f"cannot pick {count} of 3"):
        herd(torch.eye(3, dtype=torch.float64), count)


@pytest.mark.parametrize("scale", [1e-150, 1e-75, 1.0, 1e75, 1e150])
def test_herd_picks_different_steps_at_any_scale_that_float64_holds(scale: float) -> None:
    gram = gram_of(make("drift", 1, 10, 4)) * scale
    assert herd(gram, 5) == herd(gram / scale, 5)
    assert len(set(herd(gram, 10))) == 10
