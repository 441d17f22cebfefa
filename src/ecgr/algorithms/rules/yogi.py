"""Yogi on the server: "Adaptive Federated Optimization" (Reddi et al., 2021), algorithm 2."""

from ecgr.algorithms.defaults import RuleDefaults
from ecgr.algorithms.protocol import Combined
from ecgr.component import Momentum, Positive, State, Tensor, component, torch


@component
class Yogi(RuleDefaults):
    """As Adam, but the second moment moves by the sign of its error.

    >>> Yogi()
    Yogi(lr=0.01, beta1=0.9, beta2=0.99, tau=0.001)
    """

    lr: Positive = 0.01
    beta1: Momentum = 0.9
    beta2: Momentum = 0.99
    tau: Positive = 1e-3

    def init(self, params: Tensor) -> State:
        """m = 0, v = tau^2."""
        return {"mean": torch.zeros_like(params), "square": torch.full_like(params, self.tau**2)}

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        """As Adam, with ``v' = v - (1 - b2) u^2 sign(v - u^2)``."""
        update = combined.update
        mean = self.beta1 * state["mean"] + (1 - self.beta1) * update
        square = state["square"] - (1 - self.beta2) * update**2 * (state["square"] - update**2).sign()
        return params - self.lr * mean / (square.sqrt() + self.tau), {"mean": mean, "square": square}
