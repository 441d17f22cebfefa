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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import median_low
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from flwr.app import Message, MetricRecord
from pydantic import Field

from ecgr.algorithms import Plan, Trace, Upload
from ecgr.algorithms.heads import CLASSES, symmetric
from ecgr.component import Count, Positive, State, Tensor, component, torch
from ecgr.core.regulators import Plain
from ecgr.core.stores import STORES
from ecgr.flower.wire import (
    HEAD,
    REPLY,
    UPLOADED,
    Order,
    Refusal,
    Report,
    read,
    read_arrays,
    records_of,
    reply_tensors,
    split_reply,
)
from ecgr.simulation.client import batch_sizes, nonfinite
from ecgr.simulation.heads import expected_part, kind_of
from ecgr.simulation.rounds import RESERVED, Replies
from ecgr.simulation.server import dp_of
from ecgr.simulation.workspace import Problem
from ecgr.tables import shown
from ecgr.tasks.metrics import METRICS as METRIC_TABLE

log = logging.getLogger("ecgr.flower")

KNOWN_AFTER = 2
"""From this many accepted updates on, a site is judged by its own past, too."""

AS_BEFORE = 3.0
"""What is no longer than this multiple of a site's longest update before is no outlier: others may have converged."""

GROWTH = {"update": (0.75, 0.5), "model": (1.0, 0.5), "statistics": (0.75, 0.0), "counter": (1.0, 0.0)}
"""The power of the ratio of steps by which a length is carried over to a site with more steps, and to one with fewer.

A ``model`` is one whose steps nobody counted, only its samples: momentum may lengthen it more. Statistics and counters
are values, which need not be smaller after fewer steps.
"""

MAX_METRICS = 64
ROUNDING = 1e-9
"""How far sums may be off, as a share."""
WHOLE = 2**63
"""Whole numbers stay below this."""

A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What one client was asked for.

    Attributes:
        problem: what is trained.
        order: what the client was sent.
        sent: the message's run, its group, which names round and attempt, and the node that it went to.
        enrolled: how many samples the client holds.
        past: what the guard remembers of updates of this client that were used.
    """

    problem: Problem
    order: Order
    sent: tuple[int, str, int]
    enrolled: int
    past: State = field(default_factory=dict)

    def plan(self, examples: int) -> Plan:
        momentum = self.problem.experiment.optimizer.effective_momentum
        return Plan(expected_steps(self.problem, examples), self.order.job.lr, momentum)

    def payload(self, distance: float, examples: int) -> State:
        """What training on ``examples`` samples would upload that moved every parameter by ``distance``."""
        experiment, plan, job = self.problem.experiment, self.plan(examples), self.order.job
        moved = torch.full_like(job.params, distance)
        state = experiment.algorithm.begin(plan, job.server, experiment.algorithm.init_client(job.params))
        regulated = not isinstance(experiment.regulator, Plain)
        trace = Trace(moved, moved, plan.steps, plan.lr, plan.momentum, regulated)
        return experiment.algorithm.finish(trace, job.server, state)[1]

    def units(self) -> dict[str, float]:
        """By what a distance is multiplied in each vector of the payload."""
        still, moved = self.payload(0.0, self.enrolled), self.payload(1.0, self.enrolled)
        length = float(torch.ones_like(self.order.job.params).norm())
        return {n: float((moved[n] - still[n]).norm()) / length or 1.0 for n in still if still[n].dim()}


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


Limits = dict[Quantity, float]


@component
class Guard:
    """When a round counts, and which replies do.

    Attributes:
        min_clients: below this many usable replies a round is void. With one alone, the aggregate would be its update.
        deadline: seconds after which a reply is missing.
        attempts: this many void attempts at one round end the run.
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

    def judge(self, asked: Mapping[int, Asked], arrivals: Iterable[tuple[int, Message | str]]) -> Replies:
        """Sort a round's arrivals into those that count, in client order, and those that do not."""
        late = f"missing: no reply within {self.deadline:g} s"
        accepted, rejected = sort_out(asked, arrivals, inspect, late)
        if any(dp_of(each.problem.experiment) is not None for each in asked.values()):  # the server clips every update
            return Replies([accepted[client] for client in sorted(accepted)], {}, sorted(rejected))
        measured = {client: _measure(asked[client], result) for client, result in accepted.items()}
        used, states = [], {}
        for client, (limits, far) in sorted(self.compare(measured).items()):
            result, own = accepted[client], measured[client]
            if far and (self.outliers == "reject" or any(quantity.kind != "update" for quantity in far)):
                rejected.append((client, outlier(own, far)))
                continue
            used.append(_clip(result, {q.name: limit / own.lengths[q] for q, limit in far.items()}) if far else result)
            states[client] = _remember(asked[client], own, limits)
        return Replies(used, states, sorted(rejected))

    def compare(self, measured: Mapping[int, Measured]) -> dict[int, tuple[Limits, Limits]]:
        """How long each of a round's replies may be by what all lead to expect, and which lengths are outliers.

        A site that is known is held against its own past, too: as much longer as most known sites have become.
        """
        compared: dict[int, tuple[Limits, Limits]] = {client: ({}, {}) for client in measured}
        for quantity in {quantity: None for own in measured.values() for quantity in own.lengths}:
            more, fewer = GROWTH[quantity.kind]
            known = [(own.lengths[quantity], own.steps, own.longest.get(quantity.name)) for own in measured.values()]
            growths = [length / past for length, _, past in known if past]
            longer = max(1.0, median_low(growths)) if growths else 1.0
            for client, own in measured.items():
                ratios = [(length, own.steps / steps) for length, steps, _ in known]
                expected = median_low([length * ratio ** (more if ratio > 1 else fewer) for length, ratio in ratios])
                by_others = limit = self._limit(quantity, expected)
                if longest := own.longest.get(quantity.name, 0.0):
                    most, least = self.norm_factor * longer * longest, min(AS_BEFORE, self.norm_factor) * longest
                    limit = max(min(by_others, most), least)
                limits, far = compared[client]
                limits[quantity] = by_others
                if own.lengths[quantity] > limit:
                    far[quantity] = limit
        return compared

    def judge_sums(
        self, found: Mapping[int, State], refused: Sequence[tuple[int, str]]
    ) -> tuple[dict[int, State], list[tuple[int, str]]]:
        """Those of the sites' sums that count: features far longer than those of most are refused, too."""
        lengths = {client: mean_length(part) for client, part in found.items()}
        most = self.norm_factor * median_low(lengths.values() or [0.0])
        far = [
            (c, f"norm: features of length {own:.3g}, allowed {most:.3g}") for c, own in lengths.items() if own > most
        ]
        good = {client: found[client] for client in sorted(found) if lengths[client] <= most}
        return good, sorted([*refused, *far])

    def _limit(self, quantity: Quantity, expected: float) -> float:
        limit = self.norm_factor * max(expected, quantity.sent)
        if quantity.kind == "counter":
            return limit  # what most sites left as it was must stay as it was
        if not limit:
            return self.norm_cap  # where half are exactly zero, any other would be an outlier
        return limit if quantity.kind == "statistics" else min(limit, self.norm_cap)

    def shortfall(self, used: Iterable[int], asked: Iterable[int], enrolled: Sequence[int]) -> str | None:
        """Why a round is void; None if it counts."""
        used, asked = set(used), set(asked)
        usable = f"{len(used)} of {len(asked)} replies usable"
        if len(used) < (needed := min(self.min_clients, len(asked))):  # fewer are asked under dp alone, by chance
            return f"{usable}, {needed} needed"
        lost, total = sum(enrolled[client] for client in asked - used), sum(enrolled)
        if 2 * lost > total:
            return f"{usable}, but the others hold {lost:,} of the {total:,} enrolled samples, which is more than half"
        return None


def sort_out(
    asked: Mapping[int, A],
    arrivals: Iterable[tuple[int, Message | str]],
    inspect: Callable[[A, Message | str], T],
    late: str,
) -> tuple[dict[int, T], list[tuple[int, str]]]:
    """What came back by sender: the first valid answer of each, and who is refused or late, with the reason.

    ``inspect`` gets what was asked for and what came back, and raises `Refusal`.
    """
    accepted: dict[int, T] = {}
    rejected: list[tuple[int, str]] = []
    for who, message in arrivals:
        try:
            if who not in asked:
                raise Refusal("unsampled: it was not asked in this round")
            result = inspect(asked[who], message)
            if who in accepted:
                raise Refusal("duplicate: the first valid reply counts")
            accepted[who] = result
        except Refusal as refusal:
            rejected.append((who, str(refusal)))
        except Exception as error:  # whatever else is wrong with a reply is not the others' misfortune
            log.exception("a reply cannot be read")
            rejected.append((who, f"unreadable: {type(error).__name__}"))
    heard = {*accepted, *(who for who, _ in rejected)}
    return accepted, [*rejected, *((who, late) for who in sorted(asked) if who not in heard)]


def answered(asked: Asked, message: Message | str, expected: Mapping[str, type]) -> list[Any]:
    """The expected records of a reply, and no others; raises `Refusal` unless they answer this order."""
    records = records_of(message, expected, asked.sent)
    said = records[-1]
    for name, known in asked.order.address().items():
        if said.get(name) != known:
            raise Refusal(f"{name}: the reply is for {shown(said.get(name))}, not {known}")
    return records


def inspect(asked: Asked, message: Message | str) -> Upload:
    """The reply's content; raises `Refusal` unless it is exactly what was asked for."""
    arrays, metrics, record = answered(asked, message, REPLY)
    try:
        report = read(Report, record)
    except Refusal as refusal:
        word = "weight" if str(refusal).startswith("examples") else "report"
        raise Refusal(f"{word}: {refusal}") from None
    if not 1 <= report.examples <= asked.enrolled:
        raise Refusal(f"weight: {shown(report.examples)} examples, allowed 1 to {asked.enrolled}")
    steps = expected_steps(asked.problem, report.examples)
    if report.steps != steps:
        raise Refusal(f"steps: {shown(report.steps)}, but {report.examples} examples make {steps}")
    if not all(0 <= step < steps for step in report.kept) or len(set(report.kept)) < len(report.kept):
        raise Refusal("kept: not a choice among the steps")
    if report.store and report.store not in STORES:
        raise Refusal(f"report: there is no store {shown(report.store)}")
    if not math.isfinite(report.train_loss):
        raise Refusal(f"nonfinite: train_loss is {report.train_loss}")
    sent = asked.order.job.buffers
    expected = reply_tensors(asked.payload(0.0, report.examples), sent)
    tensors = read_arrays(arrays, expected)
    for name, tensor in expected.items():
        if not tensor.dim() and name.startswith("payload/") and not torch.equal(tensor, tensors[name]):
            raise Refusal(f"scalar: {name} is {float(tensors[name])!r}, must be {float(tensor)!r}")
    payload, buffers = split_reply(tensors)
    said: dict[str, Any] = {name: getattr(report, name) for name in UPLOADED}
    numbers = {**_metrics(asked.problem, metrics), **({"state_lost": 1.0} if report.state_lost else {})}
    result = Upload(
        report.client,
        payload=payload,
        buffers=buffers,
        kept=tuple(report.kept),
        metrics=numbers,
        store=report.store or None,
        **said,
    )
    check_values(result, sent)
    return result


def check_values(result: Upload, sent: State) -> None:
    """Refuse what is not finite, and buffers that no training leaves: variances or counters that fell below zero."""
    reason = nonfinite(result)
    if reason is not None:
        raise Refusal(reason)
    for name, tensor in result.buffers.items():
        signed = name.endswith("running_var") or not (tensor.is_floating_point() or (sent[name] < 0).any())
        negative = int((tensor < 0).sum()) if signed else 0
        if negative:
            raise Refusal(f"range: {name} holds {negative} negative values of {tensor.numel()}")


def inspect_sums(asked: Asked, message: Message | str) -> State:
    """The sums of a reply; raises `Refusal` unless they are those of as many samples as the site holds at most."""
    arrays, _ = answered(asked, message, HEAD)
    found = read_arrays(arrays, expected_part(asked.problem))
    check_values(Upload(asked.order.job.client, asked.enrolled, found), {})
    check_sums(found, kind_of(asked.problem), asked.enrolled)
    return found


def check_sums(found: State, kind: str, enrolled: int) -> None:
    """Refuse sums that no samples have, or more than ``enrolled``."""
    by_target = found["by_target"]
    gram = symmetric(found["gram"], by_target.shape[1])
    samples, counts, squares = float(gram[-1, -1]), by_target[:, -1], gram.diagonal()
    if not samples.is_integer() or not 1 <= samples <= enrolled:
        raise Refusal(f"count: {samples:g} samples, allowed 1 to {enrolled}")
    if float(torch.linalg.eigvalsh(gram)[0]) < -ROUNDING * float(gram.trace()):
        raise Refusal("range: gram is no sum of squares: it has a negative eigenvalue")
    if kind in CLASSES:
        if (counts < 0).any():
            raise Refusal(f"count: by_target has {float(counts.min()):g} samples of a class, must be 0 or more")
        if not torch.allclose(by_target.sum(dim=0), gram[-1], rtol=ROUNDING, atol=ROUNDING * float(gram.trace())):
            raise Refusal("range: by_target adds up to other sums than gram has of all samples")
    most = squares * (counts[:, None] if kind in CLASSES else samples)  # by Cauchy and Schwarz
    if kind != "numbers" and (by_target**2 > (1 + ROUNDING) * most + ROUNDING).any():
        raise Refusal("range: by_target has sums that no samples with these squares have")


def mean_length(part: State) -> float:
    """How long the features are that some sums are of, by their root mean square."""
    gram = symmetric(part["gram"], part["by_target"].shape[1])
    return math.sqrt(max(0.0, float(gram.trace() / gram[-1, -1]) - 1))


def expected_steps(problem: Problem, examples: int) -> int:
    """How many local steps a number of samples makes."""
    federation = problem.experiment.federation
    return len(batch_sizes(examples, federation.batch_size, federation.last_batch)) * federation.local_epochs


def reserved_names(problem: Problem) -> set[str]:
    """The names that the record gives to numbers of its own, and those of all metrics."""
    reported = (each.name for each in fields(Report))
    return {*RESERVED, *reported, *METRIC_TABLE, *(metric.name for metric in problem.metrics), "clipped"}


def _metrics(problem: Problem, record: MetricRecord) -> dict[str, float]:
    if len(record) > MAX_METRICS:
        raise Refusal(f"metrics: {len(record)} of them, allowed {MAX_METRICS}")
    reserved, found = reserved_names(problem), {}
    for name, value in record.items():
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or name in reserved:
            raise Refusal(f"metrics: {shown(name)} cannot be recorded")
        if not isinstance(value, int | float) or (abs(value) >= WHOLE and isinstance(value, int)):
            raise Refusal(f"metrics: {name} is {shown(value)}, expected a number")
        found[name] = float(value)
    return found


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
        before, after = (math.sqrt(sum(_square(of[name], name) for name in names)) for of in (sent, buffers))
        title = f"the statistics of {layer}" if layer else names[0]
        lengths[Quantity("statistics", title, before)] = after
    return lengths


def norm(tensor: Tensor) -> float:
    """A tensor's length, in float64: the square of 1e30 is infinite in float32."""
    return math.sqrt(_square(tensor))


def _square(tensor: Tensor, name: str = "") -> float:
    """A tensor's squared length; a variance is a square already."""
    values = np.abs(tensor.numpy().astype(np.float64))
    with np.errstate(over="ignore"):
        return float((values if name.endswith("running_var") else np.square(values)).sum())


def _measure(asked: Asked, result: Upload) -> Measured:
    """A payload's vectors count as the distances they stand for: FedNova divides its own by the steps."""
    units = asked.units()
    vectors = {name: tensor for name, tensor in result.payload.items() if tensor.dim()}
    lengths = {Quantity("update", name): norm(tensor) / units[name] for name, tensor in vectors.items()}
    lengths |= buffer_lengths(result.buffers, asked.order.job.buffers)
    past, longest = asked.past, {}
    if int(past.get("used", 0)) >= KNOWN_AFTER:
        faster = max(1.0, asked.order.job.lr / float(past["lr"]))
        longest = {name: faster * float(past[f"longest/{name}"]) for name in vectors if f"longest/{name}" in past}
    return Measured(lengths, asked.plan(asked.enrolled).effective_steps, longest)


def _remember(asked: Asked, own: Measured, limits: Mapping[Quantity, float]) -> State:
    """What the server keeps of a site whose update it used; of a length, no more than the others allowed."""
    past, job = asked.past, asked.order.job
    updates = {q: min(length, limits[q]) for q, length in own.lengths.items() if q.kind == "update"}
    values = {"lr": job.lr, **{f"longest/{q.name}": length for q, length in updates.items()}}
    largest = {name: max(value, float(past.get(name, value))) for name, value in values.items()}
    counts = {"round": torch.tensor(job.round_index), "used": torch.tensor(1 + int(past.get("used", 0)))}
    return counts | {name: torch.tensor(value, dtype=torch.float64) for name, value in largest.items()}


def _clip(result: Upload, factors: Mapping[str, float]) -> Upload:
    payload = {name: t * factors.get(name, 1.0) for name, t in result.payload.items()}
    return replace(result, payload=payload, metrics={**result.metrics, "clipped": min(factors.values())})
