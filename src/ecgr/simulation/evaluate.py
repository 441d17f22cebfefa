"""Evaluation of the global model on the test samples, in shards of fixed size.

Shards can be scored anywhere; what they contribute is put together in order, so the numbers do not depend on how many
processes there are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecgr.errors import EnvironmentFault
from ecgr.simulation.engines import Engine
from ecgr.simulation.engines.pool import Lost
from ecgr.simulation.workspace import Problem, Workspace
from ecgr.tasks.losses import evaluation_of, total
from ecgr.tasks.metrics import Accuracy

SHARD = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """What a shard contributes.

    Attributes:
        loss: the sum over its samples.
        samples: how many.
        parts: to each metric, in the order of the problem's.
        by_client: to the first metric, of the samples of each client, where test samples belong to clients.
    """

    loss: float
    samples: int
    parts: tuple[Any, ...]
    by_client: Mapping[int, Any]


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationJob:
    """Score one shard of the test samples with the global model."""

    start: int
    stop: int
    params: Tensor
    buffers: Mapping[str, Tensor]

    @property
    def cost(self) -> int:
        return self.stop - self.start

    @torch.no_grad()
    def run(self, workspace: Workspace) -> Score:
        problem = workspace.problem
        workspace.load(self.params, self.buffers)
        workspace.model.eval()
        rows = slice(self.start, self.stop)
        loss, given, truth = scored(workspace, rows)
        by_client = {}
        if problem.test_clients is not None:
            owners = problem.test_clients[rows]
            for client in np.unique(owners[owners >= 0]).tolist():
                own = owners == client
                by_client[client] = problem.metrics[0].part(given[own], truth[own])
        return Score(
            loss=loss,
            samples=self.cost,
            parts=tuple(metric.part(given, truth) for metric in problem.metrics),
            by_client=by_client,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Metrics and loss of the global model; per client the first metric, NaN where a client has none.

    ``own`` is what the record says of clients that were scored on their own samples.

    A client's is that of the test samples that belong to it; where none do, and the metric is accuracy, that of test
    samples mixed like the client's classes.
    """

    metrics: Mapping[str, float]
    loss: float
    by_client: NDArray[np.float64]
    own: Mapping[str, Any] | None = None


def scored(workspace: Workspace, rows: Tensor | slice) -> tuple[float, NDArray[Any], NDArray[Any]]:
    """The sum of the loss over some test samples, the model's outputs for them and their targets."""
    outputs, targets = workspace.batch(workspace.test, rows)
    loss = float(total(evaluation_of(workspace.problem.loss), outputs, targets).double())
    return loss, outputs.float().cpu().numpy(), targets.cpu().numpy()


def evaluate(problem: Problem, engine: Engine, params: Tensor, buffers: Mapping[str, Tensor]) -> Evaluation:
    """Score a model on the problem's test samples."""
    scores = []
    for score in engine.map(list(shards(problem, params, buffers))):
        if isinstance(score, Lost):
            raise EnvironmentFault(f"the evaluation was lost: {score.reason}")
        scores.append(score)
    return summarise(problem, scores)


def shards(problem: Problem, params: Tensor, buffers: Mapping[str, Tensor]) -> Iterator[EvaluationJob]:
    """The jobs that evaluate a global model."""
    for start in range(0, len(problem.test), SHARD):
        yield EvaluationJob(start, min(start + SHARD, len(problem.test)), params, buffers)


def summarise(problem: Problem, scores: Sequence[Score]) -> Evaluation:
    """Put the shards together, in order."""
    by_metric = zip(problem.metrics, zip(*(score.parts for score in scores), strict=True), strict=True)
    return Evaluation(
        metrics={metric.name: metric.value(parts) for metric, parts in by_metric},
        loss=sum(score.loss for score in scores) / sum(score.samples for score in scores),
        by_client=_by_client(problem, scores),
    )


def _by_client(problem: Problem, scores: Sequence[Score]) -> NDArray[np.float64]:
    values = np.full(len(problem.partition), np.nan)
    if problem.test_clients is not None:
        for client in range(len(values)):
            parts = [score.by_client[client] for score in scores if client in score.by_client]
            if parts:
                values[client] = problem.metrics[0].value(parts)
    elif problem.classes is not None and isinstance(problem.metrics[0], Accuracy):
        correct, samples = np.sum([score.parts[0] for score in scores], axis=0)
        # A class without test samples says nothing about a client that holds it: its share is spread over the others.
        counts = problem.class_counts.astype(np.float64)
        shares = counts / counts.sum(axis=1, keepdims=True).clip(min=1) * (samples > 0)
        weights = shares.sum(axis=1)
        np.divide(shares @ (correct / samples.clip(min=1)), weights, out=values, where=weights > 0)
    return values
