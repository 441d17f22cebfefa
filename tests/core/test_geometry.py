"""What a regulator may be handed, and what comes after its choice."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecgr.core.geometry import Geometry, Regulation
from ecgr.core.regulators import (
    FirstHalf,
    LastHalf,
    MostAligned,
    RandomHalf,
    SmallestNorm,
    damp,
    restore,
    squared_length,
)
from support.stepsets import ALL, make, seeds


def geometry(*steps: list[float]) -> Geometry:
    rows = torch.tensor(steps, dtype=torch.float64)
    return Geometry(gram=rows @ rows.T)


@pytest.mark.parametrize(
    ("gram", "says"),
    [
        *((torch.zeros(shape), "square matrix of at least one step") for shape in [(0, 0), (2, 3), (4,), (2, 2, 2)]),
        *((torch.diag(torch.tensor([1.0, bad])), "NaN or infinite") for bad in (float("nan"), float("inf"))),
        (torch.full((4, 4), 1e308, dtype=torch.float64), "overflow"),  # though every entry is finite
    ],
)
def test_a_gram_matrix_is_square_and_finite_and_so_is_its_sum(gram: torch.Tensor, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Geometry(gram=gram)


def test_coefficients_are_the_weights_times_the_factor_that_restores_the_length() -> None:
    """Orthogonal steps of lengths 3 and 4, weights 1 and 0: |plain| = 5, |weighted| = 3, so the factor is 5/3."""
    regulation = restore(geometry([3.0, 0.0], [0.0, 4.0]), torch.tensor([1.0, 0.0], dtype=torch.float64), kept=[0])
    assert regulation.restore
    assert regulation.weights.tolist() == [1.0, 0.0]
    assert regulation.coefficients.tolist() == pytest.approx([5 / 3, 0.0], rel=1e-15)
    assert not regulation.changes_nothing
    as_they_are = Regulation(regulation.weights, restore=False, kept=(0,))
    assert torch.equal(as_they_are.coefficients, regulation.weights)
    with pytest.raises(ValueError, match=r"not held against steps yet.*Recorder"):
        _ = Regulation(torch.ones(2, dtype=torch.float64), restore=True, kept=(0,)).coefficients


@pytest.mark.parametrize(
    ("rest", "beta", "update"),
    [([0.0, -2.0], 0.0, [0, 0]), ([0.0, -2.0], 0.5, [0, 0]), ([0.0, 1.0], 0.0, [0, 3])],
    ids=["nothing kept", "nothing at all", "nothing kept of something"],
)
def test_a_choice_that_cancels_to_nothing_gives_the_plain_update_and_says_so(
    rest: list[float], beta: float, update: list[int]
) -> None:
    """Kept: e and -e, so there is no direction to rescale, whatever the others come to."""
    steps = [[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], rest]
    regulation = damp(geometry(*steps), kept=[0, 1], beta=beta)
    assert regulation.changes_nothing
    assert regulation.metrics["unregulated"] == 1.0
    assert (regulation.coefficients.numpy() @ np.array(steps)).tolist() == update


def test_a_plain_sum_of_zero_stays_zero() -> None:
    """c = 0 but v is not: the norm to be kept is zero, and so is the update."""
    regulation = damp(geometry([1.0, 0.0], [-1.0, 0.0]), kept=[0], beta=0.5)
    assert regulation.coefficients.tolist() == pytest.approx([0.0, 0.0], abs=1e-12)


@given(kind=st.sampled_from(sorted(ALL)), seed=seeds, T=st.integers(1, 20), d=st.integers(1, 8))
def test_squared_length_equals_the_length_of_the_weighted_sum(kind: str, seed: int, T: int, d: int) -> None:
    steps = make(kind, seed, T, d)
    weights = np.random.default_rng(seed).uniform(-1, 1, size=T)
    scale = float(np.linalg.norm(steps, axis=1) @ abs(weights)) ** 2
    length = squared_length(torch.from_numpy(steps @ steps.T), torch.from_numpy(weights))
    assert length == pytest.approx(float(((weights @ steps) ** 2).sum()), rel=1e-9, abs=1e-12 * scale)


def test_controls_keep_what_their_names_say() -> None:
    """Lengths 5, 1, 2, 1, 3 along one axis but for the last, which points the other way; mean step (2, 0) / ...

    Steps on the x axis: 5, 1, 2, 1, -3. Sum 6, so the mean points to +x: cosine 1 for the first four, -1 for the last.
    """
    found = geometry([5.0], [1.0], [2.0], [1.0], [-3.0])
    assert FirstHalf(keep=0.5)(found).kept == (0, 1)
    assert LastHalf(keep=0.5)(found).kept == (3, 4)
    assert SmallestNorm(keep=0.6)(found).kept == (1, 3, 2)
    assert MostAligned(keep=0.8)(found).kept == (0, 1, 2, 3)
    assert MostAligned(keep=0.75)(geometry([-1.0], [0.0], [4.0], [0.0])).kept == (2, 1, 3)  # zeros are orthogonal


@given(seed=seeds, T=st.integers(2, 20), d=st.integers(2, 8))
def test_most_aligned_keeps_the_largest_cosines_with_the_mean_step(seed: int, T: int, d: int) -> None:
    steps = make("drift", seed, T, d)
    mean = steps.mean(axis=0)
    cosines = steps @ mean / np.linalg.norm(steps, axis=1)
    kept = MostAligned()(Geometry(gram=torch.from_numpy(steps @ steps.T))).kept
    rest = [i for i in range(T) if i not in kept]
    assert min(cosines[list(kept)]) >= max(cosines[rest])


def test_random_half_varies_with_the_steps_and_with_its_seed_and_keeps_every_step_equally_often() -> None:
    """Over 400 sets of 10 steps each step is kept with probability 1/2: expect 200, five deviations are 50."""
    geometries = [Geometry(gram=torch.from_numpy(s @ s.T)) for s in (make("normal", i, 10, 4) for i in range(400))]
    choices = [RandomHalf(beta=0.2)(g).kept for g in geometries]
    assert len({frozenset(kept) for kept in choices}) > 100
    assert RandomHalf(seed=1)(geometries[0]).kept != RandomHalf(seed=2)(geometries[0]).kept
    times = np.bincount([i for kept in choices for i in kept], minlength=10)
    assert (abs(times - 200) < 50).all()
