"""FedLC: "Federated Learning with Label Distribution Skew via Logits Calibration" (Zhang et al., 2022)."""

from ecgr.component import NonNegative, Tensor, component, torch
from ecgr.tasks.losses.class_prior import TurnedScores, Variant

LEAST = 1e-8
"""What the count of a missing class is taken for: its margin is then a hundred times tau."""


@component
class FedLC(Variant):
    """Cross entropy with a margin ``tau n_c^(-1/4)`` subtracted from every score; tau 0 is cross entropy.

    The true class stays in the denominator. As printed, without it, the loss has no lower bound.

    >>> FedLC()
    FedLC(tau=1.0)
    """

    tau: NonNegative = 1.0

    def for_client(self, class_counts: Tensor) -> TurnedScores:
        """The loss of a client with so many samples of each class."""
        counts = class_counts.double()
        return TurnedScores(torch.ones_like(counts), -self.tau * counts.clamp(min=LEAST) ** -0.25)
