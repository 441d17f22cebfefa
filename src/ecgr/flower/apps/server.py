"""The server's side: a Flower ServerApp that plays the rounds of an experiment and records them as `ecgr run` does.

Everything but where clients train is the simulator's own code: who takes part, aggregation, evaluation, the record, and
checkpoints, from which a ServerApp that is started again goes on. A round with too few usable replies is void and is
repeated with the same clients from the same state, so nothing of it is left in the model.
"""

import logging
from collections.abc import Generator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import httpx
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ecgr.errors import ConfigError, EcgrError
from ecgr.files import write_atomically
from ecgr.flower.apps.enrolment import Listed
from ecgr.flower.apps.federation import Federation
from ecgr.flower.apps.fleet import Clock, Fleet, WallClock
from ecgr.flower.apps.opening import Opened, dealt, enrol
from ecgr.flower.apps.site import Given, made
from ecgr.flower.guard import Guard
from ecgr.runs.record import RunRecord, to_json
from ecgr.runs.runner import play
from ecgr.simulation.rounds import Outcome, Snapshot, participants

log = logging.getLogger("ecgr.flower")


def server_app(
    experiment: Given,
    out: str | Path,
    *,
    guard: Guard | None = None,
    keys: Mapping[int, bytes] | None = None,
    device: str = "cpu",
    clock: Clock | None = None,
    local_data: bool = False,
    test: str | Path | None = None,
    sites: Sequence[Listed] = (),
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
        sites: the operator's list: names of sites, and how many samples each may claim. Without sizes, one site can
            claim up to 1,000 times the median of the others, and dominate the model.

    >>> app = server_app("quickstart", "runs/federated", guard=Guard(min_clients=5))
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        failure = failure_path(Path(out))
        failure.unlink(missing_ok=True)
        try:
            chosen = made(experiment)
            keyless = [] if keys is None else [client for client in range(len(sites)) if client not in keys]
            refused = dict.fromkeys(
                keyless, "the server has no public key of it; the site makes one: `ecgr federate keys`"
            )
            fleet = Fleet(grid, sites, keys=keys, clock=clock or WallClock(), refused=refused)
            if local_data:
                opened = enrol(chosen, fleet, guard or Guard(), test, _sizes_before(Path(out)))
            else:
                opened = dealt(chosen, fleet, device)
            _serve(opened, context, Path(out), guard or Guard())
        except httpx.HTTPError:
            raise  # the SuperLink is gone: nothing that trying again could not mend
        except Exception as error:
            code = error.exit_code if isinstance(error, EcgrError) else EcgrError.exit_code
            reason = "" if isinstance(error, EcgrError) else f"unexpected {type(error).__name__} in the ServerApp: "
            failure.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(failure, to_json({"code": code, "message": f"{reason}{error}"}))
            raise

    return app


def _sizes_before(out: Path) -> list[int] | None:
    """How many samples each site had when the run began, if it has."""
    record = RunRecord(out)
    return [size for (size,) in record.manifest["partition"]] if record.is_run(out) else None


def failure_path(out: Path) -> Path:
    """Where a ServerApp that gave up says why: its process's exit code is Flower's, not ours."""
    return out / ".federation" / "failure.json"


def _serve(opened: Opened, context: Context, out: Path, guard: Guard) -> None:
    problem, fleet = opened.problem, opened.fleet
    asked = len(participants(problem, 0))
    if guard.min_clients > asked:
        raise ConfigError(f"min_clients: {guard.min_clients} are needed, but only {asked} take part in a round")

    def rounds(snapshot: Snapshot) -> Generator[Outcome, None, None]:
        run = sha256((out / "run.json").read_bytes()).hexdigest()[:16]
        federation = Federation(problem, fleet, guard, run, context.run_id, opened.scored_by_sites)
        fleet.wait_for(fleet.sites, len(fleet.sites), guard.deadline)
        while snapshot.rounds < problem.experiment.federation.rounds:
            outcome = federation.play_round(snapshot)
            yield outcome
            snapshot = outcome.snapshot

    play(problem, opened.data, out, rounds, resume=True, every=1, watch=_log_round, warn=log.warning)


def _log_round(row: Mapping[str, object]) -> None:
    log.info("round %s: %s, loss %s", row["round"], row["metrics"], row["loss"])
