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
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import platformdirs
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from ecgr.component import State
from ecgr.config.experiment import Experiment, load
from ecgr.errors import ConfigError, EcgrError
from ecgr.files import write_atomically
from ecgr.flower.apps.enrolment import Enrolment
from ecgr.flower.apps.wire import LOSS, METRICS, NEVER, REPORT, SITE, Order, reply_records
from ecgr.simulation.engines import Engine, SerialEngine
from ecgr.simulation.engines.pool import Lost
from ecgr.simulation.evaluate import evaluate as evaluation
from ecgr.simulation.prepare import prepare, prepare_site
from ecgr.simulation.rounds import round_jobs, start
from ecgr.simulation.workspace import Problem
from ecgr.tasks.partition import Partition

ERROR_BASE = 100
"""Our codes in a Flower error: this plus the exit code that the error has on the command line."""

GENERATIONS = 4
"""The server keeps two checkpoints, so it never goes back further than this."""

log = logging.getLogger("ecgr.flower")

Handler = Callable[[Message, Context], Message]
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
    return app_for(functools.partial(own_samples if local_data else shared_samples, chosen, device))


def made(experiment: Given) -> Experiment:
    """The experiment that is meant."""
    if isinstance(experiment, Experiment):
        return experiment
    return experiment() if callable(experiment) else load(experiment)


@dataclass(frozen=True, slots=True)
class Site:
    """What a node's config says: the client it stands for, and where its data lie."""

    client: int
    root: str | None = None

    @classmethod
    def of(cls, context: Context) -> "Site":
        """The node that a message reached."""
        given, root = context.node_config.get("partition-id"), context.node_config.get("data-root")
        if type(given) is not int or given < 0:
            raise ConfigError(f"partition-id: {given!r}; start the SuperNode with --node-config partition-id=N")
        return cls(given, None if root is None else str(root))


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A site's problem, and what a model must know of its samples."""

    problem: Problem
    shape: Mapping[str, int]


def shared_samples(experiment: Callable[[], Experiment], device: str, site: Site) -> Prepared:
    """The client's share of a data set that every site holds."""
    dataset = experiment().source.load()
    return Prepared(prepare(experiment(), dataset, device), dataset.shape)


def own_samples(experiment: Callable[[], Experiment], device: str, site: Site) -> Prepared:
    """What this site holds, all of it the client's."""
    chosen = experiment() if site.root is None else experiment().replace({"data.root": site.root})
    _check_client(site.client, chosen.partition.clients)
    dataset = chosen.source.load()
    return Prepared(prepare_site(chosen, dataset, site.client, device), dataset.shape)


def app_for(prepare: Callable[[Site], Prepared]) -> ClientApp:
    """A ClientApp for a problem that is prepared at the first message, where a failure can be kept at the site."""
    app, prepared = ClientApp(), functools.cache(prepare)
    engine = functools.cache(lambda site: SerialEngine(prepared(site).problem))

    def own(context: Context) -> tuple[Site, Prepared]:
        site = Site.of(context)
        _check_client(site.client, len(prepared(site).problem.partition))
        return site, prepared(site)

    @app.query()
    @_discreet
    def enrol(message: Message, context: Context) -> Message:
        """Say which client this is, how many samples it holds and what they are like."""
        site, known = own(context)
        said = Enrolment.of(known.problem, site.client, known.shape).to_record()
        return Message(RecordDict({SITE: said}), reply_to=message)

    @app.train()
    @_discreet
    def train(message: Message, context: Context) -> Message:
        """One round."""
        site, known = own(context)
        order = _own_order(message, site.client)
        return Message(answer(known.problem, engine(site), order, state_root(context)), reply_to=message)

    @app.evaluate()
    @_discreet
    def evaluate(message: Message, context: Context) -> Message:
        """Score a model on the site's own test samples."""
        site, known = own(context)
        order = _own_order(message, site.client)
        return Message(score_records(known.problem, engine(site), order), reply_to=message)

    return app


def _own_order(message: Message, client: int) -> Order:
    order = Order.from_records(message.content)
    if order.client != client:
        raise ConfigError(f"partition-id: asked for client {order.client}, this node stands for another")
    return order


def answer(problem: Problem, engine: Engine, order: Order, root: Path) -> RecordDict:
    """Train as ordered, remember the client's new state below ``root``, and make the reply."""
    states = SiteState.at(root, order.run, order.client)
    initial = problem.experiment.algorithm.init_client(order.params)
    counted_on = bool(initial) and order.remembered != NEVER
    remembered = states.load(order.remembered) if counted_on else None
    (outcome,) = engine.map([order.job(initial if remembered is None else remembered)])
    assert not isinstance(outcome, Lost), "nothing is lost in one process"
    result, state = outcome
    if state:
        states.save(order.round_index, state)
    return reply_records(order, result, state_lost=counted_on and remembered is None)


def score_records(problem: Problem, engine: Engine, order: Order) -> RecordDict:
    """A site's scores of the model that an order carries; what has no value there is left out."""
    found = evaluation(problem, engine, order.params, order.buffers)
    values = {**{f"metric/{name}": value for name, value in found.metrics.items()}, LOSS: found.loss}
    report = ConfigRecord({"run": order.run, "client": order.client, "round": order.round_index})
    finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
    return RecordDict({METRICS: MetricRecord(dict(finite)), REPORT: report})


def state_root(context: Context) -> Path:
    """Where this site keeps its clients' states."""
    given = context.node_config.get("state-dir") or os.environ.get("ECGR_STATE")
    return Path(str(given)) if given else platformdirs.user_state_path("ecgr") / "flower"


def _check_client(client: int, clients: int | None) -> None:
    if client < 0 or (clients is not None and client >= clients):
        raise ConfigError(f"partition-id: {client}, allowed 0 to {(clients or 1) - 1}")


def _discreet(handler: Handler) -> Handler:
    """Keep an exception's text at the site; the server gets the class name and a code."""

    @functools.wraps(handler)
    def wrapped(message: Message, context: Context) -> Message:
        try:
            return handler(message, context)
        except Exception as error:
            log.exception("this round of this site failed; the server is told the class name only")
            code = ERROR_BASE + (error.exit_code if isinstance(error, EcgrError) else 1)
            return Message(Error(code=code, reason=type(error).__name__), reply_to=message)

    return wrapped


@dataclass(frozen=True, slots=True)
class SiteState:
    """A client's state (SCAFFOLD's control variate) on its own site's disk, by round.

    One file a round, written atomically, beginning with the hash of the rest. The server says which round's state it
    counts on, that is the last one in which the client's update was used: so a reply that was lost, refused or
    repeated, and a server that went back to an older checkpoint, never leave the two apart. A file that is missing or
    damaged counts as lost: the client starts again from the algorithm's initial state, and says so.
    """

    directory: Path

    @classmethod
    def at(cls, root: Path, run: str, client: int) -> "SiteState":
        """Where one client's states of one run lie below ``root``."""
        return cls(root / run / f"client-{client}")

    def save(self, round_index: int, state: State) -> None:
        """Remember ``state`` as the one after a round; forget all but the last few."""
        self.directory.mkdir(parents=True, exist_ok=True)
        content = save_tensors({name: tensor.contiguous() for name, tensor in state.items()})
        write_atomically(self._path(round_index), sha256(content).hexdigest().encode() + b"\n" + content)
        for path in sorted(self.directory.glob("round-*.state"))[:-GENERATIONS]:
            path.unlink(missing_ok=True)

    def load(self, round_index: int) -> State | None:
        """The state after a round; None if it is lost."""
        path = self._path(round_index)
        try:
            digest, _, content = path.read_bytes().partition(b"\n")
        except OSError as error:
            log.warning("%s: client state is lost (%s); starting again from none", path, error.strerror)
            return None
        if sha256(content).hexdigest().encode() != digest:
            log.warning("%s: client state was altered or cut short; starting again from none", path)
            return None
        try:
            tensors: State = load_tensors(content)
        except SafetensorError:
            log.warning("%s: client state cannot be read; starting again from none", path)
            return None
        return tensors

    def _path(self, round_index: int) -> Path:
        return self.directory / f"round-{round_index:07d}.state"


@dataclass(frozen=True, slots=True)
class Found:
    """What a site holds, and what one step of training on it gave.

    Attributes:
        train, test: samples.
        shape: what a model must know of them.
        loss, metrics: what is trained and judged by.
        parameters: how many the model has.
        step_loss: of the first batch, before the step.
        step_norm: how far the step went.
    """

    train: int
    test: int
    shape: Mapping[str, int]
    loss: str
    metrics: tuple[str, ...]
    parameters: int
    step_loss: float
    step_norm: float


def check_site(experiment: Experiment, client: int) -> Found:
    """Load this machine's samples as the site of ``client`` and train one step on them."""
    _check_client(client, experiment.partition.clients)
    dataset = experiment.source.load()
    problem = prepare_site(experiment, dataset, client)
    own = problem.partition.clients[client]
    batch = Partition((*problem.partition.clients[:client], own[: experiment.federation.batch_size]))
    short = replace(problem, partition=batch)
    (answer,) = SerialEngine(short).map(round_jobs(short, start(short)))
    assert not isinstance(answer, Lost), "nothing is lost in one process"
    result = answer[0]
    return Found(
        train=len(dataset.train),
        test=len(dataset.test),
        shape=dict(dataset.shape),
        loss=type(problem.loss).__name__,
        metrics=tuple(metric.name for metric in problem.metrics),
        parameters=problem.spec.size,
        step_loss=result.train_loss,
        step_norm=result.metrics["update_norm"],
    )
