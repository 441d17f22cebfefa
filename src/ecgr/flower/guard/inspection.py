"""One reply, looked at without trusting anything in it.

What a good reply looks like is not written down twice: the algorithm itself, given a training that moved nothing, makes
the payload whose names, shapes and dtypes are asked for. A payload's scalars (FedNova's number of steps) follow from
the number of samples and must have the very values that the server computes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ConfigRecord, Message, MetricRecord
from torch import Tensor

from ecgr.algorithms import Contribution, Plan, Trace
from ecgr.core.regulators import Plain
from ecgr.core.stores import STORES
from ecgr.flower.apps.wire import ARRAYS, METRICS, REPORT, Order, reply_tensors, split_reply
from ecgr.simulation.client import ClientResult, batch_sizes, nonfinite
from ecgr.simulation.workspace import Problem

FLOWER_ERRORS = {
    1: "the ClientApp cannot be loaded",
    2: "the ClientApp raised",
    3: "the order was not delivered",
    4: "the reply was not delivered",
    5: "the SuperNode is gone",
    7: "the app was not accepted",
    8: "the ClientApp died",
}
REPORTED = {
    "run": str,
    "client": int,
    "round": int,
    "examples": int,
    "steps": int,
    "train_loss": float,
    "seconds": float,
    "kept": list,
    "store": str,
}
RESERVED = {"client", "examples", "steps", "train_loss", "accuracy", "seconds", "store"}
MAX_METRICS = 64


class Refusal(Exception):
    """Why a reply does not count: a word, and what is wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What one client was asked for: by which message, with which order, holding how many samples."""

    problem: Problem
    order: Order
    flower_run: int
    node: int
    group: str
    enrolled: int


def inspect(asked: Asked, message: Message | str) -> ClientResult:
    """The reply's content; raises `Refusal` unless it is exactly what was asked for."""
    if isinstance(message, str):
        raise Refusal(f"unreadable: {message}")
    _check_metadata(asked, message)
    arrays, metrics, report = _records(message)
    values = _report(report)
    if values["run"] != asked.order.run:
        raise Refusal("run: the reply is for another run")
    if values["round"] != asked.order.round_index:
        raise Refusal(f"round: the reply is for round {values['round'] + 1}, not {asked.order.round_index + 1}")
    if values["client"] != asked.order.client:
        raise Refusal(f"client: the reply speaks for client {values['client']}")
    examples = values["examples"]
    if not 1 <= examples <= asked.enrolled:
        raise Refusal(f"weight: {examples} examples, allowed 1 to {asked.enrolled}")
    steps = expected_steps(asked.problem, examples)
    if values["steps"] != steps:
        raise Refusal(f"steps: {values['steps']}, but {examples} examples make {steps}")
    kept = values["kept"]
    if any(type(i) is not int or not 0 <= i < steps for i in kept) or len(set(kept)) < len(kept):
        raise Refusal("kept: not a choice among the steps")
    if values["store"] and values["store"] not in STORES:
        raise Refusal(f"report: there is no store {_shown(values['store'])}")
    expected = expected_tensors(asked, steps)
    tensors = _tensors(arrays, expected)
    for name, tensor in expected.items():
        if not tensor.dim() and name.startswith("payload/") and not torch.equal(tensor, tensors[name]):
            raise Refusal(f"scalar: {name} is {float(tensors[name])!r}, must be {float(tensor)!r}")
    payload, buffers = split_reply(tensors)
    result = ClientResult(
        contribution=Contribution(asked.order.client, examples, payload),
        buffers=buffers,
        steps=steps,
        train_loss=values["train_loss"],
        seconds=values["seconds"],
        kept=tuple(kept),
        metrics=_metrics(metrics),
        picked_store=values["store"] or None,
    )
    reason = nonfinite(result)
    if reason is not None:
        raise Refusal(reason)
    return result


def expected_steps(problem: Problem, examples: int) -> int:
    """How many local steps so many samples make."""
    federation = problem.experiment.federation
    return len(batch_sizes(examples, federation.batch_size, federation.last_batch)) * federation.local_epochs


def expected_tensors(asked: Asked, steps: int) -> dict[str, Tensor]:
    """The tensors of a reply after a training that moved nothing."""
    experiment, order = asked.problem.experiment, asked.order
    algorithm, still = experiment.algorithm, torch.zeros_like(order.params)
    plan = Plan(steps, order.lr, experiment.optimizer.effective_momentum)
    state = algorithm.begin(plan, order.server, algorithm.init_client(order.params))
    regulated = not isinstance(experiment.regulator, Plain)
    trace = Trace(still, still, steps, order.lr, plan.momentum, regulated)
    _, payload = algorithm.finish(trace, order.server, state)
    return reply_tensors(payload, order.buffers)


def _check_metadata(asked: Asked, message: Message) -> None:
    metadata = message.metadata
    if message.has_error():
        raise Refusal(describe(message.error.code, message.error.reason))
    if not message.has_content():
        raise Refusal("records: the reply is empty")
    if metadata.run_id != asked.flower_run:
        raise Refusal("run: the reply is for another Flower run")
    if metadata.group_id != asked.group:
        raise Refusal("round: the reply is for another round or attempt")
    if metadata.src_node_id != asked.node:
        raise Refusal("client: the reply names another node as its sender")


def describe(code: int, reason: str | None) -> str:
    """An error reply, without its text: that may quote a site's data."""
    if code in FLOWER_ERRORS:
        return f"failed: {FLOWER_ERRORS[code]} (code {code})"
    name = reason if reason is not None and re.fullmatch(r"[A-Za-z_]\w{0,63}", reason, re.ASCII) else "an error"
    return f"failed: {name} (code {int(code)})"


def _records(message: Message) -> tuple[Mapping[str, Array], MetricRecord, ConfigRecord]:
    content = message.content
    names = {*content.array_records, *content.metric_records, *content.config_records}
    exact = (
        set(content.array_records) == {ARRAYS}
        and set(content.metric_records) == {METRICS}
        and set(content.config_records) == {REPORT}
    )
    if not exact:
        raise Refusal(f"records: {_shown(sorted(names))}, expected {ARRAYS}, {METRICS} and {REPORT}")
    return content.array_records[ARRAYS], content.metric_records[METRICS], content.config_records[REPORT]


def _report(record: ConfigRecord) -> dict[str, Any]:
    values = dict(record)
    if values.keys() != REPORTED.keys():
        raise Refusal(f"report: the keys are {_shown(sorted(values))}")
    for name, kind in REPORTED.items():
        if type(values[name]) is not kind:
            word = "weight" if name == "examples" else "report"
            raise Refusal(f"{word}: {name} is {_shown(values[name])}, not {kind.__name__}")
    return values


def _metrics(record: MetricRecord) -> dict[str, float]:
    if len(record) > MAX_METRICS:
        raise Refusal(f"metrics: {len(record)} of them, allowed {MAX_METRICS}")
    for name, value in record.items():
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or name in RESERVED or isinstance(value, list):
            raise Refusal(f"metrics: {_shown(name)} cannot be recorded")
    return {name: float(value) for name, value in record.items() if not isinstance(value, list)}


def _tensors(arrays: Mapping[str, Array], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    missing, extra = expected.keys() - arrays.keys(), arrays.keys() - expected.keys()
    if missing or extra:
        what = f"{_shown(min(missing))} is missing" if missing else f"{_shown(min(extra))} is not part of it"
        raise Refusal(f"names: {what}")
    return {name: read_array(name, arrays[name], tensor) for name, tensor in expected.items()}


def read_array(name: str, array: Array, like: Tensor) -> Tensor:
    """An array's values if its dtype and shape are those of ``like``; nothing is allocated before that is known."""
    dtype, shape = like.numpy().dtype, tuple(like.shape)
    if array.dtype != str(dtype):
        raise Refusal(f"dtype: {name} is {_shown(array.dtype)}, expected {dtype}")
    if tuple(array.shape) != shape:
        raise Refusal(f"shape: {name} is {_shown(tuple(array.shape))}, expected {shape}")
    stream = BytesIO(array.data)
    try:
        if array.stype != "numpy.ndarray" or np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("not in numpy's format")
        header = np.lib.format.read_array_header_1_0(stream)
    except ValueError:
        raise Refusal(f"encoding: {name} is not in numpy's format") from None
    if header != (shape, False, dtype) or len(array.data) - stream.tell() != like.numel() * like.element_size():
        raise Refusal(f"encoding: {name} holds other bytes than it declares")
    return torch.from_numpy(np.frombuffer(array.data, dtype, offset=stream.tell()).reshape(shape).copy())


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
