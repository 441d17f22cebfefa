"""One reply, looked at without trusting anything in it.

What a good reply looks like is not written down twice: the algorithm itself, given a training that moved nothing, makes
the payload whose names, shapes and dtypes are asked for; given one that moved everything by one, it shows in which
unit each vector is. A payload's scalars (FedNova's number of steps) follow from the number of samples and must have the
very values that the server computes.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ConfigRecord, Message, MetricRecord
from torch import Tensor

from ecgr.algorithms import Plan, Trace, Upload
from ecgr.component import State
from ecgr.core.regulators import Plain
from ecgr.core.stores import STORES
from ecgr.flower.apps.wire import ARRAYS, METRICS, REPORT, Order, reply_tensors, split_reply
from ecgr.simulation.client import batch_sizes, nonfinite
from ecgr.simulation.rounds import Line
from ecgr.simulation.workspace import Problem
from ecgr.tasks.metrics import METRICS as METRIC_TABLE

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
    "state_lost": bool,
}
MAX_METRICS = 64
WHOLE = 2**63
"""Whole numbers stay below this."""


class Refusal(Exception):
    """Why a reply does not count: a word, and what is wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What one client was asked for.

    Attributes:
        problem: what is trained.
        order: what the client was sent.
        flower_run: Flower's number of the run.
        node: whom the message went to.
        group: the message's group, which names round and attempt.
        enrolled: how many samples the client holds.
        past: what the guard remembers of updates of this client that were used.
    """

    problem: Problem
    order: Order
    flower_run: int
    node: int
    group: str
    enrolled: int
    past: State = field(default_factory=dict)

    def plan(self, examples: int | None = None) -> Plan:
        """The training of so many samples; of all that are enrolled unless told otherwise."""
        experiment = self.problem.experiment
        steps = expected_steps(self.problem, self.enrolled if examples is None else examples)
        return Plan(steps, self.order.lr, experiment.optimizer.effective_momentum)

    def payload(self, distance: float, examples: int | None = None) -> State:
        """What a training would upload that moved every parameter by ``distance``."""
        experiment, plan, order = self.problem.experiment, self.plan(examples), self.order
        moved = torch.full_like(order.params, distance)
        state = experiment.algorithm.begin(plan, order.server, experiment.algorithm.init_client(order.params))
        regulated = not isinstance(experiment.regulator, Plain)
        trace = Trace(moved, moved, plan.steps, plan.lr, plan.momentum, regulated)
        return experiment.algorithm.finish(trace, order.server, state)[1]

    def units(self) -> dict[str, float]:
        """By what a distance is multiplied in each vector of the payload."""
        still, moved = self.payload(0.0), self.payload(1.0)
        length = float(torch.ones_like(self.order.params).norm())
        units = {name: float((moved[name] - still[name]).norm()) / length for name in still if still[name].dim()}
        return {name: unit or 1.0 for name, unit in units.items()}


def inspect(asked: Asked, message: Message | str) -> Upload:
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
    expected = reply_tensors(asked.payload(0.0, examples), asked.order.buffers)
    tensors = _tensors(arrays, expected)
    for name, tensor in expected.items():
        if not tensor.dim() and name.startswith("payload/") and not torch.equal(tensor, tensors[name]):
            raise Refusal(f"scalar: {name} is {float(tensors[name])!r}, must be {float(tensor)!r}")
    payload, buffers = split_reply(tensors)
    result = Upload(
        client=asked.order.client,
        examples=examples,
        payload=payload,
        buffers=buffers,
        steps=steps,
        train_loss=values["train_loss"],
        seconds=values["seconds"],
        kept=tuple(kept),
        metrics={**_metrics(asked.problem, metrics), **({"state_lost": 1.0} if values["state_lost"] else {})},
        store=values["store"] or None,
    )
    reason = nonfinite(result) or out_of_range(buffers, asked.order.buffers)
    if reason is not None:
        raise Refusal(reason)
    return result


def out_of_range(buffers: Mapping[str, Tensor], sent: Mapping[str, Tensor]) -> str | None:
    """Why buffers cannot be what training leaves: a variance below zero, a counter below zero that was not before."""
    for name, tensor in buffers.items():
        signed = name.endswith("running_var") or not (tensor.is_floating_point() or (sent[name] < 0).any())
        negative = int((tensor < 0).sum()) if signed else 0
        if negative:
            return f"range: {name} holds {negative} negative values of {tensor.numel()}"
    return None


def expected_steps(problem: Problem, examples: int) -> int:
    """How many local steps so many samples make."""
    federation = problem.experiment.federation
    return len(batch_sizes(examples, federation.batch_size, federation.last_batch)) * federation.local_epochs


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
    values: dict[str, Any] = dict(record)
    if values.keys() != REPORTED.keys():
        raise Refusal(f"report: the keys are {_shown(sorted(values))}")
    for name, kind in REPORTED.items():
        if type(values[name]) is not kind or (kind is int and abs(values[name]) >= WHOLE):
            word = "weight" if name == "examples" else "report"
            raise Refusal(f"{word}: {name} is {_shown(values[name])}, not {kind.__name__}")
    for name in ("train_loss", "seconds"):
        if not math.isfinite(values[name]):
            raise Refusal(f"nonfinite: {name} is {values[name]}")
    if values["seconds"] < 0:
        raise Refusal(f"report: seconds is {values['seconds']}, below zero")
    return values


def reserved_names(problem: Problem) -> set[str]:
    """The names that the record gives to numbers of its own, and those of all metrics."""
    return {*Line.__annotations__, *REPORTED, *METRIC_TABLE, *(metric.name for metric in problem.metrics), "clipped"}


def _metrics(problem: Problem, record: MetricRecord) -> dict[str, float]:
    if len(record) > MAX_METRICS:
        raise Refusal(f"metrics: {len(record)} of them, allowed {MAX_METRICS}")
    reserved, found = reserved_names(problem), {}
    for name, value in record.items():
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or name in reserved:
            raise Refusal(f"metrics: {_shown(name)} cannot be recorded")
        if not isinstance(value, int | float) or (isinstance(value, int) and abs(value) >= WHOLE):
            raise Refusal(f"metrics: {name} is {_shown(value)}, expected a number")
        found[name] = float(value)
    return found


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
