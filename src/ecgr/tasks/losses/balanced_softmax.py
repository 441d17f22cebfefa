"""Balanced softmax: "Balanced Meta-Softmax for Long-Tailed Visual Recognition" (Ren et al., 2020), by client."""

from ecgr.component import Fraction, NonNegative, Tensor, component, torch
from ecgr.tasks.losses.class_prior import TurnedScores, Variant


@component
class BalancedSoftmax(Variant):
    """Cross entropy of the scores plus tau times the log of the client's class shares; tau 0 is cross entropy.

    A class that a client lacks counts as ``floor`` of an equal share, or its score would have no gradient at all.

    >>> BalancedSoftmax(tau=0.5)
    BalancedSoftmax(tau=0.5, floor=0.05)
    """

    tau: NonNegative = 1.0
    floor: Fraction = 0.05

    def for_client(self, class_counts: Tensor) -> TurnedScores:
        """The loss of a client with so many samples of each class."""
        shares = class_counts.double() / class_counts.sum()
        least = max(self.floor / len(shares), 1e-12)  # a share of zero has no logarithm
        return TurnedScores(torch.ones_like(shares), self.tau * shares.clamp(min=least).log())
