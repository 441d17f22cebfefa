"""FedNTD: "Preservation of the Global Knowledge by Not-True Distillation in Federated Learning" (Lee et al., 2022)."""

from typing import Any

from ecgr.component import NonNegative, Positive, Tensor, component, torch
from ecgr.tasks.losses.cross_entropy import CrossEntropy


@component
class FedNTD:
    """Cross entropy, and beta times the distance to the global model's opinion of the classes that are not true.

    The distance is ``tau^2 KL(global, local)`` between softmaxes at temperature tau, the true class left out. One more
    forward pass a step; beta 0 is cross entropy and has none.

    >>> FedNTD(beta=0.5)
    FedNTD(beta=0.5, tau=1.0)
    """

    beta: NonNegative = 1.0
    tau: Positive = 1.0

    @property
    def needs_teacher(self) -> bool:
        """The global model's outputs are asked for unless they do not count."""
        return self.beta > 0

    @property
    def evaluation(self) -> CrossEntropy:
        """Cross entropy."""
        return CrossEntropy()

    def __call__(self, outputs: Tensor, targets: Tensor, teacher: Tensor | None = None) -> Tensor:
        """The mean over the samples."""
        hard = CrossEntropy()(outputs, targets)
        if not self.needs_teacher or teacher is None:
            return hard
        true = torch.nn.functional.one_hot(targets.long(), outputs.shape[1]).movedim(-1, 1).bool()
        local, other = (
            torch.log_softmax((each / self.tau).masked_fill(true, float("-inf")), dim=1) for each in (outputs, teacher)
        )
        distance = (other.exp() * (other - local)).masked_fill(true, 0.0).sum() / targets.numel()
        return hard + self.beta * self.tau**2 * distance

    def problem(self, targets: Any, outputs: tuple[int, ...]) -> str | None:
        """As cross entropy's."""
        return CrossEntropy().problem(targets, outputs)
