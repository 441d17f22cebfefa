"""The guard in front of Flower's own strategies, for apps that keep theirs.

``Guarded(FedAvg())`` is the strategy with its replies inspected first: one that is not exactly like the global model,
not finite, without a positive whole weight, from another run, round or node, a second one, or far longer than the
others, is dropped and noted. The strategy then sees the good ones only. Nobody enrols in Flower's strategies: a node's
first weight is believed up to 1,000 times the median of the others', and is the most it may claim from then on.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from ecgr.algorithms import Upload
from ecgr.errors import ConfigError, QuorumLost
from ecgr.flower.fleet import MOST_SAMPLES, believable
from ecgr.flower.guard import (
    KNOWN_AFTER,
    Guard,
    Measured,
    Quantity,
    buffer_lengths,
    check_values,
    norm,
    outlier,
    sort_out,
)
from ecgr.flower.wire import Refusal, check_answer, read_arrays
from ecgr.tables import shown

UPDATE = Quantity("model", "the update")
STATISTICS = ("running_mean", "running_var")
"""How the names of BatchNorm's statistics end: values, not weights that training moves."""

log = logging.getLogger("ecgr.flower")


@dataclass(eq=False)
class Guarded(Strategy):
    """A Flower strategy that sees good replies only.

    Attributes:
        inner: the strategy that aggregates.
        guard: what replies must be like. A round with fewer than ``min_clients`` is void: the strategy asks again, and
            after ``attempts`` void ones in a row `QuorumLost` is raised.
        rejected: what was dropped: round, node, reason.
    """

    inner: Strategy
    guard: Guard = field(default_factory=Guard)
    rejected: list[tuple[int, int, str]] = field(default_factory=list)
    _round: tuple[int, ArrayRecord, ConfigRecord, Grid] | None = None
    _model: Mapping[str, Tensor] = field(default_factory=dict)
    _asked: dict[int, tuple[int, str, int]] = field(default_factory=dict)
    _weights: dict[int, int] = field(default_factory=dict)
    _lengths: dict[int, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.guard.outliers == "clip":
            raise ConfigError("guard.outliers: 'clip' is not possible; Flower's strategies can only drop a reply")

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._round = (server_round, arrays, config, grid)
        messages = list(self.inner.configure_train(server_round, arrays, config, grid))
        self._model = {name: torch.from_numpy(np.array(array.numpy())) for name, array in arrays.items()}
        sent = [message.metadata for message in messages]
        self._asked = {to.dst_node_id: (to.run_id, to.group_id, to.dst_node_id) for to in sent}
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Hand the strategy the replies that count, in the order of their nodes; ask again while they are too few."""
        for attempt in range(1, self.guard.attempts + 1):
            good = self._judge(server_round, replies)
            if len(good) >= self.guard.min_clients:
                arrays, metrics = self.inner.aggregate_train(server_round, good)
                return arrays and ArrayRecord({n: self._as_sent(n, array) for n, array in arrays.items()}), metrics
            usable = f"{len(good)} replies usable, {self.guard.min_clients} needed"
            log.warning("round %d, attempt %d is void: %s", server_round, attempt, usable)
            if attempt < self.guard.attempts and self._round is not None:
                messages, grid = self.configure_train(*self._round), self._round[-1]
                replies = grid.send_and_receive(messages, timeout=self.guard.deadline)
        raise QuorumLost(f"round {server_round}: void {self.guard.attempts} times, {usable}")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.inner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the strategy does; an error reply's text goes no further."""
        return self.inner.aggregate_evaluate(server_round, [reply for reply in replies if not reply.has_error()])

    def summary(self) -> None:
        self.inner.summary()

    def _judge(self, server_round: int, replies: Iterable[Message]) -> list[Message]:
        arrivals = [(reply.metadata.src_node_id, reply) for reply in replies]
        good, rejected = sort_out(self._asked, arrivals, self._inspect, "missing: no reply")
        claims = {node: self._weights.get(node, int(own.steps)) for node, (_, own) in good.items()}
        for node, claim in claims.items():
            if node not in self._weights and claim > (most := believable(claims, node)):
                rejected.append((node, f"weight: {claim}, allowed {most} by what others claim"))
                del good[node]
        lengths = {}
        for node, (limits, far) in self.guard.compare({node: own for node, (_, own) in good.items()}).items():
            own = good[node][1]
            if far:
                rejected.append((node, outlier(own, far)))
                del good[node]
            lengths[node] = min(own.lengths[UPDATE], limits[UPDATE])
        for node, reason in rejected:
            log.warning("round %d: node %d not used: %s", server_round, node, reason)
        self.rejected += [(server_round, node, reason) for node, reason in rejected]
        if len(good) >= self.guard.min_clients:
            for node in good:
                self._weights.setdefault(node, claims[node])
                self._lengths.setdefault(node, []).append(lengths[node])
        return [good[node][0] for node in sorted(good)]

    def _inspect(self, sent: tuple[int, str, int], reply: Message | str) -> tuple[Message, Measured]:
        """A reply with its lengths; raises `Refusal` unless it is a model like the one that was sent."""
        check_answer(reply, sent)
        node = sent[-1]
        assert isinstance(reply, Message)
        arrays, metrics = list(reply.content.array_records.values()), list(reply.content.metric_records.values())
        if len(arrays) != 1 or len(metrics) != 1:
            raise Refusal("records: expected one record of arrays and one of metrics")
        weight = metrics[0].get(getattr(self.inner, "weighted_by_key", "num-examples"))
        most = self._weights.get(node, MOST_SAMPLES)
        if type(weight) is not int or not 1 <= weight <= most:
            raise Refusal(f"weight: {shown(weight)}, allowed 1 to {most}")
        tensors = read_arrays(arrays[0], self._model)
        buffers = {n: t for n, t in tensors.items() if n.endswith(STATISTICS) or not t.is_floating_point()}
        weights = {name: tensor for name, tensor in tensors.items() if name not in buffers}
        check_values(Upload(node, weight, weights, buffers), self._model)
        moved = [(self._model[name].double() - tensor.double()).flatten() for name, tensor in weights.items()]
        lengths = {UPDATE: norm(torch.cat(moved)) if moved else 0.0, **buffer_lengths(buffers, self._model)}
        past = self._lengths.get(node, [])
        return reply, Measured(lengths, weight, {UPDATE.name: max(past)} if len(past) >= KNOWN_AFTER else {})

    def _as_sent(self, name: str, array: Array) -> Array:
        """An aggregate in the dtype of the model: the mean of counters is a fraction."""
        wanted = self._model[name].numpy().dtype
        if array.dtype == str(wanted):
            return array
        values = array.numpy()
        return Array(np.asarray(np.rint(values) if wanted.kind in "iu" else values).astype(wanted))
