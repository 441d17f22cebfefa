"""The server's side: a Flower ServerApp that plays the rounds of an experiment and records them as `ecgr run` does.

Everything but where clients train is the simulator's own code: who takes part, aggregation, evaluation, the record, and
checkpoints, from which a ServerApp that is started again goes on. A round with too few usable replies is void and is
repeated with the same clients from the same state, so nothing of it is left in the model.
"""

import logging
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import httpx
from flwr.app import Context, MessageType
from flwr.serverapp import Grid, ServerApp

from ecgr.errors import ConfigError, EcgrError, QuorumLost
from ecgr.experiment.config import Experiment, load
from ecgr.files import write_atomically
from ecgr.flower.apps.fleet import Clock, Fleet, WallClock
from ecgr.flower.apps.wire import NEVER, Order
from ecgr.flower.guard.guard import UNKNOWN, Arrival, Guard
from ecgr.flower.guard.inspection import Asked
from ecgr.runs.record import to_json
from ecgr.runs.runner import play
from ecgr.simulation.client import ClientJob
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import Outcome, Replies, Snapshot, conclude, participants, round_jobs
from ecgr.simulation.workspace import Problem

log = logging.getLogger("ecgr.flower")


def server_app(
    experiment: Experiment | str | Path,
    out: str | Path,
    *,
    guard: Guard | None = None,
    keys: Mapping[int, bytes] | None = None,
    device: str = "cpu",
    clock: Clock | None = None,
) -> ServerApp:
    """A ServerApp that runs ``experiment`` into the run directory ``out``, or goes on with it there.

    Args:
        experiment: an `Experiment`, a preset's name or a TOML file.
        out: the run directory, as for `ecgr run`.
        guard: what replies must be like, and how many are needed.
        keys: the sites' public keys by client; a node must hold the key of the client it stands for.
        device: where to evaluate.
        clock: what deadlines are measured by; time, but in tests.

    >>> app = server_app("quickstart", "runs/federated", guard=Guard(min_clients=5))
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        failure = failure_path(Path(out))
        failure.unlink(missing_ok=True)
        try:
            chosen = experiment if isinstance(experiment, Experiment) else load(experiment)
            _serve(grid, context, chosen, Path(out), guard or Guard(), keys or {}, device, clock or WallClock())
        except httpx.HTTPError:
            raise  # the SuperLink is gone: nothing that trying again could not mend
        except Exception as error:
            code = error.exit_code if isinstance(error, EcgrError) else EcgrError.exit_code
            reason = "" if isinstance(error, EcgrError) else f"unexpected {type(error).__name__} in the ServerApp: "
            failure.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(failure, to_json({"code": code, "message": f"{reason}{error}"}))
            raise

    return app


def failure_path(out: Path) -> Path:
    """Where a ServerApp that gave up says why: its process's exit code is Flower's, not ours."""
    return out / ".federation" / "failure.json"


def _serve(
    grid: Grid,
    context: Context,
    experiment: Experiment,
    out: Path,
    guard: Guard,
    keys: Mapping[int, bytes],
    device: str,
    clock: Clock,
) -> None:
    refuse_simulator_only(experiment)
    dataset = experiment.source.load()
    problem = prepare(experiment, dataset, device)
    sizes = {client: size for client, size in enumerate(problem.partition.sizes()) if size}
    asked = len(participants(problem, 0))
    if guard.min_clients > asked:
        raise ConfigError(f"min_clients: {guard.min_clients} are needed, but only {asked} take part in a round")
    fleet = Fleet(grid, sizes, keys, clock)

    def rounds(snapshot: Snapshot) -> Generator[Outcome, None, None]:
        run = sha256((out / "run.json").read_bytes()).hexdigest()[:16]
        federation = Federation(problem, fleet, guard, run, context.run_id)
        fleet.wait_for(sizes, len(sizes), guard.deadline)
        while snapshot.rounds < experiment.federation.rounds:
            outcome = federation.play_round(snapshot)
            yield outcome
            snapshot = outcome.snapshot

    play(problem, dataset, out, rounds, resume=True, every=1, watch=_log_round, warn=log.warning)


def refuse_simulator_only(experiment: Experiment) -> None:
    """What needs more from a client than a federation lets up."""
    problems = []
    if experiment.run.step_control != "none":
        problems.append(f"run.step_control: {experiment.run.step_control!r} is for the simulator; set it to none")
    if experiment.run.diagnostics:
        problems.append("run.diagnostics: true is for the simulator; set it to false")
    if problems:
        raise ConfigError(*problems)


@dataclass(frozen=True, slots=True, eq=False)
class Federation:
    """Plays rounds with the clients of a fleet."""

    problem: Problem
    fleet: Fleet
    guard: Guard
    run: str
    flower_run: int
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
            if len(replies.used) >= self.guard.min_clients:
                counted = replace(replies, rejected=[*before, *replies.rejected])
                return conclude(self.problem, self._engine, snapshot, jobs, counted, began)
            usable = f"{len(replies.used)} of {len(jobs)} replies usable, {self.guard.min_clients} needed"
            log.warning("round %d, attempt %d is void: %s", snapshot.rounds + 1, attempt, usable)
            before += [(client, f"void attempt {attempt}: {reason}") for client, reason in replies.rejected]
        reasons = "; ".join(f"client {client}: {reason}" for client, reason in replies.rejected)
        raise QuorumLost(f"round {snapshot.rounds + 1}: void {self.guard.attempts} times, {usable} ({reasons})")

    def _attempt(self, snapshot: Snapshot, jobs: list[ClientJob], attempt: int) -> Replies:
        """Ask the round's clients once."""
        group = f"{snapshot.rounds + 1}.{attempt}"
        clients = [job.client for job in jobs]
        nodes = self.fleet.wait_for(clients, self.guard.min_clients, self.guard.deadline)
        orders = {job.client: self._order(snapshot, job) for job in jobs}
        asked = {
            client: Asked(
                self.problem, order, self.flower_run, nodes.get(client, UNKNOWN), group, self.fleet.enrolled[client]
            )
            for client, order in orders.items()
        }
        contents = {nodes[client]: orders[client].to_records() for client in clients if client in nodes}
        arrivals = []
        for node, message in self.fleet.exchange(contents, MessageType.TRAIN, group, self.guard.deadline):
            client = self.fleet.client_of(node)
            arrivals.append(Arrival(UNKNOWN if client is None else client, message))
        return self.guard.judge(asked, arrivals)

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


def _log_round(row: Mapping[str, object]) -> None:
    log.info("round %s: accuracy %s, loss %s", row["round"], row["accuracy"], row["loss"])
