"""The client's side: a Flower ClientApp around the one local training loop.

It trains the client that its SuperNode stands for (``partition-id`` in the node's config) on that client's share of
the data, keeps the client's state on the site's own disk, and lets no exception's text leave the site: a message may
quote what it choked on, so the server gets a class name and a code.
"""

import functools
import logging
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import platformdirs
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from ecgr.component import State
from ecgr.config.experiment import OWN, Experiment, load
from ecgr.errors import ConfigError, EcgrError, EnvironmentFault
from ecgr.files import write_atomically
from ecgr.flower.audit import PLACE, Audit
from ecgr.flower.fleet import Enrolment
from ecgr.flower.wire import ARRAYS, LOSS, METRIC, METRICS, NEVER, REPORT, SITE, SUMS, Order, reply_records, to_arrays
from ecgr.simulation.engines import SerialEngine, results
from ecgr.simulation.evaluate import OwnJob, evaluate_own
from ecgr.simulation.evaluate import evaluate as evaluation
from ecgr.simulation.heads import SumsJob, head_round, holders
from ecgr.simulation.prepare import check_client, prepare, prepare_site
from ecgr.simulation.workspace import Problem

ERROR_BASE = 100
"""Our codes in a Flower error: this plus the exit code that the error has on the command line."""

GENERATIONS = 4
"""The server keeps two checkpoints, so it never goes back further than this."""

log = logging.getLogger("ecgr.flower")

Prepared = tuple[Problem, Mapping[str, int]]
"""A site's problem, and what a model must know of its samples."""

Given = Experiment | str | Path | Callable[[], Experiment]
"""An experiment, a preset's name, a TOML file, or a function that makes one when it is needed."""


def client_app(experiment: Given, *, device: str = "cpu", local_data: bool = False) -> ClientApp:
    """A ClientApp that trains one client of ``experiment``.

    The node's config gives ``partition-id``, the client it stands for, and may give ``state-dir``, where its state is
    kept; by default that is ``$ECGR_STATE``, or this user's state directory. With ``local_data`` the site's data set
    holds this client's samples and nobody else's, and lies where ``$ECGR_DATA`` or the node's ``data-root`` says;
    otherwise the client gets its share of a set that all sites hold.

    >>> app = client_app("quickstart")
    """
    chosen = functools.cache(lambda: made(experiment))

    def prepared(client: int, root: str | None) -> Prepared:
        if not local_data:
            dataset = chosen().source.load()
            return prepare(chosen(), dataset, device), dataset.shape
        own = chosen() if root is None else chosen().replace({"data.root": root})
        check_client(client, own.partition.clients)
        dataset = own.source.load()
        return prepare_site(own, dataset, client, device), dataset.shape

    return app_for(prepared)


def made(experiment: Given) -> Experiment:
    """The experiment that is meant."""
    if isinstance(experiment, Experiment):
        return experiment
    return experiment() if callable(experiment) else load(experiment)


def app_for(prepare: Callable[[int, str | None], Prepared]) -> ClientApp:
    """A ClientApp for a problem that is prepared at the first message, where a failure can be kept at the site.

    ``prepare`` is given the client that the node stands for, and where its data lie if its config says so.
    """
    app = ClientApp()

    prepared = functools.cache(prepare)

    def own(context: Context) -> tuple[int, Problem, Mapping[str, int]]:
        client, root = context.node_config.get("partition-id"), context.node_config.get("data-root")
        if type(client) is not int:
            raise ConfigError(f"partition-id: {client!r}; start the SuperNode with --node-config partition-id=N")
        problem, shape = prepared(client, None if root is None else str(root))
        check_client(client, len(problem.partition))
        return client, problem, shape

    def following(answers: Callable[[Problem, Order, Path], RecordDict]) -> Callable[..., Message]:
        @_discreet
        def handler(message: Message, context: Context) -> RecordDict:
            (client, problem, _), order = own(context), Order.from_records(message.content)
            if order.job.client != client:
                raise ConfigError(f"partition-id: asked for client {order.job.client}, this node stands for another")
            return answers(problem, order, state_root(context))

        return handler

    @app.query()
    @_discreet
    def enrol(message: Message, context: Context) -> RecordDict:
        """Say which client this is, how many samples it holds and what they are like."""
        client, problem, shape = own(context)
        return RecordDict({SITE: Enrolment.of(problem, client, shape).to_record()})

    app.train()(following(answer))
    app.evaluate()(following(score_records))
    app.evaluate(SUMS.partition(".")[2])(following(sums_records))
    return app


def answer(problem: Problem, order: Order, root: Path) -> RecordDict:
    """Train as ordered, remember the client's new state below ``root``, and make the reply."""
    job, states = order.job, _states(order, root)
    initial = problem.first_state(job.params)
    counted_on = bool(initial) and order.remembered != NEVER
    remembered = load_state(states, order.remembered) if counted_on else None
    job = replace(job, state=initial if remembered is None else remembered)
    ((result, state),) = results(SerialEngine(problem), [job], "training was lost")
    if state:
        save_state(states, job.round_index, state)
    return reply_records(order, result, state_lost=counted_on and remembered is None)


def score_records(problem: Problem, order: Order, root: Path) -> RecordDict:
    """A site's scores of the model that an order carries; what has no value there is left out.

    Where clients are scored on their own samples, it is of that model with what the site remembers below ``root``.
    """
    job, engine = order.job, SerialEngine(problem)
    if problem.experiment.data.score == OWN:
        counted_on = problem.local and order.remembered != NEVER
        remembered = load_state(_states(order, root), order.remembered) if counted_on else None
        own = OwnJob(job.client, job.round_index, job.lr, 1, job.params, job.buffers, remembered or {})
        found = evaluate_own(problem, engine, [own])
    else:
        found = evaluation(problem, engine, job.params, job.buffers)
    values = {**{f"{METRIC}{name}": value for name, value in found.metrics.items()}, LOSS: found.loss}
    finite = MetricRecord({name: float(value) for name, value in values.items() if math.isfinite(value)})
    return RecordDict({METRICS: finite, REPORT: ConfigRecord(order.address())})


def sums_records(problem: Problem, order: Order, root: Path) -> RecordDict:
    """A site's sums for the head that the experiment names; asked for at another time, or of too few, it has none."""
    job, sizes = order.job, problem.partition.sizes()
    if job.round_index + 1 != head_round(problem) or job.client not in holders(problem):
        raise ConfigError(f"head: no sums of {sizes[job.client]} samples are sent after round {job.round_index + 1}")
    summing = SumsJob(job.client, job.params, job.buffers, sizes[job.client])
    (part,) = results(SerialEngine(problem), [summing], "the sums were lost")
    return RecordDict({ARRAYS: to_arrays(part), REPORT: ConfigRecord(order.address())})


def _states(order: Order, root: Path) -> Path:
    return root / order.run / f"client-{order.job.client}"


def state_root(context: Context) -> Path:
    """Where this site keeps its clients' states."""
    given = context.node_config.get("state-dir") or os.environ.get("ECGR_STATE")
    return Path(str(given)) if given else platformdirs.user_state_path("ecgr") / "flower"


def audit_of(context: Context) -> Audit:
    """This site's log, if it has one."""
    given = context.node_config.get("audit-dir") or os.environ.get(PLACE)
    name = context.node_config.get("name", f"site-{context.node_config.get('partition-id')}")
    return Audit(Path(str(given)) if given else None, str(name))


def _discreet(handler: Callable[[Message, Context], RecordDict]) -> Callable[[Message, Context], Message]:
    """Keep an exception's text at the site; the server gets the class name and a code. The site's log has both ways."""

    @functools.wraps(handler)
    def wrapped(message: Message, context: Context) -> Message:
        audit, sent = audit_of(context), message.metadata
        about = {"run": context.run_id, "round": sent.group_id, "kind": sent.message_type}
        try:
            audit.message("received", message, **about)
            reply = handler(message, context)
            audit.message("sent", reply, **about)
            return Message(reply, reply_to=message)
        except Exception as error:
            log.exception("this round of this site failed; the server is told the class name only")
            code = ERROR_BASE + (error.exit_code if isinstance(error, EcgrError) else 1)
            with suppress(EnvironmentFault):  # the log itself may be what failed
                audit.write("failed", **about, reason=f"{type(error).__name__} (code {code})")
            return Message(Error(code=code, reason=type(error).__name__), reply_to=message)

    return wrapped


def save_state(directory: Path, round_index: int, state: State) -> None:
    """Remember a client's state (SCAFFOLD's control variate) after a round; forget all but the last few.

    One file a round, written atomically, beginning with the hash of the rest. The server says which round's state it
    counts on, that is the last one in which the client's update was used: so a reply that was lost, refused or
    repeated, and a server that went back to an older checkpoint, never leave the two apart.
    """
    directory.mkdir(parents=True, exist_ok=True)
    content = save_tensors({name: tensor.contiguous() for name, tensor in state.items()})
    write_atomically(_state_path(directory, round_index), sha256(content).hexdigest().encode() + b"\n" + content)
    for path in sorted(directory.glob("round-*.state"))[:-GENERATIONS]:
        path.unlink(missing_ok=True)


def load_state(directory: Path, round_index: int) -> State | None:
    """The state after a round; None if it is lost: the client starts again from the initial state, and says so."""
    path = _state_path(directory, round_index)
    try:
        digest, _, content = path.read_bytes().partition(b"\n")
        if sha256(content).hexdigest().encode() != digest:
            raise ValueError("altered or cut short")
        tensors: State = load_tensors(content)
    except (OSError, ValueError, SafetensorError) as error:
        log.warning("%s: client state is lost (%s); starting again from none", path, error)
        return None
    return tensors


def _state_path(directory: Path, round_index: int) -> Path:
    return directory / f"round-{round_index:07d}.state"
