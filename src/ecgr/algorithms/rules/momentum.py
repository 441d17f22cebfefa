"""Server momentum: "Measuring the Effects of Non-Identical Data Distribution …" (Hsu et al., 2019)."""

from ecgr.algorithms.defaults import RuleDefaults
from ecgr.algorithms.protocol import Combined
from ecgr.component import Momentum, Positive, State, Tensor, component, torch


@component
class HeavyBall(RuleDefaults):
    """Momentum on the server; momentum 0 is averaging.

    In the long run the path is ``1 / (1 - momentum)`` times as long. ``normalised`` weighs the new update by
    ``1 - momentum``, which leaves the length: the control for whether momentum helped by direction.

    >>> HeavyBall(momentum=0.5)
    HeavyBall(lr=1.0, momentum=0.5, normalised=False)
    """

    lr: Positive = 1.0
    momentum: Momentum = 0.9
    normalised: bool = False

    def init(self, params: Tensor) -> State:
        """v = 0."""
        return {"velocity": torch.zeros_like(params)}

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        """``v' = m v + u`` (or ``m v + (1 - m) u``), ``w - lr v'``."""
        fresh = (1 - self.momentum) * combined.update if self.normalised else combined.update
        velocity = self.momentum * state["velocity"] + fresh
        return params - self.lr * velocity, {"velocity": velocity}
