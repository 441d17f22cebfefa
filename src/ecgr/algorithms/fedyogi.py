"""FedYogi: "Adaptive Federated Optimization" (Reddi et al., 2021), algorithm 2."""

from collections.abc import Sequence

from ecgr.algorithms.aggregation import mean_update
from ecgr.algorithms.protocol import Contribution, Defaults, Population
from ecgr.component import Momentum, Positive, State, Tensor, component, torch


@component
class FedYogi(Defaults):
    """Yogi on the server: as FedAdam, but the second moment moves by the sign of its error.

    >>> FedYogi()
    FedYogi(server_lr=0.01, beta1=0.9, beta2=0.99, tau=0.001)
    """

    server_lr: Positive = 0.01
    beta1: Momentum = 0.9
    beta2: Momentum = 0.99
    tau: Positive = 1e-3

    def init_server(self, params: Tensor) -> State:
        """m = 0, v = tau^2."""
        return {"mean": torch.zeros_like(params), "square": torch.full_like(params, self.tau**2)}

    def aggregate(
        self, params: Tensor, server: State, results: Sequence[Contribution], population: Population
    ) -> tuple[Tensor, State]:
        """As FedAdam, with ``v' = v - (1 - b2) u^2 sign(v - u^2)``."""
        update = mean_update(results)
        mean = self.beta1 * server["mean"] + (1 - self.beta1) * update
        square = server["square"] - (1 - self.beta2) * update**2 * (server["square"] - update**2).sign()
        return params - self.server_lr * mean / (square.sqrt() + self.tau), {"mean": mean, "square": square}
