"""Evaluation where the test samples are: each site scores the global model on its own, the server averages by examples.

For metrics that are means over samples (accuracy, MAE, the loss) that is the metric over all of them. Others (AUC, F1,
R²) are averaged over the sites, which cannot be had otherwise without sending what the model says of each sample.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import ConfigRecord, MetricRecord, RecordDict

from ecgr.errors import EnvironmentFault, QuorumLost
from ecgr.flower.apps.enrolment import Enrolment
from ecgr.flower.apps.wire import METRICS, REPORT, Order
from ecgr.simulation.engines import Engine
from ecgr.simulation.engines.pool import Lost
from ecgr.simulation.evaluate import Evaluation, shards, summarise
from ecgr.simulation.workspace import Problem

LOSS = "loss"


def score_records(problem: Problem, engine: Engine, order: Order) -> RecordDict:
    """A site's scores of the model that an order carries; what has no value there is left out."""
    scores = []
    for score in engine.map(list(shards(problem, order.params, order.buffers))):
        if isinstance(score, Lost):
            raise EnvironmentFault(f"the evaluation was lost: {score.reason}")
        scores.append(score)
    found = summarise(problem, scores)
    values = {**{f"metric/{name}": value for name, value in found.metrics.items()}, LOSS: found.loss}
    report = ConfigRecord({"run": order.run, "client": order.client, "round": order.round_index})
    finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
    return RecordDict({METRICS: MetricRecord(dict(finite)), REPORT: report})


def site_scores(order: Order, content: RecordDict) -> dict[str, float] | None:
    """The numbers of a reply, or None where it does not answer this order."""
    report, metrics = content.config_records.get(REPORT), content.metric_records.get(METRICS)
    if report is None or metrics is None:
        return None
    said = (report.get("run"), report.get("client"), report.get("round"))
    if said != (order.run, order.client, order.round_index):
        return None
    numbers = {name: value for name, value in metrics.items() if isinstance(value, float) and math.isfinite(value)}
    return numbers if LOSS in numbers else None


def combine_scores(
    problem: Problem, sites: Mapping[int, Enrolment], found: Mapping[int, Mapping[str, float]]
) -> Evaluation:
    """The sites' scores, averaged by their test samples, in client order."""
    if not found:
        raise QuorumLost("evaluation: no site has scored the model")

    def mean(name: str) -> float:
        own = [(found[client][name], sites[client].tests) for client in sorted(found) if name in found[client]]
        return float(np.average(*_columns(own))) if own else math.nan

    first = f"metric/{problem.metrics[0].name}"
    by_client = [found.get(client, {}).get(first, math.nan) for client in range(len(problem.partition))]
    return Evaluation(
        metrics={metric.name: mean(f"metric/{metric.name}") for metric in problem.metrics},
        loss=mean(LOSS),
        by_client=np.array(by_client),
    )


def _columns(pairs: Sequence[tuple[float, int]]) -> tuple[list[float], None, list[int]]:
    """As `numpy.average` takes them: values, no axis, weights."""
    return [value for value, _ in pairs], None, [weight for _, weight in pairs]
