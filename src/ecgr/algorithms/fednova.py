"""FedNova: "Tackling the Objective Inconsistency Problem in Heterogeneous Federated …" (Wang et al., 2020)."""

from collections.abc import Sequence
from typing import Literal

from ecgr.algorithms.aggregation import mean_update
from ecgr.algorithms.protocol import Contribution, Defaults, Population, Trace
from ecgr.component import State, Tensor, component, torch


@component
class FedNova(Defaults):
    """Divide each update by its number of steps a_i, average, multiply by the mean a_i.

    ``normalizer = "steps"`` counts local steps (a_i = T); ``"momentum"`` is FedNova's own norm for momentum SGD, the
    total weight with which the T gradients enter the update. With equal a_i this is FedAvg.

    >>> FedNova(normalizer="momentum").effective_steps(2, momentum=0.5)
    2.5
    """

    normalizer: Literal["steps", "momentum"] = "steps"

    def effective_steps(self, steps: int, momentum: float) -> float:
        """a_i. With momentum m, gradient j of T enters the update ``1 + m + … + m^(T-j)`` times."""
        if self.normalizer == "steps":
            return float(steps)
        return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """Upload the normalised update and a_i."""
        a = self.effective_steps(trace.steps, trace.momentum)
        return client, {"update": trace.update / a, "effective_steps": torch.tensor(a, dtype=torch.float64)}

    def aggregate(
        self, params: Tensor, server: State, results: Sequence[Contribution], population: Population
    ) -> tuple[Tensor, State]:
        """``w - (sum p_i a_i) (sum p_i update_i / a_i)``, p_i the shares among those who took part."""
        examples = sum(r.examples for r in results)
        effective = sum(r.examples / examples * float(r.payload["effective_steps"]) for r in results)
        return params - effective * mean_update(results), server
