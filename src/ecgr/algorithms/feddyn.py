"""FedDyn: "Federated Learning Based on Dynamic Regularization" (Acar et al., 2021), without a dimension."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecgr.algorithms.base import Defaults, Plan, Population, Trace, Upload, mean_update
from ecgr.component import NonNegative, State, Tensor, component, torch
from ecgr.core.vectors import weighted_mean


@component
class FedDyn(Defaults):
    """Pull every client towards the global model, shifted by all that it was pulled away before; rel 0 is FedAvg.

    The pull is ``rel / (lr a_i)`` with the effective steps a_i, not the constant that its paper prints: under a
    decaying learning rate that turns into momentum near 1. Duals are kept in units of the learning rate, so that they
    follow it. The server takes a step of its own (the mean update and the mean dual) and serves the mean of the
    clients' models, as the official code does; there a client's pull is divided by its share of the examples, here it
    counts with n_i / a_i: both make the fixed point that of the example-weighted objective.
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"rel": (0.05, 2.0)}
    rel: NonNegative = 0.4

    @property
    def in_gradient_units(self) -> bool:
        return self.rel > 0

    def init_server(self, params: Tensor) -> State:
        return {"dual": torch.zeros_like(params), "lr": torch.zeros((), dtype=torch.float64)} if self.rel else {}

    def init_client(self, params: Tensor) -> State:
        return {"dual": torch.zeros_like(params)} if self.rel else {}

    def begin(self, plan: Plan, server: State, client: State) -> State:
        """The round's learning rate and pull beside the dual."""
        if not self.rel:
            return client
        pull = self.rel / (plan.lr * plan.effective_steps)
        scalars = {"lr": plan.lr, "pull": pull}
        return {**client, **{name: torch.tensor(value, dtype=torch.float64) for name, value in scalars.items()}}

    def gradient_term(self, params: Tensor, anchor: Tensor, server: State, client: State) -> Tensor | None:
        """``pull (w - w_t - lr H_i)``."""
        return client["pull"] * (params - anchor - client["lr"] * client["dual"]) if self.rel else None

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """``H_i + update / lr``, from the training that took place; upload the update and a_i."""
        if not self.rel:
            return client, {"update": trace.update}
        payload = {
            "update": trace.update,
            "effective_steps": torch.tensor(trace.effective_steps, dtype=torch.float64),
            **({"plain": trace.plain} if trace.regulated else {}),
        }
        return {"dual": client["dual"] + trace.plain / trace.lr}, payload

    def served(self, params: Tensor, server: State) -> Tensor:
        """The mean of the clients' models: the parameters without the dual's part of the step."""
        return params + server["lr"] * server["dual"] if self.rel else params

    def aggregate(
        self, params: Tensor, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Tensor, State]:
        """``H + |S|/N mean / lr``, ``w - mean - lr H'``, means by n_i / a_i."""
        if not self.rel:
            return params - mean_update(results), server
        weights = [r.examples / float(r.payload["effective_steps"]) for r in results]
        mean = weighted_mean([r.payload["update"] for r in results], weights)
        plain = weighted_mean([r.payload.get("plain", r.payload["update"]) for r in results], weights)
        dual = server["dual"] + (len(results) / population.clients / lr) * plain
        return params - mean - lr * dual, {"dual": dual, "lr": torch.tensor(lr, dtype=torch.float64)}
