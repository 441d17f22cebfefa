"""Metrics: what a model is judged by, exact however the test samples are cut into shards. Needs numpy, not torch.

A shard gives a *part* (counts, sums, or the scores themselves), and the *value* is computed once from all parts, in
order. Outputs are what the model gives: class scores (N, C), or a logit or number for each target, in its shape.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ecgr.component import component
from ecgr.errors import ConfigError
from ecgr.tables import Table, unknown

Array = NDArray[Any]
SHARE = "share"
"""The unit of metrics that are shown in percent points."""


class Metric(Protocol):
    """An entry of ``METRICS``."""

    @property
    def name(self) -> str:
        """How it is called in configs and records."""

    @property
    def unit(self) -> str:
        """``share`` where it is shown in percent points, otherwise nothing."""

    @property
    def larger_is_better(self) -> bool:
        """Its direction."""

    def part(self, outputs: Array, targets: Array) -> Any:
        """What a shard of the test samples contributes."""

    def value(self, parts: Sequence[Any]) -> float:
        """The metric over all shards; NaN where it is not defined."""


def bounds_of(metric: Metric) -> tuple[float, float]:
    """The smallest and the largest value that a metric can have; a share is one of the whole.

    >>> bounds_of(AUC()), bounds_of(MAE())
    ((0.0, 1.0), (0.0, inf))
    """
    known: tuple[float, float] = (0.0, 1.0) if metric.unit == SHARE else (-np.inf, np.inf)
    return getattr(metric, "bounds", known)


def describe(metric: Metric) -> dict[str, Any]:
    """What a record says of a metric."""
    return {"name": metric.name, "unit": metric.unit, "larger_is_better": metric.larger_is_better}


def are_class_scores(outputs: Array, targets: Array) -> bool:
    """Whether ``outputs`` has an axis of classes that ``targets`` lacks."""
    return outputs.ndim == targets.ndim + 1 and outputs.shape[1] > 1


def predictions(outputs: Array, targets: Array) -> Array:
    """Classes, or yes and no, in the shape of ``targets``.

    >>> predictions(np.array([[0.1, 0.9]]), np.array([1])), predictions(np.array([[-2.0]]), np.array([1]))
    (array([1]), array([0]))
    """
    found = outputs.argmax(axis=1) if are_class_scores(outputs, targets) else outputs.reshape(targets.shape) > 0
    return np.asarray(found, dtype=np.int64)


def single(outputs: Array, targets: Array) -> bool:
    """Whether each sample has one class, or one yes or no."""
    return are_class_scores(outputs, targets) or targets.size == len(targets)


def by_position(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """Class scores (N, C) and classes (N,), where every position of a sample's further axes is one of the N."""
    return np.moveaxis(outputs, 1, -1).reshape(-1, outputs.shape[1]), targets.reshape(-1)


def _counts(outputs: Array, targets: Array) -> NDArray[np.int64]:
    """(3, C): right, predicted and true samples of each class; of several yes-or-no labels, those with a yes."""
    predicted, truth = predictions(outputs, targets), targets.astype(np.int64)
    if single(outputs, targets):
        classes = outputs.shape[1] if are_class_scores(outputs, targets) else 2
        found = [np.bincount(a.ravel(), minlength=classes) for a in (truth[predicted == truth], predicted, truth)]
        return np.stack(found)
    return np.stack([a.reshape(len(truth), -1).sum(axis=0) for a in (predicted & truth, predicted, truth)])


def joined(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The samples of all shards, where a part is two arrays of them."""
    first, second = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return first, second


def mean_of(parts: Sequence[Array]) -> float:
    """The mean, where a part is a sum and its count; NaN of nothing."""
    total, count = np.sum(parts, axis=0)
    return float(total) / float(count) if count else float("nan")


def mean_ratio(parts: Array, wholes: Array) -> float:
    """The mean of parts over wholes, where there is a whole; NaN of nothing."""
    there = wholes > 0
    return float(np.mean(parts[there] / wholes[there])) if there.any() else float("nan")


class _Share:
    """What most metrics have in common: from 0 to 1, larger is better."""

    __slots__ = ()
    varied: ClassVar[bool] = False
    """Whether it has no value where all targets are the same."""
    unit: ClassVar[str] = ""
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    larger_is_better: ClassVar[bool] = True


@component
class Accuracy(_Share):
    """The share of samples that are predicted rightly; of several labels, all of them."""

    name: ClassVar[str] = "accuracy"
    unit: ClassVar[str] = SHARE

    def part(self, outputs: Array, targets: Array) -> NDArray[np.int64]:
        """(2, C): right and all samples by true class; of several labels, in one column."""
        if single(outputs, targets):
            return _counts(outputs, targets)[[0, 2]]
        right = (predictions(outputs, targets) == targets).reshape(len(targets), -1).all(axis=1)
        return np.array([[right.sum()], [len(targets)]])

    def value(self, parts: Sequence[NDArray[np.int64]]) -> float:
        return mean_of([np.sum(part, axis=1) for part in parts])


@component
class BalancedAccuracy(_Share):
    """The mean, over the classes that occur, of the share of a class's samples that are predicted rightly."""

    name: ClassVar[str] = "balanced_accuracy"
    unit: ClassVar[str] = SHARE

    def part(self, outputs: Array, targets: Array) -> NDArray[np.int64]:
        """(2, C): right and all samples by true class; of several labels, yes and no of each are classes."""
        right, predicted, true = _counts(outputs, targets)
        if not single(outputs, targets):
            rows = len(targets)
            right, true = np.append(right, rows - predicted - true + right), np.append(true, rows - true)
        return np.stack([right, true])

    def value(self, parts: Sequence[NDArray[np.int64]]) -> float:
        right, true = np.sum(parts, axis=0)
        return mean_ratio(right, true)


@component
class MacroF1(_Share):
    """The mean of the classes' F1, over the classes that occur or are predicted."""

    name: ClassVar[str] = "macro_f1"

    def part(self, outputs: Array, targets: Array) -> NDArray[np.int64]:
        """(3, C): right, predicted and true samples by class."""
        return _counts(outputs, targets)

    def value(self, parts: Sequence[NDArray[np.int64]]) -> float:
        right, predicted, true = np.sum(parts, axis=0)
        return mean_ratio(2 * right, predicted + true)


@component
class AUC(_Share):
    """Area under the ROC curve; of several classes (each against the rest) or labels the mean of those that occur."""

    name: ClassVar[str] = "auc"
    varied: ClassVar[bool] = True

    def part(self, outputs: Array, targets: Array) -> tuple[Array, Array]:
        """Scores (N, L) and yes or no (N, L) of each sample."""
        if not are_class_scores(outputs, targets):
            rows = len(targets)
            return outputs.reshape(rows, -1), targets.reshape(rows, -1) > 0.5
        scores, truth = by_position(outputs, targets)
        if scores.shape[1] == 2:
            return (scores[:, 1:] - scores[:, :1]), truth[:, None] == 1
        return softmax(scores), truth[:, None] == np.arange(scores.shape[1])

    def value(self, parts: Sequence[tuple[Array, Array]]) -> float:
        scores, truth = joined(parts)
        found = [_area(s, t) for s, t in zip(scores.T, truth.T, strict=True) if 0 < t.sum() < len(t)]
        return float(np.mean(found)) if found else float("nan")


@component
class R2(_Share):
    """The share of the targets' variance that is explained; the mean over several outputs."""

    name: ClassVar[str] = "r2"
    varied: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float]] = (-np.inf, 1.0)

    def part(self, outputs: Array, targets: Array) -> tuple[Array, Array]:
        """Outputs and targets of each sample."""
        rows = targets.reshape(len(targets), -1).astype(np.float64)
        return outputs.reshape(rows.shape).astype(np.float64), rows

    def value(self, parts: Sequence[tuple[Array, Array]]) -> float:
        outputs, targets = joined(parts)
        spread = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)
        if not (spread > 0).all():
            return float("nan")
        return float(np.mean(1 - ((targets - outputs) ** 2).sum(axis=0) / spread))


@component
class MAE(_Share):
    """Mean absolute error."""

    name: ClassVar[str] = "mae"
    bounds: ClassVar[tuple[float, float]] = (0.0, np.inf)
    larger_is_better: ClassVar[bool] = False

    def part(self, outputs: Array, targets: Array) -> NDArray[np.float64]:
        """The sum of the errors and their number."""
        errors = np.abs(outputs.reshape(targets.shape).astype(np.float64) - targets)
        return np.array([errors.sum(), errors.size])

    def value(self, parts: Sequence[NDArray[np.float64]]) -> float:
        return mean_of(parts)


@component
class Perplexity(_Share):
    """The exponential of the mean cross entropy of class scores: among how many classes a model is as good as torn."""

    name: ClassVar[str] = "perplexity"
    bounds: ClassVar[tuple[float, float]] = (1.0, np.inf)
    larger_is_better: ClassVar[bool] = False

    def part(self, outputs: Array, targets: Array) -> NDArray[np.float64]:
        """The sum of the cross entropies and their number."""
        scores, truth = by_position(outputs.astype(np.float64), targets)
        shifted = scores - scores.max(axis=1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(truth)), truth]
        return np.array([losses.sum(), len(truth)])

    def value(self, parts: Sequence[NDArray[np.float64]]) -> float:
        with np.errstate(over="ignore"):
            return float(np.exp(mean_of(parts)))


def softmax(scores: Array) -> Array:
    """Class scores as probabilities; the same scores in another order give the same ones, to the bit.

    Summed by size, not by class: sums that differ in the last bit would rank samples that are tied.
    """
    scores = scores.astype(np.float64)
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances: Array = exponentials / np.sort(exponentials, axis=1).sum(axis=1, keepdims=True)
    return chances


def _area(scores: Array, truth: Array) -> float:
    """The share of (yes, no) pairs that the scores order rightly, ties counting half: Mann and Whitney's statistic."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse.reshape(-1)]
    yes = int(truth.sum())
    no = len(truth) - yes
    return float((ranks[truth].sum() - yes * (yes + 1) / 2) / (yes * no))


METRICS: Table[Metric] = Table(
    "metric",
    "metrics",
    {entry.name: entry for entry in (Accuracy, BalancedAccuracy, AUC, MacroF1, R2, MAE, Perplexity)},
)


OF_SCORES = re.compile(
    "average_precision_|brier_|d2_|explained_variance_|hinge_|label_ranking_|log_loss|max_error|median_absolute_|ndcg_"
    "|r2_|roc_auc_|root_mean_squared_|top_k_|mean_(absolute|gamma|pinball|poisson|squared|tweedie)_"
)
"""scikit-learn's functions of classification that judge scores, not predicted classes, and those of regression."""
SMALLER_IS_BETTER = ("_error", "_loss", "_deviance")
"""How scikit-learn ends the names of what is to be small."""


@dataclass(frozen=True, slots=True)
class CallableMetric:
    """Any function ``(targets, predictions) -> number``, as scikit-learn's are.

    It is called once, with all test samples in order. With ``scores`` it gets what the model gives (probabilities of
    class scores, logits as they are) instead of predictions; a function of regression wants that too.
    """

    function: Callable[[Any, Any], float]
    name: str
    unit: str = ""
    larger_is_better: bool = True
    scores: bool = False
    varied: ClassVar[bool] = True

    def part(self, outputs: Array, targets: Array) -> tuple[Array, Array]:
        """Targets and predictions or scores of each sample."""
        if not self.scores:
            return targets, predictions(outputs, targets)
        if are_class_scores(outputs, targets):
            chances = softmax(outputs)
            return targets, chances[:, 1] if chances.ndim == 2 and chances.shape[1] == 2 else chances
        return targets, outputs.reshape(targets.shape)

    def value(self, parts: Sequence[tuple[Array, Array]]) -> float:
        return float(self.function(*joined(parts)))


def as_metric(given: Any) -> Metric:
    """A metric from its name, itself, or a function ``(targets, predictions) -> number`` as scikit-learn's are.

    >>> as_metric("auc"), as_metric("mae").larger_is_better
    (AUC(), False)
    """
    if isinstance(given, str):
        if given not in METRICS:
            raise ConfigError(unknown("metrics", given, METRICS, kind="metric"))
        return METRICS[given]()
    if isinstance(given, type):
        return as_metric(given())
    if hasattr(given, "part") and hasattr(given, "value"):
        return cast("Metric", given)
    if not callable(given):
        raise ConfigError(f"metrics: {type(given).__name__} cannot be called; give a metric, its name or a function")
    name = str(getattr(given, "__name__", type(given).__name__))
    larger_is_better = not name.endswith(SMALLER_IS_BETTER)
    return CallableMetric(given, name, larger_is_better=larger_is_better, scores=OF_SCORES.match(name) is not None)
