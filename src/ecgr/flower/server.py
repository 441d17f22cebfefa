"""The server's side: a Flower ServerApp that plays the rounds of an experiment and records them as `ecgr run` does.

Everything but where clients train is the simulator's own code: who takes part, aggregation, evaluation, the record, and
checkpoints, from which a ServerApp that is started again goes on. A round with too few usable replies is void and is
repeated with the same clients from the same state, so nothing of it is left in the model.

Where sites hold their own samples, each scores the model on its own test samples, and the scores are averaged by their
numbers. For metrics that are means over samples (accuracy, MAE, the loss) that is the metric over all of them. Others
(AUC, F1, R²) are means of the sites' values: more would need what the model says of each sample.
"""

import json
import logging
import math
import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from flwr.app import Context, Message, MessageType
from flwr.serverapp import Grid, ServerApp

from ecgr._version import __version__
from ecgr.algorithms.heads import added
from ecgr.component import State
from ecgr.config.experiment import OWN, Experiment
from ecgr.errors import ConfigError, EcgrError, EnvironmentFault, QuorumLost
from ecgr.files import write_atomically
from ecgr.flower.audit import Audit
from ecgr.flower.fleet import Enrolment, Fleet, Listed, complete_list, left_out
from ecgr.flower.guard import Asked, Guard, answered, inspect_sums, sort_out
from ecgr.flower.site import Given, made
from ecgr.flower.wire import LOSS, METRIC, NEVER, SCORES, SUMS, UNKNOWN, Order, Refusal
from ecgr.runs.record import RunRecord, absences, to_json
from ecgr.runs.runner import play
from ecgr.simulation.client import ClientJob
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.evaluate import Evaluation, summarise_own
from ecgr.simulation.heads import Sums, holders
from ecgr.simulation.prepare import prepare, prepare_server
from ecgr.simulation.rounds import (
    Outcome,
    Replies,
    Snapshot,
    finish_round,
    learning_rate,
    participants,
    round_jobs,
    score,
    served,
)
from ecgr.simulation.server import count_attempt, dp_of, secretly
from ecgr.simulation.workspace import Problem
from ecgr.tables import shown
from ecgr.tasks.data.arrays import read_arrays, samples_of
from ecgr.tasks.data.dataset import Provenance
from ecgr.tasks.metrics import bounds_of

NO_KEY = "the server has no public key of it; the site makes one with `ecgr federate keys`"
ROUNDING = 1e-9

File = str | Path | None

log = logging.getLogger("ecgr.flower")


def server_app(
    experiment: Given,
    out: str | Path,
    *,
    guard: Guard | None = None,
    keys: Mapping[int, bytes] | None = None,
    device: str = "cpu",
    clock: Any = time,
    local_data: bool = False,
    test: File = None,
    server: File = None,
    sites: Sequence[Listed] = (),
    audit: str | Path | None = None,
) -> ServerApp:
    """A ServerApp that runs ``experiment`` into the run directory ``out``, or goes on with it there.

    Args:
        experiment: an `Experiment`, a preset's name, a TOML file, or a function that makes an `Experiment`.
        out: the run directory, as for `ecgr run`.
        guard: what replies must be like, and how many are needed.
        keys: the sites' public keys by client; a node must hold the key of the client it stands for.
        device: where to evaluate.
        clock: what deadlines are measured by; time, but in tests.
        local_data: whether sites hold their own samples, and the server none but those of ``test``.
        test: with ``local_data``, a file of arrays (`ecgr.tasks.data.arrays`) to evaluate on; otherwise each site
            evaluates on its own test samples.
        server: with ``local_data``, a file of arrays with the server's own labelled samples, for ``+server_steps``.
        sites: the operator's list: names of sites, and how many samples each may claim. Without sizes, one site can
            claim up to 1,000 times the median of the others, and dominate the model.
        audit: a folder for the audit log (`ecgr.flower.audit`); none is written otherwise.

    >>> app = server_app("quickstart", "runs/federated", guard=Guard(min_clients=5))
    """
    app, rules, journal = ServerApp(), guard or Guard(), Audit(None if audit is None else Path(audit))

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        failure = failure_path(Path(out))
        failure.unlink(missing_ok=True)
        try:
            chosen = made(experiment)
            config, names = sha256(chosen.to_toml().encode()).hexdigest(), [site.name for site in sites]
            journal.write("begin", run=context.run_id, config=config, sites=names, ecgr=__version__)
            fleet = Fleet(grid, sites, keys=keys, clock=clock, audit=journal)
            if keys is not None:
                fleet.refused |= dict.fromkeys(set(range(len(sites))) - keys.keys(), NO_KEY)
            if local_data:
                problem, data = enrol(chosen, fleet, rules, Path(out), test, server)
            else:  # every site holds the data set, and the experiment partitions it
                dataset = chosen.source.load()
                problem, data = prepare(chosen, dataset, device), dataset.provenance
                fleet.expect(problem, dataset.shape)
            own = chosen.data.score == OWN
            if own and test is not None:
                raise ConfigError("data.score: the sites score the model, each on its own samples; leave out test")
            federation = Federation(problem, fleet, rules, "", context.run_id, own or (local_data and test is None))
            federation.serve(data, Path(out))
            journal.write("end", run=context.run_id)
        except httpx.HTTPError:
            raise  # the SuperLink is gone: nothing that trying again could not mend
        except Exception as error:
            code, reason = EcgrError.exit_code, f"unexpected {type(error).__name__} in the ServerApp: {error}"
            if isinstance(error, EcgrError):
                code, reason = error.exit_code, str(error)
            write_atomically(failure, to_json({"code": code, "message": reason}))
            with suppress(EnvironmentFault):  # the log itself may be what failed
                journal.write("failed", run=context.run_id, reason=reason)
            raise

    return app


def failure_path(out: Path) -> Path:
    """Where a ServerApp that gave up says why: its process's exit code is Flower's, not ours."""
    return out / ".federation" / "failure.json"


def enrol(
    experiment: Experiment, fleet: Fleet, guard: Guard, out: Path, test: File, server: File
) -> tuple[Problem, Provenance]:
    """Samples that sites hold and keep: the server hears how many, and starts with those that it believes.

    A run that goes on has the sites and sizes with which it began.
    """
    if experiment.partition.clients is None:
        raise ConfigError("partition.clients: missing; a federation is told how many sites it has")
    clients = range(experiment.partition.clients)
    before = [size for (size,) in RunRecord(out).manifest["partition"]] if RunRecord.is_run(out) else None
    fleet.listed, fleet.joining = complete_list(fleet.listed, len(clients)), True
    fleet.wait_for(clients, len(clients), guard.deadline)
    fleet.joining = False
    for client, reason in left_out(fleet.listed, fleet.sites).items():
        fleet.leave_out(client, reason)
    for client, site in list(fleet.sites.items()):
        if before is not None and site.examples != before[client]:
            fleet.leave_out(client, f"examples: {site.examples:,}, but {before[client]:,} when this run began")
    late = f"did not join within {guard.deadline:g} s; see the log of its SuperNode"
    missing = {client: fleet.refused.get(client, late) for client in clients if client not in fleet.sites}
    known = before or [site.samples for site in fleet.listed]
    weights = [1 if None in known else size or 0 for size in known]
    if len(fleet.sites) < guard.min_clients or 2 * sum(weights[client] for client in missing) > sum(weights):
        raise QuorumLost(f"enrolment: {len(fleet.sites)} of {len(clients)} sites can take part ({fleet.told(missing)})")
    first = next(iter(fleet.sites.values()))
    samples, own = (None if file is None else samples_of(str(file), read_arrays(Path(file))) for file in (test, server))
    sizes = before or [fleet.sites[client].examples if client in fleet.sites else 0 for client in clients]
    problem = prepare_server(experiment, json.loads(first.shape), first.loss, first.metrics, sizes, samples, own)
    if problem.spec.digest() != first.parameters:
        raise ConfigError("model: the server makes another one than the sites; install the same packages everywhere")
    held = {site.name: f"{size} samples" for site, size in zip(fleet.listed, sizes, strict=True) if size}
    if server is not None:
        held["server"] = sha256(Path(server).read_bytes()).hexdigest()
    notes = ["held by the sites: the server knows how many samples each has, and none of them"]
    notes += [f"left out: {fleet.name(client)}: {reason}" for client, reason in missing.items()]
    return problem, Provenance((), held, tuple(notes))


@dataclass(eq=False)
class Federation:
    """Plays rounds with the clients of a fleet.

    Attributes:
        run: names the run to the sites, across restarts.
        flower_run: Flower's number of it, another one after each restart.
        scored_by_sites: whether sites evaluate the model, each on its own samples.
    """

    problem: Problem
    fleet: Fleet
    guard: Guard
    run: str
    flower_run: int
    scored_by_sites: bool = False

    def serve(self, data: Provenance, out: Path) -> None:
        """Play the rounds that are left in the run directory ``out``."""
        asked, needed = len(participants(self.problem, 0)), self.guard.min_clients
        if needed > asked and dp_of(self.problem.experiment) is None:
            raise ConfigError(f"min_clients: {needed} are needed, but only {asked} take part in a round")
        self.problem, away = secretly(self.problem, out / ".federation"), set[int]()

        def rounds(snapshot: Snapshot) -> Generator[Outcome, None, None]:
            self.run = sha256((out / "run.json").read_bytes()).hexdigest()[:16]
            self.fleet.wait_for(self.fleet.sites, len(self.fleet.sites), self.guard.deadline)
            while snapshot.rounds < self.problem.experiment.federation.rounds:
                outcome = self.play_round(snapshot)
                yield outcome
                snapshot = outcome.snapshot

        def watch(row: Mapping[str, Any]) -> None:
            log.info("round %s: %s, loss %s", row["round"], row["metrics"], row["loss"])
            for line in absences(row, away, self.fleet.name):
                log.warning("round %s: %s", row["round"], line)

        play(self.problem, data, out, rounds, resume=True, every=1, watch=watch, warn=log.warning)

    @cached_property
    def _engine(self) -> SerialEngine:
        return SerialEngine(self.problem)

    def play_round(self, snapshot: Snapshot) -> Outcome:
        """One round, attempted again while too few replies can be used."""
        began, number, jobs = time.perf_counter(), snapshot.rounds + 1, round_jobs(self.problem, snapshot)
        if not self.problem.trains:
            return self._finish(snapshot, jobs, Replies([], {}, []), began)
        clients, before = [job.client for job in jobs], list[tuple[int, str]]()
        for attempt in range(1, self.guard.attempts + 1):
            group = f"{number}.{attempt}"
            replies = self._attempt(snapshot, jobs, group, attempt)
            used = [result.client for result in replies.used]
            shortfall = self.guard.shortfall(used, clients, self.problem.partition.sizes())
            if shortfall is None:
                self.fleet.audit.write("round", round=group, used=[self.fleet.name(client) for client in used])
                return self._finish(snapshot, jobs, replace(replies, rejected=[*before, *replies.rejected]), began)
            log.warning("round %d, attempt %d is void: %s", number, attempt, shortfall)
            self.fleet.audit.write("void", round=group, reason=shortfall)
            before += [(client, f"void attempt {attempt}: {reason}") for client, reason in replies.rejected]
        reasons = self.fleet.told(dict(replies.rejected))
        raise QuorumLost(f"round {number}: void {self.guard.attempts} times, {shortfall} ({reasons})")

    def _finish(self, snapshot: Snapshot, jobs: list[ClientJob], replies: Replies, began: float) -> Outcome:
        rejected = list(replies.rejected)
        by_sites, here = partial(self._score, rejected), partial(score, self.problem, self._engine)
        evaluate, counted = by_sites if self.scored_by_sites else here, replace(replies, rejected=rejected)
        return finish_round(self.problem, snapshot, jobs, counted, evaluate, began, self._collect)

    def _attempt(self, snapshot: Snapshot, jobs: list[ClientJob], group: str, attempt: int) -> Replies:
        """Ask the round's clients once."""
        count_attempt(self.problem)
        # who was missed once is waited for: the round may be void because of it
        enough = self.guard.min_clients if attempt == 1 else len(jobs)
        asked, arrivals = self._ask(jobs, snapshot.clients, MessageType.TRAIN, group, enough)
        replies, refused = self.guard.judge(asked, arrivals), self.fleet.refused
        absent = {client for client, each in asked.items() if each.sent[-1] == UNKNOWN}
        reasons = {client: f"missing: {refused.get(client, 'not connected')}" for client in absent}
        named = [(client, reasons.get(client, reason)) for client, reason in replies.rejected]
        self.refuse(group, named)
        return replace(replies, rejected=named)

    def _ask(
        self, jobs: Sequence[ClientJob], past: Mapping[int, State], kind: str, group: str, enough: int
    ) -> tuple[dict[int, Asked], list[tuple[int, Message | str]]]:
        """Send clients their jobs once ``enough`` are there; what each was asked for, and what came back."""
        nodes = self.fleet.wait_for([job.client for job in jobs], enough, self.guard.deadline)
        sizes, asked, contents = self.problem.partition.sizes(), {}, {}
        for job in jobs:
            known, node = past.get(job.client) or {}, nodes.get(job.client, UNKNOWN)
            order = Order(self.run, int(known["round"]) if known else NEVER, job)
            asked[job.client] = Asked(self.problem, order, (self.flower_run, group, node), sizes[job.client], known)
            if node != UNKNOWN:
                contents[node] = order.to_records()
        clients = {node: client for client, node in nodes.items()}
        replies = self.fleet.exchange(contents, kind, group, self.guard.deadline)
        return asked, [(clients[node], reply) for node, reply in replies]

    def _ask_of_served(
        self, clients: Collection[int], snapshot: Snapshot, kind: str, group: str
    ) -> tuple[dict[int, Asked], list[tuple[int, Message | str]]]:
        """Send clients the model that is handed out."""
        (params, buffers), last = served(self.problem, snapshot), snapshot.rounds - 1
        lr = learning_rate(self.problem, last)
        jobs = [ClientJob(client, last, lr, 1, params, buffers, {}, {}) for client in clients]
        return self._ask(jobs, snapshot.clients if self.problem.local else {}, kind, group, len(jobs))

    def refuse(self, group: str, reasons: Iterable[tuple[int, str]]) -> None:
        """Note whose replies are not used."""
        for client, reason in reasons:
            self.fleet.audit.write("refused", round=group, site=self.fleet.name(client), reason=reason)

    def _score(self, unscored: list[tuple[int, str]], snapshot: Snapshot) -> Evaluation:
        """Have the sites evaluate the model that is handed out, each on its own test samples.

        Those whose scores are not used are added to ``unscored``, with the reason.
        """
        with_tests = [client for client, site in self.fleet.sites.items() if site.tests]
        group, late = f"{snapshot.rounds}.scores", f"missing: no scores within {self.guard.deadline:g} s"
        asked, arrivals = self._ask_of_served(with_tests, snapshot, MessageType.EVALUATE, group)
        found, refused = sort_out(asked, arrivals, site_scores, late)
        self.refuse(group, sorted(refused))
        for client, reason in sorted(refused):
            unscored.append((client, f"evaluation: {reason}"))
            log.warning("round %d: %s: %s", snapshot.rounds, self.fleet.name(client), reason)
        return combine_scores(self.problem, self.fleet.sites, found)

    def _collect(self, snapshot: Snapshot) -> Sums:
        """The sums that a head is solved from, of all sites that have samples enough."""
        clients, late = holders(self.problem), f"missing: no sums within {self.guard.deadline:g} s"
        for attempt in range(1, self.guard.attempts + 1):
            group = f"{snapshot.rounds}.{attempt}.sums"
            asked, arrivals = self._ask_of_served(clients, snapshot, SUMS, group)
            parts, refused = self.guard.judge_sums(*sort_out(asked, arrivals, inspect_sums, late))
            self.refuse(group, refused)
            shortfall = self.guard.shortfall(parts, clients, self.problem.partition.sizes())
            if shortfall is None:
                return Sums(added(parts.values()), len(clients), len(parts), refused)
        raise QuorumLost(f"head: void {self.guard.attempts} times, {shortfall} ({self.fleet.told(dict(refused))})")


def site_scores(asked: Asked, reply: Message | str) -> dict[str, float]:
    """The numbers of a reply; raises `Refusal` unless they answer this order and can be what they say they are."""
    metrics, _ = answered(asked, reply, SCORES)
    bounds = {METRIC + metric.name: bounds_of(metric) for metric in asked.problem.metrics}
    bounds[LOSS] = (-math.inf, math.inf)
    if LOSS not in metrics or not metrics.keys() <= bounds.keys():
        raise Refusal("metrics: expected the loss, and metrics of the task")
    for name, value in metrics.items():
        least, most = bounds[name]
        if not isinstance(value, float) or not math.isfinite(value):
            raise Refusal(f"score: {name} is {shown(value)}, expected a finite number")
        if not least - ROUNDING <= value <= most + ROUNDING:
            raise Refusal(f"score: {name} is {value:.6g}, allowed {least:g} to {most:g}")
    return dict(metrics)


def combine_scores(
    problem: Problem, sites: Mapping[int, Enrolment], found: Mapping[int, Mapping[str, float]]
) -> Evaluation:
    """The sites' scores, averaged by their test samples, in client order."""
    if not found:
        raise QuorumLost("evaluation: no site has scored the model")
    if problem.experiment.data.score == OWN:
        named = {c: {name.removeprefix(METRIC): value for name, value in own.items()} for c, own in found.items()}
        return summarise_own(problem, named, {client: sites[client].tests for client in found})

    def mean(name: str) -> float:
        given = {client: found[client][name] for client in sorted(found) if name in found[client]}
        weights = [sites[client].tests for client in given]
        return float(np.average([*given.values()], weights=weights)) if given else math.nan

    first = METRIC + problem.metrics[0].name
    by_client = [found.get(client, {}).get(first, math.nan) for client in range(len(problem.partition))]
    return Evaluation(
        metrics={metric.name: mean(METRIC + metric.name) for metric in problem.metrics},
        loss=mean(LOSS),
        by_client=np.array(by_client),
    )
