"""FedAvgM: "Measuring the Effects of Non-Identical Data Distribution …" (Hsu et al., 2019)."""

from collections.abc import Sequence

from ecgr.algorithms.aggregation import mean_update
from ecgr.algorithms.protocol import Contribution, Defaults, Population
from ecgr.component import Momentum, Positive, State, Tensor, component, torch


@component
class FedAvgM(Defaults):
    """FedAvg with momentum on the server.

    >>> FedAvgM()
    FedAvgM(server_lr=1.0, server_momentum=0.9)
    """

    server_lr: Positive = 1.0
    server_momentum: Momentum = 0.9

    def init_server(self, params: Tensor) -> State:
        """v = 0."""
        return {"velocity": torch.zeros_like(params)}

    def aggregate(
        self, params: Tensor, server: State, results: Sequence[Contribution], population: Population
    ) -> tuple[Tensor, State]:
        """``v' = m v + mean``, ``w - server_lr * v'``."""
        velocity = self.server_momentum * server["velocity"] + mean_update(results)
        return params - self.server_lr * velocity, {"velocity": velocity}
