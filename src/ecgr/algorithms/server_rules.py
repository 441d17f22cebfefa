"""Server rules: how the round's update becomes the next model. Any of them goes with any local correction.

A rule is a frozen dataclass, its own configuration. Its neutral value is plain averaging, to the bit. What it hands out
(``served``) need not be where clients start; buffers it never sees.

- averaging: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al., 2017)
- momentum: "Measuring the Effects of Non-Identical Data Distribution …" (Hsu et al., 2019)
- Adam, Yogi: "Adaptive Federated Optimization" (Reddi et al., 2021), algorithm 2
- lookahead: "Communication-Efficient Federated Learning with Accelerated Client Gradient" (Kim et al., 2024)
- FedExP: "Speeding Up Federated Averaging via Extrapolation" (Jhunjhunwala et al., 2023)
- norms: "Federated Learning with Manifold Regularization and Normalized Update Reaggregation" (An et al., 2023)
"""

from collections.abc import Mapping
from math import isfinite
from typing import ClassVar

from ecgr.algorithms.base import Combined, ServerRule, scalar
from ecgr.component import Momentum, Positive, State, Tensor, component, torch
from ecgr.tables import Table


@component
class Average(ServerRule):
    """Step by lr times the mean update.

    >>> Average(lr=1.5)
    Average(lr=1.5)
    """

    lr: Positive = 1.0

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        return params - self.lr * combined.update, state


@component
class HeavyBall(ServerRule):
    """Momentum on the server; momentum 0 is averaging.

    In the long run steps are ``1 / (1 - momentum)`` times as long. ``normalised`` weighs the new update by
    ``1 - momentum``, which leaves their length: the control for whether momentum does more than lengthen them.

    >>> HeavyBall(momentum=0.5)
    HeavyBall(lr=1.0, momentum=0.5, normalised=False)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"momentum": (0.3, 0.95)}
    lr: Positive = 1.0
    momentum: Momentum = 0.9
    normalised: bool = False

    def init(self, params: Tensor) -> State:
        return {"velocity": torch.zeros_like(params)}

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        """``v' = m v + u`` (or ``m v + (1 - m) u``), ``w - lr v'``."""
        fresh = (1 - self.momentum) * combined.update if self.normalised else combined.update
        velocity = self.momentum * state["velocity"] + fresh
        return params - self.lr * velocity, {"velocity": velocity}


@component
class Adaptive(ServerRule):
    """A mean of the updates over the root of their second moment; a subclass says how that one moves."""

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"lr": (0.001, 0.1)}
    lr: Positive = 0.01
    beta1: Momentum = 0.9
    beta2: Momentum = 0.99
    tau: Positive = 1e-3

    def init(self, params: Tensor) -> State:
        """m = 0, v = tau^2."""
        return {"mean": torch.zeros_like(params), "square": torch.full_like(params, self.tau**2)}

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        """``m' = b1 m + (1 - b1) u``, ``w - lr m' / (sqrt(v') + tau)``."""
        mean = self.beta1 * state["mean"] + (1 - self.beta1) * combined.update
        square = self.next_square(state["square"], combined.update**2)
        return params - self.lr * mean / (square.sqrt() + self.tau), {"mean": mean, "square": square}

    def next_square(self, square: Tensor, fresh: Tensor) -> Tensor:
        """``v'`` from v and u^2."""
        raise NotImplementedError


@component
class Adam(Adaptive):
    """Adam on the server, without bias correction, as in its paper.

    >>> Adam(lr=0.1)
    Adam(lr=0.1, beta1=0.9, beta2=0.99, tau=0.001)
    """

    def next_square(self, square: Tensor, fresh: Tensor) -> Tensor:
        """``v' = b2 v + (1 - b2) u^2``."""
        return self.beta2 * square + (1 - self.beta2) * fresh


@component
class Yogi(Adaptive):
    """As Adam, but the second moment moves by the sign of its error.

    >>> Yogi()
    Yogi(lr=0.01, beta1=0.9, beta2=0.99, tau=0.001)
    """

    def next_square(self, square: Tensor, fresh: Tensor) -> Tensor:
        """``v' = v - (1 - b2) u^2 sign(v - u^2)``."""
        return square - (1 - self.beta2) * fresh * (square - fresh).sign()


@component
class Lookahead:
    """Clients start where the server's momentum would lead; momentum 0 is averaging.

    ``params`` is that point, y = w - m v; the model that is handed out is w. Nothing more goes up or down than under
    FedAvg. The pull to y that the paper adds is FedProx's: `FedACG` is both. Its official code moves BatchNorm's
    buffers ahead as well; here they are averaged, as everywhere.

    >>> Lookahead()
    Lookahead(lr=1.0, momentum=0.85)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"momentum": (0.3, 0.95)}
    lr: Positive = 1.0
    momentum: Momentum = 0.85

    def init(self, params: Tensor) -> State:
        return {"velocity": torch.zeros_like(params)}

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        """``v' = m v + lr u``, ``w' = y - lr u``, ``y' = w' - m v'``."""
        update = self.lr * combined.update
        velocity = self.momentum * state["velocity"] + update
        return params - update - self.momentum * velocity, {"velocity": velocity}

    def served(self, params: Tensor, state: State) -> Tensor:
        """``w = y + m v``."""
        return params + self.momentum * state["velocity"]


@component
class Extrapolation:
    """Lengthen the step where the clients' updates are long beside their mean, and hand out the last two's mean.

    ``epsilon`` is for the first round's learning rate and follows its square: a constant would switch the rule off as
    the learning rate decays. It is added once, as the paper prints; the official code adds it once a client. With a
    huge epsilon and ``average = false`` this is averaging.

    >>> Extrapolation()
    Extrapolation(lr=1.0, epsilon=0.001, average=True)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"epsilon": (1e-4, 1e-1)}
    lr: Positive = 1.0
    epsilon: Positive = 1e-3
    average: bool = True

    def init(self, params: Tensor) -> State:
        """No learning rate yet; the last iterate is the first."""
        return {"first_lr": scalar(0.0), "previous": params.clone()}

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        """``s = max(1, sum p_i |u_i|^2 / (2 (|u|^2 + eps)))``, ``w - lr s u``."""
        first = float(state["first_lr"]) or lr
        epsilon = self.epsilon * (lr / first) ** 2
        square = float(torch.linalg.vector_norm(combined.update, dtype=torch.float64)) ** 2
        ratio = combined.mean_norm(power=2) / (2 * (square + epsilon))
        stretch = max(1.0, ratio) if isfinite(ratio) else 1.0
        after = params - (self.lr * stretch) * combined.update
        return after, {"first_lr": scalar(first), "previous": params}

    def served(self, params: Tensor, state: State) -> Tensor:
        """The mean of the last two iterates."""
        return (params + state["previous"]) / 2 if self.average else params


@component
class NormUnion(ServerRule):
    """Step in the direction of the mean update, as far as the clients' updates are long on average.

    Where clients disagree, their mean is shorter than any of them; this gives the step their length back.

    >>> NormUnion()
    NormUnion(lr=1.0)
    """

    lr: Positive = 1.0

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        """``w - lr u (sum p_i |u_i|) / |u|``."""
        length = float(torch.linalg.vector_norm(combined.update, dtype=torch.float64))
        stretch = combined.mean_norm() / length if length else 1.0
        return params - (self.lr * stretch) * combined.update, state


SERVER_RULES: Table[ServerRule] = Table(
    "server rule",
    "server_rules",
    {
        "average": Average,
        "momentum": HeavyBall,
        "adam": Adam,
        "yogi": Yogi,
        "lookahead": Lookahead,
        "exp": Extrapolation,
        "nur": NormUnion,
    },
)
