"""The guard in front of Flower's own strategies, for apps that keep theirs.

``Guarded(FedAvg())`` is the strategy with its replies inspected first: one that is not exactly like the global model,
not finite, without a positive whole weight, from another run, round or node, a second one, or far longer than the
others, is dropped and noted. The strategy then sees the good ones only. Nobody enrols in Flower's strategies: a node's
first weight is believed up to 1,000 times the median of the others', and is the most it may claim from then on.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from ecgr.algorithms import Upload
from ecgr.errors import ConfigError, QuorumLost
from ecgr.flower.guard import (
    KNOWN_AFTER,
    Guard,
    Measured,
    Quantity,
    Refusal,
    buffer_lengths,
    describe,
    norm,
    out_of_range,
    outlier,
    read_array,
)
from ecgr.simulation.client import nonfinite

UPDATE = Quantity("model", "the update")
STATISTICS = ("running_mean", "running_var")
"""How the names of BatchNorm's statistics end: values, not weights that training moves."""

TIMES_THE_MEDIAN = 1000

log = logging.getLogger("ecgr.flower")


@dataclass(eq=False)
class Guarded(Strategy):
    """A Flower strategy that sees good replies only.

    Attributes:
        inner: the strategy that aggregates.
        guard: what replies must be like. A round with fewer than ``min_clients`` is void: the strategy asks again, and
            after ``attempts`` void ones in a row `QuorumLost` is raised.
        weight: the metric that holds a reply's number of examples.
        max_weight: the most examples that a site may claim.
        rejected: what was dropped: round, node, reason.
    """

    inner: Strategy
    guard: Guard = field(default_factory=Guard)
    weight: str = "num-examples"
    max_weight: int = 10_000_000
    rejected: list[tuple[int, int, str]] = field(default_factory=list)
    _round: tuple[int, ArrayRecord, ConfigRecord, Grid] | None = None
    _model: Mapping[str, Tensor] = field(default_factory=dict)
    _asked: dict[int, tuple[int, str]] = field(default_factory=dict)
    _weights: dict[int, int] = field(default_factory=dict)
    _lengths: dict[int, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.guard.outliers == "clip":
            raise ConfigError("guard.outliers: 'clip' is not possible; Flower's strategies can only drop a reply")

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy does; what was sent to whom is remembered."""
        self._round = (server_round, arrays, config, grid)
        messages = list(self.inner.configure_train(server_round, arrays, config, grid))
        self._model = {name: torch.from_numpy(np.array(array.numpy())) for name, array in arrays.items()}
        self._asked = {m.metadata.dst_node_id: (m.metadata.run_id, m.metadata.group_id) for m in messages}
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Hand the strategy the replies that count, in the order of their nodes; ask again while they are too few."""
        for attempt in range(1, self.guard.attempts + 1):
            good = self._judge(server_round, replies)
            if len(good) >= self.guard.min_clients:
                arrays, metrics = self.inner.aggregate_train(server_round, good)
                return None if arrays is None else self._as_sent(arrays), metrics
            usable = f"{len(good)} replies usable, {self.guard.min_clients} needed"
            log.warning("round %d, attempt %d is void: %s", server_round, attempt, usable)
            if attempt < self.guard.attempts and self._round is not None:
                messages, grid = self.configure_train(*self._round), self._round[-1]
                replies = grid.send_and_receive(messages, timeout=self.guard.deadline)
        raise QuorumLost(f"round {server_round}: void {self.guard.attempts} times, {usable}")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy does."""
        return self.inner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the strategy does; an error reply's text goes no further."""
        return self.inner.aggregate_evaluate(server_round, [reply for reply in replies if not reply.has_error()])

    def summary(self) -> None:
        """As the strategy does."""
        self.inner.summary()

    def _judge(self, server_round: int, replies: Iterable[Message]) -> list[Message]:
        """The replies that count."""
        good: dict[int, Message] = {}
        measured: dict[int, Measured] = {}
        heard = set()
        for reply in replies:
            node = reply.metadata.src_node_id
            heard.add(node)
            try:
                own = self._inspect(node, reply)
                if node in good:
                    raise Refusal("duplicate: the first valid reply counts")
                good[node], measured[node] = reply, own
            except Refusal as refusal:
                self._reject(server_round, node, str(refusal))
        for node in sorted(self._asked.keys() - heard):
            self._reject(server_round, node, "missing: no reply")
        for node, reason in self._overweight(measured).items():
            del good[node], measured[node]
            self._reject(server_round, node, reason)
        limits = self.guard.limits(measured)
        for node, own in measured.items():
            far = self.guard.beyond(own, limits[node])
            if far:
                del good[node]
                self._reject(server_round, node, outlier(own, far))
        if len(good) >= self.guard.min_clients:
            for node in good:
                self._weights.setdefault(node, int(measured[node].steps))
                length = min(measured[node].lengths[UPDATE], limits[node][UPDATE])
                self._lengths.setdefault(node, []).append(length)
        return [good[node] for node in sorted(good)]

    def _inspect(self, node: int, reply: Message) -> Measured:
        """A reply's lengths; raises `Refusal` unless it is a model like the one that was sent."""
        if node not in self._asked:
            raise Refusal("unsampled: this node was not asked in this round")
        if reply.has_error():
            raise Refusal(describe(reply.error.code, reply.error.reason))
        if (reply.metadata.run_id, reply.metadata.group_id) != self._asked[node]:
            raise Refusal("round: the reply is for another run or round")
        arrays, metrics = list(reply.content.array_records.values()), list(reply.content.metric_records.values())
        if len(arrays) != 1 or len(metrics) != 1:
            raise Refusal("records: expected one record of arrays and one of metrics")
        if arrays[0].keys() != self._model.keys():
            raise Refusal("names: the reply does not hold the model's tensors")
        weight, most = metrics[0].get(self.weight), self._weights.get(node, self.max_weight)
        if type(weight) is not int or not 1 <= weight <= most:
            raise Refusal(f"weight: {ascii(weight)[:40]}, allowed 1 to {most}")
        tensors = {name: read_array(name, arrays[0][name], tensor) for name, tensor in self._model.items()}
        buffers = {n: t for n, t in tensors.items() if n.endswith(STATISTICS) or not t.is_floating_point()}
        reason = nonfinite(Upload(node, weight, {}, tensors)) or out_of_range(buffers, self._model)
        if reason is not None:
            raise Refusal(reason)
        moved = [(self._model[n].double() - t.double()).flatten() for n, t in tensors.items() if n not in buffers]
        lengths = {UPDATE: norm(torch.cat(moved)) if moved else 0.0, **buffer_lengths(buffers, self._model)}
        past = self._lengths.get(node, [])
        return Measured(lengths, weight, {UPDATE.name: max(past)} if len(past) >= KNOWN_AFTER else {})

    def _overweight(self, measured: Mapping[int, Measured]) -> dict[int, str]:
        """The nodes that claim far more examples than the others, when they first claim any."""
        claims = {node: self._weights.get(node, int(own.steps)) for node, own in measured.items()}
        found = {}
        for node in claims.keys() - self._weights.keys():
            others = [claim for other, claim in claims.items() if other != node]
            if others and claims[node] > TIMES_THE_MEDIAN * median(others):
                allowed = int(TIMES_THE_MEDIAN * median(others))
                found[node] = f"weight: {claims[node]}, allowed {allowed} ({TIMES_THE_MEDIAN} times the others' median)"
        return found

    def _as_sent(self, arrays: ArrayRecord) -> ArrayRecord:
        """An aggregate in the dtypes of the model: the mean of counters is a fraction."""
        return ArrayRecord({name: self._cast(name, array) for name, array in arrays.items()})

    def _cast(self, name: str, array: Array) -> Array:
        if name not in self._model or array.dtype == str(self._model[name].numpy().dtype):
            return array
        wanted = self._model[name].numpy().dtype
        values = array.numpy()
        whole = np.issubdtype(wanted, np.integer) and not np.issubdtype(values.dtype, np.integer)
        return Array(np.asarray(np.rint(values) if whole else values).astype(wanted))

    def _reject(self, server_round: int, node: int, reason: str) -> None:
        self.rejected.append((server_round, node, reason))
        log.warning("round %d: node %d not used: %s", server_round, node, reason)
