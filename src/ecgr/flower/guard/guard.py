"""What stands between the sites' replies and the aggregate.

A reply counts only if it is exactly what was asked for: then the others can be dropped and recorded, and the aggregate
is, bit for bit, that of the good ones alone. `inspection` looks at one reply at a time; here they are compared with
each other, because an update can be well formed and still be far too long.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Annotated, Literal

import numpy as np
from flwr.app import Message
from pydantic import Field

from ecgr.component import Count, Positive, State, Tensor, component, torch
from ecgr.flower.guard.inspection import Asked, Refusal, inspect
from ecgr.simulation.client import ClientResult
from ecgr.simulation.rounds import Replies

UNKNOWN = -1
"""Stands for the client of a node that nobody enrolled."""


@component
class Guard:
    """When a round counts, and which replies do.

    Attributes:
        min_clients: below so many usable replies a round is void. With one alone, the aggregate would be its update.
        deadline: seconds after which a reply is missing.
        attempts: so many void attempts at one round end the run.
        norm_factor: a norm above this multiple of the (low) median of the round's replies is an outlier.
        outliers: whether these are dropped, or scaled down to that multiple.
        norm_cap: no tensor may be longer than this, whatever the others are.

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
        accepted: dict[int, ClientResult] = {}
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
        used, outlying = self.compare(accepted)
        states: dict[int, State] = {r.client: {"round": torch.tensor(asked[r.client].order.round_index)} for r in used}
        return Replies(used, states, sorted([*rejected, *outlying]))

    def compare(self, accepted: Mapping[int, ClientResult]) -> tuple[list[ClientResult], list[tuple[int, str]]]:
        """Drop or clip what is far longer than the round's median."""
        norms = {client: _norms(result) for client, result in accepted.items()}
        references = {
            name: median_low([by_name[name] for by_name in norms.values()])
            for by_name in norms.values()
            for name in by_name
        }
        used, rejected = [], []
        for client, result in sorted(accepted.items()):
            limits = {name: self._limit(reference) for name, reference in references.items()}
            far = {name: norm for name, norm in norms[client].items() if norm > limits[name]}
            if not far:
                used.append(result)
            elif self.outliers == "clip" and far.keys() <= result.contribution.payload.keys():
                used.append(_clip(result, {name: limits[name] / norm for name, norm in far.items()}))
            else:
                name, norm = next(iter(far.items()))
                reason = f"norm: {name} has norm {norm:.3g}, allowed {limits[name]:.3g} (median {references[name]:.3g})"
                rejected.append((client, reason))
        return used, rejected

    def _limit(self, reference: float) -> float:
        # where at least half are exactly zero, any other would be an outlier: only the cap holds then
        return min(self.norm_cap, self.norm_factor * reference) if reference else self.norm_cap


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """Something that came back, and the client it came from by its node; text stands for what cannot be read."""

    client: int
    message: Message | str


def _norms(result: ClientResult) -> dict[str, float]:
    """The length of every payload vector, and of all statistics together."""
    vectors = {name: t for name, t in result.contribution.payload.items() if t.dim()}
    statistics = [t for t in result.buffers.values() if t.is_floating_point()]
    return {
        **{name: _norm([tensor]) for name, tensor in vectors.items()},
        **({"the statistics": _norm(statistics)} if statistics else {}),
    }


def _norm(tensors: Sequence[Tensor]) -> float:
    # in float64: the square of 1e30 is infinite in float32
    return float(np.sqrt(sum(float(np.square(t.numpy(), dtype=np.float64).sum()) for t in tensors)))


def _clip(result: ClientResult, factors: Mapping[str, float]) -> ClientResult:
    payload = {name: t * factors.get(name, 1.0) for name, t in result.contribution.payload.items()}
    contribution = replace(result.contribution, payload=payload)
    return replace(result, contribution=contribution, metrics={**result.metrics, "clipped": min(factors.values())})
