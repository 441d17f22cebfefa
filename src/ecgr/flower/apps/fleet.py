"""The nodes of a Grid as clients: who is there, and orders to them answered or missing.

Node ids mean nothing and change; a node is asked which client it stands for, and what that holds. Where the server was
given the sites' public keys, a node must also hold the key of that client: a site cannot speak for another.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

import httpx
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from ecgr.flower.apps.enrolment import Enrolment, Listed, complete_list
from ecgr.flower.apps.wire import SITE, UNKNOWN, Order, Refusal, records_of
from ecgr.flower.audit import Audit
from ecgr.flower.guard import sort_out
from ecgr.simulation.workspace import Problem
from ecgr.tables import shown

POLL_SECONDS = 1.0
QUERY_SECONDS = 120.0
TRIES = 3
"""So often is a node asked who it is."""

log = logging.getLogger("ecgr.flower")


class Clock(Protocol):
    """Time: the module ``time``, or what counts it in a test."""

    def monotonic(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


@dataclass(eq=False)
class Fleet:
    """The clients behind a Grid.

    Attributes:
        grid: Flower's, or one in memory.
        listed: the operator's list, by client.
        sites: what each client's site must say: what the experiment gives it, or what it said when it joined.
        keys: the sites' public keys by client; None where nodes are not authenticated.
        clock: what deadlines are measured by.
        joining: whether a site that is not in ``sites`` may join.
        audit: the server's log.
        refused: why clients are not waited for.
    """

    grid: Grid
    listed: Sequence[Listed] = ()
    sites: dict[int, Enrolment] = field(default_factory=dict)
    keys: Mapping[int, bytes] | None = None
    clock: Clock = time
    joining: bool = False
    refused: dict[int, str] = field(default_factory=dict)
    audit: Audit = field(default_factory=lambda: Audit(None))
    _known: dict[int, int] = field(default_factory=dict)
    _asked: Counter[int] = field(default_factory=Counter)

    def expect(self, problem: Problem, shape: Mapping[str, int]) -> "Fleet":
        """Samples that the experiment gives to clients: what a site must say is known. Returns the fleet itself."""
        sizes = problem.partition.sizes()
        self.listed = complete_list(self.listed, len(sizes))
        self.sites = {client: Enrolment.of(problem, client, shape) for client, size in enumerate(sizes) if size}
        return self

    def name(self, client: int | None) -> str:
        """What a client is called in messages."""
        return "an unknown node" if client is None or client < 0 else self.listed[client].name

    def told(self, reasons: Mapping[int, str]) -> str:
        """Reasons with the names of those whom they are about, on one line."""
        return "; ".join(f"{self.name(client)}: {reason}" for client, reason in reasons.items())

    def present(self) -> dict[int, int]:
        """The nodes that are connected now, by client."""
        nodes = {node.node_id: node.public_key for node in self.grid.get_nodes()}
        strangers = sorted(node for node in nodes.keys() - self._known.keys() if self._asked[node] < TRIES)
        if strangers:
            self._ask(strangers, nodes)
        found: dict[int, int] = {}
        for node, client in self._known.items():  # in order of enrolment: who comes later cannot take a place over
            if node in nodes:
                found.setdefault(client, node)
        return found

    def wait_for(self, clients: Iterable[int], at_least: int, deadline: float) -> dict[int, int]:
        """The nodes of ``clients``, once ``at_least`` of them or all but the refused are there, or at the deadline."""
        wanted, until = set(clients), self.clock.monotonic() + deadline
        while True:
            found = {client: node for client, node in self.present().items() if client in wanted}
            complete = len(found) >= at_least or wanted <= found.keys() | self.refused.keys()
            if complete or self.clock.monotonic() >= until:
                return found
            self.clock.sleep(POLL_SECONDS)

    def leave_out(self, client: int, reason: str) -> None:
        """Do without a site for the rest of the run."""
        self.sites.pop(client, None)
        for node in [node for node, known in self._known.items() if known == client]:
            del self._known[node]
            self._asked[node] = TRIES
        log.warning("%s is left out: %s", self.name(client), reason)
        self.audit.write("refused", site=self.name(client), reason=f"left out: {reason}")
        self.refused[client] = reason

    def command(
        self, orders: Mapping[int, Order], nodes: Mapping[int, int], kind: str, group: str, deadline: float
    ) -> list[tuple[int, Message | str]]:
        """Send clients their orders, those that have a node; what came back before the deadline, by client."""
        contents = {nodes[client]: order.to_records() for client, order in orders.items() if client in nodes}
        replies = self.exchange(contents, kind, group, deadline)
        return [(self._known.get(node, UNKNOWN), reply) for node, reply in replies]

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
        for node, content in contents.items():
            self.audit.message("sent", content, round=group, site=self._at(node), kind=kind)
        until, arrived = self.clock.monotonic() + deadline, []
        while True:
            for identifier, node in list(waiting.items()):
                for message in (pulled := self._pull(identifier)):
                    self.audit.message("received", message, round=group, site=self._at(node), kind=kind)
                    arrived.append((node, message))
                if pulled:
                    del waiting[identifier]
            if not waiting or self.clock.monotonic() >= until:
                return arrived
            self.clock.sleep(POLL_SECONDS)

    def _at(self, node: int) -> str:
        return self.name(self._known[node]) if node in self._known else f"node {node}"

    def _pull(self, identifier: str) -> Sequence[Message | str]:
        try:
            return list(self.grid.pull_messages([identifier]))
        except httpx.HTTPError:
            raise  # the SuperLink is gone, which is not the site's doing
        except Exception as error:
            return [type(error).__name__]

    def _ask(self, nodes: Sequence[int], keys: Mapping[int, bytes]) -> None:
        """Ask nodes which client they stand for; one that cannot be believed is asked a few times, then left alone."""
        asked = {node: RecordDict({SITE: ConfigRecord({})}) for node in nodes}
        self._asked.update(nodes)
        replies = sorted(self.exchange(asked, MessageType.QUERY, "enrol", QUERY_SECONDS), key=lambda reply: reply[0])
        owners = {node: client for client, key in (self.keys or {}).items() for node in nodes if keys[node] == key}

        def enrol(node: int, reply: Message | str) -> int:
            (record,) = records_of(reply, {SITE: ConfigRecord})
            client = record.get("client")
            if self.keys is None and type(client) is int and 0 <= client < len(self.listed):
                owners[node] = client  # whose it is by what it says
            return self._enrol(Enrolment.from_record(record), keys[node])

        known, refused = sort_out(nodes, replies, enrol, f"no answer within {QUERY_SECONDS:g} s")
        self._known |= known
        for node, client in known.items():
            self.refused.pop(client, None)
            self.audit.write("joined", site=self.name(client), node=node, samples=self.sites[client].examples)
        for node, reason in refused:
            owner = owners.get(node)
            log.warning("%s cannot join: %s", self.name(owner), reason)
            self.audit.write("refused", site=self.name(owner), node=node, reason=f"cannot join: {reason}")
            if owner is not None and self._asked[node] >= TRIES and owner not in self._known.values():
                self.refused[owner] = reason

    def _enrol(self, said: Enrolment, key: bytes) -> int:
        """The client that a node stands for, if what it says can be believed."""
        if said.client >= len(self.listed):
            raise Refusal(f"client: there is no site {said.client}")
        if self.keys is not None and self.keys.get(said.client) != key:
            raise Refusal(f"client: it claims to be {self.name(said.client)}, whose key it does not hold")
        if said.client not in self.sites:
            if not self.joining:
                raise Refusal("it was not there when the run was started; it can join when that is started again")
            self.sites[said.client] = said
        known = asdict(self.sites[said.client])
        for name, theirs in asdict(said).items():
            if theirs != known[name]:
                raise Refusal(f"{name}: it holds other data: {shown(theirs)}, expected {shown(known[name])}")
        return said.client
