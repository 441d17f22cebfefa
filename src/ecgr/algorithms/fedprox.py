"""FedProx: "Federated Optimization in Heterogeneous Networks" (Li et al., 2020)."""

from collections.abc import Sequence

from ecgr.algorithms.aggregation import mean_update
from ecgr.algorithms.protocol import Contribution, Defaults, Population
from ecgr.component import NonNegative, State, Tensor, component


@component
class FedProx(Defaults):
    """FedAvg with a pull of strength mu towards the global model in every local gradient.

    >>> FedProx(mu=0.1)
    FedProx(mu=0.1)
    """

    mu: NonNegative = 0.1

    def gradient_term(self, params: Tensor, anchor: Tensor, server: State, client: State) -> Tensor | None:
        """``mu (w - w_t)``, the gradient of the proximal term."""
        return self.mu * (params - anchor) if self.mu else None

    def aggregate(
        self, params: Tensor, server: State, results: Sequence[Contribution], population: Population
    ) -> tuple[Tensor, State]:
        """As FedAvg."""
        return params - mean_update(results), server
