"""Who takes part: what sites say of themselves when they join, how much of that is believed, and orders to them.

Node ids mean nothing and change; a node is asked which client it stands for, and what that holds. Where the server was
given the sites' public keys, a node must also hold the key of that client: a site cannot speak for another.

A site says how many samples it has and what they are like, never a sample. All of it may be a lie. It is read within
bounds, and held against the operator's list of sites and sizes. A site that claims too much, or speaks of another task
or version than the others, is left out by name, and the others start.
"""

import json
import logging
import re
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import httpx
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from pydantic import Field

from ecgr._version import __version__
from ecgr.component import component, rule
from ecgr.config.experiment import OWN
from ecgr.errors import ConfigError, refused
from ecgr.flower.audit import Audit
from ecgr.flower.guard import sort_out
from ecgr.flower.wire import SITE, Refusal, read, records_of
from ecgr.simulation.workspace import Problem
from ecgr.tables import shown
from ecgr.tasks.losses import LOSSES

POLL_SECONDS = 1.0
QUERY_SECONDS = 120.0
TRIES = 3
"""So often is a node asked who it is."""

MOST_SAMPLES = 10**8
TIMES_THE_MEDIAN = 1000
"""Where the list has no size, a site may claim this many times the median of the others."""

ALIKE = ("shape", "loss", "metrics", "parameters")
"""What all sites must say alike."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

log = logging.getLogger("ecgr.flower")


def _is_shape(text: str) -> bool:
    try:
        shape = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(shape, dict) and all(type(size) is int and 0 < size < 2**31 for size in shape.values())


Size = Annotated[int, Field(ge=0, le=MOST_SAMPLES)]
Text = Annotated[str, Field(max_length=1000)]


@component
class Enrolment:
    """One site.

    Attributes:
        client: whom it stands for.
        examples: how many samples it trains on.
        tests: how many it tests on.
        shape: what a model must know of the samples, as JSON.
        loss: the name of the loss that goes with them.
        metrics: the names of the metrics.
        parameters: a hash of the model's parameters, by name and shape.
        version: of ecgr.
    """

    client: Size
    examples: Annotated[Size, Field(ge=1)]
    tests: Size
    shape: Annotated[Text, rule("must be positive sizes by name", _is_shape)]
    loss: Text
    metrics: Annotated[tuple[Text, ...], Field(min_length=1, max_length=64, strict=False)]
    parameters: Text
    version: str = __version__

    @classmethod
    def of(cls, problem: Problem, client: int, shape: Mapping[str, int]) -> "Enrolment":
        """What the site of ``client`` says."""
        return cls(
            client=client,
            examples=problem.partition.sizes()[client],
            tests=len(problem.own_rows.get(client, ())) if problem.experiment.data.score == OWN else len(problem.test),
            shape=json.dumps(dict(shape), sort_keys=True),
            loss=LOSSES.name_of(problem.loss) or "",
            metrics=tuple(metric.name for metric in problem.metrics),
            parameters=problem.spec.digest(),
        )

    def to_record(self) -> ConfigRecord:
        return ConfigRecord({**asdict(self), "metrics": list(self.metrics)})

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Enrolment":
        """What a site said; raises `Refusal` unless every word of it can be used."""
        if record.get("version") != __version__:
            raise Refusal(
                f"version: ecgr {shown(record.get('version'))}, the server has {__version__}; install the same"
            )
        return read(cls, record)


@component
class Listed:
    """A site in the operator's list: its name, and the most samples it may claim; None where nobody knows."""

    name: Annotated[str, rule("must be at most 64 letters, digits and . _ -", NAME.fullmatch)]
    samples: Size | None = None
    tests: Size | None = None


def complete_list(listed: Sequence[Listed], clients: int) -> Sequence[Listed]:
    """The operator's list; without one, a list without sizes."""
    if listed and len(listed) != clients:
        raise ConfigError(f"sites: {len(listed)} in the list, but the experiment has {clients} clients")
    return listed or [Listed(f"site-{client}") for client in range(clients)]


def read_list(path: Path) -> list[Listed]:
    """The operator's list; raises one `ConfigError` with every problem in it."""
    with refused(f"{path}: cannot be read"):
        entries = tomllib.loads(path.read_text()).get("site")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{path}: expected a [[site]] with `name` and `samples` for every site")
    sites, problems, allowed = [], [], [field.name for field in fields(Listed)]
    for number, entry in enumerate(entries):
        where = f"{path}: [[site]] {number}"
        problems += [f"{where}: unknown key {key!r}; allowed: {', '.join(allowed)}" for key in entry.keys() - allowed]
        try:
            sites.append(Listed(**{"name": None, **{key: entry[key] for key in allowed if key in entry}}))
        except ConfigError as error:
            problems += [f"{where}: {line.removeprefix('Listed.')}" for line in error.problems]
    names = [site.name for site in sites]
    problems += [f"{path}: name: {name!r} is given twice" for name in sorted({n for n in names if names.count(n) > 1})]
    if problems:
        raise ConfigError(*problems)
    return sites


def believable(claims: Mapping[int, int], who: int) -> int:
    """The most samples that a site may claim where no list says so, by what the others claim."""
    others = [claim for other, claim in claims.items() if other != who and claim]
    return int(TIMES_THE_MEDIAN * median(others or [MOST_SAMPLES]))


def left_out(listed: Sequence[Listed], sites: Mapping[int, Enrolment]) -> dict[int, str]:
    """Which sites that joined are left out, and why: those that claim too much, and those that differ from most."""
    out = {}
    for kind, allowed in (("examples", "samples"), ("tests", "tests")):
        claims = {client: getattr(site, kind) for client, site in sites.items()}
        for client, claim in claims.items():
            known = getattr(listed[client], allowed)
            limit = believable(claims, client) if known is None else known
            if claim > limit:
                where = f"{TIMES_THE_MEDIAN:,} times the median of the others" if known is None else "in the list"
                out[client] = f"{kind}: it claims {claim:,}, allowed {limit:,} ({where})"
    for name in ALIKE:
        said = {client: getattr(sites[client], name) for client in sorted(sites.keys() - out.keys())}
        for common, count in Counter(said.values()).most_common(1):
            if 2 * count <= len(said):
                who = "; ".join(f"{shown(value)} at {listed[client].name}" for client, value in said.items())
                raise ConfigError(
                    f"enrolment: sites differ in their {name}: {who}; they must load the same kind of samples"
                )
            unlike = {client: value for client, value in said.items() if value != common}
            out |= {c: f"{name}: {shown(value)}, most sites have {shown(common)}" for c, value in unlike.items()}
    return out


@dataclass(eq=False)
class Fleet:
    """The clients behind a Grid.

    Attributes:
        grid: Flower's, or one in memory.
        listed: the operator's list, by client.
        sites: what each client's site must say: what the experiment gives it, or what it said when it joined.
        keys: the sites' public keys by client; None where nodes are not authenticated.
        clock: what deadlines are measured by: the module ``time``, or what counts it in a test.
        joining: whether a site that is not in ``sites`` may join.
        audit: the server's log.
        refused: why clients are not waited for.
    """

    grid: Grid
    listed: Sequence[Listed] = ()
    sites: dict[int, Enrolment] = field(default_factory=dict)
    keys: Mapping[int, bytes] | None = None
    clock: Any = time
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
        return "an unknown node" if client is None else self.listed[client].name

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

        known, turned_away = sort_out(
            {node: node for node in nodes}, replies, enrol, f"no answer within {QUERY_SECONDS:g} s"
        )
        self._known |= known
        for node, client in known.items():
            self.refused.pop(client, None)
            self.audit.write("joined", site=self.name(client), node=node, samples=self.sites[client].examples)
        for node, reason in turned_away:
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
