"""FedNova: "Tackling the Objective Inconsistency Problem in Heterogeneous Federated …" (Wang et al., 2020)."""

from collections.abc import Sequence
from typing import Literal

from ecgr.algorithms.base import Combined, Defaults, Population, Trace, Upload, combined
from ecgr.component import State, component, torch


@component
class FedNova(Defaults):
    """Divide each update by its number of steps a_i, average, multiply by the mean a_i.

    ``normalizer = "momentum"`` is FedNova's own norm for momentum SGD, the total weight with which the T gradients
    enter the update; ``"steps"`` counts local steps (a_i = T). With equal a_i this is FedAvg.
    """

    normalizer: Literal["steps", "momentum"] = "momentum"

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """Upload the normalised update and a_i."""
        a = float(trace.steps) if self.normalizer == "steps" else trace.effective_steps
        return client, {"update": trace.update / a, "effective_steps": torch.tensor(a, dtype=torch.float64)}

    def combine(
        self, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Combined, State]:
        """``(sum p_i a_i) (sum p_i update_i / a_i)``, p_i the shares among those who took part."""
        examples = sum(r.examples for r in results)
        effective = sum(r.examples / examples * float(r.payload["effective_steps"]) for r in results)
        return combined(results, effective), server
