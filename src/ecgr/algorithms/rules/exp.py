"""FedExP: "Speeding Up Federated Averaging via Extrapolation" (Jhunjhunwala et al., 2023)."""

from math import isfinite

from ecgr.algorithms.protocol import Combined
from ecgr.component import Positive, State, Tensor, component, torch


@component
class Extrapolation:
    """Lengthen the step where the clients' updates are long beside their mean, and hand out the last two's mean.

    ``epsilon`` is for the first round's learning rate and follows its square: a constant would switch the rule off as
    the learning rate decays. It is added once, as the paper prints; the official code adds it once a client. With a
    huge epsilon and ``average = false`` this is averaging.

    >>> Extrapolation()
    Extrapolation(lr=1.0, epsilon=0.001, average=True)
    """

    lr: Positive = 1.0
    epsilon: Positive = 1e-3
    average: bool = True

    def init(self, params: Tensor) -> State:
        """No learning rate yet; the last iterate is the first."""
        return {"first_lr": torch.zeros((), dtype=torch.float64), "previous": params.clone()}

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        """``s = max(1, sum p_i |u_i|^2 / (2 (|u|^2 + eps)))``, ``w - lr s u``."""
        first = float(state["first_lr"]) or lr
        epsilon = self.epsilon * (lr / first) ** 2
        square = float(torch.linalg.vector_norm(combined.update, dtype=torch.float64)) ** 2
        ratio = combined.mean_norm(power=2) / (2 * (square + epsilon))
        stretch = max(1.0, ratio) if isfinite(ratio) else 1.0
        after = params - (self.lr * stretch) * combined.update
        return after, {"first_lr": torch.tensor(first, dtype=torch.float64), "previous": params}

    def served(self, params: Tensor, state: State) -> Tensor:
        """The mean of the last two iterates."""
        return (params + state["previous"]) / 2 if self.average else params
