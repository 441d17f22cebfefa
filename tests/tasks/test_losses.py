"""Losses with a client's classes in mind, and FedNTD: by hand, against a slow oracle, neutral values, flat clients.

By hand throughout: one sample of class 0, scores (1, 0, -1), a client with 3 samples of class 0, 1 of class 1, none of
class 2. With exp(1) = 2.7182818, exp(-1) = 0.3678794, plain cross entropy is
-log(2.7182818 / (2.7182818 + 1 + 0.3678794)) = 0.4076060.
"""

from math import exp, log
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ecgr.errors import ConfigError
from ecgr.tasks.losses import (
    BCE,
    LOSSES,
    BalancedSoftmax,
    CrossEntropy,
    FedLC,
    FedNTD,
    FedRS,
    as_loss,
    evaluation_of,
    flatness_note,
    total,
)

COUNTS = torch.tensor([3, 1, 0])
SCORES, TARGET = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([0])


def test_balanced_softmax_by_hand() -> None:
    """Shares 3/4, 1/4 and the floor 0.05/3 = 1/60: odds 0.75 e, 0.25, e^-1 / 60.

    -log(2.0387113 / (2.0387113 + 0.25 + 0.0061313)) = 0.1183463
    """
    odds = [0.75 * exp(1), 0.25, exp(-1) / 60]
    value = float(BalancedSoftmax().for_client(COUNTS)(SCORES, TARGET))
    assert value == pytest.approx(-log(odds[0] / sum(odds)), rel=1e-6)
    assert value == pytest.approx(0.1183463, rel=1e-6)


def test_fedrs_by_hand() -> None:
    """The missing class's score times 0.5: (1, 0, -0.5). By counts, times (1, 2/3, 1/2): (1, 0, -0.5) as well.

    So take another sample, scores (1, 2, -1): missing gives (1, 2, -0.5), counts (1, 4/3, -0.5).
    """
    scores = torch.tensor([[1.0, 2.0, -1.0]])
    missing, counts = FedRS(), FedRS(form="counts")
    assert float(missing.for_client(COUNTS)(scores, TARGET)) == pytest.approx(log(exp(1) + exp(2) + exp(-0.5)) - 1)
    assert float(counts.for_client(COUNTS)(scores, TARGET)) == pytest.approx(log(exp(1) + exp(4 / 3) + exp(-0.5)) - 1)


def test_fedlc_by_hand() -> None:
    """Margins 3^(-1/4) = 0.7598357, 1 and 100: the missing class drops out of the denominator.

    log(1 + exp((0 - 1) - (1 - 0.7598357))) = log(1 + exp(-1.2401643)) = 0.2544393
    """
    value = float(FedLC().for_client(COUNTS)(SCORES, TARGET))
    assert value == pytest.approx(log(1 + exp(-1.2401643)), rel=1e-6)


def test_fedntd_by_hand() -> None:
    """Not-true scores (0, -1): local odds 0.7310586 and 0.2689414; the global model's scores (5, 0, 0): a half each.

    KL = 0.5 log(0.5 / 0.7310586) + 0.5 log(0.5 / 0.2689414) = 0.1201145; the loss is 0.4076060 + 2 * 0.1201145.
    """
    teacher = torch.tensor([[5.0, 0.0, 0.0]])
    distance = 0.5 * log(0.5 / 0.7310585786) + 0.5 * log(0.5 / 0.2689414214)
    assert distance == pytest.approx(0.1201145, rel=1e-6)
    value = float(FedNTD(beta=2.0)(SCORES, TARGET, teacher))
    assert value == pytest.approx(0.4076060 + 2 * distance, rel=1e-6)


def slow_ntd(outputs: Tensor, targets: Tensor, teacher: Tensor, beta: float, tau: float) -> float:
    """Sample by sample, class by class."""
    total = 0.0
    for z, t, y in zip(outputs.double().numpy(), teacher.double().numpy(), targets.tolist(), strict=True):
        total += float(np.log(np.exp(z).sum()) - z[y])
        others = [c for c in range(len(z)) if c != y]
        q = np.exp(z[others] / tau) / np.exp(z[others] / tau).sum()
        p = np.exp(t[others] / tau) / np.exp(t[others] / tau).sum()
        total += beta * tau**2 * float((p * np.log(p / q)).sum())
    return total / len(targets)


@given(st.integers(0, 10_000), st.integers(2, 6), st.floats(0.1, 3), st.floats(0.5, 4))
def test_fedntd_equals_the_slow_way_and_its_gradient_is_finite(
    seed: int, classes: int, beta: float, tau: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    outputs, teacher = (3 * torch.randn(5, classes, generator=generator) for _ in range(2))
    targets = torch.randint(classes, (5,), generator=generator)
    outputs.requires_grad_(True)
    value = FedNTD(beta=beta, tau=tau)(outputs, targets, teacher)
    expected = slow_ntd(outputs.detach(), targets, teacher, beta, tau)
    assert float(value.detach()) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    (gradient,) = torch.autograd.grad(value, outputs)
    assert torch.isfinite(gradient).all()


def test_further_axes_are_samples_too() -> None:
    """Scores (N, classes, length): as if every position were a sample."""
    generator = torch.Generator().manual_seed(0)
    outputs, teacher = (torch.randn(2, 3, 4, generator=generator) for _ in range(2))
    targets = torch.randint(3, (2, 4), generator=generator)
    flat, flat_teacher = (each.movedim(1, -1).reshape(8, 3) for each in (outputs, teacher))
    for loss in (FedLC(), FedRS(), BalancedSoftmax()):
        own = loss.for_client(COUNTS)
        assert float(own(outputs, targets)) == pytest.approx(float(own(flat, targets.reshape(8))), rel=1e-5)
    assert float(FedNTD()(outputs, targets, teacher)) == pytest.approx(
        float(FedNTD()(flat, targets.reshape(8), flat_teacher)), rel=1e-5
    )


def test_fedntd_is_cross_entropy_with_its_own_teacher_and_asks_for_none_at_its_neutral_value() -> None:
    plain = CrossEntropy()(SCORES, TARGET).item()
    assert float(FedNTD()(SCORES, TARGET, SCORES)) == pytest.approx(plain)
    assert not FedNTD(beta=0.0).needs_teacher
    assert FedNTD(beta=0.0)(SCORES, TARGET).item() == plain


@pytest.mark.parametrize("name", ["balanced_softmax", "fedrs", "fedlc", "fedntd"])
def test_test_samples_are_scored_with_cross_entropy(name: str) -> None:
    loss: Any = LOSSES[name]()
    assert evaluation_of(loss) == CrossEntropy()
    problem = loss.problem(np.array([0.5]), (3,))
    assert "whole numbers" in problem


def test_a_loss_that_leaves_clients_of_one_class_nothing_says_so() -> None:
    """Seven of ten clients hold one class: FedLC is flat there, balanced softmax nearly so, FedRS is not."""
    counts = np.zeros((10, 10), dtype=np.int64)
    counts[:7, 3] = 40
    counts[7:, :] = 4
    assert flatness_note(FedLC(), counts) == (
        "7 of 10 clients hold one class, and FedLC leaves them 0% of the gradient; it is meant for milder skew"
    )
    assert "7 of 10 clients hold one class, and BalancedSoftmax leaves them 5%" in str(
        flatness_note(BalancedSoftmax(), counts)
    )
    assert flatness_note(FedRS(), counts) is None
    assert flatness_note(BalancedSoftmax(tau=0.1), counts) is None
    assert flatness_note(CrossEntropy(), counts) is None
    assert flatness_note(FedLC(), counts[7:]) is None


@pytest.mark.parametrize("name", ["cross_entropy", "bce", "mse"])
def test_the_total_of_a_loss_is_its_mean_times_the_samples(name: str) -> None:
    outputs = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 2, 0, 1, 2, 0]) if name == "cross_entropy" else (outputs > 0.3).long()
    loss = LOSSES[name]()
    assert float(total(loss, outputs, targets)) == pytest.approx(7 * float(loss(outputs, targets)), rel=1e-6)


def test_any_function_is_a_loss_and_a_column_of_outputs_is_as_good_as_a_vector() -> None:
    assert as_loss(torch.dist) is torch.dist
    assert as_loss(BCE) == as_loss("bce") == BCE()
    with pytest.raises(ConfigError, match="loss: int cannot be called"):
        as_loss(3)
    logits, yes = torch.tensor([[0.5], [-1.0]]), torch.tensor([1.0, 0.0])
    assert float(BCE()(logits, yes)) == float(BCE()(logits[:, 0], yes))
