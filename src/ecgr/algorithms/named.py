"""One algorithm from what a config says: a correction and a server rule, an algorithm of its own, or a paper's name.

FedAvgM: "Measuring the Effects of Non-Identical Data Distribution …" (Hsu et al., 2019). FedAdam and FedYogi:
"Adaptive Federated Optimization" (Reddi et al., 2021). FedACG: "Communication-Efficient Federated Learning with
Accelerated Client Gradient" (Kim et al., 2024). FedExP: "Speeding Up Federated Averaging via Extrapolation"
(Jhunjhunwala et al., 2023). `DriftCorrection` is this package's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, TypeGuard, cast

from ecgr.algorithms.base import (
    Algorithm,
    Correction,
    Plan,
    Population,
    ServerRule,
    Shorthand,
    Trace,
    Upload,
    inside,
    outside,
    prefixed,
)
from ecgr.algorithms.corrections import FedAvg, FedProx, Scaffold
from ecgr.algorithms.server_rules import Adam, Average, Extrapolation, HeavyBall, Lookahead, Yogi
from ecgr.component import Fraction, Momentum, NonNegative, Positive, State, Tensor, component

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
        return self.correction.in_gradient_units

    def init_server(self, params: Tensor) -> State:
        """Both states, under names that cannot meet."""
        return {**self.correction.init_server(params), **prefixed(RULE, self.rule.init(params))}

    def init_client(self, params: Tensor) -> State:
        return self.correction.init_client(params)

    def broadcast(self, server: State) -> State:
        return self.correction.broadcast(outside(RULE, server))

    def begin(self, plan: Plan, server: State, client: State) -> State:
        return self.correction.begin(plan, server, client)

    def gradient_term(self, params: Tensor, anchor: Tensor, server: State, client: State) -> Tensor | None:
        return self.correction.gradient_term(params, anchor, server, client)

    def direction(self, gradient: Tensor, server: State, client: State) -> Tensor | None:
        return self.correction.direction(gradient, server, client)

    def step_term(self, server: State, client: State) -> Tensor | None:
        return self.correction.step_term(server, client)

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        return self.correction.finish(trace, server, client)

    def served(self, params: Tensor, server: State) -> Tensor:
        return self.rule.served(params, inside(RULE, server))

    def aggregate(
        self, params: Tensor, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Tensor, State]:
        """The correction makes one update of the uploads, the rule a step of the update."""
        combined, own = self.correction.combine(outside(RULE, server), results, population, lr)
        params, state = self.rule.step(params, combined, inside(RULE, server), lr)
        return params, {**own, **prefixed(RULE, state)}


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


@component
class FedAvgM:
    """``fedavg/momentum``: FedAvg with momentum on the server.

    >>> FedAvgM()
    FedAvgM(server_lr=1.0, server_momentum=0.9)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"server_momentum": (0.3, 0.95)}
    server_lr: Positive = 1.0
    server_momentum: Momentum = 0.9

    def parts(self) -> tuple[Correction, ServerRule]:
        return FedAvg(), HeavyBall(lr=self.server_lr, momentum=self.server_momentum)


@component
class AdaptiveServer:
    """FedAvg with one of the adaptive rules on the server."""

    rule: ClassVar[type[Adam] | type[Yogi]] = Adam
    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"server_lr": (0.001, 0.1)}
    server_lr: Positive = 0.01
    beta1: Momentum = 0.9
    beta2: Momentum = 0.99
    tau: Positive = 1e-3

    def parts(self) -> tuple[Correction, ServerRule]:
        return FedAvg(), self.rule(lr=self.server_lr, beta1=self.beta1, beta2=self.beta2, tau=self.tau)


@component
class FedAdam(AdaptiveServer):
    """``fedavg/adam``: Adam on the server, without bias correction, as in its paper.

    >>> FedAdam(server_lr=0.1)
    FedAdam(server_lr=0.1, beta1=0.9, beta2=0.99, tau=0.001)
    """


@component
class FedYogi(AdaptiveServer):
    """``fedavg/yogi``: as FedAdam, but the second moment moves by the sign of its error.

    >>> FedYogi()
    FedYogi(server_lr=0.01, beta1=0.9, beta2=0.99, tau=0.001)
    """

    rule: ClassVar[type[Adam] | type[Yogi]] = Yogi


@component
class FedACG:
    """``fedprox/lookahead``: clients start where the server's momentum will lead, with a weak pull to that point.

    >>> FedACG(momentum=0.7)
    FedACG(momentum=0.7, mu=0.002, server_lr=1.0)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"momentum": (0.3, 0.95)}
    momentum: Momentum = 0.85
    mu: NonNegative = 0.002
    server_lr: Positive = 1.0

    def parts(self) -> tuple[Correction, ServerRule]:
        return FedProx(mu=self.mu), Lookahead(lr=self.server_lr, momentum=self.momentum)


@component
class FedExP:
    """``fedavg/exp``: the server's step is lengthened where the clients' updates are long beside their mean.

    >>> FedExP()
    FedExP(epsilon=0.001, server_lr=1.0)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"epsilon": (1e-4, 1e-1)}
    epsilon: Positive = 1e-3
    server_lr: Positive = 1.0

    def parts(self) -> tuple[Correction, ServerRule]:
        return FedAvg(), Extrapolation(lr=self.server_lr, epsilon=self.epsilon)


@component
class DriftCorrection:
    """``scaffold(units=gradient)/lookahead``: damped control variates and a momentum that looks ahead.

    >>> DriftCorrection()
    DriftCorrection(damping=0.5, momentum=0.7, server_lr=1.0)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"damping": (0.2, 1.0)}
    damping: Fraction = 0.5
    momentum: Momentum = 0.7
    server_lr: Positive = 1.0

    def parts(self) -> tuple[Correction, ServerRule]:
        rule = Lookahead(lr=self.server_lr, momentum=self.momentum)
        return Scaffold(units="gradient", damping=self.damping), rule
