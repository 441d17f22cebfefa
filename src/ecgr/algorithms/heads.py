"""Closed-form heads: the last linear layer of a finished model, solved once from sums over the clients' features.

Ridge regression is that of Fed3R ("Accelerating Heterogeneous Federated Learning with Closed-form Classifiers", Fanì et
al., 2024); `LDA` is linear discriminant analysis with a shared covariance. Sums over clients are those of the pooled
samples, so both are the pooled solutions, however heterogeneous the clients are.

A client sends two tensors in float64, for its features z with a one behind them: ``by_target``, the sum of z by target
(for classes: each class's feature sum, and its count behind), and ``gram``, the upper half of the sum of z zᵀ.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from ecgr.algorithms.base import Defaults, Population, Upload
from ecgr.component import Count, Fraction, Positive, State, Tensor, component, torch
from ecgr.core.regulators import Plain

CLASSES = ("classes", "binary")
"""Kinds of targets that are classes: one output for each, or one for two."""
NEVER = 30.0
"""A class that no client has gets the row of a class that is there, with a bias lower by this: never predicted."""


def sums(features: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """What (samples, d) features and (samples, k) targets add up to.

    >>> found = sums(torch.tensor([[2.0], [3.0]]), torch.eye(2))
    >>> found["by_target"].tolist(), found["gram"].tolist()
    ([[2.0, 1.0], [3.0, 1.0]], [13.0, 5.0, 2.0])
    """
    rows = torch.cat([features.double(), torch.ones(len(features), 1, dtype=torch.float64)], dim=1)
    gram = rows.T @ rows
    upper = torch.triu_indices(*gram.shape)
    return {"by_target": targets.double().T @ rows, "gram": gram[upper[0], upper[1]]}


def added(parts: Iterable[State]) -> dict[str, Tensor]:
    """The sum of sums, in their order."""
    total: dict[str, Tensor] = {}
    for part in parts:
        total = {name: total[name] + tensor if total else tensor for name, tensor in part.items()}
    return total


def symmetric(gram: Tensor, rows: int) -> Tensor:
    """The whole matrix of which ``gram`` is the upper half."""
    whole, upper = gram.new_zeros(rows, rows), torch.triu_indices(rows, rows)
    whole[upper[0], upper[1]] = gram
    whole.T[upper[0], upper[1]] = gram
    return whole


def solve(head: "Ridge | LDA", total: State, kind: str) -> tuple[Tensor, Tensor]:
    """The weight and the bias that ``head`` makes of sums; ``kind`` is that of the targets.

    ``binary`` targets are two classes for one output, which is the difference of their scores.
    """
    by_target = total["by_target"]
    there = by_target[:, -1] > 0 if kind in CLASSES else torch.ones(len(by_target), dtype=torch.bool)
    found, level = head.solve(by_target[there], symmetric(total["gram"], by_target.shape[1]))
    weight, bias = found[:1].repeat(len(there), 1), level[:1].repeat(len(there)) - NEVER
    weight[there], bias[there] = found, level
    return (weight[1:] - weight[:1], bias[1:] - bias[:1]) if kind == "binary" else (weight, bias)


def clash(experiment: Any) -> str | None:
    """Why an experiment cannot have a head, if it cannot."""
    others = experiment.parts.keys() - {"head"}
    for part, reason in (
        ("local", "clients that keep a part of the model have other features than the server's"),
        ("dp", "its sums are sent without noise"),
    ):
        if part in others:
            return f"head.name: a head cannot be combined with {part}: {reason}; leave one of them out"
    if isinstance(experiment.correction, HeadOnly):
        extra = [] if isinstance(experiment.regulator, Plain) else ["regulator"]
        if extra := [*extra, *sorted(others & {"server_steps"})]:
            return f"{extra[0]}.name: head_only takes no step that {extra[0]} could change; leave it out"
    return None


@component
class Ridge:
    """Ridge regression on one-hot classes or on numbers, once after the last round; the intercept is not penalised.

    As scikit-learn's ``Ridge(alpha=lam)`` on everybody's features. With one output and the loss bce, it is regression
    on -1 and 1. Clients with fewer than ``min_count`` samples send nothing.

    >>> Ridge(lam=10.0)
    Ridge(lam=10.0, min_count=1)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"lam": (0.01, 100.0)}
    kinds: ClassVar[tuple[str, ...]] = (*CLASSES, "labels", "numbers")
    lam: Positive = 1.0
    min_count: Count = 1

    def clash(self, experiment: Any) -> str | None:
        return clash(experiment)

    def solve(self, by_target: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
        """Weight and bias by target."""
        mean, level = gram[-1, :-1] / gram[-1, -1], by_target[:, -1] / gram[-1, -1]
        scatter = gram[:-1, :-1] - gram[-1, -1] * torch.outer(mean, mean)
        penalised = scatter + self.lam * torch.eye(len(mean), dtype=torch.float64)
        weight = torch.linalg.solve(penalised, (by_target[:, :-1] - by_target[:, -1:] * mean).T).T
        return weight, level - weight @ mean


@component
class LDA:
    """Linear discriminant analysis, once after the last round: class means, and one covariance for all classes.

    As scikit-learn's ``LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage)`` on everybody's features. With
    ``prior = "uniform"`` classes count alike in the bias; the covariance is the same. Clients with fewer than
    ``min_count`` samples send nothing.

    >>> LDA(prior="uniform")
    LDA(shrinkage=0.1, prior='uniform', min_count=1)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"shrinkage": (0.001, 1.0)}
    kinds: ClassVar[tuple[str, ...]] = CLASSES
    shrinkage: Fraction = 0.1
    prior: Literal["empirical", "uniform"] = "empirical"
    min_count: Count = 1

    def clash(self, experiment: Any) -> str | None:
        return clash(experiment)

    def solve(self, by_target: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
        """Weight and bias by class."""
        counts, samples, d = by_target[:, -1], gram[-1, -1], len(gram) - 1
        means = by_target[:, :-1] / counts[:, None]
        within = (gram[:-1, :-1] - means.T @ (counts[:, None] * means)) / samples
        ridge = self.shrinkage * within.trace() / d * torch.eye(d, dtype=torch.float64)
        shrunk = (1 - self.shrinkage) * within + ridge
        weight = torch.linalg.lstsq(shrunk, means.T, driver="gelsd").solution.T
        shares = counts / samples if self.prior == "empirical" else torch.full_like(counts, 1 / len(counts))
        return weight, shares.log() - (means * weight).sum(dim=1) / 2


@component
class HeadOnly(Defaults):
    """Clients take no step: a head on the body as it is, after one round, is the whole method (``head_only@lda``)."""

    trains: ClassVar[bool] = False

    def aggregate(
        self, params: Tensor, server: State, results: Iterable[Upload], population: Population, lr: float
    ) -> tuple[Tensor, State]:
        return params, server
