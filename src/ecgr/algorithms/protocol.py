"""The seam between the training loop and an algorithm, and the plain values that cross it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ecgr.component import State, Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One client's round, as an algorithm sees it when local training is over.

    Attributes:
        update: what would be uploaded, ``start - end``, regulated or not.
        plain: ``start - end`` of the training that really took place.
        steps: T, the number of local steps.
        lr: the learning rate of the round.
        momentum: the local optimiser's momentum, 0 where it has none.
    """

    update: Tensor
    plain: Tensor
    steps: int
    lr: float
    momentum: float


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """What the server gets from one client: who, its weight in examples, and the payload of ``finish``."""

    client: int
    examples: int
    payload: State


@dataclass(frozen=True, slots=True)
class Population:
    """Everybody who could take part, whether or not they did this round."""

    clients: int
    examples: int


class Algorithm(Protocol):
    """Local correction, upload and aggregation of one federated algorithm.

    ``params``, ``anchor`` and every update are flat vectors; ``update = start - end`` and the server subtracts.
    """

    def init_server(self, params: Tensor) -> State:
        """The server's state before the first round."""
        ...

    def init_client(self, params: Tensor) -> State:
        """A client's state before it first takes part."""
        ...

    def broadcast(self, server: State) -> State:
        """The part of the server's state that clients get with the model."""
        ...

    def gradient_term(self, params: Tensor, anchor: Tensor, server: State, client: State) -> Tensor | None:
        """Added to the gradient before the optimiser's step; None costs nothing."""
        ...

    def step_term(self, server: State, client: State) -> Tensor | None:
        """The learning rate times this is subtracted after the optimiser's step; None costs nothing."""
        ...

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """After local training: the client's new state, which stays, and the payload, which goes up."""
        ...

    def aggregate(
        self, params: Tensor, server: State, results: Sequence[Contribution], population: Population
    ) -> tuple[Tensor, State]:
        """The next global parameters and server state, from the clients that took part, in client order."""
        ...


class Defaults:
    """What an algorithm does unless it says otherwise: correct nothing, remember nothing, upload the update."""

    __slots__ = ()

    def init_server(self, params: Tensor) -> State:
        """Nothing to remember."""
        return {}

    def init_client(self, params: Tensor) -> State:
        """Nothing to remember."""
        return {}

    def broadcast(self, server: State) -> State:
        """Nothing but the model goes down."""
        return {}

    def gradient_term(self, params: Tensor, anchor: Tensor, server: State, client: State) -> Tensor | None:
        """No correction."""
        return None

    def step_term(self, server: State, client: State) -> Tensor | None:
        """No correction."""
        return None

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """Upload the update."""
        return client, {"update": trace.update}
