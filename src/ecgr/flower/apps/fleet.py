"""The nodes of a Grid as clients: who is there, and orders to them answered or missing.

Node ids mean nothing and change; a node is asked which client it stands for. Where the server was given the sites'
public keys, a node must also hold the key of that client: a site cannot speak for another.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import httpx
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from ecgr.flower.apps.enrolment import Enrolment
from ecgr.flower.apps.wire import SITE

POLL_SECONDS = 1.0
QUERY_SECONDS = 120.0

log = logging.getLogger("ecgr.flower")


class Clock(Protocol):
    """Time, which a test can count instead of waiting."""

    def now(self) -> float:
        """Seconds since some moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


class WallClock:
    """Time as it passes."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    """The clients behind a Grid.

    Attributes:
        grid: Flower's, or one in memory.
        enrolled: samples by client: as the experiment deals them, or as sites with samples of their own have said.
        places: how many clients there are, where sites hold their own samples; 0 where the experiment deals them.
        sites: what such sites said.
        keys: the sites' public keys by client; empty where nodes are not authenticated.
        clock: what deadlines are measured by.
    """

    grid: Grid
    enrolled: dict[int, int]
    keys: Mapping[int, bytes] = field(default_factory=dict)
    clock: Clock = field(default_factory=WallClock)
    places: int = 0
    sites: dict[int, Enrolment] = field(default_factory=dict)
    _known: dict[int, int] = field(default_factory=dict)

    def present(self) -> dict[int, int]:
        """The nodes that are connected now, by client."""
        nodes = {node.node_id: node.public_key for node in self.grid.get_nodes()}
        strangers = sorted(nodes.keys() - self._known.keys())
        if strangers:
            self._ask(strangers, nodes)
        found: dict[int, int] = {}
        for node, client in self._known.items():  # in order of enrolment: who comes later cannot take a place over
            if node in nodes:
                found.setdefault(client, node)
        return found

    def wait_for(self, clients: Iterable[int], at_least: int, deadline: float) -> dict[int, int]:
        """The nodes of ``clients``, once ``at_least`` of them are there or the deadline has passed."""
        wanted, until = set(clients), self.clock.now() + deadline
        while True:
            found = {client: node for client, node in self.present().items() if client in wanted}
            if len(found) >= at_least or self.clock.now() >= until:
                return found
            self.clock.sleep(POLL_SECONDS)

    def client_of(self, node: int) -> int | None:
        """The client that a node stands for, if it is enrolled."""
        return self._known.get(node)

    def exchange(
        self, contents: Mapping[int, RecordDict], kind: str, group: str, deadline: float
    ) -> list[tuple[int, Message | str]]:
        """Send each node its content; what came back before the deadline, in order of arrival, by node.

        Replies are pulled one by one: one that cannot even be read must not take the others with it.
        """
        if not contents:
            return []
        messages = [Message(c, node, kind, group_id=group, ttl=max(deadline, 1.0)) for node, c in contents.items()]
        waiting = dict(zip(self.grid.push_messages(messages), contents, strict=True))
        until, arrived = self.clock.now() + deadline, []
        while True:
            for identifier, node in list(waiting.items()):
                pulled = self._pull(identifier)
                if pulled:
                    arrived += [(node, message) for message in pulled]
                    del waiting[identifier]
            if not waiting or self.clock.now() >= until:
                return arrived
            self.clock.sleep(POLL_SECONDS)

    def _pull(self, identifier: str) -> Sequence[Message | str]:
        try:
            return list(self.grid.pull_messages([identifier]))
        except httpx.HTTPError:
            raise  # the SuperLink is gone, which is not the site's doing
        except Exception as error:
            return [type(error).__name__]

    def _ask(self, nodes: Sequence[int], keys: Mapping[int, bytes]) -> None:
        """Ask nodes which client they stand for; those that cannot be believed are asked again next time."""
        asked = {node: RecordDict({SITE: ConfigRecord({})}) for node in nodes}
        for node, reply in self.exchange(asked, MessageType.QUERY, "enrol", QUERY_SECONDS):
            problem = self._enrol(node, reply, keys[node])
            if problem:
                log.warning("a node is not used: %s", problem)

    def _enrol(self, node: int, reply: Message | str, key: bytes) -> str | None:
        if isinstance(reply, str) or reply.has_error() or SITE not in reply.content.config_records:
            return "it does not say which client it stands for"
        site = reply.content.config_records[SITE]
        client, examples = site.get("client"), site.get("examples")
        if type(client) is not int or not (client in self.enrolled or 0 <= client < self.places):
            return "it stands for a client that there is not"
        if self.keys and self.keys.get(client) != key:
            return f"it claims to be client {client}, whose key it does not hold"
        if self.places and client not in self.enrolled:
            said = Enrolment.from_record(site)
            if said is None:
                return f"client {client} does not say what samples it holds"
            self.sites[client], self.enrolled[client] = said, said.examples
        if examples != self.enrolled[client]:
            return f"client {client} holds other data than it is known to"
        self._known[node] = client
        return None
