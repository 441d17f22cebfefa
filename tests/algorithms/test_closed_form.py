"""Closed-form heads against scikit-learn on the pooled features, whoever holds which samples."""

from typing import Any

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
RNG = np.random.default_rng(0)
LABELS = np.minimum(RNG.geometric(0.45, SAMPLES) - 1, CLASSES - 1)
MIXED = RNG.normal(size=(SAMPLES, WIDTH)) @ RNG.normal(size=(WIDTH, WIDTH))
FEATURES = MIXED + 3 + RNG.normal(size=(CLASSES, WIDTH))[LABELS]
"""Correlated, away from zero, in classes of unequal size."""

by_clients = pytest.mark.parametrize("clients", [1, 3, 200])


def check(found: tuple[torch.Tensor, torch.Tensor], weight: Any, bias: Any) -> None:
    np.testing.assert_allclose(found[0].squeeze(), np.squeeze(weight), rtol=0, atol=1e-8)
    np.testing.assert_allclose(found[1], np.atleast_1d(bias), rtol=0, atol=1e-8)


def total(features: NDArray[np.float64], targets: NDArray[np.float64], clients: int) -> dict[str, torch.Tensor]:
    """The sums of clients, the first of whom hold one class each."""
    order = np.argsort(targets.argmax(axis=1), kind="stable")
    parts = np.array_split(order, clients)
    return added(sums(torch.from_numpy(features[part]), torch.from_numpy(targets[part])) for part in parts)


@by_clients
@pytest.mark.parametrize("lam", [1e-3, 1.0, 50.0])
def test_ridge_is_that_of_the_pooled_samples(clients: int, lam: float) -> None:
    for targets, kind in ((np.eye(CLASSES)[LABELS], "classes"), (FEATURES @ np.ones((WIDTH, 2)) ** 2, "numbers")):
        expected = SklearnRidge(alpha=lam).fit(FEATURES, targets)
        found = solve(Ridge(lam=lam), total(FEATURES, targets, clients), kind)
        check(found, expected.coef_, expected.intercept_)


@by_clients
@pytest.mark.parametrize("shrinkage", [0.0, 0.1, 1.0])
def test_lda_is_that_of_the_pooled_samples(clients: int, shrinkage: float) -> None:
    sums_ = total(FEATURES, np.eye(CLASSES)[LABELS], clients)
    expected = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(FEATURES, LABELS)
    check(solve(LDA(shrinkage=shrinkage), sums_, "classes"), expected.coef_, expected.intercept_)
    without_prior = expected.intercept_ - np.log(expected.priors_) + np.log(1 / CLASSES)
    check(solve(LDA(shrinkage=shrinkage, prior="uniform"), sums_, "classes"), expected.coef_, without_prior)


def test_one_output_for_two_classes_is_the_difference_of_their_scores() -> None:
    yes = LABELS > 0
    found = total(FEATURES, np.eye(2)[yes.astype(int)], 3)
    lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1).fit(FEATURES, yes)
    ridge = SklearnRidge(alpha=2.0).fit(FEATURES, 2.0 * yes - 1)
    for head, expected in ((LDA(), lda), (Ridge(lam=2.0), ridge)):
        check(solve(head, found, "binary"), expected.coef_, expected.intercept_)


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
