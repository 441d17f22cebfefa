"""Averaging: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al., 2017)."""

from ecgr.algorithms.defaults import RuleDefaults
from ecgr.algorithms.protocol import Combined
from ecgr.component import Positive, State, Tensor, component


@component
class Average(RuleDefaults):
    """Step by lr times the mean update.

    >>> Average(lr=1.5)
    Average(lr=1.5)
    """

    lr: Positive = 1.0

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        """``w - lr u``."""
        return params - self.lr * combined.update, state
