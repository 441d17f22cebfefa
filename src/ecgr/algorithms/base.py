"""The seams between the training loop, an algorithm and a server rule, and the plain values that cross them.

An entry of ``ALGORITHMS`` is one of three. A `Correction` changes what clients do and leaves the server's step to a
`ServerRule`: any two compose. An `Algorithm` of its own takes that step itself (``aggregate``). A `Shorthand` names a
composition. The training loop knows algorithms alone: `compose` makes one of whatever a config says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ecgr.component import State, Tensor, torch
from ecgr.core.vectors import weighted_mean


@dataclass(frozen=True, slots=True)
class Plan:
    """A client's round before it is trained: its number of steps, its learning rate, its optimiser's momentum."""

    steps: int
    lr: float
    momentum: float

    @property
    def effective_steps(self) -> float:
        """a, the total weight of the gradients in the update: with momentum m, gradient j of T counts
        ``1 + m + … + m^(T-j)`` times.

        >>> Plan(steps=2, lr=0.1, momentum=0.5).effective_steps
        2.5
        """
        steps, momentum = self.steps, self.momentum
        return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One client's round, as an algorithm sees it when local training is over.

    Attributes:
        update: what would be uploaded, ``start - end``, regulated or not.
        plain: ``start - end`` of the training that really took place.
        steps: T, the number of local steps.
        lr: the learning rate of the round.
        momentum: the local optimiser's momentum, 0 where it has none.
        regulated: whether a regulator made the update, so that the server cannot know ``plain`` from it.
    """

    update: Tensor
    plain: Tensor
    steps: int
    lr: float
    momentum: float
    regulated: bool = False

    @property
    def effective_steps(self) -> float:
        """a, the total weight of the gradients in the plain update."""
        return Plan(self.steps, self.lr, self.momentum).effective_steps


@dataclass(frozen=True, slots=True, eq=False)
class Upload:
    """What one client sends: made when its training is over, and the same until the server aggregates it.

    Attributes:
        client: whose it is.
        examples: its weight.
        payload: what the algorithm's ``finish`` made.
        buffers: the model's buffers after training.
        steps: T, the number of local steps.
        train_loss: mean over the samples that it saw.
        seconds: wall clock.
        kept: the steps that the regulator kept.
        metrics: numbers for the record.
        store: where the steps were held, if ``run.store = "auto"`` left that open.
    """

    client: int
    examples: int
    payload: State
    buffers: State = field(default_factory=dict)
    steps: int = 0
    train_loss: float = 0.0
    seconds: float = 0.0
    kept: tuple[int, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    store: str | None = None


@dataclass(frozen=True, slots=True)
class Population:
    """Everybody who could take part, whether or not they did this round."""

    clients: int
    examples: int


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """What a round's uploads come to.

    Attributes:
        update: the vector that a server rule steps by: ``scale`` times the mean of ``parts`` by ``shares``.
        parts: the clients' vectors.
        shares: their weights, which sum to one.
        scale: one, but where an algorithm stretches the mean.
    """

    update: Tensor
    parts: Sequence[Tensor]
    shares: Sequence[float]
    scale: float = 1.0

    def mean_norm(self, power: int = 1) -> float:
        """The mean of the parts' lengths, or of a power of them."""
        norms = [float(torch.linalg.vector_norm(part, dtype=torch.float64)) for part in self.parts]
        return sum(share * (self.scale * norm) ** power for share, norm in zip(self.shares, norms, strict=True))


class Local(Protocol):
    """What an algorithm does on the clients, and what it keeps; unless it says otherwise, nothing.

    ``params``, ``anchor`` and every update are flat vectors; ``update = start - end`` and the server subtracts.
    """

    __slots__ = ()

    @property
    def in_gradient_units(self) -> bool:
        """Whether it takes a displacement over lr times the effective steps for a gradient, which SGD's alone is."""
        return False

    def init_server(self, params: Tensor) -> State:
        """The server's state before the first round."""
        return {}

    def init_client(self, params: Tensor) -> State:
        """A client's state before it first takes part."""
        return {}

    def broadcast(self, server: State) -> State:
        """The part of the server's state that clients get with the model."""
        return {}

    def begin(self, plan: Plan, server: State, client: State) -> State:
        """The client's state as the methods below see it in a round of which ``plan`` is known."""
        return client

    def gradient_term(self, params: Tensor, anchor: Tensor, server: State, client: State) -> Tensor | None:
        """Added to the gradient before the optimiser's step; None costs nothing."""
        return None

    def direction(self, gradient: Tensor, server: State, client: State) -> Tensor | None:
        """Takes the place of the gradient; None leaves it, and costs nothing."""
        return None

    def step_term(self, server: State, client: State) -> Tensor | None:
        """The learning rate times this is subtracted after the optimiser's step; None costs nothing."""
        return None

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """After local training: the client's new state, which stays, and the payload, which goes up."""
        return client, {"update": trace.update}


class Algorithm(Local, Protocol):
    """Everything that makes a round: local correction, upload, the server's step."""

    __slots__ = ()

    def served(self, params: Tensor, server: State) -> Tensor:
        """The model that is evaluated and handed out; clients start from ``params``."""
        return params

    def aggregate(
        self, params: Tensor, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Tensor, State]:
        """The next global parameters and server state, from the clients that took part, in client order."""
        ...


class Correction(Local, Protocol):
    """A local correction, whose uploads come to one update that any server rule can step by."""

    __slots__ = ()

    def combine(
        self, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Combined, State]:
        """The round's update and the next server state, from the clients that took part, in client order."""
        return combined(results), server


class ServerRule(Protocol):
    """How the server steps by the round's update. Buffers are not its business: they are averaged, never stepped."""

    __slots__ = ()

    def init(self, params: Tensor) -> State:
        """Its state before the first round."""
        return {}

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        """The parameters from which the next round starts, and the next state."""
        ...

    def served(self, params: Tensor, state: State) -> Tensor:
        """The model that is evaluated and handed out; what clients start from, unless it says otherwise."""
        return params


@runtime_checkable
class Shorthand(Protocol):
    """A name for a composition, with the parameters that its paper gives it."""

    def parts(self) -> tuple[Correction, ServerRule]:
        """What it stands for."""
        ...


def corrector(
    algorithm: Local, anchor: Tensor, server: State, client: State
) -> Callable[[Tensor, Tensor], None] | None:
    """What an algorithm makes of a flat gradient, in place, at some flat parameters; None where it leaves gradients."""
    replaces = algorithm.direction(torch.zeros_like(anchor), server, client) is not None
    adds = algorithm.gradient_term(anchor, anchor, server, client) is not None

    def correct(gradient: Tensor, params: Tensor) -> None:
        if replaces and (found := algorithm.direction(gradient, server, client)) is not None:
            gradient.copy_(found)
        if adds and (found := algorithm.gradient_term(params, anchor, server, client)) is not None:
            gradient.add_(found)

    return correct if replaces or adds else None


# Named tensors; two states in one, the second under a prefix


def prefixed(prefix: str, state: State) -> dict[str, Tensor]:
    """A state as a part of another one."""
    return {prefix + name: tensor for name, tensor in state.items()}


def inside(prefix: str, state: State) -> dict[str, Tensor]:
    """The part of a state under a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def outside(prefix: str, state: State) -> dict[str, Tensor]:
    """A state without the part under a prefix."""
    return {name: tensor for name, tensor in state.items() if not name.startswith(prefix)}


def scalar(value: float) -> Tensor:
    """A number among named tensors, in float64."""
    return torch.tensor(value, dtype=torch.float64)


# What uploads come to


def mean_update(results: Sequence[Upload]) -> Tensor:
    """The clients' updates, weighted by their examples among those who took part."""
    return weighted_mean([r.payload["update"] for r in results], [r.examples for r in results])


def combined(results: Sequence[Upload], scale: float = 1.0) -> Combined:
    """Their mean, times ``scale``."""
    examples = sum(r.examples for r in results)
    shares = [r.examples / examples for r in results]
    return Combined(scale * mean_update(results), [r.payload["update"] for r in results], shares, scale)


class Defaults(Correction):
    """What an algorithm does unless it says otherwise: correct nothing, remember nothing, average the updates."""

    __slots__ = ()

    def served(self, params: Tensor, server: State) -> Tensor:
        return params


RuleDefaults = ServerRule
"""A name for what a server rule of one's own inherits."""
