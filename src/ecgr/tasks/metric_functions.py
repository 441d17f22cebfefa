"""Any function of scikit-learn's kind as a metric, and a metric from whatever a person may give."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ecgr.errors import ConfigError
from ecgr.tables import unknown
from ecgr.tasks.metrics import METRICS, Array, Metric, are_class_scores, like, predictions, softmax

SCORE_FUNCTIONS = frozenset(
    {
        "average_precision_score",
        "brier_score_loss",
        "d2_brier_score",
        "d2_log_loss_score",
        "hinge_loss",
        "label_ranking_average_precision_score",
        "label_ranking_loss",
        "log_loss",
        "ndcg_score",
        "roc_auc_score",
        "top_k_accuracy_score",
    }
)
"""scikit-learn's functions of classification that judge scores, not predicted classes."""
REGRESSION_FUNCTIONS = frozenset(
    {
        "d2_absolute_error_score",
        "d2_pinball_score",
        "d2_tweedie_score",
        "explained_variance_score",
        "max_error",
        "mean_absolute_error",
        "mean_absolute_percentage_error",
        "mean_gamma_deviance",
        "mean_pinball_loss",
        "mean_poisson_deviance",
        "mean_squared_error",
        "mean_squared_log_error",
        "mean_tweedie_deviance",
        "median_absolute_error",
        "r2_score",
        "root_mean_squared_error",
        "root_mean_squared_log_error",
    }
)
"""scikit-learn's functions of regression."""
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

    def part(self, outputs: Array, targets: Array) -> tuple[Array, Array]:
        """Targets and predictions or scores of each sample."""
        if not self.scores:
            return targets, predictions(outputs, targets)
        if are_class_scores(outputs, targets):
            chances = softmax(outputs)
            return targets, chances[:, 1] if chances.ndim == 2 and chances.shape[1] == 2 else chances
        return targets, like(outputs, targets)

    def value(self, parts: Sequence[tuple[Array, Array]]) -> float:
        """What the function says."""
        targets, given = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return float(self.function(targets, given))


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
    scores = name in SCORE_FUNCTIONS | REGRESSION_FUNCTIONS
    return CallableMetric(given, name, larger_is_better=not name.endswith(SMALLER_IS_BETTER), scores=scores)
