"""One algorithm of what a config says: a correction and a server rule, a shorthand, or an algorithm of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard, cast

from ecgr.algorithms.protocol import Algorithm, Contribution, Correction, Plan, Population, ServerRule, Shorthand, Trace
from ecgr.algorithms.rules import Average
from ecgr.component import State, Tensor

Entry: TypeAlias = Correction | Algorithm | Shorthand
"""What may stand in ``ALGORITHMS``."""

RULE = "rule/"
"""How the server rule's tensors are told apart from the correction's, in one state."""


@dataclass(frozen=True, slots=True)
class Composed:
    """A correction on the clients, a rule on the server.

    >>> from ecgr.algorithms import FedAvg
    >>> compose(FedAvg(), Average(lr=1.5)).rule
    Average(lr=1.5)
    """

    correction: Correction
    rule: ServerRule

    @property
    def in_gradient_units(self) -> bool:
        """As the correction is."""
        return self.correction.in_gradient_units

    def init_server(self, params: Tensor) -> State:
        """Both states, under names that cannot meet."""
        return {**self.correction.init_server(params), **_prefix(self.rule.init(params))}

    def init_client(self, params: Tensor) -> State:
        """The correction's."""
        return self.correction.init_client(params)

    def broadcast(self, server: State) -> State:
        """The correction's."""
        return self.correction.broadcast(_own(server))

    def begin(self, plan: Plan, server: State, client: State) -> State:
        """The correction's."""
        return self.correction.begin(plan, server, client)

    def gradient_term(self, params: Tensor, anchor: Tensor, server: State, client: State) -> Tensor | None:
        """The correction's."""
        return self.correction.gradient_term(params, anchor, server, client)

    def direction(self, gradient: Tensor, server: State, client: State) -> Tensor | None:
        """The correction's."""
        return self.correction.direction(gradient, server, client)

    def step_term(self, server: State, client: State) -> Tensor | None:
        """The correction's."""
        return self.correction.step_term(server, client)

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """The correction's."""
        return self.correction.finish(trace, server, client)

    def served(self, params: Tensor, server: State) -> Tensor:
        """The rule's."""
        return self.rule.served(params, _of_rule(server))

    def aggregate(
        self, params: Tensor, server: State, results: Sequence[Contribution], population: Population, lr: float
    ) -> tuple[Tensor, State]:
        """The correction makes one update of the uploads, the rule a step of the update."""
        combined, own = self.correction.combine(_own(server), results, population, lr)
        params, state = self.rule.step(params, combined, _of_rule(server), lr)
        return params, {**own, **_prefix(state)}


def compose(entry: Entry, rule: ServerRule | None = None) -> Algorithm:
    """The algorithm that ``entry`` and ``rule`` make; an entry with a server step of its own has no use for a rule."""
    if isinstance(entry, Shorthand):
        return Composed(*entry.parts())
    if is_whole(entry):
        return entry
    return Composed(cast("Correction", entry), rule or Average())


def is_whole(entry: Entry) -> TypeGuard[Algorithm]:
    """Whether it takes the server's step itself."""
    return hasattr(entry, "aggregate")


def _own(server: State) -> State:
    return {name: tensor for name, tensor in server.items() if not name.startswith(RULE)}


def _of_rule(server: State) -> State:
    return {name.removeprefix(RULE): tensor for name, tensor in server.items() if name.startswith(RULE)}


def _prefix(state: State) -> State:
    return {f"{RULE}{name}": tensor for name, tensor in state.items()}
