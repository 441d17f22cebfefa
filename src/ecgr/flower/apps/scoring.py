"""Evaluation where the test samples are: each site scores the global model on its own, the server averages by examples.

For metrics that are means over samples (accuracy, MAE, the loss) that is the metric over all of them. Others (AUC, F1,
R²) are averaged over the sites, which cannot be had otherwise without sending what the model says of each sample.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from ecgr.errors import QuorumLost
from ecgr.flower.apps.enrolment import Enrolment
from ecgr.flower.apps.wire import METRICS, REPORT, Order
from ecgr.flower.guard import Refusal, describe
from ecgr.simulation.engines import Engine
from ecgr.simulation.evaluate import Evaluation, evaluate
from ecgr.simulation.workspace import Problem
from ecgr.tasks.metrics import bounds_of

LOSS = "loss"
ROUNDING = 1e-9


def score_records(problem: Problem, engine: Engine, order: Order) -> RecordDict:
    """A site's scores of the model that an order carries; what has no value there is left out."""
    found = evaluate(problem, engine, order.params, order.buffers)
    values = {**{f"metric/{name}": value for name, value in found.metrics.items()}, LOSS: found.loss}
    report = ConfigRecord({"run": order.run, "client": order.client, "round": order.round_index})
    finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
    return RecordDict({METRICS: MetricRecord(dict(finite)), REPORT: report})


def site_scores(problem: Problem, order: Order, reply: Message | str) -> dict[str, float]:
    """The numbers of a reply; raises `Refusal` unless they answer this order and can be what they say they are."""
    if isinstance(reply, str):
        raise Refusal(f"unreadable: {reply}")
    if reply.has_error():
        raise Refusal(describe(reply.error.code, reply.error.reason))
    report, metrics = reply.content.config_records.get(REPORT), reply.content.metric_records.get(METRICS)
    if report is None or metrics is None:
        raise Refusal(f"records: expected {METRICS} and {REPORT}")
    said = (report.get("run"), report.get("client"), report.get("round"))
    if said != (order.run, order.client, order.round_index):
        raise Refusal("round: the scores are for another run, client or round")
    bounds = {f"metric/{metric.name}": bounds_of(metric) for metric in problem.metrics} | {LOSS: (-math.inf, math.inf)}
    if LOSS not in metrics or not metrics.keys() <= bounds.keys():
        raise Refusal("metrics: expected the loss, and metrics of the task")
    numbers = {}
    for name, value in metrics.items():
        least, most = bounds[name]
        if not isinstance(value, float) or not math.isfinite(value):
            raise Refusal(f"score: {name} is {ascii(value)[:40]}, expected a finite number")
        if not least - ROUNDING <= value <= most + ROUNDING:
            raise Refusal(f"score: {name} is {value:.6g}, allowed {least:g} to {most:g}")
        numbers[name] = value
    return numbers


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
