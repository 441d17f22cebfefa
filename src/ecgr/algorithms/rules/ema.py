"""An exponential moving average of the global model."""

from ecgr.algorithms.protocol import Combined
from ecgr.component import Momentum, Positive, State, Tensor, component


@component
class EMA:
    """Average, and hand out the moving average of the models; decay 0 is averaging.

    Clients train from the model, not from its average: it matters without a decaying learning rate, or where few take
    part.

    >>> EMA(decay=0.5)
    EMA(lr=1.0, decay=0.5)
    """

    lr: Positive = 1.0
    decay: Momentum = 0.9

    def init(self, params: Tensor) -> State:
        """e = w."""
        return {"average": params.clone()}

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        """``w' = w - lr u``, ``e' = decay e + (1 - decay) w'``."""
        after = params - self.lr * combined.update
        return after, {"average": self.decay * state["average"] + (1 - self.decay) * after}

    def served(self, params: Tensor, state: State) -> Tensor:
        """e."""
        return state["average"]
