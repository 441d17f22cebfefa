"""What stands between the sites' replies and the aggregate.

A reply counts only if it is exactly what was asked for: then the others can be dropped and recorded, and the aggregate
is, bit for bit, that of the good ones alone. First each is inspected by itself, without trusting anything in it. What
a good reply looks like is not written down twice: the algorithm itself, given a training that moved nothing,
makes the payload whose names, shapes and dtypes are asked for; given one that moved everything by one, it shows in
which unit each vector is. A payload's scalars (FedNova's number of steps) must have the very values that the server
computes.

Then replies are compared with each other, because an update can be well formed and still be far too long. How long an
honest one is depends on how long the site trained. Over T steps (effective ones, which count momentum) it is a straight
line at most, in proportion to T; where only noise moves it, in proportion to the root of T. So what a reply of T_j
steps says of another of T_i is its length times ``(T_i / T_j) ** 0.75`` where T_i is larger (with a factor of 10 that
admits a straight line up to 10,000 times the steps) and times the root of the ratio where it is smaller. Steps follow
from the enrolled sizes; a reply cannot choose them.
"""

import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from statistics import median_low
from typing import Annotated, Any, Literal

import numpy as np
from flwr.app import Array, ConfigRecord, Message, MetricRecord
from pydantic import Field

from ecgr.algorithms import Plan, Trace, Upload
from ecgr.component import Count, Positive, State, Tensor, component, torch
from ecgr.core.regulators import Plain
from ecgr.core.stores import STORES
from ecgr.flower.apps.wire import ARRAYS, METRICS, REPORT, Order, reply_tensors, split_reply
from ecgr.simulation.client import batch_sizes, nonfinite
from ecgr.simulation.rounds import Line, Replies
from ecgr.simulation.workspace import Problem
from ecgr.tasks.metrics import METRICS as METRIC_TABLE

log = logging.getLogger("ecgr.flower")

UNKNOWN = -1
"""Stands for the client of a node that nobody enrolled."""

KNOWN_AFTER = 2
"""From so many accepted updates on, a site is judged by its own past, too."""

AS_BEFORE = 3.0
"""What is no longer than this multiple of a site's longest update before is no outlier: others may have converged."""

GROWTH = {"update": (0.75, 0.5), "model": (1.0, 0.5), "statistics": (0.75, 0.0), "counter": (1.0, 0.0)}
"""The power of the ratio of steps by which a length is carried over to a site with more steps, and to one with fewer.

A ``model`` is one whose steps nobody counted, only its samples: momentum may lengthen it more. Statistics and counters
are values, which need not be smaller after fewer steps.
"""

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


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """Something that came back, and the client it came from by its node; text stands for what cannot be read."""

    client: int
    message: Message | str


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something in a reply that has a length: what ``GROWTH`` calls it, its name, and its length as it was sent out."""

    kind: str
    name: str
    sent: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """A reply's lengths, the effective steps behind them, and the site's longest before, once that is known."""

    lengths: Mapping[Quantity, float]
    steps: float
    longest: Mapping[str, float]


@component
class Guard:
    """When a round counts, and which replies do.

    Attributes:
        min_clients: below so many usable replies a round is void. With one alone, the aggregate would be its update.
        deadline: seconds after which a reply is missing.
        attempts: so many void attempts at one round end the run.
        norm_factor: a length above this multiple of what the round's replies lead to expect is an outlier.
        outliers: whether these are dropped, or scaled down to that multiple.
        norm_cap: no update may be longer than this, whatever the others are.

    >>> Guard(min_clients=3).norm_factor
    10.0
    """

    min_clients: Count = 2
    deadline: Positive = 600.0
    attempts: Count = 3
    norm_factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 10.0
    outliers: Literal["reject", "clip"] = "reject"
    norm_cap: Positive = 1e6

    def judge(self, asked: Mapping[int, Asked], arrivals: Sequence[Arrival]) -> Replies:
        """Sort a round's arrivals into those that count, in client order, and those that do not."""
        accepted: dict[int, Upload] = {}
        rejected: list[tuple[int, str]] = []
        for arrival in arrivals:
            try:
                if arrival.client not in asked:
                    raise Refusal("unsampled: this client was not asked in this round")
                result = inspect(asked[arrival.client], arrival.message)
                if arrival.client in accepted:
                    raise Refusal("duplicate: the first valid reply counts")
                accepted[arrival.client] = result
            except Refusal as refusal:
                rejected.append((arrival.client, str(refusal)))
            except Exception as error:  # whatever else is wrong with a reply is not the others' misfortune
                log.exception("a reply cannot be read")
                rejected.append((arrival.client, f"unreadable: {type(error).__name__}"))
        heard = {*accepted, *(client for client, _ in rejected)}
        rejected += [
            (client, f"missing: no reply within {self.deadline:g} s") for client in asked if client not in heard
        ]
        measured = {client: _measure(asked[client], result) for client, result in accepted.items()}
        used, states = [], {}
        for client, limits in sorted(self.limits(measured).items()):
            result, own = accepted[client], measured[client]
            far = self.beyond(own, limits)
            if not far or (self.outliers == "clip" and all(quantity.kind == "update" for quantity in far)):
                used.append(
                    _clip(result, {q.name: limit / own.lengths[q] for q, limit in far.items()}) if far else result
                )
                states[client] = _remember(asked[client], own, limits)
            else:
                rejected.append((client, outlier(own, far)))
        return Replies(used, states, sorted(rejected))

    def limits(self, measured: Mapping[int, Measured]) -> dict[int, dict[Quantity, float]]:
        """How long each of a round's replies may be, by what all of them lead to expect."""
        quantities = {quantity: None for own in measured.values() for quantity in own.lengths}
        limits: dict[int, dict[Quantity, float]] = {client: {} for client in measured}
        for quantity in quantities:
            more, fewer = GROWTH[quantity.kind]
            known = [(own.lengths[quantity], own.steps) for own in measured.values()]
            for client, own in measured.items():
                ratios = [(length, own.steps / steps) for length, steps in known]
                expected = median_low([length * ratio ** (more if ratio > 1 else fewer) for length, ratio in ratios])
                limits[client][quantity] = self._limit(quantity, expected)
        return limits

    def beyond(self, own: Measured, limits: Mapping[Quantity, float]) -> dict[Quantity, float]:
        """Which of a reply's lengths are beyond their limits, with those, by the others and by its own past."""
        far = {}
        for quantity, by_others in limits.items():
            longest = own.longest.get(quantity.name, 0.0)
            most, least = self.norm_factor * longest, min(AS_BEFORE, self.norm_factor) * longest
            limit = max(min(by_others, most), least) if longest else by_others
            if own.lengths[quantity] > limit:
                far[quantity] = limit
        return far

    def _limit(self, quantity: Quantity, expected: float) -> float:
        limit = self.norm_factor * max(expected, quantity.sent)
        if quantity.kind == "counter":
            return limit  # what most sites left as it was must stay as it was
        if not limit:
            return self.norm_cap  # where half are exactly zero, any other would be an outlier
        return limit if quantity.kind == "statistics" else min(limit, self.norm_cap)

    def shortfall(self, used: Iterable[int], asked: Iterable[int], enrolled: Mapping[int, int]) -> str | None:
        """Why a round is void; None if it counts."""
        used, asked = set(used), set(asked)
        usable = f"{len(used)} of {len(asked)} replies usable"
        if len(used) < self.min_clients:
            return f"{usable}, {self.min_clients} needed"
        lost, total = sum(enrolled[client] for client in asked - used), sum(enrolled.values())
        if 2 * lost > total:
            return f"{usable}, but the others hold {lost:,} of the {total:,} enrolled samples, which is more than half"
        return None


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


def outlier(own: Measured, far: Mapping[Quantity, float]) -> str:
    """Why a reply is refused whose lengths are beyond their limits."""
    quantity, limit = next(iter(far.items()))
    if quantity.kind == "counter":
        return f"range: {quantity.name} changed by {own.lengths[quantity]:.3g}, allowed {limit:.3g}"
    return f"norm: {quantity.name} has norm {own.lengths[quantity]:.3g}, allowed {limit:.3g}"


def buffer_lengths(buffers: Mapping[str, Tensor], sent: Mapping[str, Tensor]) -> dict[Quantity, float]:
    """How large the statistics of every layer are, in the unit of its values, and how far every counter moved."""
    layers: dict[str, list[str]] = {}
    lengths = {}
    for name, tensor in buffers.items():
        if tensor.is_floating_point():
            layers.setdefault(name.rpartition(".")[0], []).append(name)
        elif tensor.dtype is not torch.bool and tensor.numel():
            moved = np.abs(tensor.numpy().astype(np.float64) - sent[name].numpy().astype(np.float64))
            lengths[Quantity("counter", name)] = float(moved.max())
    for layer, names in layers.items():
        before, after = (np.sqrt(sum(_square(name, of[name]) for name in names)) for of in (sent, buffers))
        title = f"the statistics of {layer}" if layer else names[0]
        lengths[Quantity("statistics", title, float(before))] = float(after)
    return lengths


def norm(tensor: Tensor) -> float:
    """A tensor's length, in float64: the square of 1e30 is infinite in float32."""
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.square(tensor.numpy(), dtype=np.float64).sum()))


def _square(name: str, tensor: Tensor) -> float:
    values = np.abs(tensor.numpy().astype(np.float64))
    with np.errstate(over="ignore"):
        return float((values if name.endswith("running_var") else np.square(values)).sum())


def _measure(asked: Asked, result: Upload) -> Measured:
    """A payload's vectors count as the distances they stand for: FedNova divides its own by the steps."""
    units = asked.units()
    vectors = {name: tensor for name, tensor in result.payload.items() if tensor.dim()}
    lengths = {Quantity("update", name): norm(tensor) / units[name] for name, tensor in vectors.items()}
    lengths |= buffer_lengths(result.buffers, asked.order.buffers)
    past, longest = asked.past, {}
    if "used" in past and int(past["used"]) >= KNOWN_AFTER:
        faster = max(1.0, asked.order.lr / float(past["lr"]))
        longest = {name: faster * float(past[f"longest/{name}"]) for name in vectors if f"longest/{name}" in past}
    return Measured(lengths, asked.plan().effective_steps, longest)


def _remember(asked: Asked, own: Measured, limits: Mapping[Quantity, float]) -> State:
    """What the server keeps of a site whose update it used; of a length, no more than the others allowed."""
    past = asked.past

    def larger(name: str, value: float) -> Tensor:
        return torch.tensor(max(value, float(past[name])) if name in past else value, dtype=torch.float64)

    return {
        "round": torch.tensor(asked.order.round_index),
        "used": torch.tensor(1 + int(past["used"]) if "used" in past else 1),
        "lr": larger("lr", asked.order.lr),
        **{
            f"longest/{quantity.name}": larger(f"longest/{quantity.name}", min(length, limits[quantity]))
            for quantity, length in own.lengths.items()
            if quantity.kind == "update"
        },
    }


def _clip(result: Upload, factors: Mapping[str, float]) -> Upload:
    payload = {name: t * factors.get(name, 1.0) for name, t in result.payload.items()}
    return replace(result, payload=payload, metrics={**result.metrics, "clipped": min(factors.values())})
