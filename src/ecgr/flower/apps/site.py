"""The client's side: a Flower ClientApp around the one local training loop.

It trains the client that its SuperNode stands for (``partition-id`` in the node's config) on that client's share of
the data, keeps the client's state on the site's own disk, and lets no exception's text leave the site: a message may
quote what it choked on, so the server gets a class name and a code.
"""

import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path

import platformdirs
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from ecgr._version import __version__
from ecgr.errors import ConfigError, EcgrError
from ecgr.experiment.config import Experiment, load
from ecgr.flower.apps.sitestate import SiteState
from ecgr.flower.apps.wire import NEVER, SITE, Order, reply_records
from ecgr.simulation.engines import Engine, SerialEngine
from ecgr.simulation.engines.pool import Lost
from ecgr.simulation.prepare import prepare
from ecgr.simulation.workspace import Problem

ERROR_BASE = 100
"""Our codes in a Flower error: this plus the exit code that the error has on the command line."""

log = logging.getLogger("ecgr.flower")

Handler = Callable[[Message, Context], Message]


def client_app(experiment: Experiment | str | Path, *, device: str = "cpu") -> ClientApp:
    """A ClientApp that trains one client of ``experiment``.

    The node's config gives ``partition-id``, the client it stands for, and may give ``state-dir``, where its state is
    kept; by default that is ``$ECGR_STATE``, or this user's state directory.

    >>> app = client_app("quickstart")
    """

    def prepared() -> Problem:
        chosen = experiment if isinstance(experiment, Experiment) else load(experiment)
        return prepare(chosen, chosen.source.load(), device)

    return app_for(prepared)


def app_for(prepared: Callable[[], Problem]) -> ClientApp:
    """A ClientApp for a problem that is prepared at the first message, where a failure can be kept at the site."""
    app, problem = ClientApp(), functools.cache(prepared)
    engine = functools.cache(lambda: SerialEngine(problem()))

    @app.query()
    @_discreet
    def enrol(message: Message, context: Context) -> Message:
        """Say which client this is and how many samples it holds."""
        client = _client_of(context, problem())
        examples = problem().partition.sizes()[client]
        site = ConfigRecord({"client": client, "examples": examples, "ecgr": __version__})
        return Message(RecordDict({SITE: site}), reply_to=message)

    @app.train()
    @_discreet
    def train(message: Message, context: Context) -> Message:
        """One round."""
        order = Order.from_records(message.content)
        if order.client != _client_of(context, problem()):
            raise ConfigError(f"partition-id: asked for client {order.client}, this node stands for another")
        return Message(answer(problem(), engine(), order, state_root(context)), reply_to=message)

    return app


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


def state_root(context: Context) -> Path:
    """Where this site keeps its clients' states."""
    given = context.node_config.get("state-dir") or os.environ.get("ECGR_STATE")
    return Path(str(given)) if given else platformdirs.user_state_path("ecgr") / "flower"


def _client_of(context: Context, problem: Problem) -> int:
    client, clients = context.node_config.get("partition-id"), len(problem.partition)
    if type(client) is not int or not 0 <= client < clients:
        raise ConfigError(
            f"partition-id: {client!r} does not fit; start the SuperNode with --node-config partition-id=N,"
            f" N from 0 to {clients - 1}"
        )
    return client


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
