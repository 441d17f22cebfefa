"""Local optimisers, made afresh by every client in every round."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from ecgr.component import Momentum, NonNegative, Positive, Tensor, component, torch
from ecgr.tables import Table

if TYPE_CHECKING:
    from torch.optim import Optimizer


class OptimizerFactory(Protocol):
    """An entry of ``OPTIMIZERS``."""

    @property
    def lr(self) -> float:
        """The learning rate of the first round; the schedule changes it by round."""
        ...

    @property
    def effective_momentum(self) -> float:
        """Heavy-ball momentum, 0 where there is none; FedNova's normaliser needs it."""
        ...

    @property
    def follows_gradient(self) -> bool:
        """Whether steps are the learning rate times gradients, so that a displacement says what these were."""
        ...

    def build(self, parameters: Iterable[Tensor], lr: float) -> "Optimizer":
        """An optimiser for one client's round."""
        ...


@component
class SGD:
    """Stochastic gradient descent with heavy-ball momentum."""

    lr: Positive = 0.001
    momentum: Momentum = 0.9
    weight_decay: NonNegative = 0.0

    @property
    def effective_momentum(self) -> float:
        """The momentum."""
        return self.momentum

    @property
    def follows_gradient(self) -> bool:
        """Yes."""
        return True

    def build(self, parameters: Iterable[Tensor], lr: float) -> "Optimizer":
        """An optimiser for one client's round."""
        from ecgr.config.lean_sgd import LeanSGD  # loads torch

        decay = self.weight_decay
        return LeanSGD(parameters, lr=lr, momentum=self.momentum, weight_decay=decay, foreach=True)


@component
class AdamW:
    """Adam with decoupled weight decay."""

    lr: Positive = 0.001
    weight_decay: NonNegative = 0.01

    @property
    def effective_momentum(self) -> float:
        """Not heavy-ball: none."""
        return 0.0

    @property
    def follows_gradient(self) -> bool:
        """Its steps are about as long as the learning rate, whatever the gradient."""
        return False

    def build(self, parameters: Iterable[Tensor], lr: float) -> "Optimizer":
        """An optimiser for one client's round."""
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=self.weight_decay)


OPTIMIZERS: Table[OptimizerFactory] = Table("optimizer", "optimizers", {"sgd": SGD, "adamw": AdamW})
