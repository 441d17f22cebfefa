"""Adam and Yogi on the server: "Adaptive Federated Optimization" (Reddi et al., 2021), algorithm 2."""

from ecgr.algorithms.defaults import RuleDefaults
from ecgr.algorithms.protocol import Combined
from ecgr.component import Momentum, Positive, State, Tensor, component, torch


@component
class Adaptive(RuleDefaults):
    """A mean of the updates over the root of their second moment; a subclass says how that one moves."""

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
