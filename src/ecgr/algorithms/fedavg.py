"""FedAvg: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al., 2017)."""

from collections.abc import Sequence

from ecgr.algorithms.aggregation import mean_update
from ecgr.algorithms.protocol import Contribution, Defaults, Population
from ecgr.component import Positive, State, Tensor, component


@component
class FedAvg(Defaults):
    """Average the clients' updates by their examples, step by server_lr times the mean.

    >>> FedAvg(server_lr=1.05)
    FedAvg(server_lr=1.05)
    """

    server_lr: Positive = 1.0

    def aggregate(
        self, params: Tensor, server: State, results: Sequence[Contribution], population: Population
    ) -> tuple[Tensor, State]:
        """``w - server_lr * mean``."""
        return params - self.server_lr * mean_update(results), server
