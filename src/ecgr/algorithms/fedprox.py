"""FedProx: "Federated Optimization in Heterogeneous Networks" (Li et al., 2020)."""

from collections.abc import Mapping
from typing import ClassVar

from ecgr.algorithms.base import Defaults
from ecgr.component import NonNegative, State, Tensor, component


@component
class FedProx(Defaults):
    """A pull of strength mu towards the global model in every local gradient; mu 0 is FedAvg.

    >>> FedProx(mu=0.1)
    FedProx(mu=0.1)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"mu": (0.001, 1.0)}
    mu: NonNegative = 0.1

    def gradient_term(self, params: Tensor, anchor: Tensor, server: State, client: State) -> Tensor | None:
        """``mu (w - w_t)``, the gradient of the proximal term."""
        return self.mu * (params - anchor) if self.mu else None
