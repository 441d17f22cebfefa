"""What a model scores: the served model on the test samples, or each client's own model on its own ones.

The test samples are scored in shards of fixed size, anywhere; what shards contribute is put together in order, so the
numbers do not depend on how many processes there are.

Where clients are scored on their own, a client's model is the served one with what never left that client (``local``),
after its own steps (``finetune``). Every metric is the mean over clients, each of which counts the same, however few
samples it has; the record also has the mean by samples, the worst client and the worst tenth. Who has no test samples,
or none on which a metric has a value (AUC where all are of one class), is not scored, and is counted as such. A
simulation and the sites of a federation compute these numbers with the same code.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecgr.algorithms.base import inside
from ecgr.component import State
from ecgr.simulation.client import OfClient, fine_tune, user_code
from ecgr.simulation.engines import Engine, results
from ecgr.simulation.workspace import Problem, Workspace
from ecgr.tasks.losses import evaluation_of, total
from ecgr.tasks.metrics import Accuracy

SHARD = 1000
LOSS = "loss"
TENTH = 0.1


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
    return summarise(problem, list(results(engine, list(shards(problem, params, buffers)), "the evaluation was lost")))


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


# Each client by itself

Scores = Mapping[str, float]
"""Of one client: the loss, and each metric that has a value."""


class OwnJob(OfClient):
    """Score one client on its own test samples; ``run`` gives its `Scores`."""

    def run(self, workspace: Workspace) -> Scores:
        with user_code(f"round {self.round_index + 1}, scoring client {self.client}"):
            workspace.load(self.params, self.buffers, self.state)
            last = workspace.experiment.parts.get("finetune")
            if last is not None and len(workspace.problem.partition.clients[self.client]):
                fine_tune(self, workspace, last.steps, last.lr or self.lr)
            return _scores(workspace, self.client)


@torch.no_grad()
def _scores(workspace: Workspace, client: int) -> Scores:
    problem, rows = workspace.problem, workspace.problem.own_rows[client]
    workspace.model.eval()
    losses, outputs, targets = zip(*(scored(workspace, part) for part in torch.split(rows, SHARD)), strict=True)
    shards = list(zip(outputs, targets, strict=True))
    values = {each.name: float(each.value([each.part(*shard) for shard in shards])) for each in problem.metrics}
    return {LOSS: sum(losses) / len(rows), **values}


def evaluate_own(problem: Problem, engine: Engine, jobs: list[OwnJob]) -> Evaluation:
    """Score every client that has test samples of its own."""
    clients = [job.client for job in jobs]
    found = dict(zip(clients, results(engine, jobs, "the evaluation was lost"), strict=True))
    return summarise_own(problem, found, {job.client: job.cost for job in jobs})


def summarise_own(problem: Problem, found: Mapping[int, Scores], tests: Mapping[int, int]) -> Evaluation:
    """The means over clients, and what the record says of them; ``tests`` are their numbers of test samples."""

    def values(name: str) -> dict[int, float]:
        return {c: found[c][name] for c in sorted(found) if np.isfinite(found[c].get(name, np.nan))}

    first, settings = problem.metrics[0], problem.experiment.partition
    own = values(first.name)
    by_client = np.full(len(problem.partition), np.nan)
    if not settings.pooled and settings.alone is None:  # whose one client is none of those that are scored
        by_client[list(own)] = list(own.values())
    return Evaluation(
        metrics={each.name: _mean(values(each.name).values()) for each in problem.metrics},
        loss=_mean(found[client][LOSS] for client in sorted(found)),
        by_client=by_client,
        own=_told(own, tests, first.larger_is_better, len(problem.able)),
    )


def _mean(values: Iterable[float]) -> float:
    given = list(values)
    return float(np.mean(given)) if given else float("nan")


def _told(own: Mapping[int, float], tests: Mapping[int, int], larger_is_better: bool, clients: int) -> dict[str, Any]:
    """What a round's line says of the clients' first metric."""
    if not own:
        return {"scored": 0, "unscored": clients, "clients": {}}
    values, weights = list(own.values()), [tests[client] for client in own]
    return {
        "scored": len(own),
        "unscored": max(0, clients - len(own)),
        "by_samples": float(np.average(values, weights=weights)),
        "worst": min(values) if larger_is_better else max(values),
        "worst_tenth": float(np.quantile(values, TENTH if larger_is_better else 1 - TENTH)),
        "clients": {str(client): value for client, value in own.items()},
    }


# The model that is scored and handed out: the last one, or the average of the recent ones

SHARE = 7
"""A window takes over when it has seen one of this many rounds."""
COUNTS = "counts"
OLDER, NEWER = "older/", "newer/"


def averaged(average: State, rounds: int, model: Mapping[str, Tensor]) -> State:
    """Both running means after round ``rounds``, which led to ``model``; empty is where they begin.

    Under a constant learning rate the last model jitters around where it is going; the mean of the recent ones does
    not, so that every round's score is what one would have had by stopping there. The window is about the last fifth of
    the rounds so far, from two running means in O(1) memory: the older one is served; when the newer one has seen a
    seventh of all rounds, it takes the older one's place and a new one begins. So the window is a seventh to a quarter
    of the rounds, and up to round 7 the last model itself. Buffers are averaged alike, counters are the last ones.
    Clients never start there.

    >>> state = {}
    >>> for rounds in range(1, 18):
    ...     state = averaged(state, rounds, {"w": torch.tensor(float(rounds))})
    >>> state["counts"].tolist(), float(mean_of(state)["w"])
    ([4, 1], 15.5)
    """
    older, newer = average[COUNTS].tolist() if average else (0, 0)
    means = {OLDER: _moved(average, OLDER, older + 1, model), NEWER: _moved(average, NEWER, newer + 1, model)}
    older, newer = older + 1, newer + 1
    if SHARE * newer >= rounds:
        means, older, newer = {OLDER: means[NEWER]}, newer, 0
    flat = {f"{part}{name}": tensor for part, mean in means.items() for name, tensor in mean.items()}
    return {COUNTS: torch.tensor([older, newer]), **flat}


def mean_of(average: State) -> dict[str, Tensor]:
    """The mean that is served."""
    return inside(OLDER, average)


def _moved(average: State, part: str, count: int, model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A running mean of ``count`` models, of which ``model`` is the last."""
    if count == 1:
        return {name: tensor.clone() for name, tensor in model.items()}
    return {
        name: average[part + name] + (tensor - average[part + name]) / count
        if tensor.is_floating_point()
        else tensor.clone()
        for name, tensor in model.items()
    }
