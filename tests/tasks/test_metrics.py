"""Metrics against scikit-learn's, by hand, and however the samples are cut into shards."""

from collections.abc import Callable
from math import exp, fsum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from ecgr.tasks.metrics import METRICS, CallableMetric, Metric, describe
from support.quick import examples

Rng = np.random.Generator


def classes(rng: Rng, n: int) -> tuple[Any, Any]:
    return rng.normal(size=(n, 4)).astype(np.float32), rng.integers(0, 4, size=n)


def binary(rng: Rng, n: int) -> tuple[Any, Any]:
    return rng.normal(size=(n, 1)).round(1).astype(np.float32), rng.integers(0, 2, size=n).astype(np.float32)


def two_scores(rng: Rng, n: int) -> tuple[Any, Any]:
    return rng.normal(size=(n, 2)).round(1).astype(np.float32), rng.integers(0, 2, size=n)


def labels(rng: Rng, n: int) -> tuple[Any, Any]:
    return rng.normal(size=(n, 3)).round(1), rng.integers(0, 2, size=(n, 3))


def numbers(rng: Rng, n: int) -> tuple[Any, Any]:
    return rng.normal(size=(n, 2)).astype(np.float32), rng.normal(loc=100, size=(n, 2))


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


ORACLES: list[tuple[str, Callable[[Rng, int], Any], Callable[[Any, Any], float]]] = [
    ("accuracy", classes, lambda o, t: sk.accuracy_score(t, o.argmax(1))),
    ("accuracy", binary, lambda o, t: sk.accuracy_score(t, o[:, 0] > 0)),
    ("accuracy", labels, lambda o, t: sk.accuracy_score(t, o > 0)),
    ("balanced_accuracy", classes, lambda o, t: sk.balanced_accuracy_score(t, o.argmax(1))),
    ("balanced_accuracy", binary, lambda o, t: sk.balanced_accuracy_score(t, o[:, 0] > 0)),
    (
        "balanced_accuracy",
        labels,
        lambda o, t: np.mean([sk.balanced_accuracy_score(t[:, i], o[:, i] > 0) for i in range(3)]),
    ),
    ("macro_f1", classes, lambda o, t: sk.f1_score(t, o.argmax(1), average="macro")),
    ("macro_f1", binary, lambda o, t: sk.f1_score(t, o[:, 0] > 0, average="macro")),
    ("macro_f1", labels, lambda o, t: sk.f1_score(t, o > 0, average="macro")),
    ("auc", binary, lambda o, t: sk.roc_auc_score(t, o[:, 0])),
    ("auc", two_scores, lambda o, t: sk.roc_auc_score(t, o[:, 1] - o[:, 0])),
    ("auc", labels, lambda o, t: sk.roc_auc_score(t, o, average="macro")),
    ("auc", classes, lambda o, t: sk.roc_auc_score(t, softmax(o.astype(np.float64)), multi_class="ovr")),
    ("r2", numbers, lambda o, t: sk.r2_score(t, o)),
    ("mae", numbers, lambda o, t: sk.mean_absolute_error(t, o)),
    ("perplexity", classes, lambda o, t: np.exp(sk.log_loss(t, softmax(o.astype(np.float64)), labels=range(4)))),
]
IDS = [f"{name}-{make.__name__}" for name, make, _ in ORACLES]


@pytest.mark.parametrize(("name", "make", "oracle"), ORACLES, ids=IDS)
@examples(20)
@given(cuts=st.sets(st.integers(1, 39), max_size=5), seed=st.integers(0, 5))
def test_a_metric_is_scikit_learn_s_however_the_samples_are_cut(
    name: str, make: Any, oracle: Any, cuts: set[int], seed: int
) -> None:
    outputs, targets = make(np.random.default_rng(seed), 40)
    metric, borders = METRICS[name](), sorted(cuts)
    parts = [metric.part(o, t) for o, t in zip(np.split(outputs, borders), np.split(targets, borders), strict=True)]
    whole = metric.value([metric.part(outputs, targets)])
    assert whole == pytest.approx(oracle(outputs, targets), rel=1e-9)
    assert metric.value(parts) == pytest.approx(whole, rel=1e-12)


def test_by_hand() -> None:
    """Logits 2, -1, 1, -3 for yes, yes, no, no: two of four right; of the 4 (yes, no) pairs 3 in order.

    F1 of yes: 1 right of 2 predicted and 2 true, 1/2; of no likewise. Absolute errors of the logits: 1, 2, 1, 3.
    """
    outputs, targets = np.array([[2.0], [-1.0], [1.0], [-3.0]]), np.array([1, 1, 0, 0])
    found = {name: METRICS[name]() for name in ("accuracy", "auc", "macro_f1", "mae")}
    values = {name: metric.value([metric.part(outputs, targets)]) for name, metric in found.items()}
    assert values == {"accuracy": 0.5, "auc": 0.75, "macro_f1": 0.5, "mae": 1.75}


@pytest.mark.parametrize(("name", "targets"), [("auc", np.ones(4)), ("r2", np.full(4, 3.0))])
def test_what_is_not_defined_is_not_a_number(name: str, targets: Any) -> None:
    metric = METRICS[name]()
    assert np.isnan(metric.value([metric.part(np.arange(4.0), targets)]))


def test_next_tokens_have_a_perplexity_over_all_positions() -> None:
    """Equal scores for 5 tokens at each of 3 positions: torn among 5."""
    metric = METRICS["perplexity"]()
    assert metric.value([metric.part(np.zeros((2, 5, 3)), np.zeros((2, 3), dtype=np.int64))]) == pytest.approx(5.0)


def test_any_function_of_scikit_learn() -> None:
    outputs, targets = binary(np.random.default_rng(0), 30)
    kappa: Metric = CallableMetric(sk.cohen_kappa_score, "kappa")
    area: Metric = CallableMetric(sk.roc_auc_score, "area", scores=True)
    parts = [(outputs[:10], targets[:10]), (outputs[10:], targets[10:])]
    assert kappa.value([kappa.part(*p) for p in parts]) == sk.cohen_kappa_score(targets, outputs[:, 0] > 0)
    assert area.value([area.part(*p) for p in parts]) == sk.roc_auc_score(targets, outputs[:, 0])
    assert describe(area) == {"name": "area", "unit": "", "larger_is_better": True}


def test_permuted_scores_tie() -> None:
    """A class's probability is the same number wherever the other scores stand: ranks of ties are averaged."""
    rng = np.random.default_rng(0)
    kinds = rng.normal(scale=3, size=(40, 7)).astype(np.float32)
    outputs = np.stack([rng.permutation(kind) for kind in np.repeat(kinds, 50, axis=0)])
    targets = rng.integers(0, 7, size=len(outputs))
    exact = np.array([[exp(s) / fsum(exp(each) for each in row) for s in row] for row in outputs.tolist()])
    oracle = sk.roc_auc_score(targets, exact, multi_class="ovr", average="macro")
    metric = METRICS["auc"]()
    assert metric.value([metric.part(outputs, targets)]) == pytest.approx(oracle, abs=1e-12)
