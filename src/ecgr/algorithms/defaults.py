"""Plain FedAvg, method by method: what an algorithm and a server rule do unless they say otherwise."""

from collections.abc import Sequence

from ecgr.algorithms.aggregation import combined
from ecgr.algorithms.protocol import Combined, Contribution, Plan, Population, Trace
from ecgr.component import State, Tensor


class Defaults:
    """What an algorithm does unless it says otherwise: correct nothing, remember nothing, average the updates."""

    __slots__ = ()

    @property
    def in_gradient_units(self) -> bool:
        """Nothing of it is."""
        return False

    def init_server(self, params: Tensor) -> State:
        """Nothing to remember."""
        return {}

    def init_client(self, params: Tensor) -> State:
        """Nothing to remember."""
        return {}

    def broadcast(self, server: State) -> State:
        """Nothing but the model goes down."""
        return {}

    def begin(self, plan: Plan, server: State, client: State) -> State:
        """As it was left."""
        return client

    def gradient_term(self, params: Tensor, anchor: Tensor, server: State, client: State) -> Tensor | None:
        """No correction."""
        return None

    def direction(self, gradient: Tensor, server: State, client: State) -> Tensor | None:
        """The gradient."""
        return None

    def step_term(self, server: State, client: State) -> Tensor | None:
        """No correction."""
        return None

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """Upload the update."""
        return client, {"update": trace.update}

    def served(self, params: Tensor, server: State) -> Tensor:
        """The parameters themselves."""
        return params

    def combine(
        self, server: State, results: Sequence[Contribution], population: Population, lr: float
    ) -> tuple[Combined, State]:
        """The mean update."""
        return combined(results), server


class RuleDefaults:
    """What a server rule does unless it says otherwise: remember nothing, hand out what clients start from."""

    __slots__ = ()

    def init(self, params: Tensor) -> State:
        """Nothing to remember."""
        return {}

    def served(self, params: Tensor, state: State) -> Tensor:
        """The parameters themselves."""
        return params
