"""FedCM: "Federated Learning with Client-level Momentum" (Xu et al., 2021), in the units of a gradient."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecgr.algorithms.base import Combined, Defaults, Population, Trace, Upload, combined
from ecgr.component import PositiveFraction, State, Tensor, component, torch


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
