"""SCAFFOLD: "Stochastic Controlled Averaging for Federated Learning" (Karimireddy et al., 2020), its option II."""

from collections.abc import Sequence
from typing import Literal

from ecgr.algorithms.aggregation import mean_update
from ecgr.algorithms.protocol import Contribution, Defaults, Population, Trace
from ecgr.component import State, Tensor, component, torch


@component
class Scaffold(Defaults):
    """Correct every local step by the difference of the server's and the client's control variate.

    The correction acts outside the momentum buffer, so that the control variate (mean displacement per step over the
    learning rate) and what it corrects are in the same unit; with momentum 0 this is the paper's formula. The control
    variate is taken from the training that took place, never from a regulated update.

    ``control_weights``: the server's variate moves by the clients' changes, weighted by their ``"examples"`` among the
    whole population's, or ``"uniform"``ly by 1/N as in SCAFFOLD's paper.
    """

    control_weights: Literal["examples", "uniform"] = "examples"

    def init_server(self, params: Tensor) -> State:
        """c = 0."""
        return {"control": torch.zeros_like(params)}

    def init_client(self, params: Tensor) -> State:
        """c_i = 0."""
        return {"control": torch.zeros_like(params)}

    def broadcast(self, server: State) -> State:
        """c goes down with the model."""
        return server

    def step_term(self, server: State, client: State) -> Tensor | None:
        """``c - c_i``."""
        return server["control"] - client["control"]

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """``c_i' = c_i - c + (w_t - w_T) / (T lr)``; upload its change beside the update."""
        change = trace.plain / (trace.steps * trace.lr) - server["control"]
        return {"control": client["control"] + change}, {"update": trace.update, "control_change": change}

    def aggregate(
        self, params: Tensor, server: State, results: Sequence[Contribution], population: Population
    ) -> tuple[Tensor, State]:
        """FedAvg on the model; ``c + sum p_i (c_i' - c_i)`` with shares of the whole population."""
        control = server["control"].double()
        for result in results:
            control = control + self._share(result, population) * result.payload["control_change"].double()
        return params - mean_update(results), {"control": control.to(params.dtype)}

    def _share(self, result: Contribution, population: Population) -> float:
        if self.control_weights == "uniform":
            return 1 / population.clients
        return result.examples / population.examples
