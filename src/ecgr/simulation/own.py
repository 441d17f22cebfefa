"""Scoring every client on its own test samples, with its own model where it has one.

A client's model is the served one with what never left that client (``local``), after its own steps (``finetune``).
Every metric is the mean over clients, each of which counts the same, however few samples it has; the record also has
the mean by samples, the worst client and the worst tenth. Who has no test samples, or none on which a metric has a
value (AUC where all are of one class), is not scored, and is counted as such.

A simulation and the sites of a federation compute these numbers with the same code.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ecgr.component import State
from ecgr.errors import EnvironmentFault
from ecgr.simulation.client import ClientJob, fine_tune, user_code
from ecgr.simulation.engines import Engine
from ecgr.simulation.engines.pool import Lost
from ecgr.simulation.evaluate import SHARD, Evaluation, scored
from ecgr.simulation.workspace import Problem, Workspace

LOSS = "loss"
TENTH = 0.1

Scores = Mapping[str, float]
"""Of one client: the loss, and each metric that has a value."""


@dataclass(frozen=True, slots=True, eq=False)
class OwnJob:
    """Score one client on its own test samples; ``run`` gives its `Scores`."""

    client: int
    round_index: int
    lr: float
    cost: int
    params: Tensor
    buffers: Mapping[str, Tensor]
    state: State

    def run(self, workspace: Workspace) -> Scores:
        with user_code(f"round {self.round_index + 1}, scoring client {self.client}"):
            workspace.load(self.params, self.buffers, self.state)
            last = workspace.experiment.parts.get("finetune")
            if last is not None and len(workspace.problem.partition.clients[self.client]):
                lr, begun = last.lr or self.lr, (self.params, self.buffers)
                fine_tune(ClientJob(self.client, self.round_index, lr, 0, *begun, {}, {}), workspace, last.steps)
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
    found = {}
    for job, scores in zip(jobs, engine.map(jobs), strict=True):
        if isinstance(scores, Lost):
            raise EnvironmentFault(f"the evaluation was lost: {scores.reason}")
        found[job.client] = scores
    return combined(problem, found, {job.client: job.cost for job in jobs})


def combined(problem: Problem, found: Mapping[int, Scores], tests: Mapping[int, int]) -> Evaluation:
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
        own=_told(own, tests, first.larger_is_better, sum(size > 0 for size in problem.partition.sizes())),
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
