"""The rounds of a federation: orders to sites, replies through the guard, the simulator's own conclusion."""

import logging
import time
from dataclasses import dataclass, field, replace
from functools import partial

from flwr.app import MessageType

from ecgr.errors import QuorumLost
from ecgr.flower.apps.fleet import Fleet
from ecgr.flower.apps.scoring import combine_scores, site_scores
from ecgr.flower.apps.wire import NEVER, Order
from ecgr.flower.guard import UNKNOWN, Arrival, Asked, Guard, Refusal
from ecgr.simulation.client import ClientJob
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.evaluate import Evaluation
from ecgr.simulation.rounds import Outcome, Replies, Snapshot, finish_round, round_jobs, score, served
from ecgr.simulation.workspace import Problem

log = logging.getLogger("ecgr.flower")


@dataclass(frozen=True, slots=True, eq=False)
class Federation:
    """Plays rounds with the clients of a fleet."""

    problem: Problem
    fleet: Fleet
    guard: Guard
    run: str
    flower_run: int
    scored_by_sites: bool = False
    _engine: SerialEngine = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_engine", SerialEngine(self.problem))

    def play_round(self, snapshot: Snapshot) -> Outcome:
        """One round, attempted again while too few replies can be used."""
        began = time.perf_counter()
        jobs = round_jobs(self.problem, snapshot)
        before: list[tuple[int, str]] = []
        for attempt in range(1, self.guard.attempts + 1):
            replies = self._attempt(snapshot, jobs, attempt)
            used, sizes = [result.client for result in replies.used], self.problem.partition.sizes()
            shortfall = self.guard.shortfall(used, [job.client for job in jobs], dict(enumerate(sizes)))
            if shortfall is None:
                rejected = [*before, *replies.rejected]
                counted = replace(replies, rejected=rejected)
                by_sites, here = partial(self._score, rejected), partial(score, self.problem, self._engine)
                evaluate = by_sites if self.scored_by_sites else here
                return finish_round(self.problem, snapshot, jobs, counted, evaluate, began)
            log.warning("round %d, attempt %d is void: %s", snapshot.rounds + 1, attempt, shortfall)
            before += [(client, f"void attempt {attempt}: {reason}") for client, reason in replies.rejected]
        reasons = "; ".join(f"{self.fleet.name(client)}: {reason}" for client, reason in replies.rejected)
        raise QuorumLost(f"round {snapshot.rounds + 1}: void {self.guard.attempts} times, {shortfall} ({reasons})")

    def _attempt(self, snapshot: Snapshot, jobs: list[ClientJob], attempt: int) -> Replies:
        """Ask the round's clients once."""
        group = f"{snapshot.rounds + 1}.{attempt}"
        clients, sizes = [job.client for job in jobs], self.problem.partition.sizes()
        # who was missed once is waited for: the round may be void because of it
        enough = self.guard.min_clients if attempt == 1 else len(clients)
        nodes = self.fleet.wait_for(clients, enough, self.guard.deadline)
        orders = {job.client: self._order(snapshot, job) for job in jobs}
        asked = {
            client: Asked(
                problem=self.problem,
                order=order,
                flower_run=self.flower_run,
                node=nodes.get(client, UNKNOWN),
                group=group,
                enrolled=sizes[client],
                past=snapshot.clients.get(client) or {},
            )
            for client, order in orders.items()
        }
        contents = {nodes[client]: orders[client].to_records() for client in clients if client in nodes}
        arrivals = []
        for node, message in self.fleet.exchange(contents, MessageType.TRAIN, group, self.guard.deadline):
            client = self.fleet.client_of(node)
            arrivals.append(Arrival(UNKNOWN if client is None else client, message))
        return self.guard.judge(asked, arrivals)

    def _score(self, unscored: list[tuple[int, str]], snapshot: Snapshot) -> Evaluation:
        """Have the sites evaluate the model that is handed out, each on its own test samples.

        Those whose scores are not used are added to ``unscored``, with the reason.
        """
        with_tests = [client for client, site in self.fleet.sites.items() if site.tests]
        nodes = self.fleet.wait_for(with_tests, len(with_tests), self.guard.deadline)
        params, buffers = served(self.problem, snapshot)
        orders = {client: Order(self.run, client, snapshot.rounds, 0.0, NEVER, params, buffers, {}) for client in nodes}
        contents = {nodes[client]: order.to_records() for client, order in orders.items()}
        group, found, refused = f"{snapshot.rounds}.scores", {}, {}
        for node, reply in self.fleet.exchange(contents, MessageType.EVALUATE, group, self.guard.deadline):
            client = self.fleet.client_of(node)
            if client is None or client in found or client in refused:
                continue
            try:
                found[client] = site_scores(self.problem, orders[client], reply)
            except Refusal as refusal:
                refused[client] = str(refusal)
        late = f"missing: no scores within {self.guard.deadline:g} s"
        for client in sorted(set(with_tests) - set(found)):
            unscored.append((client, f"evaluation: {refused.get(client, late)}"))
            log.warning("round %d: %s: %s", snapshot.rounds, self.fleet.name(client), unscored[-1][1])
        return combine_scores(self.problem, self.fleet.sites, found)

    def _order(self, snapshot: Snapshot, job: ClientJob) -> Order:
        remembered = snapshot.clients.get(job.client)
        return Order(
            run=self.run,
            client=job.client,
            round_index=job.round_index,
            lr=job.lr,
            remembered=NEVER if remembered is None else int(remembered["round"]),
            params=job.params,
            buffers=job.buffers,
            server=job.server,
        )
