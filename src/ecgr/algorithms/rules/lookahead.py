"""Lookahead: "Communication-Efficient Federated Learning with Accelerated Client Gradient" (Kim et al., 2024)."""

from ecgr.algorithms.protocol import Combined
from ecgr.component import Momentum, Positive, State, Tensor, component, torch


@component
class Lookahead:
    """Clients start where the server's momentum would lead; momentum 0 is averaging.

    ``params`` is that point, y = w - m v; the model that is handed out is w. Nothing more goes up or down than under
    FedAvg. The pull to y that the paper adds is FedProx's: `FedACG` is both. Its official code moves BatchNorm's
    buffers ahead as well; here they are averaged, as everywhere.

    >>> Lookahead()
    Lookahead(lr=1.0, momentum=0.85)
    """

    lr: Positive = 1.0
    momentum: Momentum = 0.85

    def init(self, params: Tensor) -> State:
        """v = 0."""
        return {"velocity": torch.zeros_like(params)}

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        """``v' = m v + lr u``, ``w' = y - lr u``, ``y' = w' - m v'``."""
        update = self.lr * combined.update
        velocity = self.momentum * state["velocity"] + update
        return params - update - self.momentum * velocity, {"velocity": velocity}

    def served(self, params: Tensor, state: State) -> Tensor:
        """``w = y + m v``."""
        return params + self.momentum * state["velocity"]
