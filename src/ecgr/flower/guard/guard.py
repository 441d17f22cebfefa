"""What stands between the sites' replies and the aggregate.

A reply counts only if it is exactly what was asked for: then the others can be dropped and recorded, and the aggregate
is, bit for bit, that of the good ones alone. `inspection` looks at one reply at a time; here they are compared with
each other, because an update can be well formed and still be far too long.

How long an honest update is depends on how long the site trained. Over a steps (effective ones, which count momentum)
it is a straight line at most, in proportion to a, and where only noise moves it, in proportion to the root of a. So
what a reply of a_j steps says of another of a_i steps is its length times ``(a_i / a_j) ** 0.75`` where a_i is larger
(with a factor of 10 that admits a straight line up to 10,000 times the steps) and times the root of the ratio where it
is smaller. Steps follow from the enrolled sizes; a reply cannot choose them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Annotated, Literal

import numpy as np
from flwr.app import Message
from pydantic import Field

from ecgr.algorithms import Upload
from ecgr.component import Count, Positive, State, Tensor, component, torch
from ecgr.flower.guard.inspection import Asked, Refusal, inspect
from ecgr.simulation.rounds import Replies

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

    def judge(self, asked: Mapping[int, Asked], arrivals: Sequence["Arrival"]) -> Replies:
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


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """Something that came back, and the client it came from by its node; text stands for what cannot be read."""

    client: int
    message: Message | str


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
