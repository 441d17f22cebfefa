"""Closed-form heads against scikit-learn on the pooled features, whoever holds which samples."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge as SklearnRidge

from ecgr.algorithms.heads import LDA, Ridge, added, solve, sums, symmetric

SAMPLES, WIDTH, CLASSES = 400, 7, 4
CLIENTS = [1, 3, 200]


@pytest.fixture(scope="module")
def pooled() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Correlated features away from zero, classes of unequal size."""
    rng = np.random.default_rng(0)
    labels = np.minimum(rng.geometric(0.45, SAMPLES) - 1, CLASSES - 1)
    mixed = rng.normal(size=(SAMPLES, WIDTH)) @ rng.normal(size=(WIDTH, WIDTH))
    return mixed + 3 + rng.normal(size=(CLASSES, WIDTH))[labels], labels


def total(features: NDArray[np.float64], targets: NDArray[np.float64], clients: int) -> dict[str, torch.Tensor]:
    """The sums of clients, the first of whom hold one class each."""
    order = np.argsort(targets.argmax(axis=1), kind="stable")
    parts = np.array_split(order, clients)
    return added(sums(torch.from_numpy(features[part]), torch.from_numpy(targets[part])) for part in parts)


@pytest.mark.parametrize("clients", CLIENTS)
@pytest.mark.parametrize("lam", [1e-3, 1.0, 50.0])
def test_ridge_is_that_of_the_pooled_samples(
    pooled: tuple[NDArray[np.float64], NDArray[np.int64]], clients: int, lam: float
) -> None:
    features, labels = pooled
    for targets, kind in ((np.eye(CLASSES)[labels], "classes"), (features @ np.ones((WIDTH, 2)) ** 2, "numbers")):
        weight, bias = solve(Ridge(lam=lam), total(features, targets, clients), kind)
        expected = SklearnRidge(alpha=lam).fit(features, targets)
        np.testing.assert_allclose(weight, expected.coef_, rtol=0, atol=1e-8)
        np.testing.assert_allclose(bias, expected.intercept_, rtol=0, atol=1e-8)


@pytest.mark.parametrize("clients", CLIENTS)
@pytest.mark.parametrize("shrinkage", [0.0, 0.1, 1.0])
def test_lda_is_that_of_the_pooled_samples(
    pooled: tuple[NDArray[np.float64], NDArray[np.int64]], clients: int, shrinkage: float
) -> None:
    features, labels = pooled
    found = total(features, np.eye(CLASSES)[labels], clients)
    weight, bias = solve(LDA(shrinkage=shrinkage), found, "classes")
    expected = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(features, labels)
    np.testing.assert_allclose(weight, expected.coef_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(bias, expected.intercept_, rtol=0, atol=1e-8)
    uniform = solve(LDA(shrinkage=shrinkage, prior="uniform"), found, "classes")
    np.testing.assert_allclose(uniform[0], expected.coef_, rtol=0, atol=1e-8)
    without_prior = expected.intercept_ - np.log(expected.priors_) + np.log(1 / CLASSES)
    np.testing.assert_allclose(uniform[1], without_prior, rtol=0, atol=1e-8)


def test_one_output_for_two_classes_is_the_difference_of_their_scores(
    pooled: tuple[NDArray[np.float64], NDArray[np.int64]],
) -> None:
    features, labels = pooled
    yes = labels > 0
    found = total(features, np.eye(2)[yes.astype(int)], 3)
    lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1).fit(features, yes)
    ridge = SklearnRidge(alpha=2.0).fit(features, 2.0 * yes - 1)
    for head, expected in ((LDA(), lda), (Ridge(lam=2.0), ridge)):
        weight, bias = solve(head, found, "binary")
        assert weight.shape == (1, WIDTH)
        np.testing.assert_allclose(weight.squeeze(), np.squeeze(expected.coef_), rtol=0, atol=1e-8)
        np.testing.assert_allclose(bias, np.atleast_1d(expected.intercept_), rtol=0, atol=1e-8)


@pytest.mark.parametrize("head", [Ridge(), LDA()])
@given(missing=st.sets(st.integers(0, 5), min_size=1, max_size=4))
def test_a_class_that_nobody_has_is_never_predicted_and_the_others_are_as_without_it(
    head: Ridge | LDA, missing: set[int]
) -> None:
    rng = np.random.default_rng(1)
    there = [c for c in range(6) if c not in missing]
    labels = rng.permutation(np.resize(there, 60))
    features = rng.normal(size=(60, 3))
    weight, bias = solve(head, total(features, np.eye(6)[labels], 5), "classes")
    assert torch.isfinite(weight).all()
    assert torch.isfinite(bias).all()
    scores = 1000 * rng.normal(size=(200, 3)) @ weight.numpy().T + bias.numpy()
    assert set(scores.argmax(axis=1)) <= set(there)
    alone, level = solve(head, total(features, np.eye(6)[labels][:, there], 5), "classes")
    assert torch.equal(weight[there], alone)
    assert torch.equal(bias[there], level)


def test_features_that_never_vary_or_are_fewer_than_their_width_still_give_a_finite_head() -> None:
    features = np.zeros((3, 5))
    features[:, 0] = [1, 1, 2]
    for head in (Ridge(), LDA(), LDA(shrinkage=0.0)):
        weight, bias = solve(head, total(features, np.eye(2)[[0, 0, 1]], 3), "classes")
        assert torch.isfinite(weight).all()
        assert torch.isfinite(bias).all()


def test_sums_of_two_samples_by_hand() -> None:
    """Of (1, 2) and (3, 5), one of each class, with ones behind: the sum of z zᵀ is 10, 17, 4; 29, 7; 2."""
    found = sums(torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.eye(2))
    assert symmetric(found["gram"], 3).tolist() == [[10, 17, 4], [17, 29, 7], [4, 7, 2]]
    assert found["by_target"].tolist() == [[1, 2, 1], [3, 5, 1]]
