"""Local corrections that take a line or two each; the longer ones have files of their own.

- FedAvg: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al., 2017)
- FedProx: "Federated Optimization in Heterogeneous Networks" (Li et al., 2020)
- FedNova: "Tackling the Objective Inconsistency Problem in Heterogeneous Federated …" (Wang et al., 2020)
- FedCM: "Federated Learning with Client-level Momentum" (Xu et al., 2021), in the units of a gradient
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from ecgr.algorithms.base import Combined, Defaults, Population, Trace, Upload, combined
from ecgr.component import NonNegative, Positive, PositiveFraction, State, Tensor, component, torch


@component
class FedAvg(Defaults):
    """No correction: average the clients' updates by their examples.

    ``server_lr`` is the older way to say ``server.lr``.

    >>> FedAvg(server_lr=1.05)
    FedAvg(server_lr=1.05)
    """

    server_lr: Positive = 1.0

    def combine(
        self, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Combined, State]:
        """``server_lr`` times the mean update."""
        return combined(results, self.server_lr), server


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


@component
class FedCM(Defaults):
    """Every local gradient becomes ``alpha g + (1 - alpha) D``, D the last round's mean gradient; alpha 1 is FedAvg.

    Two repairs of what its paper prints. D is the mean update over lr times the *effective* steps: over lr times the
    steps, local momentum 0.9 would make it up to ten gradients long, and the loop diverges. And the first round, which
    has no D, trains on the whole gradient, not on alpha times it.
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"alpha": (0.05, 1.0)}
    alpha: PositiveFraction = 0.5

    @property
    def in_gradient_units(self) -> bool:
        return True

    def broadcast(self, server: State) -> State:
        """D goes down with the model, once there is one."""
        return server

    def direction(self, gradient: Tensor, server: State, client: State) -> Tensor | None:
        """``alpha g + (1 - alpha) D``."""
        if self.alpha == 1 or "direction" not in server:
            return None
        return self.alpha * gradient + (1 - self.alpha) * server["direction"]

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """Upload the update and a_i."""
        return client, {
            "update": trace.update,
            "effective_steps": torch.tensor(trace.effective_steps, dtype=torch.float64),
        }

    def combine(
        self, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Combined, State]:
        """The mean update; ``D = mean / (lr sum p_i a_i)``."""
        mean = combined(results)
        effective = sum(p * float(r.payload["effective_steps"]) for p, r in zip(mean.shares, results, strict=True))
        return mean, {"direction": mean.update / (lr * effective)}
