"""Local optimisers, made anew by every client in every round, and the learning rate by round."""

from collections.abc import Iterable
from math import cos, inf, pi
from typing import TYPE_CHECKING, ClassVar, Protocol

from ecgr.component import Count, Fraction, Momentum, NonNegative, Positive, Tensor, component, torch
from ecgr.tables import Table

if TYPE_CHECKING:
    from torch.optim import Optimizer


class OptimizerFactory(Protocol):
    """An entry of ``OPTIMIZERS``.

    One may say that it ``follows_gradient``: its steps are the learning rate times gradients, so that a displacement
    says what these were.
    """

    @property
    def lr(self) -> float:
        """The learning rate of the first round; the schedule changes it by round."""
        ...

    @property
    def effective_momentum(self) -> float:
        """Heavy-ball momentum, 0 where there is none; FedNova's normaliser needs it."""
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

    follows_gradient: ClassVar[bool] = True

    @property
    def effective_momentum(self) -> float:
        return self.momentum

    def build(self, parameters: Iterable[Tensor], lr: float) -> "Optimizer":
        from ecgr.config.lean_sgd import LeanSGD  # loads torch

        decay = self.weight_decay
        return LeanSGD(parameters, lr=lr, momentum=self.momentum, weight_decay=decay, foreach=True)


@component
class AdamW:
    """Adam with decoupled weight decay."""

    lr: Positive = 0.001
    weight_decay: NonNegative = 0.01

    effective_momentum: ClassVar[float] = 0.0
    follows_gradient: ClassVar[bool] = False  # its steps are about as long as the learning rate, whatever the gradient

    def build(self, parameters: Iterable[Tensor], lr: float) -> "Optimizer":
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=self.weight_decay)


OPTIMIZERS: Table[OptimizerFactory] = Table("optimizer", "optimizers", {"sgd": SGD, "adamw": AdamW})


class Schedule(Protocol):
    """An entry of ``SCHEDULES``: a pure function of the round."""

    def factor_at(self, round_index: int, rounds: int) -> float:
        """What the first learning rate is multiplied by in round ``round_index`` (from 0) of ``rounds``."""
        ...


@component
class Constant:
    """The same learning rate in every round."""

    def factor_at(self, round_index: int, rounds: int) -> float:
        return 1.0


@component
class Step:
    """Multiply the learning rate by `factor` every `every` rounds, first in round `first` (from 0).

    >>> [Step(every=10).factor_at(t, 100) for t in (0, 9, 10, 20)]
    [1.0, 1.0, 0.5, 0.25]
    >>> [Step(every=10, first=9).factor_at(t, 100) for t in (8, 9, 18, 19)]
    [1.0, 0.5, 0.5, 0.25]
    """

    every: Count = 10
    factor: Positive = 0.5
    first: Count | None = None

    def factor_at(self, round_index: int, rounds: int) -> float:
        first = self.every if self.first is None else self.first
        drops = max(0, (round_index - first) // self.every + 1)
        try:
            return float(self.factor**drops)
        except OverflowError:  # a factor above 1, many times: the updates will say so themselves
            return inf


@component
class Cosine:
    """Half a cosine from the first learning rate towards `floor` times it.

    >>> [round(Cosine().factor_at(t, 4), 3) for t in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """

    floor: Fraction = 0.0

    def factor_at(self, round_index: int, rounds: int) -> float:
        return self.floor + (1 - self.floor) * (1 + cos(pi * round_index / rounds)) / 2


CONSTANT_RATE = "constant"
SCHEDULES: Table[Schedule] = Table("schedule", "schedules", {CONSTANT_RATE: Constant, "step": Step, "cosine": Cosine})
