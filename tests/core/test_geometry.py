"""What a regulator may be handed, and what comes after its choice."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecgr.core.geometry import Geometry, Regulation, identity
from ecgr.core.regulators import (
    FirstHalf,
    LastHalf,
    MostAligned,
    RandomHalf,
    SmallestNorm,
    damp,
    restore,
    share,
    squared_length,
)
from support.stepsets import ALL, make, seeds


@pytest.mark.parametrize("shape", [(0, 0), (2, 3), (4,), (2, 2, 2)])
def test_a_gram_matrix_must_be_square_and_hold_a_step(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="square matrix of at least one step"):
        Geometry(gram=torch.zeros(shape))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gram_matrix_must_be_finite(bad: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        Geometry(gram=torch.tensor([[1.0, 0.0], [0.0, bad]]))


def test_a_gram_matrix_whose_sum_overflows_is_refused() -> None:
    """Every entry is finite, but no length can be had from them. (Float32 steps cannot get here.)"""
    with pytest.raises(ValueError, match="overflow"):
        Geometry(gram=torch.full((4, 4), 1e308, dtype=torch.float64))


def test_a_geometry_is_float64_whatever_it_was_made_of() -> None:
    geometry = Geometry(gram=torch.eye(3, dtype=torch.float32))
    assert geometry.gram.dtype == torch.float64
    assert geometry.steps == 3


def test_the_identity_changes_nothing_and_carries_its_metrics() -> None:
    regulation = identity(4, unregulated=1.0)
    assert regulation.changes_nothing
    assert regulation.kept == (0, 1, 2, 3)
    assert regulation.metrics == {"unregulated": 1.0}


def test_coefficients_are_the_weights_times_the_factor_that_restores_the_length() -> None:
    """Orthogonal steps of lengths 3 and 4, weights 1 and 0: |plain| = 5, |weighted| = 3, so the factor is 5/3."""
    geometry = Geometry(gram=torch.diag(torch.tensor([9.0, 16.0])))
    regulation = restore(geometry, torch.tensor([1.0, 0.0], dtype=torch.float64), kept=[0])
    assert regulation.restore
    assert regulation.weights.tolist() == [1.0, 0.0]
    assert regulation.coefficients.tolist() == pytest.approx([5 / 3, 0.0], rel=1e-15)
    assert not regulation.changes_nothing


def test_weights_whose_length_is_not_restored_are_the_coefficients() -> None:
    weights = torch.tensor([0.5, 2.0], dtype=torch.float64)
    assert torch.equal(Regulation(weights, restore=False, kept=(0,)).coefficients, weights)


def test_a_length_that_nobody_measured_has_no_coefficients() -> None:
    regulation = Regulation(torch.ones(2, dtype=torch.float64), restore=True, kept=(0,))
    with pytest.raises(ValueError, match=r"not held against steps yet.*Recorder"):
        _ = regulation.coefficients


@pytest.mark.parametrize(
    ("steps", "keep", "count"), [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 1), (47, 0.5, 23), (3, 0.1, 1), (5, 1.0, 5)]
)
def test_the_number_kept_is_the_share_rounded_down_and_at_least_one(steps: int, keep: float, count: int) -> None:
    assert share(steps, keep) == count


@given(kind=st.sampled_from(sorted(ALL)), seed=seeds, T=st.integers(1, 20), d=st.integers(1, 8))
def test_squared_length_equals_the_length_of_the_weighted_sum(kind: str, seed: int, T: int, d: int) -> None:
    steps = make(kind, seed, T, d)
    weights = np.random.default_rng(seed).uniform(-1, 1, size=T)
    scale = float(np.linalg.norm(steps, axis=1) @ abs(weights)) ** 2
    length = squared_length(torch.from_numpy(steps @ steps.T), torch.from_numpy(weights))
    assert length == pytest.approx(float(((weights @ steps) ** 2).sum()), rel=1e-9, abs=1e-12 * scale)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_choice_that_cancels_to_nothing_gives_the_plain_update_and_says_so(beta: float) -> None:
    """Kept: e and -e. The rest: f and -f. For any beta, a + beta b = 0; there is no direction to rescale."""
    steps = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    regulation = damp(Geometry(gram=torch.from_numpy(steps @ steps.T)), kept=[0, 1], beta=beta)
    assert regulation.changes_nothing
    assert regulation.metrics["unregulated"] == 1.0


def test_a_kept_half_that_cancels_while_the_rest_does_not_gives_the_plain_update_at_beta_zero() -> None:
    """a = 0, b = (0, 3): v = 0 but the plain update is b. Where there is nothing to rescale, the plain update stays."""
    steps = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, 1.0]])
    regulation = damp(Geometry(gram=torch.from_numpy(steps @ steps.T)), kept=[0, 1], beta=0.0)
    assert regulation.changes_nothing
    np.testing.assert_array_equal(regulation.coefficients.numpy() @ steps, [0.0, 3.0])


def test_a_plain_sum_of_zero_stays_zero() -> None:
    """c = 0 but v is not: the norm to be kept is zero, and so is the update."""
    steps = np.array([[1.0, 0.0], [-1.0, 0.0]])
    regulation = damp(Geometry(gram=torch.from_numpy(steps @ steps.T)), kept=[0], beta=0.5)
    np.testing.assert_allclose(regulation.coefficients.numpy() @ steps, [0.0, 0.0], atol=1e-12)


def test_controls_keep_what_their_names_say() -> None:
    """Lengths 5, 1, 2, 1, 3 along one axis but for the last, which points the other way; mean step (2, 0) / ...

    Steps on the x axis: 5, 1, 2, 1, -3. Sum 6, so the mean points to +x: cosine 1 for the first four, -1 for the last.
    """
    steps = np.array([[5.0, 0.0], [1.0, 0.0], [2.0, 0.0], [1.0, 0.0], [-3.0, 0.0]])
    geometry = Geometry(gram=torch.from_numpy(steps @ steps.T))
    assert FirstHalf(keep=0.5)(geometry).kept == (0, 1)
    assert LastHalf(keep=0.5)(geometry).kept == (3, 4)
    assert SmallestNorm(keep=0.6)(geometry).kept == (1, 3, 2)
    assert MostAligned(keep=0.8)(geometry).kept == (0, 1, 2, 3)


@given(seed=seeds, T=st.integers(2, 20), d=st.integers(2, 8))
def test_most_aligned_keeps_the_largest_cosines_with_the_mean_step(seed: int, T: int, d: int) -> None:
    steps = make("drift", seed, T, d)
    mean = steps.mean(axis=0)
    cosines = steps @ mean / np.linalg.norm(steps, axis=1)
    kept = MostAligned()(Geometry(gram=torch.from_numpy(steps @ steps.T))).kept
    rest = [i for i in range(T) if i not in kept]
    assert min(cosines[list(kept)]) >= max(cosines[rest])


def test_a_zero_step_counts_as_orthogonal_to_the_mean() -> None:
    steps = np.array([[-1.0, 0.0], [0.0, 0.0], [4.0, 0.0], [0.0, 0.0]])
    geometry = Geometry(gram=torch.from_numpy(steps @ steps.T))
    assert MostAligned(keep=0.75)(geometry).kept == (2, 1, 3)


def test_random_half_varies_with_the_steps_and_with_its_seed_and_keeps_every_step_equally_often() -> None:
    """Over 400 sets of 10 steps each step is kept with probability 1/2: expect 200, five deviations are 50."""
    geometries = [Geometry(gram=torch.from_numpy(s @ s.T)) for s in (make("normal", i, 10, 4) for i in range(400))]
    choices = [RandomHalf(beta=0.2)(g).kept for g in geometries]
    assert len({frozenset(kept) for kept in choices}) > 100
    assert RandomHalf(seed=1)(geometries[0]).kept != RandomHalf(seed=2)(geometries[0]).kept
    times = np.bincount([i for kept in choices for i in kept], minlength=10)
    assert (abs(times - 200) < 50).all()


def test_keeping_everything_is_plain_training() -> None:
    steps = make("normal", 5, 7, 3)
    assert FirstHalf(keep=1.0)(Geometry(gram=torch.from_numpy(steps @ steps.T))).changes_nothing
