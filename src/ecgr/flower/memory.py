"""A Grid in this process: both apps, deterministic, without processes or a network. For tests and dry runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flwr.app import Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from ecgr.flower.wire import SUMS

Tamper = Callable[[int, Message, Message], Sequence[Message]]
"""Given the node's index, the order and its honest reply: what arrives instead."""

RUN, SERVER = 7, 1


class MemoryGrid(Grid):
    """Nodes that answer at once, each with its own config.

    Args:
        app: what every node runs.
        nodes: one config a node, with its ``partition-id``.
        tamper: changes what a node answers to an order to train or to send sums.
        arrival: node indices in the order in which their replies arrive; by default as they were asked.
        keys: the nodes' public keys.
    """

    def __init__(
        self,
        app: ClientApp,
        nodes: Sequence[Mapping[str, Any]],
        *,
        tamper: Tamper | None = None,
        arrival: Sequence[int] | None = None,
        keys: Sequence[bytes] = (),
    ) -> None:
        self.app, self.tamper, self.run_id = app, tamper, RUN
        self._nodes = {1000 + 13 * index: (index, dict(config)) for index, config in enumerate(nodes)}
        self._rank = {index: rank for rank, index in enumerate(arrival or range(len(nodes)))}
        self._keys = keys or [b""] * len(nodes)
        self._waiting: list[tuple[int, str, Sequence[Message]]] = []
        self._sent = 0
        self.set_run(Run.create_empty(RUN))
        # Flower's Message looks up there who is speaking; there is one place for it in a process
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN, SERVER, SERVER

    def serve(self, app: ServerApp) -> None:
        """Run a ServerApp to its end."""
        app(self, Context(RUN, SERVER, {}, RecordDict(), {}))

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node, public_key=self._keys[index]) for node, (index, _) in self._nodes.items()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Run the nodes' apps; the replies wait to be pulled."""
        identifiers = []
        for message in messages:
            self._sent += 1
            message.metadata.__dict__["_message_id"] = f"message-{self._sent}"
            identifiers.append(message.metadata.message_id)
            node = message.metadata.dst_node_id
            index, config = self._nodes[node]
            replies: Sequence[Message] = [self.app(message, Context(RUN, node, config, RecordDict(), {}))]
            if self.tamper is not None and message.metadata.message_type in (MessageType.TRAIN, SUMS):
                replies = self.tamper(index, message, replies[0])
            if replies:
                self._waiting.append((self._rank[index], message.metadata.message_id, replies))
        self._waiting.sort(key=lambda entry: entry[0])
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The next reply to arrive, if it is one of those asked for."""
        if self._waiting and self._waiting[0][1] in set(message_ids):
            return list(self._waiting.pop(0)[2])
        return []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push, then pull until nothing is left; what is missing does not come."""
        left = set(self.push_messages(messages))
        arrived: list[Message] = []
        while self._waiting and self._waiting[0][1] in left:
            arrived += self.pull_messages(left)
        return arrived
