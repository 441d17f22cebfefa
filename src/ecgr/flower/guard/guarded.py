"""The guard in front of Flower's own strategies, for apps that keep theirs.

``Guarded(FedAvg())`` is the strategy with its replies inspected first: one that is not exactly like the global model,
not finite, without a positive whole weight, from another run, round or node, a second one, or far longer than the
others, is dropped and noted. The strategy then sees the good ones only.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from ecgr.algorithms import Contribution
from ecgr.errors import ConfigError, QuorumLost
from ecgr.flower.guard.guard import Guard
from ecgr.flower.guard.inspection import Refusal, describe, read_array
from ecgr.simulation.client import ClientResult, nonfinite

log = logging.getLogger("ecgr.flower")


@dataclass(eq=False)
class Guarded(Strategy):
    """A Flower strategy that sees good replies only.

    Attributes:
        inner: the strategy that aggregates.
        guard: what replies must be like; a round with fewer than ``min_clients`` leaves the model as it was, and so
            many in a row as ``attempts`` raise `QuorumLost`.
        weight: the metric that holds a reply's number of examples.
        max_weight: the most examples that a site may claim.
        rejected: what was dropped: round, node, reason.
    """

    inner: Strategy
    guard: Guard = field(default_factory=Guard)
    weight: str = "num-examples"
    max_weight: int = 10_000_000
    rejected: list[tuple[int, int, str]] = field(default_factory=list)
    _model: Mapping[str, Tensor] = field(default_factory=dict)
    _asked: dict[int, tuple[int, str]] = field(default_factory=dict)
    _void: int = 0

    def __post_init__(self) -> None:
        if self.guard.outliers == "clip":
            raise ConfigError("guard.outliers: 'clip' does not fit; a strategy of Flower's can only do without a reply")

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy does; what was sent to whom is remembered."""
        messages = list(self.inner.configure_train(server_round, arrays, config, grid))
        self._model = {name: torch.from_numpy(array.numpy()) for name, array in arrays.items()}
        self._asked = {m.metadata.dst_node_id: (m.metadata.run_id, m.metadata.group_id) for m in messages}
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Hand the strategy the replies that count, in the order of their nodes."""
        good: dict[int, Message] = {}
        results: dict[int, ClientResult] = {}
        for reply in replies:
            node = reply.metadata.src_node_id
            try:
                result = self._inspect(node, reply)
                if node in good:
                    raise Refusal("duplicate: the first valid reply counts")
                good[node], results[node] = reply, result
            except Refusal as refusal:
                self._reject(server_round, node, str(refusal))
        for node in sorted(self._asked.keys() - {n for r, n, _ in self.rejected if r == server_round} - good.keys()):
            self._reject(server_round, node, "missing: no reply")
        used, outlying = self.guard.compare(results)
        for node, reason in outlying:
            self._reject(server_round, node, reason)
        if len(used) < self.guard.min_clients:
            self._void += 1
            if self._void >= self.guard.attempts:
                raise QuorumLost(f"round {server_round}: void {self._void} times, {len(used)} replies usable")
            return None, None
        self._void = 0
        return self.inner.aggregate_train(server_round, [good[result.client] for result in used])

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

    def _inspect(self, node: int, reply: Message) -> ClientResult:
        """A reply as a change of the model, so that replies can be compared."""
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
        weight = metrics[0].get(self.weight)
        if type(weight) is not int or not 1 <= weight <= self.max_weight:
            raise Refusal(f"weight: {ascii(weight)[:40]}, allowed 1 to {self.max_weight}")
        tensors = {name: read_array(name, arrays[0][name], tensor) for name, tensor in self._model.items()}
        updates = {name: (t - tensors[name]).flatten() for name, t in self._model.items() if t.is_floating_point()}
        payload = {"update": torch.cat(list(updates.values()))}
        result = ClientResult(Contribution(node, weight, payload), tensors, 1, 0.0, 0.0)
        reason = nonfinite(result)
        if reason is not None:
            raise Refusal(reason)
        return ClientResult(Contribution(node, weight, payload), {}, 1, 0.0, 0.0)

    def _reject(self, server_round: int, node: int, reason: str) -> None:
        self.rejected.append((server_round, node, reason))
        log.warning("round %d: node %d not used: %s", server_round, node, reason)
