"""FedRS: "Federated Learning with Restricted Softmax for Label Distribution Non-IID Data" (Li and Zhan, 2021)."""

from typing import Literal

from ecgr.component import Fraction, Tensor, component, torch
from ecgr.tasks.losses.class_prior import TurnedScores, Variant


@component
class FedRS(Variant):
    """Cross entropy with the scores of classes that a client lacks multiplied by alpha; alpha 1 is cross entropy.

    ``form = "missing"`` is the paper's; ``"counts"`` the official code's, which multiplies every class by
    ``alpha + (1 - alpha) n_c / max n``.

    >>> FedRS(form="counts")
    FedRS(alpha=0.5, form='counts')
    """

    alpha: Fraction = 0.5
    form: Literal["missing", "counts"] = "missing"

    def for_client(self, class_counts: Tensor) -> TurnedScores:
        """The loss of a client with so many samples of each class."""
        counts = class_counts.double()
        there = (counts > 0).double() if self.form == "missing" else counts / counts.max()
        return TurnedScores(self.alpha + (1 - self.alpha) * there, torch.zeros_like(counts))
